"""Printed values -> numpy columns."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from specsim.arrays import Floats

_WORDS = {b"": np.nan, b"True": 1.0, b"False": 0.0}

FEW = 64
"""Columns that repeat so few texts are converted by looking them up."""


def floats(texts: Sequence[bytes]) -> Floats:
    """Convert decimal texts and truth values; an empty one is NaN.

    >>> floats([b"1.50", b"True", b""])
    array([1.5, 1. , nan])
    """
    if len(texts) > FEW and texts[0] == texts[-1] and len(known := set(texts)) <= FEW:
        value = {t: _WORDS[t] if t in _WORDS else float(t) for t in known}
        return np.fromiter(map(value.__getitem__, texts), np.float64, len(texts))
    try:
        return np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        values = (_WORDS[t] if t in _WORDS else float(t) for t in texts)
        return np.fromiter(values, np.float64, len(texts))


def seconds(stamps: Sequence[bytes]) -> Floats:
    """Convert ``YYYY-MM-DD HH:MM:SS`` to seconds since 1970; NaN for what is no time.

    >>> seconds([b"1970-01-02 00:00:01", b"1970-99-02 00:00:01"])
    array([86401.,    nan])
    """
    chars = np.array([*stamps, b""], dtype="S20").view(np.uint8).reshape(-1, 20)[:-1]
    digits = chars[:, _DIGITS] - np.uint8(48)
    good = (digits < 10).all(axis=1) & (chars[:, _MARKS] == _MARK_CHARS).all(axis=1)
    good &= ((chars[:, 10] == 32) | (chars[:, 10] == 84)) & (chars[:, 19] == 0)
    pairs = digits.astype(np.int64).reshape(-1, 7, 2) @ np.array([10, 1])
    century, year, month, day, hour, minute, second = pairs.T
    good &= (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (hour < 24)
    months = (century * 100 + year - 1970) * 12 + month - 1
    days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + day - 1
    value = ((days * 24 + hour) * 60 + minute) * 60 + second
    return np.where(good, value, np.nan)


_DIGITS = [0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18]
_MARKS = [4, 7, 13, 16]
_MARK_CHARS = np.frombuffer(b"--::", dtype=np.uint8)


def runs_back(stamp: bytes, before: bytes, by_s: float) -> bool:
    """Whether a printed time lies more than `by_s` seconds before another.

    >>> runs_back(b"2026-01-01 00:00:00", b"2026-01-01 01:00:00", 60)
    True
    """
    if not stamp or stamp >= before or stamp[:16] == before[:16]:  # as text, which sorts like time
        return False
    now, then = seconds([stamp, before])
    return bool(then - now > by_s)


def in_order(stamps: Sequence[bytes], by_s: float) -> Iterator[slice]:
    """Yield parts of successive lines in none of which time runs back.

    >>> list(in_order([b"2026-01-01 01:00:00", b"2026-01-01 00:00:00"], 60))
    [slice(0, 1, None), slice(1, 2, None)]
    """
    begun = 0
    for at, (before, now) in enumerate(pairwise(stamps), 1):
        if now < before and runs_back(now, before, by_s):
            yield slice(begun, at)
            begun = at
    yield slice(begun, len(stamps))
