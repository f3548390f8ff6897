"""Results in JSON: of benchmarks that ``benchmarks.toml`` names, answers of servers, histograms."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from specsim.logs.entry import MOST_ACCEPT, LogEntry, LogRow, WindowCount
from specsim.logs.facts import settings_of_args
from specsim.logs.formats import _llama_bench as llama_bench
from specsim.logs.formats import listed, patterns
from specsim.logs.formats._benchmarks import of_record, program_of
from specsim.logs.formats._nested import records as nested
from specsim.logs.formats._nested import yaml_values
from specsim.logs.formats._results import agree, joined, run_entry, with_unread
from specsim.logs.formats._serving import serving
from specsim.logs.formats.table import of_records
from specsim.logs.json_values import json_values, number, table, text, whole
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, DAMAGED, MISSING, TRUNCATED, Unread, check, counted
from specsim.setting import NO_SPECULATION

HISTOGRAMS = ("spec_accept_histogram", "spec_correct_drafts_histogram", "acceptance_histogram")
"""SGLang 0.5.9 to 0.5.20, SGLang from 0.5.12, vLLM front ends; entry i counts the rounds that
accepted i drafts: the best source of survival by depth."""
_NEEDS = {
    "serving": {"output_throughput", "duration", "completed"},
    "server_info": {"internal_states"},
    "props": {"default_generation_settings"},
}
_MAX_DEPTH = 128
_MAX_NODES = 100_000


def parse(source: Source) -> list[LogEntry]:
    """Read benchmark results: JSON, JSON lines or indented JSON, in any mixture.

    Records of one server make one entry with a row per load; a load that comes again, or another
    setting, begins a new entry.
    """
    return _parse(json_values(source.lines(), patterns("lines")["details"]), source.path)


def parse_yaml(source: Source) -> list[LogEntry]:
    """Read the same results in YAML."""
    return _parse(yaml_values(source.lines()), source.path)


def _parse(values: Iterable[Any], path: str) -> list[LogEntry]:
    results: list[LogEntry] = []
    of_people: list[Mapping[str, Any]] = []
    answers: dict[tuple[str, int], list[Answer]] = {}  # by engine, and the depth that it states
    unread: Counter[str] = Counter()
    for record in _records(values):
        with counted(unread):
            said = _told(record)
            for answer in said:
                depth = len(answer.histogram) if answer.engine == "vllm" else 0
                answers.setdefault((answer.engine or "", depth), []).append(answer)
            if not said and isinstance(record, dict) and not _program(record):
                of_people += list(nested(record)) or [record]
            elif not said:
                results.append(_result(record))
    results += of_records(of_people, unread)
    told = [r for r in results if r.rows or r.timings] or [r for r in results if r.settings]
    entries = joined(told, path)
    for server in sorted(answers):
        entries.append(answer_entry(answers[server], path))
    return with_unread(entries, unread, path, "bench_json")


def parse_finished(source: Source) -> list[LogEntry]:
    """Read what SGLang logs of each request that it finished (``--log-requests``)."""
    unread: Counter[str] = Counter()
    answers: list[Answer] = []
    for line in source.lines():
        at = line.find(b"Finish: obj=")
        if at >= 0 and b"'spec_verify_ct'" in line[at:]:
            with counted(unread):
                check(line.endswith((b"\n", b"\r")), TRUNCATED)
                found = patterns("lines")["finished"].findall(line, at)
                said = {name.decode(): float(value) for name, value in found}
                check(len(said) == len(found) and "spec_verify_ct" in said, DAMAGED)
                answers += _told(said)
    entries = [answer_entry(answers, source.path)] if answers else []
    return with_unread(entries, unread, source.path, "sglang_finish")


def _records(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the records of a file: its values, or what is in a list that one is or has."""
    for value in values:
        lists = [value]
        if isinstance(value, dict) and not _program(value):
            inner = [of for of in value.values() if isinstance(of, list)]
            lists = [of for of in inner if any(isinstance(v, dict) and _program(v) for v in of)]
        for of in lists or [value]:
            if isinstance(of, list):
                yield from (v for v in of if isinstance(v, dict))
            else:
                yield of


def _program(record: Mapping[str, Any]) -> str | None:
    """Return what wrote a record, as far as it shows."""
    own = next((name for name, keys in _NEEDS.items() if record.keys() >= keys), None)
    return own or (llama_bench.NAME if llama_bench.is_json(record) else program_of(record))


def _result(record: Any) -> LogEntry:
    if isinstance(record, Unread):
        raise record
    program = _program(record)
    if program is None:
        raise Unread("not a result that is known")
    own = {"serving": serving, "server_info": _server_info, "props": _props}
    own |= {llama_bench.NAME: llama_bench.of_json}
    if program in own:
        return own[program](record)
    return run_entry(program, of_record(record, program))


def _server_info(record: Mapping[str, Any]) -> LogEntry:
    """SGLang's /server_info: lifetime accept length, and step times if they were recorded."""
    states = record["internal_states"]
    state = states[0] if isinstance(states, list) and states else None
    if not isinstance(state, dict):
        raise Unread(MISSING)
    settings = settings_of_args(record)
    plain = settings.get("algorithm") == "none"
    accept = 1.0 if plain else _accept_length(state, "avg_spec_accept_length")
    cap = whole(state, "effective_max_running_requests_per_dp")
    stated = {"max_running_requests": cap, "kv_tokens": whole(record, "max_total_num_tokens")}
    settings |= {name: count for name, count in stated.items() if count}
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


def drafting_of(slot: Mapping[str, Any]) -> dict[str, object]:
    """Return how a slot of ``/slots`` drafts; how it is named shows once it has had a request."""
    known: Mapping[str, str] = listed("llama.cpp", "algorithms")
    names = (text(table(slot, "params"), "speculative.types") or "").split(",")
    named = [known.get(n, "NGRAM" if n.startswith("ngram") else "") for n in names]
    if slot.get("speculative") is False:
        return dict(NO_SPECULATION)
    return {"algorithm": named[-1]} if named[-1] else {}


def _props(record: Mapping[str, Any]) -> LogEntry:
    """Return what llama-server tells at ``/props``."""
    model, built = text(record, "model_path"), text(record, "build_info")
    build = re.match(r"b[1-9]\d{0,6}", built or "")  # b0 is one that does not know
    slots, each = whole(record, "total_slots"), table(record, "default_generation_settings")
    found = {"max_running_requests": slots, "context_tokens": whole(each, "n_ctx")}
    named = {"model": PurePosixPath(model).name} if model else {}
    settings = named | {name: value for name, value in found.items() if value}
    return LogEntry("", "llamacpp_props", "llama.cpp", build[0] if build else None, settings)


def _step_times(times: Mapping[str, Any]) -> Iterator[tuple[int, float, int]]:
    """Batch, step time and count; like SGLang's own benchmark the 20 % quantile."""
    for key, values in times.items():
        if re.fullmatch(r"0*[1-9][0-9]*", key) and len(key) < 7 and isinstance(values, list):
            good = sorted(v for v in values if isinstance(v, float) and 0 < v < 1e4)
            if good:
                yield int(key), good[len(good) // 5], len(good)


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

    engine: str | None
    tokens: int
    rounds: int
    drafted: int | None = None
    requests: int = 1
    seconds: float | None = None  # of decoding
    slot: object = None
    histogram: tuple[int, ...] = ()  # rounds by the drafts that they accepted


def _told(record: Any) -> list[Answer]:
    said = list(_histograms(record)) or list(_answers(record))
    check(all(1 <= answer.rounds <= answer.tokens for answer in said), CONTRADICTION)
    return said


def _histograms(value: Any) -> Iterator[Answer]:
    """Yield the histograms in a JSON value, however deep; a request's double names count once.

    >>> [answer.tokens for answer in _histograms({"meta_info": {"spec_accept_histogram": [3, 1]}})]
    [5]
    """
    for node in _objects(value):
        for counts in [node[key] for key in HISTOGRAMS if _is_histogram(node.get(key))][:1]:
            rounds, accepted = sum(counts), sum(i * n for i, n in enumerate(counts))
            engine = "vllm" if "num_spec_steps" in node else None
            drafted = _drafted(node, counts, rounds, accepted) if engine else None
            yield Answer(engine, rounds + accepted, rounds, drafted, histogram=tuple(counts))


def _drafted(said: Mapping[str, Any], counts: list[int], rounds: int, accepted: int) -> int | None:
    """Return the drafts of a request that vLLM tells of (``--per-request-spec-decode-metrics``)."""
    deepest, drafted = len(counts) - 1, whole(said, "num_draft_tokens")
    names = ("num_spec_steps", "num_accepted_draft_tokens", "num_spec_tokens")
    check([said.get(name) for name in names] == [rounds, accepted, deepest], CONTRADICTION)
    check(drafted is not None and accepted <= drafted <= rounds * deepest, CONTRADICTION)
    check(agree(number(said, "mean_acceptance_length"), 1 + accepted / rounds), CONTRADICTION)
    return drafted


def _is_histogram(value: Any) -> bool:
    if not isinstance(value, list) or not 1 <= len(value) <= _MAX_DEPTH:
        return False
    return all(type(v) is int and 0 <= v < 10**12 for v in value) and sum(value) > 0


def _answers(value: Any) -> Iterator[Answer]:
    """Yield llama.cpp's `timings`, SGLang's `meta_info`, and the sum of llama.cpp's mtp-bench."""
    for node in _objects(value):
        if "predicted_n" in node:
            tokens, ms = _count(node, "predicted_n"), _positive(node, "predicted_ms")
            check(agree(tokens / ms * 1e3, number(node, "predicted_per_second")), CONTRADICTION)
            drafted, accepted = whole(node, "draft_n"), whole(node, "draft_n_accepted")
            check(("draft_n" in node) == ("draft_n_accepted" in node), MISSING)
            slot = value.get("id_slot") if isinstance(value, dict) else None
            rounds = tokens - (accepted or 0)
            yield Answer("llama.cpp", tokens, rounds, drafted, 1, ms / 1e3, slot)
        elif "total_draft_accepted" in node:
            tokens, drafted = _count(node, "total_predicted"), _count(node, "total_draft")
            accepted = whole(node, "total_draft_accepted")
            share = number(node, "aggregate_accept_rate")
            check(accepted is not None and agree(share, accepted / drafted), CONTRADICTION)
            many = _count(node, "n_requests")
            yield Answer("llama.cpp", tokens, tokens - (accepted or 0), drafted, many)
        elif "spec_verify_ct" in node:
            tokens, rounds = _count(node, "completion_tokens"), _count(node, "spec_verify_ct")
            said = _accept_length(node, "spec_accept_length")
            check(agree(said, tokens / rounds), CONTRADICTION)
            drafted = whole(node, "spec_num_proposed_drafts") or whole(node, "spec_draft_token_num")
            yield Answer("sglang", tokens, rounds, drafted)


def answer_entry(answers: Sequence[Answer], path: str) -> LogEntry:
    """Return one entry for all requests; of one slot their speed is the throughput, too.

    Of histograms, survival[d] is the rounds that accepted at least d drafts over all.
    """
    tokens, rounds = sum(a.tokens for a in answers), sum(a.rounds for a in answers)
    seconds = [a.seconds for a in answers if a.seconds is not None]
    drafted = [a.drafted for a in answers if a.drafted is not None]
    total = [sum(n) for n in zip_longest(*(a.histogram for a in answers), fillvalue=0)]
    drafts = len(drafted) == len(answers)
    tpot_s = sum(seconds) / tokens if len(seconds) == len(answers) else None
    alone = len(answers) == 1 or len({a.slot for a in answers} - {None}) == 1
    many = sum(a.requests for a in answers)
    row = LogRow(
        kind="closed_loop",
        concurrency=1 if alone and tpot_s else None,
        output_tps=1 / tpot_s if alone and tpot_s else None,
        accept_length=tokens / rounds if drafts or total or answers[0].engine == "sglang" else None,
        accept_length_scope="run",
        survival=tuple(sum(total[d:]) / rounds for d in range(1, len(total))) or None,
        tpot_s=tpot_s,
        drafted_per_round=sum(drafted) / rounds if drafts else None,
        num_requests=many,
        output_len=None if total else tokens / many,
        windows=len(answers),
    )
    name = "accept_histogram" if total else "answers"
    settings = {"num_steps": len(total) - 1} if len(total) > 1 else {}
    windows = WindowCount(len(answers), len(answers))
    return LogEntry(path, name, answers[0].engine, None, settings, (row,), windows)


def _positive(record: Mapping[str, Any], key: str) -> float:
    value = number(record, key)
    if value is None or value <= 0:
        raise Unread(MISSING)
    return value


def _count(record: Mapping[str, Any], key: str) -> int:
    value = _positive(record, key)
    check(value % 1 == 0, MISSING)
    return int(value)


def _accept_length(record: Mapping[str, Any], key: str) -> float | None:
    value = number(record, key)
    check(value is None or 1 <= value <= MOST_ACCEPT, "accept length out of range")
    return value
