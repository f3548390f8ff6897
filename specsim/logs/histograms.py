"""Per-request histograms of accepted drafts: the best source of survival by depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from specsim.logs.entry import LogEntry, LogRow, WindowCount

KEYS = ("spec_accept_histogram", "spec_correct_drafts_histogram", "acceptance_histogram")
"""SGLang 0.5.9 to 0.5.20, SGLang from 0.5.12, vLLM front ends; entry i counts the rounds that
accepted i drafts."""
_MAX_DEPTH = 128
_MAX_NODES = 100_000


def histograms_in(value: Any) -> Iterator[list[int]]:
    """Yield the histograms in a JSON value, however deep; a request's double names count once.

    >>> list(histograms_in({"meta_info": {"spec_accept_histogram": [3, 1]}}))
    [[3, 1]]
    """
    stack, visited = [value], 0
    while stack and visited < _MAX_NODES:
        node = stack.pop()
        visited += 1
        if isinstance(node, dict):
            found = next((h for key in KEYS if (h := _histogram(node.get(key)))), None)
            if found:
                yield found
            stack.extend(v for v in node.values() if isinstance(v, dict | list))
        elif node and isinstance(node[0], dict):
            stack.extend(v for v in node if isinstance(v, dict))


def _histogram(value: Any) -> list[int] | None:
    if not isinstance(value, list) or not 1 <= len(value) <= _MAX_DEPTH:
        return None
    good = all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 10**12 for v in value)
    return list(value) if good and sum(value) else None


def histogram_entry(histograms: Sequence[Sequence[int]], path: str) -> LogEntry:
    """Return one entry for all requests: survival[d] = rounds with at least d over rounds."""
    depth = max(map(len, histograms))
    total = [sum(h[i] for h in histograms if i < len(h)) for i in range(depth)]
    rounds = sum(total)
    survival = tuple(sum(total[d:]) / rounds for d in range(1, depth))
    row = LogRow(
        kind="closed_loop",
        accept_length=1 + sum(i * n for i, n in enumerate(total)) / rounds,
        accept_length_scope="run",
        survival=survival or None,
        num_requests=len(histograms),
        windows=len(histograms),
    )
    return LogEntry(
        path=path,
        format="accept_histogram",
        settings={"num_steps": depth - 1} if depth > 1 else {},
        rows=(row,),
        windows=WindowCount(len(histograms), len(histograms)),
    )
