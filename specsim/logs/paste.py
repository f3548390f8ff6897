"""Marks of a chat paste: labels such as ``with eagle:``, fences and comments between two runs."""

from __future__ import annotations

import re

_LABEL = re.compile(
    rb"[\s>#*_`-]{0,8}((?:with|without|baseline|before|after|no[ -]spec|eagle|mtp|nextn|spec|"
    rb"top-?k|v[12]|run|config|server|setup|case|old|new|on|off|tp ?=|draft)\b[^\[\]{}|\"]{0,60}?)"
    rb"[:*_`]{0,4}\s*",
    re.IGNORECASE,
)
_LINE_STARTS = frozenset(bytes([c]) for c in b"[0123456789")
_LONGEST = 100


def label_of(line: bytes) -> str:
    r"""Return the label that a line is; empty if it is none.

    >>> label_of(b"with eagle:\n"), label_of(b"[2026-01-01] with eagle")
    ('with eagle', '')
    """
    if line[:1] in _LINE_STARTS or len(line) > _LONGEST:
        return ""
    found = _LABEL.fullmatch(line)
    return found[1].decode("utf-8", "replace").strip() if found else ""


def separates(line: bytes) -> bool:
    """Whether a line may stand between two runs: a comment or a fence."""
    return line[:1] == b"#" or line.lstrip()[:3] == b"```"
