"""Benchmark results in JSON: serving, one-batch, offline, bench_speculative, server info."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from specsim.logs.entry import Diagnosis, LogEntry, LogRow, WindowCount
from specsim.logs.formats.sglang.facts import settings_of_args
from specsim.logs.histograms import histogram_entry, histograms_in
from specsim.logs.json_values import Unread, json_values, number, table, whole
from specsim.logs.serving import SLACK, Result, is_serving, serving_result
from specsim.logs.settings import NO_SPECULATION
from specsim.logs.source import as_lines

_DETAILS = re.compile(
    rb', "(?:input_lens|output_lens|ttfts|itls|generated_texts|errors|start_times)": \['
)
"""Lists with an entry per request (``--output-details``); they stand last in a record."""
LOOSE = 0.03
"""Slack of figures that are averages of rounded ones."""


def read_bench_json(lines: Iterable[bytes] | Iterable[str], path: str = "-") -> list[LogEntry]:
    """Read benchmark results: JSON, JSON lines or indented JSON, in any mixture.

    Records of one server make one entry with a row per load; a load that comes again, or another
    setting, begins a new entry.

    Parameters
    ----------
    lines
        Lines with their ends.
    path
        Name for the entries.
    """
    results: list[Result] = []
    histograms: list[list[int]] = []
    unread: Counter[str] = Counter()
    for record in _records(json_values(as_lines(lines), _DETAILS)):
        if isinstance(record, Unread):
            unread[record.reason] += 1
            continue
        found = list(histograms_in(record))
        if found:
            histograms += found
            continue
        result = _result(record)
        if isinstance(result, str):
            unread[result] += 1
        else:
            results += result
    entries = grouped(results, path)
    if histograms:
        entries.append(histogram_entry(histograms, path))
    return with_unread(entries, unread, path, "bench_json")


def grouped(results: list[Result], path: str) -> list[LogEntry]:
    """Join successive results of one server; a load that comes again begins a new entry."""
    groups: list[list[Result]] = []
    for result in results:
        last = groups[-1] if groups else []
        same = last and _key(last[0]) == _key(result)
        loads = {_load(r.row) for r in last}
        if same and _load(result.row) not in loads:
            last.append(result)
        else:
            groups.append([result])
    return [_entry(group, path) for group in groups]


def with_unread(
    entries: list[LogEntry], unread: Counter[str], path: str, format_: str
) -> list[LogEntry]:
    """Put the account of unread records on the last entry, or on an empty one."""
    if not unread and entries:
        return entries
    last = entries.pop() if entries else LogEntry(path, format_)
    total = Counter(last.unread) + unread
    diagnoses = last.diagnoses
    if unread["truncated"] and "truncated" not in last.codes:
        text = f"{unread['truncated']} record(s) cut short were not read"
        diagnoses = (*diagnoses, Diagnosis("truncated", text))
    return [*entries, replace(last, unread=dict(total), diagnoses=diagnoses)]


def _records(values: Iterable[Any]) -> Iterator[Any]:
    """Yield records, out of lists of records too."""
    for value in values:
        if isinstance(value, list):
            yield from (v for v in value if isinstance(v, dict))
        else:
            yield value


def _result(record: Mapping[str, Any]) -> list[Result] | str:
    if is_serving(record):
        result: Result | str = serving_result(record)
    elif {"steps", "topk", "acc_length", "step_time"} <= record.keys():
        result = _speculative(record)
    elif {"batch_size", "latency", "output_throughput"} <= record.keys():
        result = _one_batch(record)
    elif {"total_latency", "output_throughput"} <= record.keys():
        result = _offline(record)
    elif "internal_states" in record:
        return _server_info(record)
    else:
        return "not a result that is known"
    return result if isinstance(result, str) else [result]


def _speculative(record: Mapping[str, Any]) -> Result | str:
    """SGLang's bench_speculative: speed = acc_length / step_time, per request."""
    batch, steps, topk, n = (
        whole(record, key) for key in ("batch_size", "steps", "topk", "num_draft_tokens")
    )
    accept, step_s, speed = (number(record, k) for k in ("acc_length", "step_time", "speed"))
    if not batch or steps is None or topk is None or n is None:
        return "a count is missing or damaged"
    if not accept or not step_s or not speed or accept < 1 or step_s <= 0 or speed <= 0:
        return "a number is out of range"
    if abs(accept / step_s - speed) > LOOSE * speed or accept > steps + 1 + LOOSE:
        return "numbers contradict each other"
    settings: dict[str, object] = {"topk": topk, "num_steps": steps, "num_draft_tokens": n}
    settings = settings if steps else dict(NO_SPECULATION)
    row = LogRow(
        kind="steady_decode",
        batch_size=batch,
        concurrency=batch,
        output_tps=batch * speed,
        accept_length=accept,
        round_time_s=step_s,
        tpot_s=step_s / accept,
    )
    return Result("sglang_bench_speculative", "sglang", None, settings, row)


def _one_batch(record: Mapping[str, Any]) -> Result | str:
    """SGLang's bench_one_batch_server: one batch, prefill apart from decoding."""
    batch, latency = whole(record, "batch_size"), number(record, "latency")
    tps, out = number(record, "output_throughput"), whole(record, "output_len")
    if not batch or not latency or not tps or batch < 1 or latency <= 0 or tps <= 0:
        return "a field is missing or damaged"
    ttft, accept = number(record, "last_ttft"), number(record, "acc_length")
    if accept is not None and not 1 <= accept <= 129:
        return "accept length out of range"
    tokens, into = (batch * out if out else None), whole(record, "input_len")
    total = number(record, "overall_throughput")
    pure = ttft is not None and latency > ttft
    if tokens:
        possible = [tokens / latency, *([tokens / (latency - ttft)] if pure and ttft else [])]
        if all(abs(tps - p) > LOOSE * tps for p in possible):
            return "numbers contradict each other"
        if (
            total
            and into is not None
            and abs(batch * (into + (out or 0)) / latency - total) > LOOSE * total
        ):
            return "numbers contradict each other"
    decode = (
        tokens is not None and pure and abs(tokens / (latency - (ttft or 0)) - tps) <= LOOSE * tps
    )
    row = LogRow(
        kind="steady_decode" if decode else "closed_loop",
        batch_size=batch,
        concurrency=batch,
        output_tps=tps,
        accept_length=accept,
        accept_length_scope="pooled",
        round_time_s=accept * batch / tps if accept and decode else None,
        ttft_s=ttft if ttft and ttft > 0 else None,
        num_requests=int(batch),
        input_len=into,
        output_len=out,
        duration_s=latency,
    )
    return Result("sglang_bench_one_batch_server", "sglang", None, {}, row)


def _offline(record: Mapping[str, Any]) -> Result | str:
    """SGLang's bench_offline_throughput: all requests at once."""
    latency, tps = number(record, "total_latency"), number(record, "output_throughput")
    done = whole(record, "successful_requests")
    tokens_in, tokens_out = (
        number(record, "total_input_tokens"),
        number(record, "total_output_tokens"),
    )
    if not latency or not tps or not done or latency <= 0 or tps <= 0 or done < 1:
        return "a field is missing or damaged"
    if tokens_out is not None and abs(tokens_out / latency - tps) > SLACK * tps:
        return "numbers contradict each other"
    row = LogRow(
        kind="closed_loop",
        concurrency=done,
        output_tps=tps,
        num_requests=int(done),
        input_len=tokens_in / done if tokens_in is not None else None,
        output_len=tokens_out / done if tokens_out is not None else None,
        duration_s=latency,
    )
    return Result("sglang_bench_offline", "sglang", None, {}, row)


def _server_info(record: Mapping[str, Any]) -> list[Result] | str:
    """SGLang's /server_info: lifetime accept length, and step times if they were recorded."""
    states = record.get("internal_states")
    state = states[0] if isinstance(states, list) and states else None
    if not isinstance(state, dict):
        return "a field is missing or damaged"
    settings = settings_of_args(record)
    accept = number(state, "avg_spec_accept_length")
    accept = 1.0 if settings.get("algorithm") == "none" else accept
    if accept is not None and not 1 <= accept <= 129:
        return "accept length out of range"
    cap = whole(state, "effective_max_running_requests_per_dp")
    if cap:
        settings["max_running_requests"] = cap
    version = record.get("version")
    rows = [
        LogRow(
            batch_size=batch,
            concurrency=batch,
            accept_length=accept,
            accept_length_scope="pooled",
            round_time_s=step_s,
            output_tps=accept * batch / step_s if accept else None,
            windows=count,
        )
        for batch, step_s, count in _step_times(table(state, "step_time_dict"))
    ]
    if not rows and accept is not None:
        rows = [LogRow(accept_length=accept, accept_length_scope="pooled")]
    name = version if isinstance(version, str) else None
    return [Result("sglang_server_info", "sglang", name, settings, row) for row in rows]


def _step_times(times: Mapping[str, Any]) -> Iterator[tuple[int, float, int]]:
    """Batch, typical step time and count; like SGLang's own benchmark the 20 % quantile."""
    for key, values in times.items():
        if not (key.isdigit() and 0 < len(key) < 7 and int(key) and isinstance(values, list)):
            continue
        good = sorted(float(v) for v in values if isinstance(v, float) and 0 < v < 1e4)
        if good:
            yield int(key), good[len(good) // 5], len(good)


def _key(result: Result) -> tuple[object, ...]:
    return (
        result.format,
        result.engine,
        result.version,
        result.label,
        sorted(result.settings.items(), key=str),
    )


def _load(row: LogRow) -> tuple[object, ...]:
    return (
        row.kind,
        row.concurrency,
        row.request_rate,
        row.batch_size,
        row.input_len,
        row.output_len,
    )


def _entry(group: list[Result], path: str) -> LogEntry:
    first = group[0]
    diagnoses: dict[str, Diagnosis] = {}
    for result in group:
        for diagnosis in result.diagnoses:
            diagnoses.setdefault(diagnosis.code, diagnosis)
    rows = tuple(r.row for r in group)
    windows = sum(row.windows for row in rows)
    return LogEntry(
        path=path,
        format=first.format,
        engine=first.engine,
        engine_version=first.version,
        settings=dict(first.settings),
        rows=rows,
        windows=WindowCount(windows, windows),
        diagnoses=tuple(diagnoses.values()),
        label=first.label,
    )
