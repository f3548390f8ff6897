"""nccl-tests: rows of all_reduce_perf in the old and the new layout -> seconds by message size."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from specsim.logs.entry import Diagnosis, LogEntry, Timing, WindowCount
from specsim.logs.source import as_lines

_TIME = rb"\d{1,12}(?:\.\d{1,3})?"
_RATE = rb"\d{1,6}\.\d{2}"
_CHECK = rb"(?:\d{1,15}|N/A|\d(?:\.\d+)?e[+-]\d\d)"
_HALF = rb" +(" + _TIME + rb") +(" + _RATE + rb") +(" + _RATE + rb")(?: +(" + _CHECK + rb"))?"
ROW = re.compile(
    rb"\s*(\d{1,15}) +(\d{1,15}) +([a-z]\w{1,15})(?: +([a-z]{2,8}))?(?: +(-?\d{1,5}))?"
    + _HALF
    + rb"(?:"
    + _HALF
    + rb")?\s*(\Z|[\r\n]|\|)"
)
LOOKS_LIKE = re.compile(rb"\s*\d{1,15} +\d{1,15} +(?:float|half|bfloat16|double|u?int\d+|fp8_\w+) ")
_RANKS = re.compile(rb"# nThread (\d{1,4}) nGpus (\d{1,4})")
_RANK_LINE = re.compile(rb"#\s+Rank +(\d{1,5}) +(?:Group|Pid) ")
_AVERAGE = re.compile(rb"# Avg bus bandwidth +: +\d")
_DEVICE = re.compile(rb"\] (NVIDIA [\w ()./-]{2,60}?)\s*\Z")
_TEST = re.compile(
    rb"\b(all_reduce|all_gather|reduce_scatter|sendrecv|alltoall|broadcast|reduce)_perf"
)

MAX_ROWS = 100_000
MIN_ROWS = 3
"""So many rows must agree, on a power of two, before sizes are taken to be of another type."""
RATIO_SLACK = 0.02
"""Rounding of the printed bandwidths moves their ratio by this much."""


@dataclass(slots=True)
class _Run:
    """One test run."""

    rows: list[tuple[int, float, float, float, float | None]] = field(default_factory=list)
    ranks: int | None = None
    test: str = "all_reduce"
    device: str = ""
    ended: bool = False
    unread: Counter[str] = field(default_factory=Counter)


def read_nccl(lines: Iterable[bytes] | Iterable[str], path: str = "-") -> list[LogEntry]:
    """Read the output of nccl-tests; one entry per run.

    Parameters
    ----------
    lines
        Lines with their ends.
    path
        Name for the entries.

    Returns
    -------
    list of LogEntry
        `timings` of phase ``allreduce``: out-of-place time by size, bytes per rank.
    """
    runs = [_Run()]
    for line in as_lines(lines):
        if line.lstrip()[:1] == b"#" or b"_perf" in line:
            _comment(line, runs)
        elif LOOKS_LIKE.match(line):
            reason = _row(line, runs)
            if reason:
                runs[-1].unread[reason] += 1
    runs = [r for r in runs if r.rows or r.unread] or runs[:1]
    return [_entry(run, path) for run in runs]


def _comment(line: bytes, runs: list[_Run]) -> None:
    run = runs[-1]
    ranks, rank, average = _RANKS.search(line), _RANK_LINE.match(line), _AVERAGE.search(line)
    test, device = _TEST.search(line), _DEVICE.search(line)
    if ranks and run.rows:
        run = _Run()
        runs.append(run)
    if ranks:
        run.ranks = int(ranks[1]) * int(ranks[2])
    if rank:
        run.ranks = max(run.ranks or 0, int(rank[1]) + 1)
        run.device = device[1].decode() if device else run.device
    if average:
        run.ended = True
    if test:
        run.test = test[1].decode()


def _row(line: bytes, runs: list[_Run]) -> str | None:
    found = ROW.match(line)
    if found is None or (found.end() == len(line) and not line.endswith((b"\n", b"\r"))):
        return "damaged row" if line.endswith((b"\n", b"\r")) else "truncated"
    size, time_us = int(found[1]), float(found[6])
    run = runs[-1]
    if run.rows and size < run.rows[-1][0] and run.ended:
        run = _Run(ranks=run.ranks, test=run.test, device=run.device)
        runs.append(run)
    if time_us <= 0 or size < 1 or len(run.rows) >= MAX_ROWS:
        return "a number is out of range"
    in_place = float(found[10]) if found[10] else None
    run.rows.append((size, time_us * 1e-6, float(found[7]), float(found[8]), in_place))
    return None


def _entry(run: _Run, path: str) -> LogEntry:
    kept, scale = _consistent(run)
    ranks = _ranks(run.ranks, kept)
    timings = tuple(
        Timing(
            phase="allreduce" if run.test == "all_reduce" else run.test,
            seconds=seconds,
            size_bytes=size,
            ranks=ranks,
            name=f"{run.test}_perf",
        )
        for size, seconds, *_ in kept
    )
    settings: dict[str, object] = {}
    if ranks:
        settings["ranks"] = ranks
    if run.device:
        settings["gpu"] = run.device
    if abs(scale - 1) > 0.05:
        settings["size_over_algbw_times_time"] = round(scale, 3)
    found = []
    if run.unread.get("truncated"):
        found.append(Diagnosis("truncated", f"{run.unread['truncated']} row(s) cut short"))
    return LogEntry(
        path=path,
        format="nccl_tests",
        settings=settings,
        windows=WindowCount(len(kept), len(kept)),
        timings=timings,
        diagnoses=tuple(found),
        unread=dict(run.unread),
    )


_Row = tuple[int, float, float, float, float | None]


def _consistent(run: _Run) -> tuple[list[_Row], float]:
    """Rows whose size, time and algbw agree, up to one factor common to all rows of the run."""
    scales = [size / seconds / 1e9 / algbw for size, seconds, algbw, *_ in run.rows if algbw > 0.5]
    common = median(scales) if len(scales) >= MIN_ROWS else 1.0
    alike = sum(abs(s / common - 1) < 0.02 for s in scales)
    power = abs(math.log2(common) - round(math.log2(common))) < 0.03
    scale = common if power and abs(common - 1) > 0.02 and 2 * alike > len(scales) else 1.0
    both = any(in_place is not None for *_, in_place in run.rows)
    kept = []
    for row in run.rows:
        size, seconds, algbw, busbw, in_place = row
        if both and in_place is None:
            run.unread["damaged row"] += 1
            continue
        expected = size / seconds / 1e9 / scale
        if abs(expected - algbw) > 0.0051 + 0.006 * expected or busbw > 2 * algbw + 0.02:
            run.unread["numbers contradict each other"] += 1
        else:
            kept.append(row)
    return kept, scale


def _ranks(stated: int | None, rows: list[_Row]) -> int | None:
    """Ranks as stated, unless bus over algorithm bandwidth, 2(n - 1)/n, says otherwise."""
    ratios = [busbw / algbw for _, _, algbw, busbw, _ in rows if algbw > 1]
    if not ratios:
        return stated
    ratio = median(ratios)
    if stated and abs(2 * (stated - 1) / stated - ratio) < RATIO_SLACK:
        return stated
    return round(2 / (2 - ratio)) if 0.99 <= ratio < 1.9 else None
