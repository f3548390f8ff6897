"""Printed values -> numpy columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@lru_cache(1 << 14)
def _number(text: bytes) -> float:
    """Convert once: logs repeat most of their numbers."""
    return float(text or b"nan")


def floats(texts: Sequence[bytes]) -> NDArray[np.float64]:
    """Convert decimal texts; an empty one is NaN.

    >>> floats([b"1.50", b""])
    array([1.5, nan])
    """
    return np.array(list(map(_number, texts)), dtype=np.float64)


def seconds(stamps: Sequence[bytes] | NDArray[np.bytes_]) -> NDArray[np.float64]:
    """Convert ``YYYY-MM-DD HH:MM:SS`` to seconds since 1970; NaN for what is no time.

    >>> seconds([b"1970-01-02 00:00:01", b"1970-99-02 00:00:01"])
    array([86401.,    nan])
    """
    texts = np.array(stamps, dtype="S20") if len(stamps) else np.zeros(0, dtype="S20")
    chars = texts.view(np.uint8).reshape(-1, 20)
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
