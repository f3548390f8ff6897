"""Results of serving benchmarks (SGLang's and vLLM's), from JSON or from the printed table.

Both engines' clients share their ancestry and most of their keys; a printed table is first turned
into the same record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from specsim.logs.entry import Diagnosis, LogRow
from specsim.logs.formats.sglang.facts import settings_of_args
from specsim.logs.json_values import number, table, text, whole
from specsim.logs.settings import algorithm_name, chain_settings

SLACK = 0.01
"""Relative difference that rounding of a printed result explains."""
CHUNK_RATIO = 1.15
"""Gaps between chunks exceed the time per token by this factor only if chunks hold several."""
QUEUE_FACTOR = 5.0
"""A first token this many times later than the server's time per request was queued for."""
QUEUE_SHARE = 0.3
MIN_QUEUE_S = 1.0


_COUNTS = (
    *("completed", "total_input_tokens", "total_output_tokens", "max_concurrency"),
    *("spec_decode_num_drafts", "spec_decode_draft_tokens", "spec_decode_accepted_tokens"),
)
_SGLANG_KEYS = {"accept_length", "total_throughput", "server_info", "total_input_text_tokens"}


@dataclass(frozen=True, slots=True)
class Result:
    """One benchmark record: format, engine, settings, row and what is to be known of it."""

    format: str
    engine: str | None
    version: str | None
    settings: Mapping[str, object]
    row: LogRow
    diagnoses: tuple[Diagnosis, ...] = ()
    label: str = field(default="", compare=False)


def is_serving(record: Mapping[str, Any]) -> bool:
    """Whether a record is the result of a serving benchmark."""
    return "output_throughput" in record and "duration" in record and "completed" in record


def serving_result(record: Mapping[str, Any], source: str = "json") -> Result | str:
    """Read one record, or say why it makes no measurement.

    Parameters
    ----------
    record
        Keys of ``sglang.bench_serving`` or ``vllm bench serve``.
    source
        ``json`` or ``table``: goes into the name of the format.
    """
    duration, completed = number(record, "duration"), whole(record, "completed")
    tokens, tps = whole(record, "total_output_tokens"), number(record, "output_throughput")
    if duration is None or completed is None or tps is None or duration <= 0 or tps <= 0:
        return "a field is missing or damaged"
    if completed < 1:
        return "no request completed"
    if any(record.get(key) is not None and whole(record, key) is None for key in _COUNTS):
        return "a count is no whole number"
    rate = number(record, "request_throughput")
    if (tokens is not None and _differ(tps, tokens / duration)) or (
        rate is not None and rate > 0.1 and _differ(rate, completed / duration)
    ):
        return "numbers contradict each other"
    vllm = _is_vllm(record)
    accept, survival, fault = _acceptance(record)
    if fault:
        return fault
    row = _row(record, duration, completed, tps, accept, survival, vllm)
    settings, version = _settings(record, survival)
    if settings.get("algorithm") == "none" and row.accept_length is None:
        row = replace(row, accept_length=1.0)
    name = "vllm_bench_serve" if vllm else "sglang_bench_serving"
    return Result(
        format=name if source == "json" else name + "_table",
        engine="vllm" if vllm else "sglang",
        version=version,
        settings=settings,
        row=row,
        diagnoses=tuple(_diagnoses(record, row, vllm)),
    )


def _is_vllm(record: Mapping[str, Any]) -> bool:
    backend = text(record, "backend") or ""
    if backend:
        return not backend.startswith("sglang") and "server_info" not in record
    return not _SGLANG_KEYS & record.keys()


def _acceptance(
    record: Mapping[str, Any],
) -> tuple[float | None, tuple[float, ...] | None, str | None]:
    """Accept length and survival, checked against each other."""
    accept = number(record, "accept_length")
    if accept is None:
        accept = number(record, "spec_decode_acceptance_length")
    drafts = number(record, "spec_decode_num_drafts")
    accepted = number(record, "spec_decode_accepted_tokens")
    if accept is not None and not 1 <= accept <= 129:
        return None, None, "accept length out of range"
    if drafts and accepted is not None:
        length = 1 + accepted / drafts
        if accept is not None and abs(accept - length) > 0.02:
            return None, None, "numbers contradict each other"
        accept = length if accept is None else accept
    rates = record.get("spec_decode_per_position_acceptance_rates")
    if not isinstance(rates, list) or not rates:
        return accept, None, None
    survival = [r for r in rates if isinstance(r, int | float) and not isinstance(r, bool)]
    if len(survival) != len(rates) or not all(0 <= r <= 1 for r in survival):
        return None, None, "per-position rates are damaged"
    if any(survival[i + 1] > survival[i] + 1e-6 for i in range(len(survival) - 1)) or (
        accept is not None and abs(accept - 1 - sum(survival)) > 0.03
    ):
        return None, None, "numbers contradict each other"
    return accept, tuple(map(float, survival)), None


def _row(
    record: Mapping[str, Any],
    duration: float,
    completed: int,
    tps: float,
    accept: float | None,
    survival: tuple[float, ...] | None,
    vllm: bool,
) -> LogRow:
    rate, asked = _rate(record), whole(record, "max_concurrency")
    tokens_in, tokens_out = (
        number(record, "total_input_tokens"),
        number(record, "total_output_tokens"),
    )
    kind: Literal["open_loop", "closed_loop"] = "open_loop" if rate and not asked else "closed_loop"
    if kind == "closed_loop" and asked is None:
        asked = completed if rate is None and "max_concurrency" in record else None
    drafts, drafted = (
        number(record, "spec_decode_num_drafts"),
        number(record, "spec_decode_draft_tokens"),
    )
    accepted = number(record, "spec_decode_accepted_tokens")
    return LogRow(
        kind=kind,
        concurrency=asked,
        output_tps=tps,
        accept_length=accept,
        # SGLang reports the mean since the server started, vLLM that of this run.
        accept_length_scope="run" if vllm else "pooled",
        survival=survival,
        tpot_s=_seconds(record, "mean_tpot_ms"),
        ttft_s=_seconds(record, "mean_ttft_ms"),
        itl_s=_seconds(record, "mean_itl_ms"),
        drafted_per_round=drafted / drafts if drafts and drafted is not None else None,
        accept_rate=accepted / drafted if drafted and accepted is not None else None,
        request_rate=rate,
        num_requests=completed,
        input_len=tokens_in / completed if tokens_in is not None else None,
        output_len=tokens_out / completed if tokens_out is not None else None,
        duration_s=duration,
        extra=_extra(record),
    )


def _rate(record: Mapping[str, Any]) -> float | None:
    """Return requests per second; None where all were sent at once."""
    value = record.get("request_rate")
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < math.inf else None


def _extra(record: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for metric in ("ttft", "tpot", "itl", "e2e_latency", "e2el"):
        for short, name in (("median", "p50"), ("p90", "p90"), ("p95", "p95"), ("p99", "p99")):
            value = _seconds(record, f"{short}_{metric}_ms")
            if value is not None:
                found[f"{metric.removesuffix('_latency').removesuffix('l')}_{name}_s"] = value
    for key in ("concurrency", "max_concurrent_requests"):
        value = number(record, key)
        if value is not None:
            found["achieved_" + key] = value
    return found


def _seconds(record: Mapping[str, Any], key: str) -> float | None:
    value = number(record, key)
    return value / 1e3 if value is not None and value > 0 else None


def _settings(
    record: Mapping[str, Any], survival: tuple[float, ...] | None
) -> tuple[dict[str, object], str | None]:
    info = table(record, "server_info")
    settings = settings_of_args(info) if info else {}
    version = text(info, "version")
    if survival:
        settings.update(chain_settings(len(survival)))
    model = text(record, "model_id")
    if model:
        settings.setdefault("model", model)
    for key in ("backend", "dataset_name", "tag"):
        value = text(record, key)
        if value:
            settings["dataset" if key == "dataset_name" else key] = value
    algorithm = text(record, "speculative_algorithm")
    if algorithm:
        settings["algorithm"] = algorithm_name(algorithm)
    return settings, version


def _diagnoses(record: Mapping[str, Any], row: LogRow, vllm: bool) -> list[Diagnosis]:
    found = []
    queued = _queued(row)
    if queued:
        found.append(queued)
    native = text(record, "backend") == "sglang"
    itl, tpot, accept = row.itl_s, row.tpot_s, row.accept_length
    if itl and tpot and itl > CHUNK_RATIO * tpot and not native:
        text_ = (
            f"mean ITL {1e3 * itl:.1f} ms is per chunk, {itl / tpot:.1f} tokens each: "
            f"use TPOT ({1e3 * tpot:.1f} ms) for the time per token"
        )
        found.append(Diagnosis("itl_per_chunk", text_))
    elif itl and not tpot and not native and accept and accept > CHUNK_RATIO:
        text_ = "ITL of this backend is per chunk of several tokens, not per token"
        found.append(Diagnosis("itl_per_chunk", text_))
    steps = len(row.survival) if row.survival else None
    each = row.drafted_per_round
    if steps and each is not None and each < 0.95 * steps:
        text_ = (
            f"{each:.1f} of {steps} tokens are drafted per round: not every round drafts in full"
        )
        found.append(Diagnosis("partial_drafting", text_))
    if accept is not None and accept < 1.005:
        off = row.drafted_per_round
        code: Literal["zero_acceptance", "speculation_off"] = (
            "zero_acceptance" if off else "speculation_off"
        )
        text_ = "no draft was accepted" if off else "speculation is off, not failing"
        found.append(Diagnosis(code, f"accept length 1.00: {text_}"))
    return found


def _queued(row: LogRow) -> Diagnosis | None:
    """Time to first token far beyond what the server needs per request is time in a queue."""
    ttft, tpot, out = row.ttft_s, row.tpot_s, row.output_len
    if not (ttft and row.duration_s and row.num_requests):
        return None
    each_s = row.duration_s / row.num_requests
    total_s = ttft + (tpot or 0.0) * max((out or 1.0) - 1, 0.0)
    if ttft < MIN_QUEUE_S or ttft < QUEUE_FACTOR * each_s or ttft < QUEUE_SHARE * total_s:
        return None
    running = "" if tpot is None else f"; about {tpot * (row.output_tps or 0):.0f} requests decode"
    text_ = (
        f"mean TTFT {ttft:.1f} s is queueing, not prefill ({each_s:.2f} s per request){running}: "
        "TPOT is the figure of decoding"
    )
    return Diagnosis("queue_dominated", text_)


def _differ(a: float, b: float) -> bool:
    return abs(a - b) > SLACK * max(abs(a), abs(b))
