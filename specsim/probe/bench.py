"""The bench that all is measured on: stopwatch, random tensors, memory, time limits, medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specsim.probe.device import DTYPES, free_bytes, import_torch
from specsim.probe.document import Device, Dtype

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Step = Callable[[], object]

MOST_REPEATS, LEAST_REPEATS = 40, 3
WARM_UPS = 3
COVER_BYTES = 256e6
"""Written before each timed run: it clears the L2, and while it runs (60-100 us) the host gets
ahead, so that the launch of a graph is not in its time."""
BLOCK = 1 << 20  # random numbers that are drawn; larger tensors repeat them
WEIGHT_SD = 0.02


class Timer:
    """A stopwatch of one device: here the wall clock, and the step runs as it is."""

    def __init__(self) -> None:
        self.graphs = False  # whether every step so far ran as a CUDA graph
        self.notes: list[str] = []  # what could not, and why

    def prepare(self, step: Step) -> Step:
        """Warm a step up and return what runs it: the step itself, or a captured graph."""
        step()
        return step

    def times(self, steps: Sequence[Step], repeats: int) -> list[list[float]]:
        """Run prepared steps in turn, `repeats` times; seconds by step."""
        found: list[list[float]] = [[] for _ in steps]
        for _ in range(repeats):
            for step, times in zip(steps, found, strict=True):
                began = time.perf_counter()
                step()
                times.append(time.perf_counter() - began)
        return found


class CudaTimer(Timer):
    """CUDA events around replays of captured graphs."""

    def __init__(self, device: torch.device, cache_bytes: float) -> None:
        super().__init__()
        self.graphs = True
        self._torch = torch = import_torch()
        self._device = device
        size = int(max(COVER_BYTES, 2 * cache_bytes))
        self._cover = torch.empty(size, dtype=torch.uint8, device=device)

    def prepare(self, step: Step) -> Step:
        """Warm up on a side stream and capture; the step itself where that fails."""
        torch, device = self._torch, self._device
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                step()
        torch.cuda.current_stream(device).wait_stream(side)
        torch.cuda.synchronize(device)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                step()
        except RuntimeError as error:
            torch.cuda.synchronize(device)
            self.graphs = False
            self.notes.append(f"no CUDA graph: {str(error).splitlines()[0][:120]}")
            return step
        replay: Step = graph.replay
        return replay

    def times(self, steps: Sequence[Step], repeats: int) -> list[list[float]]:
        """Run the steps in turn, each after a write that clears the cache; seconds by step."""
        torch = self._torch
        marks: list[list[tuple[Any, Any]]] = [[] for _ in steps]
        for turn in range(repeats):
            for step, pairs in zip(steps, marks, strict=True):
                self._cover.fill_(turn % 251)
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                step()
                end.record()
                pairs.append((begin, end))
        torch.cuda.synchronize(self._device)
        return [[begin.elapsed_time(end) * 1e-3 for begin, end in pairs] for pairs in marks]


def timer_of(device: torch.device, cache_bytes: float) -> Timer:
    """Return the stopwatch of a device with such a cache."""
    return CudaTimer(device, cache_bytes) if device.type == "cuda" else Timer()


class Filler:
    """Makes tensors of random numbers, quickly: one random block, repeated."""

    def __init__(self, device: torch.device, dtype: torch.dtype, seed: int) -> None:
        torch = import_torch()
        self._torch, self.device, self.dtype = torch, device, dtype
        generator = torch.Generator().manual_seed(seed)
        block = torch.randn(BLOCK, generator=generator) * WEIGHT_SD
        self._block = block.to(device=device, dtype=dtype)

    def __call__(self, *shape: int) -> Tensor:
        """Return a tensor of that shape."""
        result: Tensor = self._torch.empty(shape, dtype=self.dtype, device=self.device)
        flat = result.view(-1)
        whole = flat.numel() // BLOCK * BLOCK
        flat[:whole].view(-1, BLOCK).copy_(self._block.expand(whole // BLOCK, BLOCK))
        flat[whole:].copy_(self._block[: flat.numel() - whole])
        return result


@dataclass(frozen=True, slots=True)
class Bench:
    """A device with a stopwatch, a source of tensors, and how much memory may be taken."""

    device: torch.device
    timer: Timer
    fill: Filler
    number_bytes: int  # of a weight, an activation and a cached number
    memory_bytes: float
    cache_bytes: float  # last level

    @classmethod
    def of(
        cls, device: torch.device, about: Device, dtype: Dtype, memory: float | None, seed: int
    ) -> Bench:
        """Set up a device; without a bound, most of the free memory may be taken."""
        free, cache = free_bytes(device), about.cache_bytes
        fill = Filler(device, getattr(import_torch(), DTYPES[dtype]), seed)
        memory = free if memory is None else min(free, memory)
        return cls(device, timer_of(device, cache), fill, fill.dtype.itemsize, memory, cache)


class Deadline:
    """A point in time that work must not pass, so many seconds from now."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._end = self._began + seconds

    @property
    def left_s(self) -> float:
        """Seconds that are left, not below zero."""
        return max(0.0, self._end - self._clock())

    @property
    def spent_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._began

    def share(self, fraction: float) -> Deadline:
        """Return a deadline after this share of what is left."""
        return Deadline(fraction * self.left_s, self._clock)

    def parts(self, count: int) -> Iterator[Deadline]:
        """Yield deadlines for so many parts: what one does not use the next ones have."""
        for left in range(count, 0, -1):
            yield self.share(1.0 / left)


@dataclass(frozen=True, slots=True)
class Sample:
    """Times of one step."""

    seconds: float  # median
    error: float  # standard error of the median over the median, from the quartiles
    repeats: int

    @classmethod
    def of(cls, times: Sequence[float]) -> Sample:
        """Summarise times, seconds.

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
    """Time steps, not yet prepared, in turn, so that a drifting clock touches all alike.

    The first round tells how long one takes; as many follow as fit into `seconds`, at least three
    if a round takes less than all of it, and at most `MOST_REPEATS`.
    """
    ready = [timer.prepare(step) for step in steps]
    first = timer.times(ready, 1)
    once = sum(times[0] for times in first)
    if once >= seconds:
        return [Sample.of(times) for times in first]
    repeats = min(MOST_REPEATS, max(LEAST_REPEATS, int(seconds / max(once, 1e-9))))
    return [Sample.of(times) for times in timer.times(ready, repeats)]


def affordable(tokens: int, done: Sequence[tuple[int, float]], left_s: float) -> bool:
    """Whether a warm-up and a run of a point fit into the time that is left.

    A step on more tokens than the nearest one below is taken to need a quarter of what its
    tokens ask for: between a step bound by memory and one bound by products. `done` has (tokens,
    seconds of one round) of the points that were timed.

    >>> affordable(64, [(1, 0.1), (16, 0.4)], 1.0), affordable(1024, [(1, 0.1)], 30.0)
    (True, False)
    """
    if left_s <= 0 or not done:
        return left_s > 0
    below = [pair for pair in done if pair[0] <= tokens]
    near, seconds = max(below) if below else min(done)
    return 2.0 * seconds * max(1.0, tokens / near / 4) <= left_s
