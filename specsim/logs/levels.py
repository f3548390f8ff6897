"""Windows -> rows: one per load level, with standard errors and the account of drops."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from specsim.arrays import Floats
from specsim.logs.diagnose import STALLED_BATCH
from specsim.logs.entry import LogRow, WindowCount
from specsim.logs.windows import IDLE, MOMENTS, REASONS, SPEED_STEP, STALLED, Cell, Windows

LEVEL_WIDTH = 1.05  # running counts within 5 % are one load level
SLOW_FACTOR = 2.5
"""A window whose rounds took longer than its level's median by this factor held idle time, a
prefill that the log does not show, or a stall."""
MIN_FOR_OUTLIERS = 5
MIN_PAIRS = 8
GROWN = 1.1
CLOSED_LOOP_QUEUE = 0.5  # a mean queue above this many requests means that clients wait for a place

Sums = dict[str, float]


@dataclass(slots=True, eq=False)
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


Finish = Callable[[LogRow, Floats], LogRow]  # by the sums of `drafting` over its windows


def level_rows(
    windows: Windows, finish: Finish | None = None, plain: bool = False
) -> tuple[tuple[LogRow, ...], WindowCount]:
    """Return one row per load level and the account of all windows.

    All numbers of a row are of the same windows. A level with windows of pure decoding rests on
    these alone. A level that has only windows with prefill in them, and is not near a pure one,
    gives a row that is marked as mixed. Where nothing is drafted (`plain`) the accept length is 1.
    """
    groups = _groups(windows.cells())
    pure = [g.batch_size for g in groups if g.pure]
    near = [g for g in groups if not g.pure and any(0.8 < g.batch_size / p < 1.25 for p in pure)]
    standing = [g for g in groups if g not in near]
    dropped = Counter({"prefill": sum(_count(g.mixed) for g in near)})
    for (running, reason), count in windows.lost.items():
        home = [g for g in standing if g.first <= running <= g.first * LEVEL_WIDTH]
        (home[-1].dropped if home else dropped)[reason] += count
    rows = tuple(_row(group, windows, finish, plain) for group in standing)
    for row in rows:
        dropped.update(row.dropped)
    return rows, WindowCount(windows.read, sum(row.windows for row in rows), dict(+dropped))


def concurrency_of(batch_size: float, queue: float | None, most_running: float = 0.0) -> float:
    """Clients in flight: the batch, plus those that wait where a closed loop is plausible.

    One running request with others waiting is a stalled scheduler, and one that ran more at
    another time is not at its cap.
    """
    if queue is None or queue < CLOSED_LOOP_QUEUE or batch_size < STALLED_BATCH:
        return batch_size
    return batch_size if most_running > GROWN * batch_size else batch_size + queue


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


def _row(group: _Group, windows: Windows, finish: Finish | None, plain: bool) -> LogRow:
    mixed = not group.pure
    kept, outliers = (group.mixed, []) if mixed else _without_outliers(group.pure)
    dropped = group.dropped.copy()
    for cell in outliers:
        waiting = _mean(*(cell.moments[MOMENTS.index(name)] for name in ("queue", "n_queue")))
        dropped[REASONS[STALLED if waiting else IDLE]] += cell.count
    dropped["prefill"] += _count(group.mixed) if group.pure else 0
    sums = _sums(kept)
    accept, accept_sem = (1.0, None) if plain else _accept(sums, windows.accept_quantum)
    mean = sums["tps"] / sums["n"]
    tps = mean if windows.equal_time else sums["tokens"] / sums["time"]
    batch, queue = _batch(kept), _mean(sums["queue"], sums["n_queue"])
    # Windows of equally many rounds have a mean round; otherwise it follows from their own means.
    each_s = (accept or 1.0) * batch / tps if windows.equal_time else sums["time"] / sums["n"]
    row = LogRow(
        kind="closed_loop" if mixed else "steady_decode",
        batch_size=batch,
        concurrency=concurrency_of(batch, queue, windows.most_running),
        output_tps=tps,
        output_tps_sem=_error(sums, "tps", sums["n"], mean, windows.tps_quantum),
        accept_length=accept,
        accept_length_sem=accept_sem,
        round_time_s=None if mixed or accept is None else each_s,
        windows=int(sums["n"]),
        dropped={reason: n for reason, n in dropped.items() if n},
        mixed=mixed,
        cuda_graph=group.graph,
        queue=queue,
        kv_usage=_mean(sums["usage"], sums["n_usage"]),
    )
    return finish(row, _moments(kept)[len(MOMENTS) :]) if finish else row


def _accept(m: Sums, quantum: float) -> tuple[float | None, float | None]:
    """Accept length weighted by rounds, and its standard error."""
    if m["n_al"] < 1 or m["w"] <= 0:
        return None, None
    return m["w_al"] / m["w"], _error(m, "al", m["n_al"], m["al"] / m["n_al"], quantum)


def _error(m: Sums, of: str, n: float, mean: float, quantum: float) -> float | None:
    """Return the standard error of the mean of a series.

    The variance of the mean of an AR(1) series; a negative lag 1 is not credited.
    """
    if n < 2:
        return None
    variance = max(m[f"{of}2"] / n - mean**2, 0.0) * n / (n - 1)
    r, pairs = 0.0, m[f"{of}_pairs"]
    if pairs >= MIN_PAIRS and variance > 0:
        covariance = (m[f"{of}_xy"] - mean * (m[f"{of}_x"] + m[f"{of}_y"])) / pairs + mean**2
        r = min(max(covariance / variance, 0.0), 0.95)
    noise = variance * (1 + r) / (1 - r) + quantum**2 / 12
    return math.sqrt(noise / n)


def _without_outliers(cells: list[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Part windows whose rounds were far slower than the median, or absurdly faster (damage)."""
    total = _count(cells)
    if total < MIN_FOR_OUTLIERS:
        return cells, []
    by_speed = sorted(cells, key=lambda c: c.speed)
    below = np.cumsum([c.count for c in by_speed])
    median = by_speed[int(np.searchsorted(below, total / 2))].speed
    reach = math.log(SLOW_FACTOR) / SPEED_STEP
    near = [abs(c.speed - median) <= reach for c in cells]
    kept, others = ([c for c, n in zip(cells, near, strict=True) if n is k] for k in (True, False))
    return kept, others


def _moments(cells: Sequence[Cell]) -> Floats:
    total: Floats = np.sum([c.moments for c in cells], axis=0)
    return total


def _sums(cells: Sequence[Cell]) -> Sums:
    return dict(zip(MOMENTS, _moments(cells)[: len(MOMENTS)].tolist(), strict=True))


def _batch(cells: Sequence[Cell]) -> float:
    return sum(c.running * c.count for c in cells) / _count(cells)


def _count(cells: Sequence[Cell]) -> int:
    return sum(c.count for c in cells)


def _mean(total: float, count: float) -> float | None:
    return total / count if count else None
