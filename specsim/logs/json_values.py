"""JSON values out of a stream of lines: one per line, or spread over lines, comments between."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from specsim.logs.unread import Unread

MAX_VALUE_BYTES = 64 << 20  # a longer value is not read: no benchmark result is that long
LONG_BYTES = 1 << 14  # objects longer than this may carry details of each request
MAX_WHOLE = 1e15  # no benchmark counts further; from here on floats skip whole numbers


def json_values(
    lines: Iterable[bytes], details: re.Pattern[bytes] | None = None
) -> Iterator[Any | Unread]:
    """Yield the top-level values of JSON, JSON lines or indented JSON.

    Lines that begin with ``#`` and text around the values are passed over. A value that is cut
    short or damaged gives an :class:`Unread`. Of a long one-line object the tail from `details` on
    is cut off unread.
    """
    stream = iter(lines)
    for line in stream:
        text = line.strip()
        start = _value_start(text)
        if start is None:
            continue
        value = _load(_without_tail(text[start:], details))
        if value is not None:
            yield value
        elif text[start:] in (b"{", b"[") or not text.endswith((b"}", b"]")):
            yield _indented(text[start:], stream)
        else:
            yield Unread("damaged JSON")


def _without_tail(text: bytes, details: re.Pattern[bytes] | None) -> bytes:
    if details is None or len(text) < LONG_BYTES or not text.endswith(b"}"):
        return text
    tail = details.search(text)
    return text[: tail.start()] + b"}" if tail else text


def _value_start(text: bytes) -> int | None:
    """Where a value may begin; a log prefix before it is passed over."""
    if not text or text[:1] == b"#":
        return None
    if text[:1] in b"{[":
        return 0
    start = text.find(b'{"')
    if start < 0 and text.endswith(b": {"):
        return len(text) - 1  # a label before an indented value
    return start if start >= 0 else None


def _indented(first: bytes, lines: Iterator[bytes]) -> Any | Unread:
    """Read on to the closing bracket that stands at the margin."""
    closing = b"}" if first[:1] == b"{" else b"]"
    parts, size = [first], len(first)
    for line in lines:
        parts.append(line)
        size += len(line)
        if size > MAX_VALUE_BYTES:
            return Unread("JSON value too long")
        if line.rstrip(b" \t\r\n,") == closing:
            value = _load(b"".join(parts))
            return Unread("damaged JSON") if value is None else value
    # A value that is spread otherwise may still be whole.
    value = _load(b"".join(parts))
    return Unread("truncated") if value is None else value


def _load(text: bytes) -> Any | None:
    """Return the object or list at the start of a text, None if there is no whole one."""
    if len(text) > MAX_VALUE_BYTES:
        return None
    value = loaded(text.decode("utf-8", "replace"))
    return value if isinstance(value, dict | list) else None


def loaded(text: str) -> Any | None:
    """Return the JSON value at the start of a text, None if there is no whole one."""
    try:
        value, end = json.JSONDecoder(object_pairs_hook=_object).raw_decode(text)
    except (ValueError, RecursionError):
        return None
    rest = text[end:].strip(" \t\r\n,`;")
    return value if not rest or rest.startswith("#") else None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object in which a key comes twice: two records were written into one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key comes twice")
    return found


def number(record: Mapping[str, Any], key: str) -> float | None:
    """Return a finite number of a record; None if it is missing or is none.

    >>> number({"a": 1, "b": True, "c": float("inf")}, "a")
    1.0
    """
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        real = float(value)
    except OverflowError:
        return None
    return real if math.isfinite(real) else None


def whole(record: Mapping[str, Any], key: str) -> int | None:
    """Return a count of a record; None if it is missing, negative or no whole number.

    >>> whole({"a": 12.0, "b": 1.2}, "a"), whole({"a": 12.0, "b": 1.2}, "b")
    (12, None)
    """
    value = number(record, key)
    return int(value) if value is not None and 0 <= value <= MAX_WHOLE and value % 1 == 0 else None


def text(record: Mapping[str, Any], key: str) -> str | None:
    """Return a text of a record; None if it is missing or is none."""
    value = record.get(key)
    return value if isinstance(value, str) else None


def table(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object of a record; an empty one if it is missing or is none."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}
