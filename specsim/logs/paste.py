"""Marks of a chat paste: labels such as ``with eagle:``, fences and comments between two runs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_LABEL = re.compile(
    rb"[\s>#*_`-]{0,8}((?:with|without|baseline|before|after|no[ -]spec|eagle|mtp|nextn|spec|"
    rb"top-?k|v[12]|run|config|server|setup|case|old|new|on|off|tp ?=|draft)\b[^\[\]{}|\"]{0,60}?)"
    rb"[:*_`]{0,4}\s*",
    re.IGNORECASE,
)
_HEADING = re.compile(
    rb"\s{0,3}(?:(?P<level>#{1,6})[ \t]+(?P<text>[^#\n].{0,199}?)#{0,6}"
    rb"|(?P<bold>\*\*|__)(?P<strong>[^*_\n][^*\n]{0,199}?)[:.]?(?P=bold)[:.]?"
    rb"|={2,8} (?P<ruled>[^=\n]{1,100}) ={2,8})\s*"
)
_LOAD = re.compile(
    r"(?:concurrency|clients?|users|batch(?: size)?|bs|c|n|(?:request )?rate|qps|rps|run|pass"
    r"|trial|round|results?|output|log)\W{0,3}[\d.]{0,8}"
    r"|[\d.]{1,8} (?:clients?|users?|concurrent.*|req.*)",
    re.IGNORECASE,
)
"""Headings of one load of a server, which do not name it."""
_LINE_STARTS = frozenset(bytes([c]) for c in b"[0123456789")
_LONGEST = 100


def label_of(line: bytes) -> str:
    r"""Return the label that a line is; empty if it is none.

    >>> label_of(b"with eagle:\n"), label_of(b"[2026-01-01] with eagle")
    ('with eagle', '')
    """
    if line[:1] in _LINE_STARTS or len(line) > _LONGEST or line.lstrip()[:2] == b"--":
        return ""  # a flag of a command is none
    found = _LABEL.fullmatch(line)
    return found[1].decode("utf-8", "replace").strip() if found else ""


@dataclass(slots=True)
class Headings:
    r"""The headings above a place of a text: markdown's, bold lines, ``== titles ==``.

    Examples
    --------
    >>> above = Headings()
    >>> for line in (b"# Results\n", b"## org/m, FP8\n", b"### concurrency 8\n"):
    ...     _ = above.read(line)
    >>> above.label
    'org/m, FP8'
    """

    texts: dict[int, str] = field(default_factory=dict)  # by level
    fenced: bool = False

    def read(self, line: bytes) -> bool:
        """Read a line; return whether it is a heading."""
        if line.lstrip()[:3] == b"```":
            self.fenced = not self.fenced
        found = _HEADING.fullmatch(line) if len(line) < 2 * _LONGEST else None
        if found is None or (found["level"] and self.fenced):  # a comment of a shell
            return False
        level = len(found["level"] or b"#######")
        self.texts = {of: text for of, text in self.texts.items() if of < level}
        raw = found["text"] or found["strong"] or found["ruled"]
        self.texts[level] = raw.decode("utf-8", "replace").strip(" *_`:")
        return True

    @property
    def label(self) -> str:
        """Those that may name a server; the title of the whole page only if it is alone."""
        named = {level: t for level, t in self.texts.items() if t and not _LOAD.fullmatch(t)}
        below = [text for level, text in sorted(named.items()) if level > 1]
        return ", ".join(below or named.values())


def separates(line: bytes) -> bool:
    """Whether a line may stand between two runs: a comment or a fence."""
    return line[:1] == b"#" or line.lstrip()[:3] == b"```"
