"""Windows -> moments per load level, online and in constant memory.

Windows are counted by (running requests, CUDA graph, prefill within, speed), where speed is the
throughput per request on a logarithmic scale; of each such cell only moments are kept. The speed
is a key because windows that idle time has slowed can only be told from the others at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from specsim.logs.entry import LogWindow

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats, Ints

REASONS = ("", "prefill", "ramp", "idle", "rank_missing", "duplicate_rank", "prefill")
"""Why a window's throughput is not used; the index is the code in columns."""
USED, PREFILL, RAMP, IDLE, RANK_MISSING, DUPLICATE_RANK, PREFILL_RAMP = range(len(REASONS))
"""Windows with prefill at a steady batch may still make a row of their own; a ramp never does."""

SPEED_STEP = 0.1
"""Width of a speed cell, natural log."""
RAMP_CHANGE = 0.1
"""A window over which the batch changed by more than this fraction is a ramp."""

MOMENTS = (
    *("n", "tps", "tps2", "tokens", "time", "n_al", "w", "w_al", "al", "al2"),
    *("n_queue", "queue", "n_usage", "usage", "pairs", "x", "y", "xy"),
)
_PAIRS = MOMENTS.index("pairs")
_SPEEDS = 512


@dataclass(frozen=True, slots=True)
class Windows:
    """Columns of successive windows; NaN where a line does not say.

    Parameters
    ----------
    time_s, running, queue, usage
        Print time, requests running and waiting, fraction of the KV cache in use.
    output_tps, accept_length
        Throughput and accept length (bonus included) as printed.
    weight
        Weight of the accept length: a number proportional to request-rounds.
    graph
        1 with CUDA graph, 0 without, -1 not printed.
    reason
        Index into `REASONS`.
    """

    time_s: Floats
    running: Floats
    queue: Floats
    usage: Floats
    output_tps: Floats
    accept_length: Floats
    weight: Floats
    graph: NDArray[np.int8]
    reason: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.running)

    def items(self) -> Iterator[LogWindow]:
        """Yield the windows one by one."""
        for i in range(len(self)):
            graph, reason = int(self.graph[i]), int(self.reason[i])
            yield LogWindow(
                time_s=_known(self.time_s[i]),
                running=float(self.running[i]),
                queue=_known(self.queue[i]),
                output_tps=float(self.output_tps[i]),
                accept_length=_known(self.accept_length[i]),
                cuda_graph=None if graph < 0 else bool(graph),
                prefill=reason in (PREFILL, PREFILL_RAMP),
                dropped=REASONS[reason] or None,
            )


def ramp_mask(running: Floats, before: float) -> Flags:
    """Return where the batch changed too much for a window to belong to one load level.

    Parameters
    ----------
    running
        Running requests of successive windows.
    before
        Those of the window before; NaN if there is none.
    """
    previous = np.concatenate(([before], running[:-1]))
    with np.errstate(invalid="ignore"):
        changed = np.abs(running - previous) > RAMP_CHANGE * np.maximum(running, previous)
    return np.asarray(changed & np.isfinite(previous), dtype=bool)


@dataclass(frozen=True, slots=True)
class Cell:
    """Windows with the same running batch, graph flag, prefill flag and speed."""

    running: int
    graph: bool | None
    mixed: bool
    speed: int
    moments: Floats

    @property
    def count(self) -> int:
        """Windows in the cell."""
        return int(self.moments[0])


@dataclass(slots=True)
class Levels:
    """Moments of windows by load level.

    Parameters
    ----------
    equal_time
        Windows are equally long (vLLM), not equally many rounds (SGLang): decides whether the
        mean throughput is an arithmetic mean or tokens over time.
    tps_quantum, accept_quantum
        Steps of the printed numbers.

    Attributes
    ----------
    sums
        Moments by packed key; see :meth:`cells`.
    lost
        (running, reason) -> windows whose throughput is not used.
    read
        Windows counted.
    """

    equal_time: bool = False
    tps_quantum: float = 0.01
    accept_quantum: float = 0.01
    sums: dict[int, Floats] = field(default_factory=dict)
    lost: Counter[tuple[int, str]] = field(default_factory=Counter)
    read: int = 0
    _pooled: tuple[float, float] = (0.0, 0.0)
    _last: tuple[int, float] = (-1, 0.0)

    def add(self, w: Windows) -> None:
        """Count windows."""
        if not len(w):
            return
        self.read += len(w)
        known = np.isfinite(w.accept_length) & (w.reason != DUPLICATE_RANK)
        weight, accept = w.weight[known], w.accept_length[known]
        self._pooled = (
            self._pooled[0] + float(weight.sum()),
            self._pooled[1] + float((weight * accept).sum()),
        )
        for at in np.flatnonzero(w.reason > PREFILL):
            self.lost[int(w.running[at]), REASONS[w.reason[at]]] += 1
        self._add_used(w, w.reason <= PREFILL)

    def _add_used(self, w: Windows, keep: Flags) -> None:
        running, tps = w.running[keep], w.output_tps[keep]
        if not len(running):
            self._last = (-1, 0.0)
            return
        level = (running.astype(np.int64) * 4 + w.graph[keep] + 1) * 2
        level += w.reason[keep] == PREFILL
        speed = np.rint(np.log(tps / running) / SPEED_STEP).clip(-255, 255).astype(np.int64)
        columns = np.concatenate((_moments(w, keep), self._pairs(level, tps, keep)))
        keys, inverse = np.unique(level * _SPEEDS + speed + 256, return_inverse=True)
        sums: Floats = np.array(
            [np.bincount(inverse, weights=c, minlength=len(keys)) for c in columns],
            dtype=np.float64,
        )
        for i, key in enumerate(keys.tolist()):
            old = self.sums.get(key)
            self.sums[key] = sums[:, i] if old is None else old + sums[:, i]

    def _pairs(self, level: Ints, tps: Floats, keep: Flags) -> Floats:
        """Successive windows of one level: 1, x, y and xy, for the lag-1 autocorrelation."""
        at = np.flatnonzero(keep)
        before = np.concatenate(([self._last[1]], tps[:-1]))
        same = np.concatenate(([self._last[0]], level[:-1])) == level
        same[1:] &= np.diff(at) == 1
        same[0] &= at[0] == 0
        self._last = (int(level[-1]) if keep[-1] else -1, float(tps[-1]))
        pairs = np.array([np.ones_like(tps), before, tps, before * tps])
        return np.asarray(pairs * same, dtype=np.float64)

    def cells(self) -> list[Cell]:
        """Return the cells by increasing batch."""
        cells = []
        for key in sorted(self.sums):
            level, speed = divmod(key, _SPEEDS)
            graph = level // 2 % 4 - 1
            cells.append(
                Cell(
                    running=level // 8,
                    graph=None if graph < 0 else bool(graph),
                    mixed=bool(level % 2),
                    speed=speed - 256,
                    moments=self.sums[key],
                )
            )
        return cells

    @property
    def accept_length(self) -> float | None:
        """Accept length over all rounds that were printed, None if none was."""
        weight, total = self._pooled
        return total / weight if weight > 0 else None


def _moments(w: Windows, keep: Flags) -> Floats:
    """Columns that are summed, in the order of `MOMENTS`, without the pairs."""
    running, tps, al, weight = (
        column[keep] for column in (w.running, w.output_tps, w.accept_length, w.weight)
    )
    drafted, one = np.isfinite(al), np.ones_like(tps)
    tokens = running * np.where(drafted, al, 1.0)
    weight, al = weight * drafted, np.where(drafted, al, 0.0)
    columns: list[NDArray[Any]] = [one, tps, tps**2, tokens, tokens / tps]
    columns += [drafted, weight, weight * al, al, al**2]
    for column in (w.queue[keep], w.usage[keep]):
        known = np.isfinite(column)
        columns += [known, np.where(known, column, 0.0)]
    assert len(columns) == _PAIRS
    return np.asarray(np.stack(columns), dtype=np.float64)


def _known(value: np.float64) -> float | None:
    return float(value) if np.isfinite(value) else None
