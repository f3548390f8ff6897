"""Benchmark results in JSON: serving, one-batch, offline, bench_speculative, server info."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from specsim.logs.entry import LogEntry, LogRow, WindowCount
from specsim.logs.format import Format
from specsim.logs.formats import llama_bench, trtllm_bench
from specsim.logs.formats._benchmarks import Said, at, figures_of, names, of_record
from specsim.logs.formats._results import (
    LOOSE,
    accept_length,
    agree,
    count,
    engine_of,
    joined,
    positive,
    ratio,
    run_entry,
    serving,
    with_unread,
)
from specsim.logs.formats.sglang.facts import settings_of_args
from specsim.logs.json_values import json_values, number, table, text, whole
from specsim.logs.settings import NO_SPECULATION, algorithm_name
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, MISSING, OUT_OF_RANGE, Unread, check, counted

_DETAILS = re.compile(
    rb', "(?:input_lens|output_lens|ttfts|itls|generated_texts|errors|start_times)": \['
)
"""Lists with an entry per request (``--output-details``); they stand last in a record."""

HISTOGRAMS = ("spec_accept_histogram", "spec_correct_drafts_histogram", "acceptance_histogram")
"""SGLang 0.5.9 to 0.5.20, SGLang from 0.5.12, vLLM front ends; entry i counts the rounds that
accepted i drafts: the best source of survival by depth."""
_SPECFORGE = {"batch_size", "steps", "topk", "num_draft_tokens", "metrics"}
_MAX_DEPTH = 128
_MAX_NODES = 100_000


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read benchmark results: JSON, JSON lines or indented JSON, in any mixture.

    Records of one server make one entry with a row per load; a load that comes again, or another
    setting, begins a new entry.
    """
    results: list[LogEntry] = []
    histograms: list[list[int]] = []
    answers: list[Answer] = []
    unread: Counter[str] = Counter()
    for record in _records(source):
        with counted(unread):
            found = list(_histograms(record))
            said = [] if found else list(_answers(record))
            check(all(1 <= answer.rounds <= answer.tokens for answer in said), CONTRADICTION)
            histograms, answers = histograms + found, answers + said
            if not (found or said):
                results.append(_result(record))
    entries = joined((r for r in results if r.rows or r.timings), source.path)
    if histograms:
        entries.append(_histogram_entry(histograms, source.path))
    for engine in dict.fromkeys(answer.engine for answer in answers):
        of = [answer for answer in answers if answer.engine == engine]
        entries.append(answer_entry(of, source.path))
    return with_unread(entries, unread, source.path, FORMAT.name)


def _records(source: Source) -> Iterator[Any]:
    each = [of["each"] for of in names("json").values() if "each" in of]
    for value in json_values(source.lines(), _DETAILS):
        inner = value
        if isinstance(value, dict):
            inner = next((value[key] for key in each if value.get(key)), None)
            inner = inner or [of for of in _objects(value) if of.keys() >= _SPECFORGE][::-1]
            inner = inner or value
        if isinstance(inner, list):
            yield from (v for v in inner if isinstance(v, dict))
        else:
            yield value


def _result(record: Any) -> LogEntry:
    if isinstance(record, Unread):
        raise record
    for keys, read in _KINDS:
        if record.keys() >= keys:
            return read(record)
    for program, known in names("json").items():
        if at(record, known["needs"]) is not None:
            said = of_record(record, program)
            return trtllm_bench.report(said) if program == "trtllm_bench" else _named(program, said)
    raise Unread("not a result that is known")


def _named(program: str, stated: Said) -> LogEntry:
    """Return the entry of a result whose keys ``benchmarks.toml`` names."""
    said = figures_of(stated)
    texts = {name: text for name, text in stated.items() if isinstance(text, str)}
    tp, ep, gpus, each = (said.pop(name, None) for name in ("tp", "ep", "gpus", "gpu_tps"))
    if each is not None and (on := gpus or tp):
        said["output_tps"] = each * on
    check(said.get("output_tps"), MISSING)
    settings: dict[str, object] = {k: int(n) for k, n in (("tp", tp), ("ep", ep)) if n}
    engine = engine_of(texts.pop("engine", ""))
    algorithm = texts.pop("algorithm", "").lower()
    if algorithm in ("none", "off"):
        settings |= NO_SPECULATION
        said["accept_length"] = 1.0
    elif algorithm:
        settings["algorithm"] = algorithm_name(algorithm)
    return run_entry(program, said, settings | texts, engine)


def _speculative(record: Mapping[str, Any]) -> LogEntry:
    """SGLang's bench_speculative: speed = acc_length / step_time, per request."""
    keys = ("batch_size", "topk", "steps", "num_draft_tokens")
    batch, topk, steps, n = (whole(record, key) for key in keys)
    if not batch or steps is None or topk is None or n is None:
        raise Unread("a count is missing or damaged")
    accept, step_s, speed = (
        number(record, key) or 0.0 for key in ("acc_length", "step_time", "speed")
    )
    check(accept >= 1 and step_s > 0 and speed > 0, OUT_OF_RANGE)
    check(agree(accept / step_s, speed, LOOSE) and accept <= steps + 1 + LOOSE, CONTRADICTION)
    row = LogRow(
        batch_size=batch,
        concurrency=batch,
        output_tps=batch * speed,
        accept_length=accept,
        round_time_s=step_s,
        tpot_s=step_s / accept,
    )
    chain: dict[str, object] = {"topk": topk, "num_steps": steps, "num_draft_tokens": n}
    settings = chain if steps else dict(NO_SPECULATION)
    return LogEntry("", "sglang_bench_speculative", "sglang", settings=settings, rows=(row,))


def _one_batch(record: Mapping[str, Any]) -> LogEntry:
    """SGLang's bench_one_batch_server: one batch, prefill apart from decoding."""
    batch = count(record, "batch_size")
    into, out = whole(record, "input_len"), whole(record, "output_len")
    latency, tps = positive(record, "latency"), positive(record, "output_throughput")
    ttft, accept = number(record, "last_ttft"), accept_length(record, "acc_length")
    decode_s = latency - ttft if ttft is not None and latency > ttft else None
    decoding = False
    if out:
        tokens = batch * out
        decoding = decode_s is not None and agree(tokens / decode_s, tps, LOOSE)
        check(decoding or agree(tokens / latency, tps, LOOSE), CONTRADICTION)
        if into is not None and (total := number(record, "overall_throughput")):
            check(agree(batch * (into + out) / latency, total, LOOSE), CONTRADICTION)
    row = LogRow(
        kind="steady_decode" if decoding else "closed_loop",
        batch_size=batch,
        concurrency=batch,
        output_tps=tps,
        accept_length=accept,
        accept_length_scope="pooled",
        round_time_s=accept * batch / tps if accept and decoding else None,
        ttft_s=ttft if ttft and ttft > 0 else None,
        num_requests=batch,
        input_len=into,
        output_len=out,
        duration_s=latency,
    )
    return LogEntry("", "sglang_bench_one_batch_server", "sglang", rows=(row,))


def _offline(record: Mapping[str, Any]) -> LogEntry:
    """SGLang's bench_offline_throughput: all requests at once."""
    latency, tps = positive(record, "total_latency"), positive(record, "output_throughput")
    done = count(record, "successful_requests")
    into, out = number(record, "total_input_tokens"), number(record, "total_output_tokens")
    check(agree(ratio(out, latency), tps), CONTRADICTION)
    row = LogRow(
        kind="closed_loop",
        concurrency=done,
        output_tps=tps,
        num_requests=done,
        input_len=ratio(into, done),
        output_len=ratio(out, done),
        duration_s=latency,
    )
    return LogEntry("", "sglang_bench_offline", "sglang", rows=(row,))


def _server_info(record: Mapping[str, Any]) -> LogEntry:
    """SGLang's /server_info: lifetime accept length, and step times if they were recorded."""
    states = record["internal_states"]
    state = states[0] if isinstance(states, list) and states else None
    if not isinstance(state, dict):
        raise Unread(MISSING)
    settings = settings_of_args(record)
    plain = settings.get("algorithm") == "none"
    accept = 1.0 if plain else accept_length(state, "avg_spec_accept_length")
    if cap := whole(state, "effective_max_running_requests_per_dp"):
        settings["max_running_requests"] = cap
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
    version = text(record, "version")
    return LogEntry("", "sglang_server_info", "sglang", version, settings, tuple(rows))


def _step_times(times: Mapping[str, Any]) -> Iterator[tuple[int, float, int]]:
    """Batch, step time and count; like SGLang's own benchmark the 20 % quantile."""
    for key, values in times.items():
        if re.fullmatch(r"0*[1-9][0-9]*", key) and len(key) < 7 and isinstance(values, list):
            good = sorted(v for v in values if isinstance(v, float) and 0 < v < 1e4)
            if good:
                yield int(key), good[len(good) // 5], len(good)


def _specforge(record: Mapping[str, Any]) -> LogEntry:
    """SpecForge: a setting, and its runs on a dataset."""
    setting = [whole(record, key) for key in ("steps", "topk", "num_draft_tokens")]
    batch, runs = count(record, "batch_size"), record["metrics"]
    check(None not in setting and isinstance(runs, list) and runs, MISSING)
    check(all(isinstance(run, dict) for run in runs), MISSING)
    steps, topk, n = setting
    settings = {"topk": topk, "num_steps": steps, "num_draft_tokens": n}
    said = {
        "concurrency": float(batch),
        "output_tps": sum(positive(run, "output_throughput") for run in runs) / len(runs),
        "accept_length": sum(positive(run, "accept_length") for run in runs) / len(runs),
    }
    check(said["accept_length"] <= (steps or 0) + 1 + LOOSE, CONTRADICTION)
    return run_entry("specforge", said, settings if steps else dict(NO_SPECULATION), "sglang")


_KINDS: tuple[tuple[set[str], Callable[[Mapping[str, Any]], LogEntry]], ...] = (
    ({"output_throughput", "duration", "completed"}, serving),
    ({"steps", "topk", "acc_length", "step_time"}, _speculative),
    ({"batch_size", "latency", "output_throughput"}, _one_batch),
    (_SPECFORGE, _specforge),
    ({"total_latency", "output_throughput"}, _offline),
    ({"internal_states"}, _server_info),
    ({"pl", "tg", "t_tg", "speed_tg"}, llama_bench.of_json),
    ({"n_prompt", "n_gen", "avg_ts"}, llama_bench.of_json),
)
"""Keys that a record has, and what reads it."""


def _histograms(value: Any) -> Iterator[list[int]]:
    """Yield the histograms in a JSON value, however deep; a request's double names count once.

    >>> list(_histograms({"meta_info": {"spec_accept_histogram": [3, 1]}}))
    [[3, 1]]
    """
    for node in _objects(value):
        yield from [node[key] for key in HISTOGRAMS if _is_histogram(node.get(key))][:1]


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in a JSON value, however deep."""
    stack, visited = [value], 0
    while stack and visited < _MAX_NODES:
        node = stack.pop()
        visited += 1
        if isinstance(node, dict):
            yield node
            stack.extend(v for v in node.values() if isinstance(v, dict | list))
        elif isinstance(node, list) and node and isinstance(node[0], dict):
            stack.extend(v for v in node if isinstance(v, dict))


class Answer(NamedTuple):
    """What a server says of one request, or a client of several, one after the other."""

    engine: str
    tokens: int
    rounds: int
    drafted: int | None
    requests: int = 1
    seconds: float | None = None  # of decoding
    slot: object = None


def _answers(value: Any) -> Iterator[Answer]:
    """Yield llama.cpp's `timings`, SGLang's `meta_info`, and the sum of llama.cpp's mtp-bench."""
    for node in _objects(value):
        if "predicted_n" in node:
            tokens, ms = count(node, "predicted_n"), positive(node, "predicted_ms")
            check(agree(tokens / ms * 1e3, number(node, "predicted_per_second")), CONTRADICTION)
            drafted, accepted = whole(node, "draft_n"), whole(node, "draft_n_accepted")
            check(("draft_n" in node, "draft_n_accepted" in node) in ((0, 0), (1, 1)), MISSING)
            slot = value.get("id_slot") if isinstance(value, dict) else None
            plain = drafted is None
            yield Answer("llama.cpp", tokens, tokens - (accepted or 0), None if plain else drafted,
                          seconds=ms / 1e3, slot=slot)  # fmt: skip
        elif "total_draft_accepted" in node:
            tokens, drafted = count(node, "total_predicted"), count(node, "total_draft")
            accepted = whole(node, "total_draft_accepted")
            share = number(node, "aggregate_accept_rate")
            check(accepted is not None and agree(share, accepted / drafted), CONTRADICTION)
            many = count(node, "n_requests")
            yield Answer("llama.cpp", tokens, tokens - (accepted or 0), drafted, many)
        elif "spec_verify_ct" in node:
            tokens, rounds = count(node, "completion_tokens"), count(node, "spec_verify_ct")
            said = accept_length(node, "spec_accept_length")
            check(agree(said, tokens / rounds), CONTRADICTION)
            drafted = whole(node, "spec_num_proposed_drafts") or whole(node, "spec_draft_token_num")
            yield Answer("sglang", tokens, rounds, drafted)


def answer_entry(answers: Sequence[Answer], path: str) -> LogEntry:
    """Return one entry for all requests; of one slot their speed is the throughput, too."""
    tokens, rounds = sum(a.tokens for a in answers), sum(a.rounds for a in answers)
    seconds = [a.seconds for a in answers if a.seconds is not None]
    drafted = [a.drafted for a in answers if a.drafted is not None]
    drafts = len(drafted) == len(answers)
    tpot_s = sum(seconds) / tokens if len(seconds) == len(answers) else None
    alone = len(answers) == 1 or len({a.slot for a in answers} - {None}) == 1
    many = sum(a.requests for a in answers)
    row = LogRow(
        kind="closed_loop",
        concurrency=1 if alone and tpot_s else None,
        output_tps=1 / tpot_s if alone and tpot_s else None,
        accept_length=tokens / rounds if drafts or answers[0].engine == "sglang" else None,
        accept_length_scope="run",
        tpot_s=tpot_s,
        drafted_per_round=sum(drafted) / rounds if drafts else None,
        num_requests=many,
        output_len=tokens / many,
        windows=len(answers),
    )
    of = WindowCount(len(answers), len(answers))
    return LogEntry(path, "answers", answers[0].engine, rows=(row,), windows=of)


def _is_histogram(value: Any) -> bool:
    if not isinstance(value, list) or not 1 <= len(value) <= _MAX_DEPTH:
        return False
    return all(type(v) is int and 0 <= v < 10**12 for v in value) and sum(value) > 0


def _histogram_entry(histograms: Sequence[Sequence[int]], path: str) -> LogEntry:
    """Return one entry for all requests: survival[d] = rounds with at least d over rounds."""
    total = [sum(counts) for counts in zip_longest(*histograms, fillvalue=0)]
    depth = len(total)
    rounds = sum(total)
    row = LogRow(
        kind="closed_loop",
        accept_length=1 + sum(i * n for i, n in enumerate(total)) / rounds,
        accept_length_scope="run",
        survival=tuple(sum(total[d:]) / rounds for d in range(1, depth)) or None,
        num_requests=len(histograms),
        windows=len(histograms),
    )
    return LogEntry(
        path=path,
        format="accept_histogram",
        settings={"num_steps": depth - 1} if depth > 1 else {},
        rows=(row,),
        windows=WindowCount(len(histograms), len(histograms)),
    )


FORMAT = Format(
    name="bench_json",
    mark=re.compile(
        rb'"output_throughput"|"output_token_throughput": *[{]|"output_tokens_per_sec'
        rb'|"internal_states"|"predicted_n"|"spec_verify_ct"|"total_draft_accepted"|"speed_tg"|"avg_ts"|"output_tput_per_gpu"|"system_output_throughput_tok_s"|"acc_length"|"step_time"'
        rb'|"spec_accept_histogram"|"spec_correct_drafts_histogram"|"acceptance_histogram"'
    ),
    parse=parse,
    is_json=True,
)
