"""The report that ``trtllm-bench`` prints, or writes as JSON, of TensorRT-LLM without a server."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from specsim.logs.entry import LogEntry
from specsim.logs.format import Format
from specsim.logs.formats._benchmarks import figures_of, runs
from specsim.logs.formats._results import LOOSE, agree, entry_of, joined, row_of, with_unread
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, MISSING, check, counted

UNLIMITED_RATE = 1e9
"""Requests per second above which all were issued at once."""
HELD = 0.95
"""From this share of the largest batch on, on average in flight, clients kept it full."""


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read printed reports."""
    unread: Counter[str] = Counter()
    entries = []
    for said in runs(source, "trtllm_bench", unread):
        with counted(unread):
            if figures_of(said):
                entries.append(report(said))
    return with_unread(joined(entries, source.path), +unread, source.path, FORMAT.name)


def report(stated: Mapping[str, float | str]) -> LogEntry:
    """Return the entry of a report, its figures checked against each other."""
    said = figures_of(stated)
    check("output_tps" in said, MISSING)
    sizes = {name: said.pop(name) for name in ("tp", "pp", "ep") if name in said}
    gpus = sizes.get("tp", 0.0) * sizes.get("pp", 1.0)
    per_gpu, cap = said.pop("gpu_tps", None), said.pop("max_running_requests", None)
    check(not gpus or agree(per_gpu, said["output_tps"] / gpus), CONTRADICTION)
    n, seconds, flight = map(said.get, ("num_requests", "duration_s", "in_flight"))
    if n and seconds and "e2e_s" in said:
        check(agree(flight, n * said["e2e_s"] / seconds, LOOSE), CONTRADICTION)
    if said.get("request_rate", 0.0) > UNLIMITED_RATE:
        del said["request_rate"]
    if flight and cap and flight <= cap:
        said["batch_size"] = flight  # none waits for a place
        if flight >= HELD * cap and "request_rate" not in said:
            said["concurrency"] = cap
    extra = {"e2e_s": said["e2e_s"]} if "e2e_s" in said else {}
    row = row_of(said, accept_length_scope="run", extra=extra)
    settings: dict[str, object] = {name: int(size) for name, size in sizes.items() if size}
    if cap:
        settings["max_running_requests"] = int(cap)
    texts = {name: text for name, text in stated.items() if isinstance(text, str)}
    version = texts.pop("version", None)
    settings |= {name: text for name, text in texts.items() if text != "None"}
    return entry_of(FORMAT.name, row, settings, "tensorrt-llm", version)


FORMAT = Format(
    name="trtllm_bench",
    mark=re.compile(
        rb"^Total Output Throughput \(tokens/sec\):|^Number of concurrent requests: "
        rb"|^Max Runtime Batch Size: |^Per GPU Output Throughput \(tps/gpu\):",
        re.MULTILINE,
    ),
    parse=parse,
)
