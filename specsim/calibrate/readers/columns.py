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
    try:
        return _seconds(stamps)
    except ValueError:
        pass
    values = np.full(len(stamps), np.nan)
    for i, stamp in enumerate(stamps):
        try:
            values[i] = _seconds([bytes(stamp)])[0]
        except ValueError:
            continue
    return values


def _seconds(stamps: Sequence[bytes] | NDArray[np.bytes_]) -> NDArray[np.float64]:
    texts = np.asarray(stamps, dtype="S19")
    if (texts.view(np.uint8).reshape(-1, 19)[:, -1] == 0).any():
        raise ValueError("not all are times")
    times = texts.astype("datetime64[s]")
    return np.asarray(times.astype(np.int64), dtype=np.float64)
