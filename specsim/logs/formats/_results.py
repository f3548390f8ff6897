"""Stated results of benchmarks: figures by name -> a row, checked against each other, -> an entry.

Every benchmark says some of the same figures under names of its own. Its module maps them to
those of :func:`row_of`; what they mean together, and when they contradict each other, is here.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from specsim.logs.diagnose import Finding, partial_drafting, told, truncated
from specsim.logs.entry import LogEntry, LogRow, WindowCount
from specsim.logs.formats._benchmarks import in_si, names
from specsim.logs.formats.sglang.facts import settings_of_args
from specsim.logs.json_values import MAX_WHOLE, number, table, text, whole
from specsim.logs.settings import algorithm_name, chain_settings
from specsim.logs.unread import CONTRADICTION, MISSING, OUT_OF_RANGE, Unread, check

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

_COUNTS = ("num_requests", "input_tokens", "output_tokens", "drafts", "drafted", "accepted")
_SGLANG_KEYS = {
    *("accept_length", "total_throughput", "server_info", "total_input_text_tokens"),
    *("total_output_tokens_retokenized", "concurrency", "max_itl_ms"),
}
_TEXTS = {"backend": "backend", "dataset_name": "dataset", "tag": "tag"}


def agree(one: float | None, other: float | None, slack: float = SLACK) -> bool:
    """Whether two figures differ by no more than their rounding; None contradicts nothing."""
    if one is None or other is None:
        return True
    return abs(one - other) <= slack * max(abs(one), abs(other))


def row_of(
    said: Mapping[str, float | None], survival: Sequence[float] | None = None, **more: Any
) -> LogRow:
    """Return the row that the figures of a benchmark make, checked against each other.

    Parameters
    ----------
    said
        Figures by name, SI units: fields of :class:`LogRow`, and `input_tokens`, `output_tokens`
        (of all requests), `request_throughput` (1/s), `e2e_s` (mean of requests), `in_flight` (mean
        number of requests), `drafts`, `drafted`, `accepted` (rounds, and tokens of all requests).
    survival
        Probability that at least 1, 2, ... drafts are accepted.
    more
        Fields of the row beside these.

    Raises
    ------
    Unread
        If a figure cannot be, or contradicts another.
    """
    known = {name: value for name, value in said.items() if value is not None}
    check(all(0 <= value <= MAX_WHOLE for value in known.values()), OUT_OF_RANGE)
    check(all(known.get(name, 0.0) % 1 == 0 for name in _COUNTS), "a count is no whole number")
    get = {k: v for k, v in known.items() if v or k == "accepted"}.get  # no time, or rate, is 0
    n, seconds, tps, rate = map(get, ("num_requests", "duration_s", "output_tps", "request_rate"))
    out = get("output_len") or ratio(get("output_tokens"), n)
    total = get("output_tokens") or (n * out if n and out else None)
    check(
        agree(tps, ratio(total, seconds), SLACK if get("output_tokens") else LOOSE), CONTRADICTION
    )
    served = get("request_throughput")
    if served and served > LEAST_RATE:
        check(agree(served, ratio(n, seconds)), CONTRADICTION)
        check(agree(tps, served * out if out else None, LOOSE), CONTRADICTION)
    accept = _accept_length(get("accept_length"), get("drafts"), get("accepted"))
    _check_survival(survival, accept)
    share = get("accept_rate") or ratio(get("accepted"), get("drafted"))
    each = get("drafted_per_round") or ratio(get("drafted"), get("drafts"))
    clients, in_flight = get("concurrency"), get("in_flight")
    check(not (n and in_flight) or (in_flight or 0.0) <= (n or 0.0) * (1 + SLACK), CONTRADICTION)
    return LogRow(
        kind=more.pop("kind", "open_loop" if rate and not clients else "closed_loop"),
        concurrency=clients or in_flight,
        batch_size=get("batch_size"),
        output_tps=tps,
        accept_length=accept,
        survival=tuple(survival) if survival else None,
        tpot_s=get("tpot_s"),
        ttft_s=get("ttft_s"),
        itl_s=get("itl_s"),
        round_time_s=get("round_time_s"),
        drafted_per_round=each,
        accept_rate=share,
        request_rate=rate,
        num_requests=int(n) if n else None,
        input_len=get("input_len") or ratio(get("input_tokens"), n),
        output_len=out,
        duration_s=seconds,
        **more,
    )


def _accept_length(
    said: float | None, drafts: float | None, accepted: float | None
) -> float | None:
    """Accept length as said, and as counted: of `accepted` tokens in `drafts` rounds."""
    counted = 1 + accepted / drafts if drafts and accepted is not None else None
    check(said is None or counted is None or abs(said - counted) <= ROUNDING, CONTRADICTION)
    length = counted if said is None else said
    check(length is None or 1 <= length <= LONGEST_ACCEPT, "accept length out of range")
    return length


def _check_survival(survival: Sequence[float] | None, accept: float | None) -> None:
    if survival:
        check(all(0 <= rate <= 1 for rate in survival), OUT_OF_RANGE)
        check(all(later <= earlier + 1e-6 for earlier, later in pairwise(survival)), CONTRADICTION)
        check(accept is None or abs(accept - 1 - sum(survival)) <= LOOSE, CONTRADICTION)


def entry_of(
    name: str,
    row: LogRow,
    settings: Mapping[str, object],
    engine: str | None = None,
    version: str | None = None,
    chunks: bool = True,
    drafts: bool = False,
) -> LogEntry:
    """Return the entry of a benchmark's row, with what must be known of its numbers.

    `chunks`: whether the client takes the gap between two chunks for that between two tokens;
    `drafts`: whether a drafter is loaded, though no count of drafts says so.
    """
    depth = settings.get("num_steps")
    findings: list[Finding] = [
        ("queue_dominated", _queued(row)),
        ("itl_per_chunk", _per_chunk(row) if chunks else ""),
        _nothing_accepted(row, drafts or settings.get("algorithm", "none") != "none"),
    ]
    partial = partial_drafting(row.drafted_per_round, depth if isinstance(depth, int) else None)
    diagnoses = (*told(findings), *partial)
    return LogEntry("", name, engine, version, settings, (row,), diagnoses=diagnoses)


def run_entry(
    name: str,
    said: dict[str, float],
    settings: Mapping[str, object] = {},
    engine: str | None = None,
    version: str | None = None,
) -> LogEntry:
    """Return the entry of a run of which a client says its figures, SI units.

    How many were in flight follows from the rate served and the mean time of a request; how deep
    drafts were from the accept length and the share accepted, where all are of one depth.
    """
    served, accept, rate = map(said.get, ("request_throughput", "accept_length", "accept_rate"))
    if "e2e_s" in said and (served or 0.0) > LEAST_RATE and not said.get("concurrency"):
        said.setdefault("in_flight", (served or 0.0) * said["e2e_s"])  # Little's law
    if accept and rate and not said.get("drafted"):
        said["drafted_per_round"] = (accept - 1) / rate
    row = row_of(said, accept_length_scope="run")
    each = row.drafted_per_round or 0.0
    k = round(each)
    if k and abs(each - k) <= ROUNDING * k and "num_steps" not in settings:
        inferred = ["topk", "num_steps", "num_draft_tokens"]
        settings = {**settings, **chain_settings(k), "inferred": inferred}
    return entry_of(name, row, settings, engine, version)


def serving(record: Mapping[str, Any], suffix: str = "") -> LogEntry:
    """Read a record of ``sglang.bench_serving`` or ``vllm bench serve``, by the keys of their JSON.

    `suffix` goes to the name of the format. Raises :class:`Unread` if it makes no measurement.
    """
    known = names("serving")
    check(all(number(record, k) is not None for k in known if record.get(k) is not None), MISSING)
    said = in_si({n: v for key, n in known.items() if (v := number(record, key)) is not None})
    if whole(record, "completed") is None or not said.get("duration_s"):
        raise Unread(MISSING)
    check(said["num_requests"], "no request completed")
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
    elif "concurrency" not in said and "max_concurrency" in record:
        said["concurrency"] = said["num_requests"]  # all were sent at once
    vllm = _is_vllms(record)
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


def _is_vllms(record: Mapping[str, Any]) -> bool:
    """Whether vLLM's client wrote it: SGLang's has keys of its own, whatever server it asks."""
    ours = (text(record, "backend") or "").startswith("sglang")
    return not ours and not _SGLANG_KEYS & record.keys()


def _engine(record: Mapping[str, Any], vllm: bool) -> str | None:
    """Return the engine that was asked: a backend may name an interface that others have too."""
    own = "openai" if "user_throughput" in record else "vllm"  # TensorRT-LLM's copy of vLLM's
    engine = engine_of(text(record, "backend") or own)
    if vllm:
        return engine or ("vllm" if any(key.startswith("spec_decode_") for key in record) else None)
    return "sglang" if engine == "sglang" or "server_info" in record else None


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


def engine_of(name: str) -> str | None:
    """Return the engine that a word of a backend's name says; None if it says none.

    >>> engine_of("dynamo-trt"), engine_of("openai-chat")
    ('tensorrt-llm', None)
    """
    known = names("engines")
    return next((known[word] for word in re.split(r"\W", name.lower()) if word in known), None)


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
            result = replace(result, timings=(*last.timings, *result.timings))
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


def _request_rate(record: Mapping[str, Any]) -> float | None:
    """Return requests per second; None where all were sent at once."""
    value = record.get("request_rate")
    try:
        rate = None if isinstance(value, bool) else float(value or 0)
    except (TypeError, ValueError, OverflowError):
        return None
    return rate if rate and 0 < rate < math.inf else None


def ratio(of: float | None, to: float | None) -> float | None:
    """Return a quotient; None where a part is not known."""
    return of / to if of is not None and to else None


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


def _nothing_accepted(row: LogRow, drafts: bool) -> Finding:
    if row.accept_length is None or row.accept_length >= LEAST_ACCEPT:
        return "zero_acceptance", ""
    if row.drafted_per_round or drafts:
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
