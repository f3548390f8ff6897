"""TensorRT-LLM's iteration statistics in JSON."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from specsim.logs.entry import LogEntry
from specsim.logs.format import Format
from specsim.logs.formats._trtllm import Iteration, Server, Statistics
from specsim.logs.json_values import json_values, number, table, whole
from specsim.logs.source import Source
from specsim.logs.unread import MISSING, Unread, check, counted

_RANKS = ("attentionDpRank", "attention_dp_rank", "dpRank", "rank")
_SLOWEST = ("iterLatencyMS", "numQueuedRequests", "tokensPerBlock", "iter")
"""Figures that ranks share; others they add up to."""


def parse(source: Source) -> list[LogEntry]:
    """Read iteration statistics: JSON objects with ``iterLatencyMS``.

    With attention data parallelism each rank has requests of its own, and a record of each
    iteration: they are summed, and the slowest is how long it took.
    """
    server, summed = Server("trtllm_stats"), Server("trtllm_stats")
    ranks: dict[int | None, dict[int, Mapping[str, Any]]] = {}
    for value in json_values(source.lines()):
        for record in value if isinstance(value, list) else [value]:
            with counted(server.unread):
                if isinstance(record, Unread):
                    raise record
                iteration = _of_record(record)
                rank = next((record[key] for key in _RANKS if key in record), None)
                if isinstance(rank, int):
                    ranks.setdefault(whole(record, "iter"), {})[rank] = record
                else:
                    server.take(iteration)
    if not ranks:
        return [server.entry(source.path)]
    most, lost = max(map(len, ranks.values())), server.read  # these do not say of which rank
    for at, together in ranks.items():
        if at is not None and len(together) == most > 1:
            with counted(summed.unread):
                summed.take(_of_record(_sum(list(together.values()))))
        else:
            lost += len(together)
    summed.unread += server.unread + Counter({"ranks are missing": lost})
    return [summed.entry(source.path)]


def _sum(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the records of one iteration of all ranks, which must say the same."""
    total: dict[str, Any] = {}
    check(all(rank.keys() == ranks[0].keys() for rank in ranks), MISSING)
    for key, first in ranks[0].items():
        values = [rank[key] for rank in ranks]
        if isinstance(first, dict) and all(isinstance(value, dict) for value in values):
            total[key] = _sum(values)
        elif all(type(value) in (int, float) for value in values):
            total[key] = max(values) if key in _SLOWEST else sum(values)
        else:
            total[key] = first
    return total


def _of_record(record: Mapping[str, Any]) -> Iteration:
    check(isinstance(record, dict), "not an object")
    flight, cache = table(record, "inflightBatchingStats"), table(record, "kvCacheStats")
    latency_ms = number(record, "iterLatencyMS")
    batch, prefills = number(flight, "numGenRequests"), number(flight, "numContextRequests")
    if latency_ms is None or batch is None or prefills is None or latency_ms < 0 or batch % 1:
        raise Unread(MISSING)
    used, blocks = number(cache, "usedNumBlocks"), number(cache, "maxNumBlocks")
    drafts = table(record, "specDecodingStats")
    accepted = number(drafts, "numAcceptedTokens")
    drafting = number(drafts, "numRequestsWithDraftTokens")
    counted = accepted is not None and bool(drafting)
    stated = Statistics(
        queue=int(number(record, "numQueuedRequests") or 0),
        kv_tokens=(blocks or 0.0) * (number(cache, "tokensPerBlock") or 0.0),
        accepted=int(accepted or 0) if counted else 0,
        drafting=int(drafting or 0) if counted else 0,
        speculates=counted or (None if drafts or "specDecodingStats" not in record else False),
    )
    return Iteration(
        number=0,
        rank=0,
        requests=int(batch),
        usage=used / blocks if used is not None and blocks else None,
        seconds=latency_ms / 1e3,
        prefills=prefills,
        prompt_tokens=number(flight, "numCtxTokens") or 0.0,
        decodes=batch >= 1,
        stated=stated,
    )


FORMAT = Format(
    name="trtllm_stats", mark=re.compile(rb'"iterLatencyMS"'), parse=parse, is_json=True
)
