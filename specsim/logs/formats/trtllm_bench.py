"""The report that ``trtllm-bench`` prints, of TensorRT-LLM itself without a server."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from specsim.logs.entry import LogEntry
from specsim.logs.format import Format
from specsim.logs.formats._results import LOOSE, agree, entry_of, joined, row_of, with_unread
from specsim.logs.source import Source
from specsim.logs.unread import (
    CONTRADICTION,
    DAMAGED,
    MISSING,
    TRUNCATED,
    TWO_IN_ONE,
    Unread,
    check,
    counted,
)

FIGURES = {
    "Number of requests": ("num_requests", 1.0),
    "Number of concurrent requests": ("in_flight", 1.0),
    "Average Input Length (tokens)": ("input_len", 1.0),
    "Average Output Length (tokens)": ("output_len", 1.0),
    "TP Size": ("tp", 1.0),
    "PP Size": ("pp", 1.0),
    "EP Size": ("ep", 1.0),
    "Max Runtime Batch Size": ("max_running_requests", 1.0),
    "Issue Rate (req/sec)": ("request_rate", 1.0),
    "Request Throughput (req/sec)": ("request_throughput", 1.0),
    "Total Output Throughput (tokens/sec)": ("output_tps", 1.0),
    "Total Latency (ms)": ("duration_s", 1e-3),
    "Average request latency (ms)": ("e2e_s", 1e-3),
    "Per GPU Output Throughput (tps/gpu)": ("gpu_tps", 1.0),
    "Average time-to-first-token [TTFT] (ms)": ("ttft_s", 1e-3),
    "Average time-per-output-token [TPOT] (ms)": ("tpot_s", 1e-3),
    "[AR] AVERAGE": ("accept_length", 1.0),
}
"""Printed label -> name of the figure, and the factor to its SI unit."""
TEXTS = {
    "Model": "model",
    "Quantization": "quantisation",
    "KV Cache Dtype": "kv_dtype",
    "TensorRT LLM Version": "version",
    "TensorRT-LLM Version": "version",
}
_LINE = re.compile(r"([A-Z\[][^:\n]{1,60}?) *: +(\S[^\n]{0,99}?)[ \t]*\r?\n?")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?(?:E[+-]\d\d)?")
_STARTED = re.compile(rf"(?:{'|'.join(map(re.escape, [*FIGURES, *TEXTS]))}) *:")
UNLIMITED_RATE = 1e9
"""Requests per second above which all were issued at once."""
HELD = 0.95
"""From this share of the largest batch on, on average in flight, clients kept it full."""


@dataclass(slots=True)
class _Report:
    said: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    damaged: bool = False  # a figure came twice


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read reports; each begins with the model or the number of requests."""
    reports, unread = [_Report()], Counter[str]()
    for raw in source.lines():
        line = raw.decode("utf-8", "replace")
        found = _LINE.fullmatch(line)
        label = found[1] if found else ""
        if found is None or (label not in FIGURES and label not in TEXTS):
            unread[DAMAGED] += 1 if _STARTED.match(line) else 0
        elif not raw.endswith((b"\n", b"\r")):
            unread[TRUNCATED] += 1
        else:
            with counted(unread):
                _take(reports, label, found[2])
    entries = []
    for report in reports:
        with counted(unread):
            if report.said:
                entries.append(_entry(report))
    return with_unread(joined(entries, source.path), +unread, source.path, FORMAT.name)


def _take(reports: list[_Report], label: str, value: str) -> None:
    if label in TEXTS:
        if label == "Model" and reports[-1].said:
            reports.append(_Report())
        reports[-1].texts.setdefault(TEXTS[label], value)
        return
    name, factor = FIGURES[label]
    if name == "num_requests" and name in reports[-1].said:
        reports.append(_Report())
    if not _NUMBER.fullmatch(value):
        raise Unread(DAMAGED)
    reports[-1].damaged |= name in reports[-1].said
    reports[-1].said[name] = float(value) * factor


def _entry(report: _Report) -> LogEntry:
    said, texts = dict(report.said), dict(report.texts)
    check(not report.damaged, TWO_IN_ONE)
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
        if flight >= HELD * cap:
            said["concurrency"] = cap
    row = row_of(said, accept_length_scope="run", extra=_extra(said))
    settings: dict[str, object] = {name: int(size) for name, size in sizes.items() if size}
    if cap:
        settings["max_running_requests"] = int(cap)
    version = texts.pop("version", None)
    settings |= {name: text for name, text in texts.items() if text != "None"}
    return entry_of(FORMAT.name, row, settings, "tensorrt-llm", version)


def _extra(said: dict[str, float]) -> dict[str, float]:
    return {"e2e_s": said["e2e_s"]} if "e2e_s" in said else {}


FORMAT = Format(
    name="trtllm_bench",
    mark=re.compile(
        rb"^Total Output Throughput \(tokens/sec\):|^Number of concurrent requests: "
        rb"|^Max Runtime Batch Size: |^Per GPU Output Throughput \(tps/gpu\):",
        re.MULTILINE,
    ),
    parse=parse,
)
