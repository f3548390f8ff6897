"""Durations counted online: mean, least and quantiles in constant memory."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

_STEP = 0.01
"""Width of a bin, natural log: quantiles are within 0.5 %."""
OUTLIER = 2.5
"""Durations further than this factor from the median are stalls, not the typical round."""


@dataclass(slots=True)
class Durations:
    """Positive durations, seconds.

    Examples
    --------
    >>> d = Durations()
    >>> for x in (1.0, 1.0, 9.0):
    ...     d.add(x)
    >>> d.count, round(d.quantile(0.5), 2), round(d.typical, 2)
    (3, 1.0, 1.0)
    """

    count: int = 0
    total: float = 0.0
    least: float = math.inf
    _bins: Counter[int] = field(default_factory=Counter)
    _sums: dict[int, float] = field(default_factory=dict)

    def add(self, seconds: float) -> None:
        """Count one duration; what is not positive and finite is the caller's to refuse."""
        key = round(math.log(seconds) / _STEP)
        self.count += 1
        self.total += seconds
        self.least = min(self.least, seconds)
        self._bins[key] += 1
        self._sums[key] = self._sums.get(key, 0.0) + seconds

    @property
    def mean(self) -> float:
        """Mean, seconds."""
        return self.total / self.count

    def quantile(self, q: float) -> float:
        """Return the `q` quantile: the mean of the bin in which it lies."""
        key = self._key(q)
        return self._sums[key] / self._bins[key]

    @property
    def typical(self) -> float:
        """Mean without stalls: of what lies within a factor of `OUTLIER` around the median."""
        middle, reach = self._key(0.5), math.log(OUTLIER) / _STEP
        near = [k for k in self._bins if abs(k - middle) <= reach]
        return sum(self._sums[k] for k in near) / sum(self._bins[k] for k in near)

    def _key(self, q: float) -> int:
        below = 0
        for key in sorted(self._bins):
            below += self._bins[key]
            if below >= q * self.count:
                return key
        return max(self._bins)
