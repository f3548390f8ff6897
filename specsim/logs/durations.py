"""Durations counted online, in constant memory; and what profiles call steps and all-reduces."""

import math
import re
from dataclasses import dataclass, field
from itertools import accumulate

from specsim.logs.entry import Timing
from specsim.logs.formats import listed

_STEP = 0.01  # width of a bin, natural log: quantiles are within 0.5 %
OUTLIER = 2.5  # durations further than this factor from the median are stalls


@dataclass(slots=True)
class Durations:
    """Positive durations, seconds.

    >>> d = Durations()
    >>> for x in (1.0, 1.0, 9.0):
    ...     d.add(x)
    >>> d.count, round(d.quantile(0.5), 2), round(d.typical, 2)
    (3, 1.0, 1.0)
    """

    count: int = 0
    _bins: dict[int, list[float]] = field(default_factory=dict)

    def add(self, seconds: float) -> None:
        """Add one duration; what is not positive and finite is the caller's to refuse."""
        key = round(math.log(seconds) / _STEP)
        self.count += 1
        found = self._bins.get(key)
        if found is None:
            self._bins[key] = [1, seconds]
        else:
            found[0] += 1
            found[1] += seconds

    def quantile(self, q: float) -> float:
        """Return the `q` quantile: the mean of the bin in which it lies."""
        count, total = self._bins[self._key(q)]
        return total / count

    @property
    def typical(self) -> float:
        """Mean without stalls: of what lies within a factor of `OUTLIER` around the median."""
        middle, reach = self._key(0.5), math.log(OUTLIER) / _STEP
        near = [b for k, b in self._bins.items() if abs(k - middle) <= reach]
        return sum(b[1] for b in near) / sum(b[0] for b in near)

    def _key(self, q: float) -> int:
        keys = sorted(self._bins)
        below = accumulate(self._bins[key][0] for key in keys)
        return next(key for key, n in zip(keys, below, strict=True) if n >= q * self.count)


STEP, ALLREDUCE = (re.compile(listed("profiles", name)) for name in ("step", "allreduce"))


def step_of(name: str) -> tuple[str, int] | None:
    """Return phase and batch of SGLang's name of a step; None if it is none.

    >>> step_of("step[TARGET_VERIFY bs=16]")
    ('verify', 16)
    """
    found = STEP.fullmatch(name)
    known = listed("profiles", "phases")
    return (known.get(found[1], found[1].lower()), int(found[2])) if found else None


def kernel_phase(name: str) -> str:
    """Return the phase of a kernel by itself: ``allreduce`` or ``kernel``."""
    return "allreduce" if ALLREDUCE.search(name) else "kernel"


def timing(
    phase: str,
    durations: Durations,
    name: str,
    batch_size: int | None = None,
    rank: int | None = None,
) -> Timing:
    """Return the median; of an all-reduce the lower decile: a kernel also waits for its peers."""
    seconds = durations.quantile(0.1 if phase == "allreduce" else 0.5)
    return Timing(phase, seconds, durations.count, batch_size, rank=rank, name=name)
