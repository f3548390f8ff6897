"""Stated results of benchmarks: a record of JSON keys, or of a printed table, -> an entry.

SGLang's and vLLM's serving benchmarks share their ancestry and most of their keys; a printed table
is first turned into the record that JSON would have held.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from specsim.logs.diagnose import Finding, partial_drafting, told, truncated
from specsim.logs.entry import LogEntry, LogRow, WindowCount
from specsim.logs.formats.sglang.facts import settings_of_args
from specsim.logs.json_values import number, table, text, whole
from specsim.logs.settings import algorithm_name, chain_settings
from specsim.logs.unread import CONTRADICTION, MISSING, Unread, check

SLACK = 0.01
"""Relative difference that rounding of a printed result explains."""
LOOSE = 0.03
"""The same of figures that are averages of rounded ones."""
CHUNK_RATIO = 1.15
"""Gaps between chunks exceed the time per token by this factor only if chunks hold several."""
QUEUE_FACTOR = 5.0
"""A first token this many times later than the server's time per request was queued for."""
QUEUE_SHARE = 0.3
MIN_QUEUE_S = 1.0
LEAST_ACCEPT, LONGEST_ACCEPT = 1.005, 129
"""Below the one nothing was accepted; nothing drafts further than the other."""
LEAST_RATE = 0.1
"""Slower rates are printed with too few digits to be checked, 1/s."""
ROUNDING = 0.02
"""Of an accept length beside the counts that it is made of."""

RATES = "spec_decode_per_position_acceptance_rates"

_COUNTS = (
    *("completed", "total_input_tokens", "total_output_tokens", "max_concurrency"),
    *("spec_decode_num_drafts", "spec_decode_draft_tokens", "spec_decode_accepted_tokens"),
)
_SGLANG_KEYS = {"accept_length", "total_throughput", "server_info", "total_input_text_tokens"}
_TEXTS = {"backend": "backend", "dataset_name": "dataset", "tag": "tag"}


def agree(one: float | None, other: float | None, slack: float = SLACK) -> bool:
    """Whether two figures differ by no more than their rounding; None contradicts nothing."""
    if one is None or other is None:
        return True
    return abs(one - other) <= slack * max(abs(one), abs(other))


def positive(record: Mapping[str, Any], key: str) -> float:
    """Return a number above 0; raises :class:`Unread` if there is none."""
    value = number(record, key)
    if value is None or value <= 0:
        raise Unread(MISSING)
    return value


def count(record: Mapping[str, Any], key: str) -> int:
    """Return a count above 0; raises :class:`Unread` if there is none."""
    value = whole(record, key)
    if not value:
        raise Unread(MISSING)
    return value


def accept_length(record: Mapping[str, Any], *keys: str) -> float | None:
    """Return the first accept length that a record has; raises :class:`Unread` if it can't be."""
    value = next((v for key in keys if (v := number(record, key)) is not None), None)
    check(value is None or 1 <= value <= LONGEST_ACCEPT, "accept length out of range")
    return value


def joined(results: Iterable[LogEntry], path: str) -> list[LogEntry]:
    """Join successive results of one server; a load that comes again begins a new entry."""
    entries: list[LogEntry] = []
    for result in results:
        last = entries[-1] if entries else LogEntry(path, "")
        if _server(last) == _server(result) and not _loads(last) & _loads(result):
            entries.pop()
            new = (d for d in result.diagnoses if d.code not in last.codes)
            rows, diagnoses = (*last.rows, *result.rows), (*last.diagnoses, *new)
        else:
            rows, diagnoses = result.rows, result.diagnoses
        n = sum(row.windows for row in rows)
        whole = replace(result, path=path, rows=rows, diagnoses=diagnoses)
        entries.append(replace(whole, windows=WindowCount(n, n)))
    return entries


def _server(entry: LogEntry) -> tuple[object, ...]:
    settings = sorted(entry.settings.items(), key=str)
    return entry.format, entry.engine, entry.engine_version, entry.label, settings


def _loads(entry: LogEntry) -> set[tuple[object, ...]]:
    return {
        (r.kind, r.concurrency, r.request_rate, r.batch_size, r.input_len, r.output_len)
        for r in entry.rows
    }


def with_unread(
    entries: list[LogEntry], unread: Counter[str], path: str, format_: str
) -> list[LogEntry]:
    """Put the account of unread records on the last entry, or on an empty one."""
    if not unread and entries:
        return entries
    last = entries.pop() if entries else LogEntry(path, format_)
    cut = truncated(unread, "record(s)") if "truncated" not in last.codes else []
    total = Counter(last.unread) + unread
    return [*entries, replace(last, unread=dict(total), diagnoses=(*last.diagnoses, *cut))]


def serving(record: Mapping[str, Any], suffix: str = "") -> LogEntry:
    """Read a record of ``sglang.bench_serving`` or ``vllm bench serve``, by the keys of their JSON.

    `suffix` goes to the name of the format. Raises :class:`Unread` if it makes no measurement.
    """
    completed = whole(record, "completed")
    duration, tps = positive(record, "duration"), positive(record, "output_throughput")
    if completed is None:
        raise Unread(MISSING)
    check(completed, "no request completed")
    counts = {key: whole(record, key) for key in _COUNTS if record.get(key) is not None}
    check(None not in counts.values(), "a count is no whole number")
    tokens, speed = counts.get("total_output_tokens"), number(record, "request_throughput")
    check(agree(tps, ratio(tokens, duration)), CONTRADICTION)
    slow = speed is not None and speed <= LEAST_RATE
    check(slow or agree(speed, completed / duration), CONTRADICTION)
    accept, survival = _acceptance(record)
    info = table(record, "server_info")
    settings = _settings(record, info, survival)
    if settings.get("algorithm") == "none" and accept is None:
        accept = 1.0
    vllm = _is_vllm(record)
    rate, clients = _request_rate(record), counts.get("max_concurrency")
    if clients is None and rate is None and "max_concurrency" in record:
        clients = completed  # all were sent at once
    drafted = counts.get("spec_decode_draft_tokens")
    row = LogRow(
        kind="open_loop" if rate and not clients else "closed_loop",
        concurrency=clients,
        output_tps=tps,
        accept_length=accept,
        # SGLang reports the mean since the server started, vLLM that of this run.
        accept_length_scope="run" if vllm else "pooled",
        survival=survival,
        tpot_s=_seconds(record, "mean_tpot_ms"),
        ttft_s=_seconds(record, "mean_ttft_ms"),
        itl_s=_seconds(record, "mean_itl_ms"),
        drafted_per_round=ratio(drafted, counts.get("spec_decode_num_drafts")),
        accept_rate=ratio(counts.get("spec_decode_accepted_tokens"), drafted),
        request_rate=rate,
        num_requests=completed,
        input_len=ratio(counts.get("total_input_tokens"), completed),
        output_len=ratio(tokens, completed),
        duration_s=duration,
    )
    findings: list[Finding] = [
        ("queue_dominated", _queued(row)),
        # SGLang's own client spreads the gap between two chunks over their tokens
        ("itl_per_chunk", "" if text(record, "backend") == "sglang" else _per_chunk(row)),
    ]
    partial = partial_drafting(row.drafted_per_round, len(survival or ()))
    return LogEntry(
        path="",
        format=("vllm_bench_serve" if vllm else "sglang_bench_serving") + suffix,
        engine="vllm" if vllm else "sglang",
        engine_version=text(info, "version"),
        settings=settings,
        rows=(row,),
        diagnoses=(*told(findings), *partial, *told([_nothing_accepted(row)])),
    )


def _is_vllm(record: Mapping[str, Any]) -> bool:
    backend = text(record, "backend")
    if backend:
        return not backend.startswith("sglang") and "server_info" not in record
    return not _SGLANG_KEYS & record.keys()


def _acceptance(record: Mapping[str, Any]) -> tuple[float | None, tuple[float, ...] | None]:
    """Accept length and survival, checked against each other."""
    accept = accept_length(record, "accept_length", "spec_decode_acceptance_length")
    drafts = number(record, "spec_decode_num_drafts")
    accepted = number(record, "spec_decode_accepted_tokens")
    if drafts and accepted is not None:
        counted = 1 + accepted / drafts
        check(accept is None or abs(accept - counted) <= ROUNDING, CONTRADICTION)
        accept = counted if accept is None else accept
    rates = record.get(RATES)
    if not isinstance(rates, list) or not rates:
        return accept, None
    survival = tuple(float(r) for r in rates if type(r) in (int, float))
    whole_list = len(survival) == len(rates) and all(0 <= r <= 1 for r in survival)
    check(whole_list, "per-position rates are damaged")
    check(all(b <= a + 1e-6 for a, b in pairwise(survival)), CONTRADICTION)
    check(accept is None or abs(accept - 1 - sum(survival)) <= LOOSE, CONTRADICTION)
    return accept, survival


def _request_rate(record: Mapping[str, Any]) -> float | None:
    """Return requests per second; None where all were sent at once."""
    value = record.get("request_rate")
    try:
        rate = None if isinstance(value, bool) else float(value or 0)
    except (TypeError, ValueError, OverflowError):
        return None
    return rate if rate and 0 < rate < math.inf else None


def _seconds(record: Mapping[str, Any], key: str) -> float | None:
    value = number(record, key)
    return value / 1e3 if value is not None and value > 0 else None


def ratio(of: float | None, to: float | None) -> float | None:
    """Return a quotient; None where a part is not known."""
    return of / to if of is not None and to else None


def _settings(
    record: Mapping[str, Any], info: Mapping[str, Any], survival: tuple[float, ...] | None
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


def _per_chunk(row: LogRow) -> str:
    """Say so where gaps between chunks of several tokens were taken for those between tokens."""
    itl, tpot = row.itl_s, row.tpot_s
    if itl and tpot and itl > CHUNK_RATIO * tpot:
        return (
            f"mean ITL {1e3 * itl:.1f} ms is per chunk, {itl / tpot:.1f} tokens each: "
            f"use TPOT ({1e3 * tpot:.1f} ms) for the time per token"
        )
    if itl and not tpot and (row.accept_length or 1.0) > CHUNK_RATIO:
        return "ITL of this backend is per chunk of several tokens, not per token"
    return ""


def _nothing_accepted(row: LogRow) -> Finding:
    if row.accept_length is None or row.accept_length >= LEAST_ACCEPT:
        return "zero_acceptance", ""
    if row.drafted_per_round:
        return "zero_acceptance", "accept length 1.00: no draft was accepted"
    return "speculation_off", "accept length 1.00: speculation is off, not failing"


def _queued(row: LogRow) -> str:
    """Say so where the first token waited in a queue; empty where the server's work explains it."""
    ttft, tpot, out = row.ttft_s, row.tpot_s, row.output_len
    if not (ttft and row.duration_s and row.num_requests):
        return ""
    each_s = row.duration_s / row.num_requests
    total_s = ttft + (tpot or 0.0) * max((out or 1.0) - 1, 0.0)
    if ttft < MIN_QUEUE_S or ttft < QUEUE_FACTOR * each_s or ttft < QUEUE_SHARE * total_s:
        return ""
    running = "" if tpot is None else f"; about {tpot * (row.output_tps or 0):.0f} requests decode"
    return (
        f"mean TTFT {ttft:.1f} s is queueing, not prefill ({each_s:.2f} s per request){running}: "
        "TPOT is the figure of decoding"
    )
