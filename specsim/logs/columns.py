"""What lines print -> numpy columns: numbers, times, and the data-parallel rank that each is of."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from specsim.arrays import Floats, Ints

_WORDS = {b"": np.nan, b"True": 1.0, b"False": 0.0}

FEW = 64  # columns that repeat so few texts are converted by looking them up


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


NO_RANK, DUPLICATE = -2, -1
"""Marks of lines that belong to no window: no rank among ranks, or a rank's second copy."""

MAX_NAMES = 4096
MAX_RANKS = 1024  # bounds on what damaged prefixes can make up
REGULAR = 0.25
"""A rank with fewer lines than this fraction of the busiest one's is not missed when absent."""
GROUP_SPAN_S = 20.0  # lines of ranks further apart than this are not of one window

Rank = int | None
ParseRank = Callable[[bytes], tuple[Rank, tuple[Rank, ...]]]


def group_starts(slots: Ints, time_s: Floats, ranks: int) -> Ints:
    """Return where each window of several ranks begins: a group ends where a rank comes again.

    By the index of the rank of each line and its print time, NaN if unknown.

    >>> group_starts(np.array([0, 1, 0, 1]), np.array([0.0, 0.0, 1.0, 1.0]), 2)
    array([0, 2])
    """
    if ranks <= 1:
        return np.arange(len(slots))
    starts: list[int] = []
    seen, begun = 0, 0.0
    for i, (slot, now) in enumerate(zip(slots.tolist(), time_s.tolist(), strict=True)):
        bit = 1 << slot
        if not starts or seen & bit or now - begun > GROUP_SPAN_S:
            starts.append(i)
            seen, begun = 0, now
        seen |= bit
    return np.array(starts, dtype=np.int64)


class RankTable:
    """Data-parallel ranks of one server, as the prefixes of its lines name them.

    `parse` returns (data-parallel rank or None, ranks of other kinds) of a name. Lines that differ
    in the other kinds only are copies of each other: those of the first one seen count.
    """

    def __init__(self, parse: ParseRank) -> None:
        self._parse = parse
        self._first: dict[Rank, tuple[Rank, ...]] = {}
        self._names: dict[bytes, tuple[Rank, bool]] = {}
        self._lines: Counter[Rank] = Counter()

    @property
    def named(self) -> list[Rank]:
        """Ranks seen; one without a name if no line names one."""
        return [dp for dp in self._first if dp is not None] or [None]

    @property
    def expected(self) -> int:
        """Ranks that a window must have: those that print about as often as the busiest one.

        A rank that is idle prints nothing, and is not missed.
        """
        regular = REGULAR * max(self._lines[dp] for dp in self.named)
        return sum(self._lines[dp] >= regular for dp in self.named)

    @property
    def alone(self) -> int:
        """Number of the only rank if others must exist; 0 if none need to."""
        return (self.named[0] or 0) if len(self.named) == 1 else 0

    def see(self, name: bytes) -> None:
        """Learn the rank of a line that could not be read."""
        if name not in self._names:
            self._learn(name)
            dp, _ = self._names.get(name, (None, False))
            self._lines[dp] += 1

    def slots(self, names: Sequence[bytes]) -> Ints:
        """Return the index of the rank of each line, `NO_RANK` or `DUPLICATE`."""
        for name in dict.fromkeys(names):
            if name not in self._names:
                self._learn(name)
        index = {dp: i for i, dp in enumerate(self.named)}
        of_name = {
            name: DUPLICATE if double else index.get(dp, NO_RANK)
            for name, (dp, double) in self._names.items()
        }
        unknown = index.get(None, NO_RANK)
        found = np.array([of_name.get(name, unknown) for name in names], dtype=np.int64)
        for dp, i in index.items():
            self._lines[dp] += int((found == i).sum())
        return found

    def _learn(self, name: bytes) -> None:
        dp, others = self._parse(name)
        silent = dp is None and all(o is None for o in others)
        if silent or len(self._names) >= MAX_NAMES or len(self._first) >= MAX_RANKS:
            return
        first = self._first.setdefault(dp, others)
        pairs = zip(others, first, strict=True)
        double = any(o is not None and f is not None and o != f for o, f in pairs)
        self._names[name] = (dp, double)
