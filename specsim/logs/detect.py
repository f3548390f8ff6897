"""Which format a file is in: by its content, never by its name."""

from __future__ import annotations

import re
from typing import Literal, get_args

from specsim.errors import FormatError
from specsim.logs.nccl import LOOKS_LIKE as NCCL_ROW
from specsim.logs.prometheus import START as PROMETHEUS_START
from specsim.logs.source import Source

Format = Literal[
    "sglang_log",
    "vllm_log",
    "trtllm_log",
    "trtllm_stats",
    "prometheus",
    "bench_json",
    "table",
    "nccl_tests",
    "nsys_kernel_summary",
    "nsys_sqlite",
    "chrome_trace",
    "llamacpp",
    "golden_acceptance",
    "probe",
]
"""Names of the formats; entries of ``bench_json`` and ``table`` name theirs more closely."""

FORMATS: tuple[Format, ...] = get_args(Format)

FIRST_BYTES = 1 << 16
"""The first look is at so much; most files show what they are within it."""
SEARCH_BYTES = 32 << 20
"""How far into a file a known line is looked for."""

_JSON_KEYS: dict[Format, re.Pattern[bytes]] = {
    "probe": re.compile(rb'"schema": ?"specsim\.probe/'),
    "chrome_trace": re.compile(rb'"traceEvents"|"deviceProperties"|"ph": ?"[XM]"'),
    "trtllm_stats": re.compile(rb'"iterLatencyMS"'),
    "bench_json": re.compile(
        rb'"output_throughput"|"internal_states"|"acc_length"|"step_time"'
        rb'|"spec_accept_histogram"|"spec_correct_drafts_histogram"|"acceptance_histogram"'
    ),
}

_TEXT: dict[Format, re.Pattern[bytes]] = {
    "sglang_log": re.compile(
        rb"Decode batch(?: ?\[\d+\])?[.,] |Prefill batch(?: ?\[\d+\])?[.,] "
        rb"|server_args=ServerArgs\("
        rb"|max_total_num_tokens=\d|KV Cache is allocated\. #tokens|#retracted_reqs: "
        rb"|Max running requests is reset to|Capture (?:draft |draft extend )?cuda graph "
        rb"|Capture [a-z ]{5,14} CUDA graph |[Ss]pec v[12] "
    ),
    "vllm_log": re.compile(
        rb"Avg generation throughput: |SpecDecoding metrics: |Speculative metrics: "
        rb"|vLLM API server version|LLM engine \(v\d"
    ),
    "trtllm_log": re.compile(rb"iter = \d+, global_rank = |currank_total_requests = "),
    "prometheus": re.compile(PROMETHEUS_START.pattern, re.MULTILINE),
    "table": re.compile(
        rb"Serving Benchmark Result|\| Acc Length +\|| Speed \(token/s\) +\||\| Key +\| Value +\|"
        rb"|\| *batch size *\|"
    ),
    "nccl_tests": re.compile(
        rb"^" + NCCL_ROW.pattern + rb"|^# nThread \d|out-of-place +in-place", re.MULTILINE
    ),
    "nsys_kernel_summary": re.compile(rb"Total Time \(ns\)[^\n]{1,16}Instances"),
    "llamacpp": re.compile(
        rb"llama_perf_\w|llama_print_timings|^n_(?:drafted|accept) +=|eval time = +\d"
        rb"|draft acceptance(?: rate)? = ",
        re.MULTILINE,
    ),
    "golden_acceptance": re.compile(
        rb"^ *[\"']?(?:num_speculative_tokens_?)?\d{1,2}[\"']?: +\d\.\d"
        rb"|^ *num_speculative_tokens: +\d|: +\{[\"']?1[\"']?: *\d\.\d",
        re.MULTILINE,
    ),
}


def detect(source: Source) -> Format:
    """Return the format of an open file.

    Parameters
    ----------
    source
        The file; its head grows while nothing known has been found in it.

    Raises
    ------
    FormatError
        If it is in no format that specsim reads.
    """
    if source.is_sqlite:
        return "nsys_sqlite"
    found = detect_text(source.head[:FIRST_BYTES])
    if found:
        return found
    begun = 0
    while True:
        found = detect_text(source.head, begun)
        if found:
            return found
        begun = max(len(source.head) - 4096, 0)
        if len(source.head) >= SEARCH_BYTES or not source.grow():
            break
    raise FormatError(
        source.path,
        "is in no format that specsim reads",
        "give a log of SGLang, vLLM, TensorRT-LLM or llama.cpp, a benchmark result, Prometheus "
        "metrics, a torch or Nsight trace, nccl-tests output, or a probe.json",
    )


def detect_text(head: bytes, begin: int = 0) -> Format | None:
    """Return the format whose marks are most frequent in the head of a file.

    >>> detect_text(b"[2026-01-01 00:00:00] Decode batch, #running-req: 1")
    'sglang_log'
    """
    if _first_character(head) in (b"{", b"["):
        for name, pattern in _JSON_KEYS.items():
            if pattern.search(head, begin):
                return name
    counts = {name: len(pattern.findall(head, begin)) for name, pattern in _TEXT.items()}
    best = max(counts, key=lambda name: counts[name])
    if counts[best]:
        return best
    return next((n for n, p in _JSON_KEYS.items() if p.search(head, begin)), None)


def _first_character(head: bytes) -> bytes:
    """First character that is not in a comment line."""
    for line in head[:65536].splitlines():
        text = line.strip()
        if text and not text.startswith(b"#"):
            return text[:1]
    return b""
