"""Windows -> rows: one per load level, with standard errors and the account of drops."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from specsim.logs.entry import LogRow, WindowCount
from specsim.logs.windows import MOMENTS, SPEED_STEP, Cell, Windows

LEVEL_WIDTH = 1.05
"""Running counts within 5 % are one load level."""
SLOW_FACTOR = 2.5
"""A window slower than its level's median by this factor held idle time or a stall."""
MIN_FOR_OUTLIERS = 5
MIN_PAIRS = 8
STALLED_BATCH = 1.5
CLOSED_LOOP_QUEUE = 0.5
"""A mean queue above this many requests means that clients wait for a place."""

WITH_PREFILL = "output_tps_with_prefill"
"""Name in `extra` of the throughput over windows with and without prefill: a closed loop's."""

Sums = dict[str, float]


@dataclass(slots=True)
class _Group:
    """Cells of one load level; `dropped` are windows of the level that no row rests on."""

    graph: bool | None
    first: int
    pure: list[Cell] = field(default_factory=list)
    mixed: list[Cell] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def batch_size(self) -> float:
        return _batch(self.pure or self.mixed)


def level_rows(windows: Windows) -> tuple[tuple[LogRow, ...], WindowCount]:
    """Return one row per load level and the account of all windows.

    A level with windows of pure decoding rests on these alone. A level that has only windows with
    prefill in them, and is not near a pure one, gives a row that is marked as mixed.
    """
    groups = _groups(windows.cells())
    pure = [g.batch_size for g in groups if g.pure]
    near = [not g.pure and any(0.8 < g.batch_size / p < 1.25 for p in pure) for g in groups]
    standing = [g for g, is_near in zip(groups, near, strict=True) if not is_near]
    dropped: Counter[str] = Counter()
    for group, is_near in zip(groups, near, strict=True):
        if is_near:
            dropped["prefill"] += _count(group.mixed)
    for (running, reason), count in windows.lost.items():
        home = [g for g in standing if g.first <= running <= g.first * LEVEL_WIDTH]
        (home[-1].dropped if home else dropped)[reason] += count
    rows = tuple(_row(group, windows) for group in standing)
    for row in rows:
        dropped.update(row.dropped)
    return rows, WindowCount(windows.read, sum(row.windows for row in rows), dict(dropped))


def concurrency_of(batch_size: float, queue: float | None) -> float:
    """Clients in flight: the batch, plus those that wait where a closed loop is plausible.

    One running request with others waiting is a stalled scheduler, not a closed loop at its cap.
    """
    if queue is None or queue < CLOSED_LOOP_QUEUE or batch_size < STALLED_BATCH:
        return batch_size
    return batch_size + queue


def _groups(cells: Sequence[Cell]) -> list[_Group]:
    """Merge neighbouring running counts; `cells` come by increasing batch."""
    groups: list[_Group] = []
    latest: dict[bool | None, _Group] = {}
    for cell in cells:
        group = latest.get(cell.graph)
        if group is None or cell.running > group.first * LEVEL_WIDTH:
            group = latest[cell.graph] = _Group(cell.graph, cell.running)
            groups.append(group)
        (group.mixed if cell.mixed else group.pure).append(cell)
    return groups


def _row(group: _Group, windows: Windows) -> LogRow:
    kept, slow = _without_outliers(group.pure or group.mixed)
    dropped = group.dropped.copy()
    dropped["idle"] += slow
    dropped["prefill"] += _count(group.mixed) if group.pure else 0
    sums, mixed = _sums(kept), not group.pure
    # Prefill changes how long a window lasts, not how many drafts are accepted.
    whole = _sums([*kept, *group.mixed] if group.pure else kept)
    accept, accept_sem = _accept(_sums([*group.pure, *group.mixed]), windows.accept_quantum)
    tps, tps_sem, lag1 = _throughput(sums, windows)
    batch, queue = _batch(kept), _mean(sums["queue"], sums["n_queue"])
    # Windows of equally many rounds have a mean round; otherwise it follows from their own means.
    own = _accept(sums, windows.accept_quantum)[0] or accept or 1.0
    each_s = own * batch / tps if windows.equal_time else sums["time"] / sums["n"]
    return LogRow(
        kind="closed_loop" if mixed else "steady_decode",
        batch_size=batch,
        concurrency=concurrency_of(batch, queue),
        output_tps=tps,
        output_tps_sem=tps_sem,
        accept_length=accept,
        accept_length_sem=accept_sem,
        round_time_s=None if mixed or accept is None else each_s,
        windows=int(sums["n"]),
        dropped={reason: n for reason, n in dropped.items() if n},
        autocorrelation=lag1,
        mixed=mixed,
        cuda_graph=group.graph,
        queue=queue,
        kv_usage=_mean(sums["usage"], sums["n_usage"]),
        extra={} if mixed or not group.mixed else {WITH_PREFILL: _throughput(whole, windows)[0]},
    )


def _throughput(m: Sums, windows: Windows) -> tuple[float, float | None, float | None]:
    """Mean, standard error and lag-1 autocorrelation of the throughput."""
    n, mean = m["n"], m["tps"] / m["n"]
    value = mean if windows.equal_time else m["tokens"] / m["time"]
    if n < 2:
        return value, None, None
    variance = max(m["tps2"] / n - mean**2, 0.0) * n / (n - 1)
    lag1: float | None = None
    if m["pairs"] >= MIN_PAIRS and variance > 0:
        covariance = (m["xy"] - mean * (m["x"] + m["y"])) / m["pairs"] + mean**2
        lag1 = min(max(covariance / variance, -0.95), 0.95)
    # The variance of the mean of an AR(1) series; a negative lag is not credited.
    r = max(lag1 or 0.0, 0.0)
    noise = variance * (1 + r) / (1 - r) + windows.tps_quantum**2 / 12
    return value, math.sqrt(noise / n), lag1


def _accept(m: Sums, quantum: float) -> tuple[float | None, float | None]:
    """Accept length weighted by rounds, and its standard error."""
    n = m["n_al"]
    if n < 1 or m["w"] <= 0:
        return None, None
    mean = m["al"] / n
    if n < 2:
        return m["w_al"] / m["w"], None
    variance = max(m["al2"] / n - mean**2, 0.0) * n / (n - 1)
    return m["w_al"] / m["w"], math.sqrt((variance + quantum**2 / 12) / n)


def _without_outliers(cells: list[Cell]) -> tuple[list[Cell], int]:
    """Drop windows far slower than the median (idle time), and absurdly faster ones (damage)."""
    total = _count(cells)
    if total < MIN_FOR_OUTLIERS:
        return cells, 0
    by_speed = sorted(cells, key=lambda c: c.speed)
    below = np.cumsum([c.count for c in by_speed])
    median = by_speed[int(np.searchsorted(below, total / 2))].speed
    reach = math.log(SLOW_FACTOR) / SPEED_STEP
    kept = [c for c in cells if abs(c.speed - median) <= reach]
    return kept, total - _count(kept)


def _sums(cells: Sequence[Cell]) -> Sums:
    total = np.sum([c.moments for c in cells], axis=0)
    return dict(zip(MOMENTS, total.tolist(), strict=True))


def _batch(cells: Sequence[Cell]) -> float:
    return sum(c.running * c.count for c in cells) / _count(cells)


def _count(cells: Sequence[Cell]) -> int:
    return sum(c.count for c in cells)


def _mean(total: float, count: float) -> float | None:
    return total / count if count else None
