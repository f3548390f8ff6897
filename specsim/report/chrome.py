"""Timelines as a Chrome trace: JSON that opens in Perfetto and in chrome://tracing."""

import json
from collections.abc import Iterator, Sequence

import numpy as np

from specsim.metrics import Records
from specsim.report.timeline import LANES, PHASES, Timeline


def chrome_trace(shown: Sequence[Timeline]) -> str:
    """Return the trace of timelines, a process each and a thread per lane.

    Complete events (``"ph": "X"``) with microseconds to three decimals, that is whole nanoseconds;
    the number of waiting clients is a counter.
    """
    events = ",\n".join(line for pid, t in enumerate(shown, start=1) for line in _process(pid, t))
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{events}\n]}}\n'


def _process(pid: int, timeline: Timeline) -> Iterator[str]:
    """Names of a process and its threads, then its events."""
    yield _metadata(pid, 0, "process", timeline.title, pid)
    for tid, (lane, words) in enumerate(LANES.items()):
        if lane != "clients":
            yield _metadata(pid, tid, "thread", words, tid)
            yield from _events(pid, tid, timeline.lane(lane))
    yield from _counter(pid, timeline.lane("clients"), timeline.duration_ns)


def _metadata(pid: int, tid: int, kind: str, words: str, place: int) -> str:
    """Name and order of a process or a thread, as two events."""
    told = ((f"{kind}_name", {"name": words}), (f"{kind}_sort_index", {"sort_index": place}))
    return ",\n".join(
        json.dumps({"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args})
        for name, args in told
    )


def _events(pid: int, tid: int, spans: Records) -> Iterator[str]:
    names = {name: words for name, (_, words) in PHASES.items()}
    columns = ("phase", "round", "start_ns", "end_ns", "batch", "tokens", "accepted")
    rows = zip(*(spans[name].tolist() for name in columns), strict=True)
    for phase, number, start, end, batch, tokens, accepted in rows:
        where = f'"round": {number}, ' if number >= 0 else ""
        yield (
            f'{{"ph": "X", "pid": {pid}, "tid": {tid}, "name": "{names.get(phase, phase)}", '
            f'"ts": {_us(start)}, "dur": {_us(end - start)}, "args": {{{where}'
            f'"batch": {batch}, "tokens": {tokens:.6g}, "accepted": {accepted}}}}}'
        )


def _counter(pid: int, spans: Records, end_ns: int) -> Iterator[str]:
    """Yield the number of waiting clients at every change, 0 where nobody waits."""
    starts, ends = spans["start_ns"], spans["end_ns"]
    rows = list(zip(starts.tolist(), spans["batch"].tolist(), strict=True))
    rows += [(end, 0) for end in ends[~np.isin(ends, starts)].tolist() if end < end_ns]
    for at, waiting in sorted(rows or [(0, 0)]):
        yield (
            f'{{"ph": "C", "pid": {pid}, "name": "{LANES["clients"]}", "ts": {_us(at)}, '
            f'"args": {{"waiting": {waiting}}}}}'
        )


def _us(ns: int) -> str:
    """Microseconds of nanoseconds, exactly.

    >>> _us(1234567)
    '1234.567'
    """
    return f"{ns // 1000}.{ns % 1000:03d}"
