"""TensorRT-LLM's iteration statistics in JSON."""

from __future__ import annotations

import re
from typing import Any

from specsim.logs.entry import LogEntry
from specsim.logs.format import Format
from specsim.logs.formats._trtllm import Iteration, Server, Statistics
from specsim.logs.json_values import json_values, number, table
from specsim.logs.source import Source
from specsim.logs.unread import MISSING, Unread, check, counted


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read iteration statistics: JSON objects with ``iterLatencyMS``."""
    server = Server("trtllm_stats")
    for value in json_values(source.lines()):
        for record in value if isinstance(value, list) else [value]:
            with counted(server.unread):
                server.take(_of_record(record))
    return [server.entry(source.path)]


def _of_record(record: Any) -> Iteration:
    if isinstance(record, Unread):
        raise record
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
