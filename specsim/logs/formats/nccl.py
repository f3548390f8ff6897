"""nccl-tests: rows of all_reduce_perf in the old and the new layout -> seconds by message size."""

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import NamedTuple

from specsim.logs import unread as why
from specsim.logs.diagnose import truncated
from specsim.logs.entry import LogEntry, Timing, WindowCount
from specsim.logs.formats import listed, pattern, patterns
from specsim.logs.source import Source
from specsim.logs.unread import Unread, check, counted

_LOOKS_LIKE = pattern(listed("formats", "nccl_tests", "mark")[0])
_LINE = patterns("lines")

MAX_ROWS = 100_000
MIN_ROWS = 3  # so many agree on a power of two before sizes are taken to be of another type
RATIO_SLACK = 0.02  # rounding of the printed bandwidths moves their ratio by this much


class _Row(NamedTuple):
    size: int  # bytes per rank
    seconds: float  # out of place
    algbw: float  # GB/s
    busbw: float
    in_place: bool  # whether the other half is there

    @property
    def counted(self) -> float:
        """Bandwidth by size and time, GB/s."""
        return self.size / self.seconds / 1e9


@dataclass(slots=True)
class _Run:
    ranks: int | None = None
    test: str = "all_reduce"
    device: str = ""
    rows: list[_Row] = field(default_factory=list)
    ended: bool = False
    unread: Counter[str] = field(default_factory=Counter)


def parse(source: Source) -> list[LogEntry]:
    """Read the output of nccl-tests; one entry per run, with the out-of-place time by size."""
    runs = [_Run()]
    for line in source.lines():
        if line.lstrip()[:1] == b"#" or b"_perf" in line:
            _comment(line, runs)
        elif _LOOKS_LIKE.match(line):
            with counted(runs[-1].unread):
                _row(line, runs)
    runs = [r for r in runs if r.rows or r.unread] or runs[:1]
    return [_entry(run, source.path) for run in runs]


def _comment(line: bytes, runs: list[_Run]) -> None:
    if ranks := _LINE["nccl_ranks"].search(line):
        if runs[-1].rows:
            runs.append(_Run())
        runs[-1].ranks = int(ranks[1]) * int(ranks[2])
    run = runs[-1]
    if rank := _LINE["nccl_rank"].match(line):
        run.ranks = max(run.ranks or 0, int(rank[1]) + 1)
        device = _LINE["nccl_device"].search(line)
        run.device = device[1].decode() if device else run.device
    if test := _LINE["nccl_test"].search(line):
        run.test = test[1].decode()
    run.ended |= _LINE["nccl_average"].search(line) is not None


def _row(line: bytes, runs: list[_Run]) -> None:
    found, whole = _LINE["nccl_row"].match(line), line.endswith((b"\n", b"\r"))
    if found is None or (found.end() == len(line) and not whole):
        raise Unread(why.DAMAGED_ROW if whole else why.TRUNCATED)
    size, time_us, algbw, busbw, in_place, *_ = found.groups()
    row = _Row(int(size), float(time_us) * 1e-6, float(algbw), float(busbw), in_place is not None)
    run = runs[-1]
    if run.rows and row.size < run.rows[-1].size and run.ended:
        run = _Run(run.ranks, run.test, run.device)
        runs.append(run)
    check(row.seconds > 0 and row.size >= 1 and len(run.rows) < MAX_ROWS, why.OUT_OF_RANGE)
    run.rows.append(row)


def _entry(run: _Run, path: str) -> LogEntry:
    kept, scale = _consistent(run)
    ranks = _ranks(run.ranks, kept)
    settings: dict[str, object] = {"ranks": ranks, "gpu": run.device}
    if abs(scale - 1) > 0.05:
        settings["size_over_algbw_times_time"] = round(scale, 3)
    phase = "allreduce" if run.test == "all_reduce" else run.test
    of = partial(Timing, phase, ranks=ranks, name=f"{run.test}_perf")
    timings = tuple(of(row.seconds, size_bytes=row.size) for row in kept)
    said = {key: value for key, value in settings.items() if value}
    cut, windows = tuple(truncated(run.unread, "row(s)")), WindowCount(len(kept), len(kept))
    entry = LogEntry(path, "nccl_tests", settings=said, windows=windows, diagnoses=cut)
    return replace(entry, timings=timings, unread=dict(+run.unread))


def _consistent(run: _Run) -> tuple[list[_Row], float]:
    """Rows whose size, time and algbw agree, up to one factor common to all rows of the run."""
    scales = [row.counted / row.algbw for row in run.rows if row.algbw > 0.5]
    common = median(scales) if len(scales) >= MIN_ROWS else 1.0
    alike = sum(abs(s / common - 1) < 0.02 for s in scales)
    power = abs(math.log2(common) - round(math.log2(common))) < 0.03
    scale = common if power and abs(common - 1) > 0.02 and 2 * alike > len(scales) else 1.0
    both = any(row.in_place for row in run.rows)
    kept = []
    for row in run.rows:
        expected = row.counted / scale
        agree = abs(expected - row.algbw) <= 0.0051 + 0.006 * expected
        if both and not row.in_place:
            run.unread[why.DAMAGED_ROW] += 1
        elif not agree or row.busbw > 2 * row.algbw + 0.02:
            run.unread[why.CONTRADICTION] += 1
        else:
            kept.append(row)
    return kept, scale


def _ranks(stated: int | None, rows: list[_Row]) -> int | None:
    """Ranks as stated, unless bus over algorithm bandwidth, 2(n - 1)/n, says otherwise."""
    ratios = [row.busbw / row.algbw for row in rows if row.algbw > 1]
    if not ratios:
        return stated
    ratio = median(ratios)
    if stated and abs(2 * (stated - 1) / stated - ratio) < RATIO_SLACK:
        return stated
    return round(2 / (2 - ratio)) if 0.99 <= ratio < 1.9 else None
