"""What is wrong with a server's log: each rule says it in a sentence, or says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from specsim.logs.entry import Code, Diagnosis, LogRow

if TYPE_CHECKING:
    from specsim.logs.windows import Windows

FULL_KV = 0.9
"""Fraction of the KV cache in use from which on it is what limits the batch."""
FULL_DRAFTS = 0.95
"""Below this share of the depth, drafts are partial."""
MIN_PREFILL_SHARE = 0.1
QUEUE_DOMINATES = 2.0
"""A queue this many times the batch means that requests spend most of their time waiting."""
SAME_BATCH = 0.1
"""Relative difference of batches that are about the same."""
STALLED_BATCH = 1.5
"""One running request with others waiting is no load level."""
STEADY_WINDOWS = 3
"""A batch that stays the same over so many windows while requests wait may be at a cap."""
SPECULATION_CAPS = (32, 48)
"""SGLang's default max_running_requests when speculating: 0.4.3, and from 0.4.4."""

Finding = tuple[Code, str]
"""A code and its message, empty where there is nothing to say."""


def told(findings: Iterable[Finding]) -> list[Diagnosis]:
    """Return the diagnoses that say something.

    >>> [d.code for d in told([("eager", ""), ("capped", "why")])]
    ['capped']
    """
    return [Diagnosis(code, text) for code, text in findings if text]


def of_load(
    rows: Sequence[LogRow], settings: Mapping[str, object], windows: Windows
) -> list[Diagnosis]:
    """Return the diagnoses of an entry's rows that need no knowledge of the engine's formats."""
    share = windows.with_prefill / max(windows.read, 1)
    mixed = f"{100 * share:.0f} % of windows contain prefill: their throughput is not pure decoding"
    rank = windows.ranks.alone
    alone = (
        f"only data-parallel rank {rank} is in this log, one of at least {rank + 1}: its numbers "
        "are that replica's, not the sum over all"
    )
    queued = (
        f"{row.queue:.0f} requests wait while {row.batch_size:.0f} run: "
        "latencies seen by clients are mostly queueing"
        for row in rows
        if row.queue and row.batch_size and row.queue >= QUEUE_DOMINATES * row.batch_size
    )
    return told(
        [
            ("capped", _capped(rows, settings, windows.most_running)),
            ("queue_dominated", next(queued, "")),
            ("eager", _eager(rows)),
            ("prefill_mixed", mixed if share >= MIN_PREFILL_SHARE else ""),
            ("acceptance_drift", windows.blocks.told()),
            ("one_rank", alone if rank else ""),
        ]
    )


def _capped(rows: Sequence[LogRow], settings: Mapping[str, object], most_running: float) -> str:
    """Tell whether requests wait although the batch does not grow.

    A cap that the log states, and a full KV cache, show in one window; any other takes a batch
    that stays the same, and never was larger.
    """
    waiting = [r for r in rows if r.queue is not None and r.queue >= 0.5 and r.batch_size]
    if not waiting:
        return ""
    row = max(waiting, key=lambda r: (r.windows, r.batch_size or 0.0))
    batch, queue, usage = row.batch_size or 0.0, row.queue or 0.0, row.kv_usage
    what = f"{batch:.0f} of {batch + queue:.0f} requests run"
    cap = settings.get("max_running_requests")
    at_cap = isinstance(cap, int) and batch >= 0.95 * cap
    steady = row.windows >= STEADY_WINDOWS and most_running <= (1 + SAME_BATCH) * batch
    speculates = settings.get("algorithm") != "none"
    if at_cap and (settings.get("max_running_requests_source") or cap in SPECULATION_CAPS):
        why = f"the default cap when speculating is {cap} (--max-running-requests)"
    elif at_cap:
        why = f"max_running_requests is {cap}"
    elif usage is not None and usage >= FULL_KV:
        why = f"the KV cache is {100 * usage:.0f} % full"
    elif not steady:
        return ""
    elif (
        speculates
        and not isinstance(cap, int)
        and any(abs(batch - default) < 1 for default in SPECULATION_CAPS)
    ):
        why = f"the default cap when speculating is {batch:.0f} (--max-running-requests)"
    elif batch < STALLED_BATCH:
        full = "" if usage is None else f" although the KV cache is only {100 * usage:.0f} % full"
        return f"{what}{full}: the scheduler is stalled, or set to one request"
    else:
        why = "a cap on running requests that the log does not state"
    return f"throughput is flat because {what}: {why}"


def _eager(rows: Sequence[LogRow]) -> str:
    """Tell whether some windows ran without CUDA graph."""
    without = [r for r in rows if r.cuda_graph is False]
    if not without:
        return ""
    batches = [r.batch_size or 0.0 for r in without]
    graphed = [r.batch_size or 0.0 for r in rows if r.cuda_graph]
    if graphed and max(graphed) < min(batches):
        where = f"above {max(graphed):.0f} running requests"
    elif graphed:
        share = sum(r.windows for r in without) / sum(r.windows for r in rows)
        where = f"in {100 * share:.0f} % of windows"
    else:
        where = "in all windows"
    return f"no graph (cuda graph: False) {where}: those rounds run eager and slower"


def partial_drafting(
    each: float | None, steps: int | None, at_ends: float = 0.0
) -> list[Diagnosis]:
    """Tell whether fewer tokens are drafted per round than `steps`, but for the ends of requests.

    >>> partial_drafting(1.4, 3)[0].message
    '1.4 of 3 tokens are drafted per round: not every round drafts in full'
    """
    if not steps or each is None or each + at_ends >= FULL_DRAFTS * steps:
        return []
    text = f"{each:.1f} of {steps} tokens are drafted per round: not every round drafts in full"
    return [Diagnosis("partial_drafting", text)]


def truncated(unread: Mapping[str, int], what: str = "line(s)") -> list[Diagnosis]:
    """Tell of lines or records that were cut short.

    >>> truncated({"truncated": 2})[0].message
    '2 line(s) cut short were not read'
    """
    cut = unread.get("truncated", 0)
    return [Diagnosis("truncated", f"{cut} {what} cut short were not read")] if cut else []
