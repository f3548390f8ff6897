"""What is wrong with a server's log: rules here, words in ``formats/diagnoses.toml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from specsim.logs.entry import Code, Diagnosis, LogRow
from specsim.logs.formats import listed

if TYPE_CHECKING:
    from specsim.logs.windows import Windows

FULL_KV = 0.9  # fraction of the KV cache in use from which on it is what limits the batch
FULL_DRAFTS = 0.95  # below this share of the depth, drafts are partial
MIN_PREFILL_SHARE = 0.1
QUEUE_DOMINATES = 2.0  # at a queue this many times the batch, requests mostly wait
SAME_BATCH = 0.1  # relative difference of batches that are about the same
STALLED_BATCH = 1.5  # one running request with others waiting is no load level
STEADY_WINDOWS = 3  # a batch that stays the same over so many while requests wait may be at a cap
SPECULATION_CAPS = (32, 48)  # SGLang's max_running_requests when speculating: 0.4.3, and from 0.4.4


def words(code: Code, name: str, /, **values: object) -> str:
    """Return words of ``formats/diagnoses.toml``, filled in.

    >>> words("eager", "above", batch=8.0)
    'above 8 running requests'
    """
    text: str = listed("diagnoses", code, name)
    return text.format(**values)


def finding(code: Code, name: str, /, **values: object) -> Diagnosis:
    """Return a diagnosis in the words of ``formats/diagnoses.toml``."""
    return Diagnosis(code, words(code, name, **values))


def of_load(
    rows: Sequence[LogRow], settings: Mapping[str, object], windows: Windows
) -> Iterator[Diagnosis]:
    """Yield the diagnoses of an entry's rows that need no knowledge of the engine's formats."""
    yield from _capped(rows, settings, windows.most_running)
    for row in rows:
        if row.queue and row.batch_size and row.queue >= QUEUE_DOMINATES * row.batch_size:
            yield finding("queue_dominated", "load", queue=row.queue, batch=row.batch_size)
            break
    yield from _eager(rows)
    share = windows.with_prefill / max(windows.read, 1)
    if share >= MIN_PREFILL_SHARE:
        yield finding("prefill_mixed", "windows", percent=100 * share)
    yield from windows.blocks.told()
    if rank := windows.ranks.alone:
        yield finding("one_rank", "alone", rank=rank, least=rank + 1)


def _capped(
    rows: Sequence[LogRow], settings: Mapping[str, object], most_running: float
) -> Iterator[Diagnosis]:
    """Tell whether requests wait although the batch does not grow.

    A cap that the log states, and a full KV cache, show in one window; any other takes a batch
    that stays the same, and never was larger.
    """
    waiting = [r for r in rows if r.queue is not None and r.queue >= 0.5 and r.batch_size]
    if not waiting:
        return
    row = max(waiting, key=lambda r: (r.windows, r.batch_size or 0.0))
    batch, queue, usage = row.batch_size or 0.0, row.queue or 0.0, row.kv_usage
    what = words("capped", "what", batch=batch, all=batch + queue)
    cap = settings.get("max_running_requests")
    at_cap = isinstance(cap, int) and batch >= 0.95 * cap
    steady = row.windows >= STEADY_WINDOWS and most_running <= (1 + SAME_BATCH) * batch
    usual = any(abs(batch - default) < 1 for default in SPECULATION_CAPS)
    if at_cap and (settings.get("max_running_requests_source") or cap in SPECULATION_CAPS):
        why = words("capped", "default", cap=cap)
    elif at_cap:
        why = words("capped", "stated", cap=cap)
    elif usage is not None and usage >= FULL_KV:
        why = words("capped", "full", percent=100 * usage)
    elif not steady:
        return
    elif settings.get("algorithm") != "none" and not isinstance(cap, int) and usual:
        why = words("capped", "default", cap=batch)
    elif batch < STALLED_BATCH:
        full = "" if usage is None else words("capped", "although", percent=100 * usage)
        yield finding("capped", "stalled", what=what, although=full)
        return
    else:
        why = words("capped", "unstated")
    yield finding("capped", "flat", what=what, why=why)


def _eager(rows: Sequence[LogRow]) -> Iterator[Diagnosis]:
    """Tell whether some windows ran without CUDA graph."""
    without = [r for r in rows if r.cuda_graph is False]
    if not without:
        return
    batches = [r.batch_size or 0.0 for r in without]
    graphed = [r.batch_size or 0.0 for r in rows if r.cuda_graph]
    share = sum(r.windows for r in without) / sum(r.windows for r in rows)
    where = "share" if graphed else "all"
    if graphed and max(graphed) < min(batches):
        where = "above"
    place = words("eager", where, batch=max(graphed, default=0), percent=100 * share)
    yield finding("eager", "rounds", where=place)


def partial_drafting(
    each: float | None, steps: object, at_ends: float = 0.0
) -> Iterator[Diagnosis]:
    """Tell whether fewer tokens are drafted per round than `steps`, but for the ends of requests.

    >>> next(partial_drafting(1.4, 3)).message
    '1.4 of 3 tokens are drafted per round: not every round drafts in full'
    """
    depth = steps if isinstance(steps, int) else 0
    if each is not None and each + at_ends < FULL_DRAFTS * depth:
        yield finding("partial_drafting", "each", each=each, steps=steps)


def nothing_accepted(algorithm: object, where: str = "") -> Iterator[Diagnosis]:
    """Tell of an accept length of 1.00: a drafter that fails, or none that runs.

    Where nothing names a drafter it may be either: a share of 1/n is printed of both.

    >>> [found.code for found in nothing_accepted("EAGLE3")]
    ['zero_acceptance']
    >>> [found.code for found in nothing_accepted(None)]
    ['zero_acceptance', 'speculation_off']
    """
    runs = "runs" if algorithm else "may_run"
    so = words("zero_acceptance", runs, where=where, algorithm=algorithm)
    yield finding("zero_acceptance", "broken", so=so)
    if not algorithm:
        yield finding("speculation_off", "may_be")


def truncated(unread: Mapping[str, int], what: str = "line(s)") -> Iterator[Diagnosis]:
    """Tell of lines or records that were cut short.

    >>> next(truncated({"truncated": 2})).message
    '2 line(s) cut short were not read'
    """
    if cut := unread.get("truncated", 0):
        yield finding("truncated", what, n=cut)
