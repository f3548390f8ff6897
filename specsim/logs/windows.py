"""Lines of one server -> windows -> moments per load level, online and in constant memory.

The lines of the data-parallel ranks are summed to windows, and each window is judged: its
throughput may be spoilt by prefill, by a ramp of the batch, by idle time. Windows are then counted
by (running requests, CUDA graph, prefill within, speed), where speed is the rounds per second on a
logarithmic scale; of each such cell only moments are kept. The speed is a key because windows whose
rounds were slow can only be told from the others at the end (:mod:`specsim.logs.levels`). How
acceptance changes in time is kept in a few blocks of windows.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from specsim.arrays import Flags, Floats, Ints
from specsim.logs.columns import DUPLICATE, NO_RANK, ParseRank, RankTable, group_starts
from specsim.logs.diagnose import finding, words
from specsim.logs.entry import Diagnosis

Columns = dict[str, Floats]  # successive lines or windows: an array for each name of `COLUMNS`

COLUMNS: dict[str, np.ufunc] = {
    "time_s": np.fmin,  # print time since 1970; NaN where there is none, here and below
    "running": np.add,  # requests that run
    "queue": np.add,  # requests that wait
    "usage": np.add,  # fraction of the KV cache in use, averaged over the ranks
    "output_tps": np.add,  # tokens per second of the window
    "emitted": np.add,  # tokens that verification gave; over `rounds` it is the accept length
    "rounds": np.add,  # a number proportional to request-rounds; 0 where nothing was drafted
    "graph": np.fmin,  # 1 as CUDA graph, 0 eager
    "prefill": np.fmax,  # 1 where a prefill ran within the window
}
"""What a line says, and how the ranks of a window combine. Some engines say more: `drafting`, a
matrix with a row per line, of which a row of :mod:`specsim.logs.levels` is given the sums."""

REASONS = ("", "prefill", "ramp", "idle", "rank_missing", "duplicate_rank", "prefill", "stalled")
"""Why a window's throughput is not used; the index is the code in columns."""
USED, PREFILL, RAMP, IDLE, RANK_MISSING, DUPLICATE_RANK, PREFILL_RAMP, STALLED = range(len(REASONS))
"""Windows with prefill at a steady batch may still make a row of their own; a ramp never does.
Where requests ran but nothing came out, a prefill held them up, or something else did."""

PREFILL_LEAST = 0.05
"""Prompt tokens per round of a request: fewer hold up nothing, since a prompt token takes no more
than a request's round. The decode node of a disaggregated server computes one per prompt."""
SPEED_STEP = 0.1  # width of a speed cell, natural log
RAMP_CHANGE = 0.1  # a window over which the batch changed by more than this fraction is a ramp

MOMENTS = (
    *("n", "tps", "tps2", "tokens", "time", "n_al", "w", "w_al", "al", "al2"),
    *("n_queue", "queue", "n_usage", "usage"),
    *("tps_pairs", "tps_x", "tps_y", "tps_xy", "al_pairs", "al_x", "al_y", "al_xy"),
)
"""Of successive windows of one level x and y are the values: for the lag-1 autocorrelation."""
_SPEEDS = 512

MOST_BLOCKS = 64  # of more, neighbours are joined
CHANGE = 0.1  # of the accept length from the first to the last quarter; less is no news
SAME_LOAD = 0.25  # the quarters run about as many requests: another batch may accept otherwise
SURE = 3.0  # standard deviations of Kendall's count of ordered pairs from a random order's


@dataclass(slots=True)
class Blocks:
    """Equally many successive windows each: their number and the sums of what they say."""

    size: int = 1  # windows of a block
    count: int = 0  # windows
    # windows, running requests, rounds, emitted tokens, seconds of a round
    sums: Floats = field(default_factory=lambda: np.zeros((5, MOST_BLOCKS)))

    def add(self, columns: Floats) -> None:
        """Add windows: running requests, rounds, emitted tokens, seconds of a round."""
        n = columns.shape[1]
        while self.count + n > self.size * MOST_BLOCKS:
            joined = self.sums[:, ::2] + self.sums[:, 1::2]
            self.sums = np.concatenate((joined, np.zeros_like(joined)), axis=1)
            self.size *= 2
        block = (self.count + np.arange(n)) // self.size
        rows = (np.ones(n), *columns)
        self.sums += [np.bincount(block, weights=row, minlength=MOST_BLOCKS) for row in rows]
        self.count += n

    def told(self) -> Iterator[Diagnosis]:
        """Tell how the accept length drifts, if it does."""
        sums = self.sums[:, self.sums[2] > 0]
        length = sums[3] / sums[2]
        n = len(length)
        if n < 2:
            return
        pairs = np.sign(length[None, :] - length[:, None])[np.triu_indices(n, 1)].sum()
        if abs(pairs) < SURE * np.sqrt(n * (n - 1) * (2 * n + 5) / 18):  # of a random order
            return
        ends = [
            part.sum(axis=1) for part in (sums[:, : max(n // 4, 1)], sums[:, -max(n // 4, 1) :])
        ]
        (batch, before, round_s), (batch_then, now, round_then_s) = (
            (e[1] / e[0], e[3] / e[2], e[4] / e[0]) for e in ends
        )
        if abs(now / before - 1) >= CHANGE and abs(batch_then / batch - 1) <= SAME_LOAD:
            stays = abs(round_then_s / round_s - 1) < CHANGE
            how = "round_stays" if stays else "round_goes"
            took = words("acceptance_drift", how, ms=1e3 * round_s)
            more = {"now": now, "took": took, "ms": 1e3 * round_then_s}
            yield finding("acceptance_drift", "windows", before=before, **more)


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
class Windows:
    """The windows of one server."""

    rank_of: ParseRank  # the ranks in what stands before a line
    # Windows are equally long (vLLM), not equally many rounds (SGLang): decides whether the mean
    # throughput is an arithmetic mean or tokens over time.
    equal_time: bool = False
    tps_quantum: float = 0.01  # step of the printed throughputs
    accept_quantum: float = 0.01  # step of the printed lengths; 0 where they are known to be 1
    started: bool = False  # a start-up was seen: the first window after it is a ramp
    read: int = 0  # windows counted
    with_prefill: int = 0  # of them, those in which a prefill ran
    most_running: float = 0.0  # requests
    ranks: RankTable = field(init=False)
    blocks: Blocks = field(default_factory=Blocks)  # acceptance in time
    # (running, reason) -> windows not used
    lost: Counter[tuple[int, str]] = field(default_factory=Counter)
    _sums: dict[int, Floats] = field(default_factory=dict)
    _pooled: tuple[float, float] = (0.0, 0.0)
    _open: tuple[Columns, list[bytes]] | None = None
    _last_running: float = np.nan
    # level, throughput and accept length of the last window
    _last: tuple[int, float, float] = (-1, 0.0, np.nan)

    def __post_init__(self) -> None:
        self.ranks = RankTable(self.rank_of)

    def add(self, lines: Columns, ranks: Sequence[bytes], final: bool) -> int:
        """Count lines; return how many lack a rank among lines that have one, and do not count.

        Unless they are the `final` ones, the last window may lack ranks still. `ranks` are what
        stands before each line and names its rank.
        """
        names = list(ranks)
        if self._open is not None:
            lines = {k: np.concatenate((self._open[0][k], lines[k])) for k in lines}
            names, self._open = self._open[1] + names, None
        slots = self.ranks.slots(names)
        double, keep = np.flatnonzero(slots == DUPLICATE), np.flatnonzero(slots >= 0)
        if len(double):
            self.count(_part(lines, double), np.full(len(double), DUPLICATE_RANK))
        lines, slots_kept = _part(lines, keep), slots[keep]
        several = len(self.ranks.named) > 1
        starts = group_starts(slots_kept, lines["time_s"], len(self.ranks.named))
        if several and not final and len(starts):
            last = int(starts[-1])
            self._open = (_part(lines, np.s_[last:]), [names[i] for i in keep[last:]])
            lines, starts = _part(lines, np.s_[:last]), starts[:-1]
        if len(starts):
            size = np.diff(np.append(starts, len(lines["running"])))
            if several:
                lines = {k: COLUMNS.get(k, np.add).reduceat(v, starts) for k, v in lines.items()}
                lines["usage"] = lines["usage"] / size
            self.count(lines, self._reasons(lines, size < self.ranks.expected))
        return int((slots == NO_RANK).sum())

    def _reasons(self, w: Columns, missing: Flags) -> Ints:
        """Judge windows; `missing` are those that lack a rank."""
        running, prefill = w["running"], w["prefill"] > 0
        whole = running[~missing]
        ramp = np.zeros(len(running), dtype=bool)
        ramp[~missing] = _ramps(whole, self._last_running)
        ramp[0] |= self.read == 0 and self.started
        reason = np.where(prefill, np.where(ramp, PREFILL_RAMP, PREFILL), np.where(ramp, RAMP, 0))
        silent = w["output_tps"] <= 0
        reason[silent] = np.where(prefill, PREFILL_RAMP, STALLED)[silent]
        reason[running < 1] = IDLE
        reason[missing] = RANK_MISSING
        self._last_running = whole[-1] if len(whole) else self._last_running
        return reason

    def count(self, w: Columns, reason: Ints) -> None:
        """Count windows that were judged: `reason` is an index into `REASONS`."""
        if not len(reason):
            return
        with np.errstate(invalid="ignore", divide="ignore"):
            accept = np.where(w["rounds"] > 0, w["emitted"] / w["rounds"], np.nan)
        self.read += len(reason)
        busy = (reason != IDLE) & (reason != DUPLICATE_RANK)
        self.with_prefill += int(((w["prefill"] > 0) & busy).sum())
        known = np.isfinite(accept) & (reason != DUPLICATE_RANK)
        rounds, emitted = w["rounds"][known].sum(), w["emitted"][known].sum()
        self._pooled = (self._pooled[0] + float(rounds), self._pooled[1] + float(emitted))
        self.most_running = max(self.most_running, float(w["running"].max()))
        for at in np.flatnonzero(reason > PREFILL):
            self.lost[int(w["running"][at]), REASONS[reason[at]]] += 1
        self._add_used(w, accept, reason)

    def _add_used(self, w: Columns, accept: Floats, reason: Ints) -> None:
        keep = reason <= PREFILL
        used, accept = _part(w, keep), accept[keep]
        running, tps = used["running"], used["output_tps"]
        if not len(running):
            self._last = (-1, 0.0, np.nan)
            return
        graph = np.where(np.isfinite(used["graph"]), used["graph"], -1).astype(np.int64)
        mixed = reason[keep] == PREFILL
        level = (running.astype(np.int64) * 4 + graph + 1) * 2 + mixed
        moments = np.stack([*_moments(used, accept)])
        tokens, seconds = moments[MOMENTS.index("tokens")], moments[MOMENTS.index("time")]
        speed = np.rint(np.log(tps / tokens) / SPEED_STEP).clip(-255, 255).astype(np.int64)
        pairs = self._pairs(level, tps, accept, keep)
        more = used["drafting"] if "drafting" in used else tps[:, None][:, :0]
        filled = int(np.flatnonzero(more.any(axis=0))[-1:].sum()) + 1  # the last positions are not
        columns = np.concatenate((moments, pairs, more[:, :filled].T))
        keys, inverse = np.unique(level * _SPEEDS + speed + 256, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        starts = np.searchsorted(inverse[order], np.arange(len(keys)))
        sums = np.zeros((len(MOMENTS) + more.shape[1], len(keys)))
        sums[: len(columns)] = np.add.reduceat(columns[:, order], starts, axis=1)
        for i, key in enumerate(keys.tolist()):
            self._sums[key] = self._sums.get(key, 0.0) + sums[:, i]
        drafted = np.isfinite(accept) & ~mixed
        self.blocks.add(np.stack((running, used["rounds"], used["emitted"], seconds))[:, drafted])

    def _pairs(self, level: Ints, tps: Floats, accept: Floats, keep: Flags) -> Floats:
        """Successive windows of one level: 1, x, y and xy of the throughput, then the length."""
        at = np.flatnonzero(keep)
        same = np.concatenate(([self._last[0]], level[:-1])) == level
        same[1:] &= np.diff(at) == 1
        same[0] &= at[0] == 0
        rows = []
        for last, series in zip(self._last[1:], (tps, accept), strict=True):
            before = np.concatenate(([last], series[:-1]))
            good = same & np.isfinite(before * series)
            rows += [np.where(good, c, 0.0) for c in (good, before, series, before * series)]
        self._last = (int(level[-1]) if keep[-1] else -1, float(tps[-1]), float(accept[-1]))
        return np.stack(rows)

    def cells(self) -> list[Cell]:
        """Return the cells by increasing batch."""
        cells = []
        for key in sorted(self._sums):
            level, speed = divmod(key, _SPEEDS)
            graph = level // 2 % 4 - 1
            flag = None if graph < 0 else bool(graph)
            cells.append(Cell(level // 8, flag, bool(level % 2), speed - 256, self._sums[key]))
        return cells

    @property
    def accept_length(self) -> float | None:
        """Accept length over all rounds that were printed, None if none was."""
        rounds, emitted = self._pooled
        return emitted / rounds if rounds > 0 else None


def _part(columns: Columns, where: Flags | Ints | slice) -> Columns:
    return {name: column[where] for name, column in columns.items()}


def _ramps(running: Floats, before: float) -> Flags:
    """Where the batch changed too much for a window to belong to one load level."""
    previous = np.concatenate(([before], running[:-1]))
    with np.errstate(invalid="ignore"):
        changed: Flags = np.abs(running - previous) > RAMP_CHANGE * np.maximum(running, previous)
    return changed


def _moments(w: Columns, accept: Floats) -> Iterator[Floats]:
    """Columns that are summed, in the order of `MOMENTS`, without the pairs."""
    tps, drafted = w["output_tps"], np.isfinite(accept)
    tokens = w["running"] * np.where(drafted, accept, 1.0)
    rounds, al = w["rounds"] * drafted, np.where(drafted, accept, 0.0)
    yield from (np.ones_like(tps), tps, tps**2, tokens, tokens / tps)
    yield from (drafted, rounds, rounds * al, al, al**2)
    for column in (w["queue"], w["usage"]):
        known = np.isfinite(column)
        yield from (known, np.where(known, column, 0.0))
