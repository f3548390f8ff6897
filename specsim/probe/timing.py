"""Time limits, repeats and medians: the logic around a stopwatch, without a device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Step = Callable[[], object]

MOST_REPEATS, LEAST_REPEATS = 40, 3


class Timer(Protocol):
    """A stopwatch of one device."""

    def prepare(self, step: Step) -> Step:
        """Warm a step up and return what runs it: a captured graph, or the step itself."""

    def times(self, steps: Sequence[Step], repeats: int) -> list[list[float]]:
        """Run prepared steps in turn, `repeats` times; seconds by step."""


class Deadline:
    """A point in time that work must not pass.

    Parameters
    ----------
    seconds
        From now.
    clock
        Seconds that never run backwards.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.began = clock()
        self.end = self.began + seconds

    @property
    def left_s(self) -> float:
        """Seconds that are left, not below zero."""
        return max(0.0, self.end - self._clock())

    @property
    def spent_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self.began

    def share(self, fraction: float) -> Deadline:
        """Return a deadline after this share of what is left."""
        return Deadline(fraction * self.left_s, self._clock)


@dataclass(frozen=True, slots=True)
class Sample:
    """Times of one step.

    Parameters
    ----------
    seconds
        Median.
    error
        Standard error of the median over the median, from the quartiles.
    repeats
        Runs.
    """

    seconds: float
    error: float
    repeats: int

    @classmethod
    def of(cls, times: Sequence[float]) -> Sample:
        """Summarise times, seconds.

        Examples
        --------
        >>> Sample.of([2.0, 1.0, 9.0, 2.0])
        Sample(seconds=2.0, error=0.46452928094885104, repeats=4)
        """
        middle = statistics.median(times)
        if len(times) < 2 or middle <= 0:
            return cls(middle, 0.0, len(times))
        low, _, high = statistics.quantiles(times, n=4, method="inclusive")
        sigma = (high - low) / 1.349
        return cls(middle, 1.2533 * sigma / middle / len(times) ** 0.5, len(times))


def sample(timer: Timer, steps: Sequence[Step], seconds: float) -> list[Sample]:
    """Time steps in turn, so that a drifting clock touches all alike.

    The first round tells how long one takes; as many follow as fit into `seconds`, at least three
    if a round takes less than all of it, and at most `MOST_REPEATS`.

    Parameters
    ----------
    timer
        Of the device.
    steps
        Not yet prepared.
    seconds
        For all of them together, the preparation included.
    """
    ready = [timer.prepare(step) for step in steps]
    first = timer.times(ready, 1)
    once = sum(times[0] for times in first)
    if once >= seconds:
        return [Sample.of(times) for times in first]
    repeats = min(MOST_REPEATS, max(LEAST_REPEATS, int(seconds / max(once, 1e-9))))
    return [Sample.of(times) for times in timer.times(ready, repeats)]


@dataclass(frozen=True, slots=True)
class Split:
    """A time over layers taken apart: per layer, and besides the layers; seconds."""

    layer_s: float
    fixed_s: float
    error: float


def split_layers(small: Sample, large: Sample, small_layers: int, layers: int) -> Split:
    """Fit time = fixed + layers x layer through two numbers of layers.

    Where noise would make one of them negative, the time is all the layers'. `error` is that of
    `layer_s`, relative.

    Examples
    --------
    >>> split_layers(Sample(5.0, 0.0, 9), Sample(9.0, 0.0, 9), 2, 4)
    Split(layer_s=2.0, fixed_s=1.0, error=0.0)
    """
    layer = (large.seconds - small.seconds) / (layers - small_layers)
    fixed = large.seconds - layers * layer
    if layer <= 0 or fixed < 0:
        return Split(large.seconds / layers, 0.0, large.error)
    noise = (large.error * large.seconds) ** 2 + (small.error * small.seconds) ** 2
    return Split(layer, fixed, noise**0.5 / (layers - small_layers) / layer)


def affordable(tokens: int, done: Sequence[tuple[int, float]], left_s: float) -> bool:
    """Whether a warm-up and a run of a point fit into the time that is left.

    A step on more tokens than the nearest one below is taken to need a quarter of what its
    tokens ask for: between a step bound by memory and one bound by products.

    Parameters
    ----------
    tokens
        Of the point.
    done
        (tokens, seconds of one round) of the points that were timed.
    left_s
        Seconds.

    Examples
    --------
    >>> affordable(64, [(1, 0.1), (16, 0.4)], 1.0), affordable(1024, [(1, 0.1)], 30.0)
    (True, False)
    """
    if left_s <= 0 or not done:
        return left_s > 0
    below = [pair for pair in done if pair[0] <= tokens]
    near, seconds = max(below) if below else min(done)
    return 2.0 * seconds * max(1.0, tokens / near / 4) <= left_s
