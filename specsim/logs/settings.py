"""How settings are written, in logs and by specsim."""

import re
import warnings
from ast import literal_eval

from specsim.setting import NO_SPECULATION, algorithm_name, chain_settings

__all__ = ["NO_SPECULATION", "algorithm_name", "chain_settings", "literal", "stated"]

_WORDS: dict[str, object] = {"None": None, "True": True, "False": False}
_WHOLE = re.compile(r"-?\d+")
_REAL = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def literal(value: bytes) -> object:
    """Return a value as Python prints it.

    >>> literal(b"'fp8'"), literal(b"0.88"), literal(b"None"), literal(b"auto")
    ('fp8', 0.88, None, 'auto')
    """
    text = value.decode("utf-8", "replace")
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _REAL.fullmatch(text):
        return float(text)
    return text[1:-1] if text[:1] in ("'", '"') else text


def stated(found: re.Match[bytes] | None) -> dict[str, object]:
    """Return the settings for which the groups of a pattern are named, where they are known.

    Of a list the largest counts.

    >>> stated(re.search(rb"size: (?P<kv_tokens>[0-9,]+)", b"size: 1,024"))
    {'kv_tokens': 1024}
    """
    texts = found.groupdict() if found else {}
    values: dict[str, object] = {}
    for name, text in texts.items():
        if text and b" " in text:
            values[name] = max(map(int, text.replace(b",", b" ").split()))
        elif text and text != b"None":
            values[name] = literal(text.replace(b",", b""))
    return values


MOST_ARGUMENTS = 2**17
"""Bytes of printed arguments; no server has more."""


def printed_dict(text: bytes) -> dict[str, object] | None:
    """Return the dict that a text begins with, as Python prints it; None if it is damaged.

    >>> printed_dict(b"{'tp_size': 8} "), printed_dict(b"{'x': <object>}")
    ({'tp_size': 8}, None)
    """
    end = text.rfind(b"}", 0, MOST_ARGUMENTS) + 1
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes, in damage
            found = literal_eval(text[:end].decode())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return {str(k): v for k, v in found.items()} if isinstance(found, dict) else None
