"""Serving benchmarks of SGLang and vLLM, and what was made after them: JSON and tables."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specsim.logs.diagnose import finding
from specsim.logs.entry import LogEntry
from specsim.logs.facts import settings_of_args
from specsim.logs.formats._benchmarks import in_si, names
from specsim.logs.formats._grids import LABELLED, Grid
from specsim.logs.formats._results import engine_of, entry_of, row_of, run_entry
from specsim.logs.json_values import number, table, text, whole
from specsim.logs.unread import MISSING, TRUNCATED, check
from specsim.setting import algorithm_name, chain_settings

RATES = "spec_decode_per_position_acceptance_rates"

_SGLANG_KEYS = {
    *("accept_length", "total_throughput", "server_info", "total_input_text_tokens"),
    *("total_output_tokens_retokenized", "concurrency", "max_itl_ms"),
}
_TEXTS = {"backend": "backend", "dataset_name": "dataset", "tag": "tag"}
_POSITION = re.compile(r"[ \t]*Position (\d{1,2}):[ \t]+(\d{1,3}\.\d{1,4})\s*")
FEW_FAILED = 0.05  # of the requests that completed: with more it was another load
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_MEASURE = re.compile(r"(?:Mean|Median|P9\d|Output|Total|Request|Accept|Benchmark)\b")


def serving(record: Mapping[str, Any], suffix: str = "") -> LogEntry:
    """Read a record of ``sglang.bench_serving`` or ``vllm bench serve``, by the keys of their JSON.

    `suffix` goes to the name of the format. Raises :class:`Unread` if it makes no measurement.
    """
    known = names("serving")
    check(all(number(record, k) is not None for k in known if record.get(k) is not None), MISSING)
    said = in_si({n: v for key, n in known.items() if (v := number(record, key)) is not None})
    check(whole(record, "completed") is not None and said.get("duration_s"), MISSING)
    check(said["num_requests"], "no request completed")
    few = FEW_FAILED * said["num_requests"]
    check((number(record, "failed") or 0.0) <= few, "many requests failed")
    check(said.get("output_tps"), MISSING)
    rates = record.get(RATES)
    survival = rates if isinstance(rates, list) and rates else None
    check(all(type(r) in (int, float) for r in survival or ()), "per-position rates are damaged")
    info = table(record, "server_info")
    settings = _settings(record, info, survival)
    if settings.get("algorithm") == "none":
        said.setdefault("accept_length", 1.0)
    if rate := _request_rate(record):
        said["request_rate"] = rate
    elif "concurrency" not in said and "max_concurrency" in record and rate is None:
        said["concurrency"] = said["num_requests"]  # all were sent at once
    # whose client wrote it: SGLang's has keys of its own, whatever server it asks
    ours = (text(record, "backend") or "").startswith("sglang")
    vllm = not ours and not _SGLANG_KEYS & record.keys()
    # SGLang reports the mean since the server started, vLLM that of this run.
    row = row_of(said, survival, accept_length_scope="run" if vllm else "pooled")
    later = said.get("e2e_s", 0.0) - said.get("ttft_s", 0.0)
    if not vllm and row.tpot_s is None and row.ttft_s and (row.output_len or 0) > 1 and later > 0:
        row = replace(row, tpot_s=later / ((row.output_len or 0.0) - 1))
    return entry_of(
        ("vllm_bench_serve" if vllm else "sglang_bench_serving") + suffix,
        row,
        settings,
        _engine(record, vllm),
        text(info, "version"),
        # SGLang's own client spreads the gap between two chunks over their tokens
        chunks=text(record, "backend") != "sglang",
        # that prints an accept length only where a drafter is loaded
        drafts=not vllm and "accept_length" in record and settings.get("algorithm") != "none",
    )


def _engine(record: Mapping[str, Any], vllm: bool) -> str | None:
    """Return the engine that was asked: a backend may name an interface that others have too."""
    own = "openai" if "user_throughput" in record else "vllm"  # TensorRT-LLM's copy of vLLM's
    engine = engine_of(text(record, "backend") or own)
    if vllm:
        return engine or ("vllm" if any(key.startswith("spec_decode_") for key in record) else None)
    return "sglang" if engine == "sglang" or "server_info" in record else None


def _request_rate(record: Mapping[str, Any]) -> float | None:
    """Return requests per second; None where all were sent at once, 0 at times of their own."""
    value = record.get("request_rate")
    try:
        rate = None if isinstance(value, bool) else float(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0.0 if value == "trace" else None
    return rate if rate and 0 < rate < math.inf else None


def _settings(
    record: Mapping[str, Any], info: Mapping[str, Any], survival: Sequence[float] | None
) -> dict[str, object]:
    settings = settings_of_args(info) if info else {}
    if survival:
        settings.update(chain_settings(len(survival)))
    if model := text(record, "model_id"):
        settings.setdefault("model", model)
    settings |= {name: value for key, name in _TEXTS.items() if (value := text(record, key))}
    if algorithm := text(record, "speculative_algorithm"):
        settings["algorithm"] = algorithm_name(algorithm)
    return settings


def of_table(grid: Grid, unread: Counter[str]) -> LogEntry:
    """Read a printed table: lines under a title, and some above it.

    Raises :class:`Unread` if two were written into one, or as :func:`serving`.
    """
    labels = names("lines", "serving")
    record: dict[str, Any] = {}
    rates: dict[int, float] = {}
    within: set[str] = set()
    for index, line in enumerate((*grid.above, *(row[0] for row in grid.rows))):
        found, position = LABELLED.fullmatch(line), _POSITION.fullmatch(line)
        key = labels.get(found[1]) if found else None
        if position:
            rates[int(position[1])] = float(position[2]) / 100
        elif found is None:
            unread[TRUNCATED] += _MEASURE.match(line) is not None
        elif key and not line.endswith(("\n", "\r")):
            unread[TRUNCATED] += 1
        elif key and found[2] not in ("None", "not"):  # "not set"
            check(key not in within, "two tables written into one")
            within |= {key} if index >= len(grid.above) else set()
            record[key] = float(found[2]) if _NUMBER.fullmatch(found[2]) else found[2]
    if rates and sorted(rates) == list(range(len(rates))):
        record[RATES] = [rates[i] for i in sorted(rates)]
    if grid.header[0].startswith("Offline"):
        figures = {of: record[key] for key, of in names("serving").items() if key in record}
        result = run_entry("sglang_bench_offline", figures)
    else:
        result = serving(record, suffix="_table")
    cut = () if grid.ruled else (finding("truncated", "table"),)
    return replace(result, label=grid.label, diagnoses=(*result.diagnoses, *cut))
