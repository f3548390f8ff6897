"""Stated results of benchmarks: figures by name -> a row, checked against each other, -> an entry.

Every benchmark says some of the same figures under names of its own. ``benchmarks.toml`` maps them
to those of :func:`row_of`; what they mean together, and when they contradict each other, is here.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

from specsim.logs.diagnose import finding, nothing_accepted, partial_drafting, truncated, words
from specsim.logs.entry import LEAST_ACCEPT, MOST_ACCEPT, Diagnosis, LogEntry, LogRow, WindowCount
from specsim.logs.formats._benchmarks import SIZES, figures_of, names
from specsim.logs.json_values import MAX_WHOLE
from specsim.logs.unread import CONTRADICTION, DAMAGED_ROW, MISSING, OUT_OF_RANGE, check
from specsim.setting import NO_SPECULATION, algorithm_name, chain_settings

SLACK = 0.01  # relative difference that rounding of a printed result explains
LOOSE = 0.03  # the same of figures that are averages of rounded ones
CHUNK_RATIO = 1.15  # gaps exceed the time per token by so much only if chunks hold several
QUEUE_FACTOR = 5.0  # a first token so many times later than the server's time per request queued
QUEUE_SHARE = 0.3
MIN_QUEUE_S = 1.0
LEAST_RATE = 0.1  # slower rates are printed with too few digits to be checked, 1/s
UNLIMITED_RATE = 1e9  # requests per second above which all were issued at once
HELD = 0.95  # from this share of the largest batch on, on average in flight, clients kept it full
ROUNDING = 0.02  # of an accept length beside the counts that it is made of

_COUNTS = ("num_requests", "input_tokens", "output_tokens", "drafts", "drafted", "accepted")
_NO_WHOLE = "a count is no whole number"
_STRATEGY = re.compile(r"(?:(concurrent|constant|poisson)@(\d{1,7}(?:\.\d{1,9})?)|synchronous)")


def agree(one: float | None, other: float | None, slack: float = SLACK) -> bool:
    """Whether two figures differ by no more than their rounding; None contradicts nothing."""
    if one is None or other is None:
        return True
    return abs(one - other) <= slack * max(abs(one), abs(other))


def row_of(
    said: Mapping[str, float | None], survival: Sequence[float] | None = None, **more: Any
) -> LogRow:
    """Return the row that the figures of a benchmark make, checked against each other.

    `said` are figures by name, SI units: fields of :class:`LogRow`, and `input_tokens`,
    `output_tokens` (of all requests), `request_throughput` (1/s), `total_tps` (tokens of prompts
    too), `e2e_s` (mean of requests), `in_flight` (mean number of requests), `sent` (requests, of
    which `num_requests` succeeded), `prefill_s` (of the duration, that the speed leaves out),
    `drafts`, `drafted`, `accepted` (rounds, and tokens of all requests). `survival` is the
    probability that at least 1, 2, ... drafts are accepted, `more` are further fields of the row.
    Raises :class:`Unread` if a figure cannot be, or contradicts another.
    """
    known = {name: value for name, value in said.items() if value is not None}
    check(all(0 <= value <= MAX_WHOLE for value in known.values()), OUT_OF_RANGE)
    check(all(known.get(name, 0.0) % 1 == 0 for name in _COUNTS), _NO_WHOLE)
    get = {k: v for k, v in known.items() if v or k == "accepted"}.get  # no time, or rate, is 0
    n, seconds, tps, rate = map(get, ("num_requests", "duration_s", "output_tps", "request_rate"))
    out = get("output_len") or ratio(get("output_tokens"), n)
    into = get("input_len") or ratio(get("input_tokens"), n)
    total = get("output_tokens") or (n * out if n and out else None)
    slack = SLACK if get("output_tokens") else LOOSE
    decode_s = seconds - (get("prefill_s") or 0.0) if seconds else None
    check(agree(tps, ratio(total, decode_s), slack), CONTRADICTION)
    if n and into and out:
        check(agree(get("total_tps"), ratio(n * (into + out), seconds), LOOSE), CONTRADICTION)
    served = get("request_throughput")
    if served and served > LEAST_RATE:
        rounded = 0.005 / served  # it has two decimals
        check(agree(served, ratio(n, seconds), SLACK + rounded), CONTRADICTION)
        check(agree(tps, served * out if out else None, LOOSE + rounded), CONTRADICTION)
    accept = _accept_length(get("accept_length"), get("drafts"), get("accepted"))
    _check_survival(survival, accept)
    share = get("accept_rate") or ratio(get("accepted"), get("drafted"))
    each = get("drafted_per_round") or ratio(get("drafted"), get("drafts"))
    clients, in_flight = get("concurrency"), get("in_flight")
    check(not (n and in_flight) or (in_flight or 0.0) <= (n or 0.0) * (1 + SLACK), CONTRADICTION)
    check(not n or n <= (get("sent") or n), CONTRADICTION)
    as_said = ("batch_size", "tpot_s", "ttft_s", "itl_s", "round_time_s")
    more = {**{name: get(name) for name in as_said}, **more}
    return LogRow(
        kind=more.pop("kind", None) or ("open_loop" if rate and not clients else "closed_loop"),
        concurrency=clients or in_flight,
        output_tps=tps,
        accept_length=accept,
        survival=tuple(survival) if survival else None,
        drafted_per_round=each,
        accept_rate=share,
        request_rate=rate,
        num_requests=int(n) if n else None,
        input_len=into,
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
    check(length is None or 1 <= length <= MOST_ACCEPT, "accept length out of range")
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
    found = (
        _queued(row),
        _per_chunk(row) if chunks else (),
        _nothing_accepted(row, drafts, settings.get("algorithm")),
        partial_drafting(row.drafted_per_round, settings.get("num_steps")),
    )
    diagnoses = tuple(chain.from_iterable(found))
    return LogEntry("", name, engine, version, settings, (row,), diagnoses=diagnoses)


def run_entry(
    program: str,
    stated: Mapping[str, float | str],
    more: Mapping[str, object] = {},
    survival: Sequence[float] | None = None,
) -> LogEntry:
    """Return the entry of a run of which a program says figures and texts; with `more` settings.

    `survival` is as in :func:`row_of`.

    What it does not say follows from what it does: speeds of all from those of one GPU or one
    stream, requests in flight from the rate served and the mean time of a request, the depth of
    drafts from the accept length and the share accepted where all are of one depth. Raises
    :class:`Unread` if a figure is missing, cannot be, or contradicts another.
    """
    how = names("programs").get(program, {})
    said = {**how.get("given", {}), **figures_of(stated)}
    texts = {name: text for name, text in stated.items() if isinstance(text, str)}
    said |= _strategy(texts.pop("strategy", ""))
    if how.get("at_once"):
        said.setdefault("num_requests", said.get("batch_size", 0.0))
        said.setdefault("concurrency", said["num_requests"])
    engine = engine_of(texts.pop("engine", "")) or how.get("engine")
    version = texts.pop("version", None)
    check(all(said.get(name) for name in how.get("needs", ())), MISSING)
    settings = {**_settings(said, texts), **more}
    if settings.get("algorithm") == "none" and "algorithm" not in more:
        said.setdefault("accept_length", 1.0)
    kind = _speeds(said, settings, how)
    _in_flight(said, settings.get("max_running_requests"))
    accept, rate = said.get("accept_length"), said.get("accept_rate")
    if accept and rate and not said.get("drafted"):
        said["drafted_per_round"] = (accept - 1) / rate
    row = row_of(said, survival, kind=kind, accept_length_scope=how.get("scope", "run"))
    each = row.drafted_per_round or 0.0
    k = round(each)
    if k and abs(each - k) <= ROUNDING * k and "num_steps" not in settings:
        inferred = ["topk", "num_steps", "num_draft_tokens"]
        settings |= {**chain_settings(k), "inferred": inferred}
    return entry_of(program, row, settings, engine, version)


def _settings(said: dict[str, float], texts: Mapping[str, str]) -> dict[str, object]:
    sizes = {name: said.pop(name) for name in SIZES if name in said}
    check(all(size % 1 == 0 and size <= MAX_WHOLE for size in sizes.values()), DAMAGED_ROW)
    k = sizes.pop("k", sizes.get("num_steps"))
    settings: dict[str, object] = {name: int(size) for name, size in sizes.items() if size}
    if k and "num_steps" not in sizes:
        settings = {**chain_settings(int(k)), **settings}
    settings |= {name: text for name, text in texts.items() if text != "None"}
    algorithm = str(settings.pop("algorithm", "standalone" * ("draft" in settings))).lower()
    if k == 0 or algorithm in ("none", "off"):
        settings |= NO_SPECULATION
    elif algorithm:
        settings["algorithm"] = algorithm_name(algorithm)
    return settings


def _strategy(text: str) -> dict[str, float]:
    """Return the load that GuideLLM names.

    >>> _strategy("concurrent@8"), _strategy("poisson@2.5"), _strategy("throughput")
    ({'concurrency': 8.0}, {'request_rate': 2.5}, {})
    """
    found = _STRATEGY.fullmatch(text)
    closed = found and found[1] in (None, "concurrent")
    return {"concurrency" if closed else "request_rate": float(found[2] or 1)} if found else {}


def _speeds(
    said: dict[str, float], settings: Mapping[str, Any], how: Mapping[str, Any]
) -> str | None:
    """Add speeds and times that others make; return the kind of load, None if these don't tell."""
    gpus = said.pop("gpus", None) or settings.get("tp", 0) * settings.get("pp", 1)
    if gpus and (gpu_tps := said.pop("gpu_tps", None)):
        check(agree(said.setdefault("output_tps", gpu_tps * gpus), gpu_tps * gpus), CONTRADICTION)
    accept, batch, each = map(said.get, ("accept_length", "batch_size", "user_tps"))
    check(all(n % 1 == 0 for n in (batch or 0.0, said.get("concurrency", 0.0))), _NO_WHOLE)
    kind: str | None = how.get("kind")
    if kind == "steady_decode" and accept and batch and each:
        said["tpot_s"] = said["round_time_s"] / accept
        said["output_tps"] = batch * each
        check(agree(each * said["tpot_s"], 1.0, LOOSE), CONTRADICTION)
        check(accept <= settings["num_steps"] + 1 + LOOSE, CONTRADICTION)
    elif each:
        said.setdefault("tpot_s", 1 / each)
    tps, seconds, out = map(said.get, ("output_tps", "duration_s", "output_len"))
    if how.get("at_once") and not tps and seconds and out:
        said["output_tps"] = said["num_requests"] * out / seconds
    if accept and batch and tps and (round_s := said.get("round_time_s")):
        check(agree(tps * round_s, accept * batch, LOOSE), CONTRADICTION)
    decoding = how.get("decoding", False)
    into, first_s = map(said.get, ("input_tps", "ttft_s"))
    if batch and into and first_s and "input_len" not in said:
        said["input_len"] = float(round(into * first_s / batch))
    if batch and batch == said.get("num_requests") and tps:  # in one batch: all decode at once
        if into and "input_len" in said:
            said["ttft_s"] = batch * said["input_len"] / into
        decode_s = (seconds or 0.0) - said.get("ttft_s", seconds or 0.0)
        if out and decode_s > 0 and agree(batch * out / decode_s, tps, LOOSE):
            said["prefill_s"], decoding, kind = said["ttft_s"], True, "steady_decode"
        if decoding and accept:
            said["round_time_s"] = accept * batch / tps
    if batch and "in_flight" not in said:
        said.setdefault("concurrency", batch)
    return kind


def _in_flight(said: dict[str, float], cap: object) -> None:
    """Add the requests in flight; a server that holds no more than `cap` of them runs them all."""
    served, n, seconds = map(said.get, ("request_throughput", "num_requests", "duration_s"))
    if said.get("request_rate", 0.0) > UNLIMITED_RATE:
        del said["request_rate"]
    flight, e2e_s = said.get("in_flight"), said.get("e2e_s")
    if flight and isinstance(cap, int) and flight <= cap:
        said["batch_size"] = flight  # none waits for a place
        if flight >= HELD * cap and "request_rate" not in said:
            said["concurrency"] = float(cap)
    if e2e_s is not None:  # Little's law
        if n and seconds:
            check(agree(flight, n * e2e_s / seconds, LOOSE), CONTRADICTION)
        if (served or 0.0) > LEAST_RATE and not said.get("concurrency"):
            said.setdefault("in_flight", (served or 0.0) * e2e_s)


def engine_of(name: str) -> str | None:
    """Return the engine that a word of a backend's name says; None if it says none.

    >>> engine_of("dynamo-trt"), engine_of("openai-chat")
    ('tensorrt-llm', None)
    """
    known = names("engines")
    return next((known[word] for word in re.split(r"\W", name.lower()) if word in known), None)


def joined(results: Iterable[LogEntry], path: str) -> list[LogEntry]:
    """Join successive results of one server; a load that comes again begins a new entry."""
    servers: list[list[LogEntry]] = []
    loads: set[tuple[object, ...]] = set()  # of the last one
    for result in results:
        new = _loads(result)
        if servers and _server(servers[-1][0]) == _server(result) and not loads & new:
            servers[-1].append(result)
            loads |= new
        else:
            servers.append([result])
            loads = new
    return [_whole(of, path) for of in servers]


def _whole(results: Sequence[LogEntry], path: str) -> LogEntry:
    """Return the entry of a server's results; a diagnosis that comes again is told once."""
    rows = tuple(row for result in results for row in result.rows)
    timings = tuple(timing for result in results for timing in result.timings)
    diagnoses: dict[str, list[Diagnosis]] = {}
    for result in results:
        new = [d for d in result.diagnoses if d.code not in diagnoses]
        for diagnosis in new:
            diagnoses.setdefault(diagnosis.code, []).append(diagnosis)
    told, n = tuple(chain.from_iterable(diagnoses.values())), sum(row.windows for row in rows)
    entry = replace(results[-1], path=path, rows=rows, diagnoses=told, timings=timings)
    return replace(entry, windows=WindowCount(n, n))


def _server(entry: LogEntry) -> tuple[object, ...]:
    settings = sorted(entry.settings.items(), key=str)
    return entry.format, entry.engine, entry.engine_version, entry.label, settings


def _loads(entry: LogEntry) -> set[tuple[object, ...]]:
    return {
        (r.kind, r.concurrency, r.request_rate, r.batch_size, r.input_len, r.output_len)
        for r in entry.rows
    }


def collected(
    results: Iterable[LogEntry], unread: Counter[str], path: str, format_: str
) -> list[LogEntry]:
    """Return results joined by server, with the account of unread records."""
    return with_unread(joined(results, path), +unread, path, format_)


def with_unread(
    entries: list[LogEntry], unread: Counter[str], path: str, format_: str
) -> list[LogEntry]:
    """Put the account of unread records on the last entry, or on an empty one."""
    if not unread and entries:
        return entries
    last = entries.pop() if entries else LogEntry(path, format_)
    cut = truncated(unread, "record(s)") if "truncated" not in last.codes else ()
    total = Counter(last.unread) + unread
    return [*entries, replace(last, unread=dict(total), diagnoses=(*last.diagnoses, *cut))]


def ratio(of: float | None, to: float | None) -> float | None:
    """Return a quotient; None where a part is not known."""
    return of / to if of is not None and to else None


def _per_chunk(row: LogRow) -> Iterator[Diagnosis]:
    """Tell where gaps between chunks of several tokens were taken for those between tokens."""
    itl, tpot = row.itl_s, row.tpot_s
    if itl and tpot and itl > CHUNK_RATIO * tpot:
        ms = {"itl_ms": 1e3 * itl, "tpot_ms": 1e3 * tpot}
        yield finding("itl_per_chunk", "mean", tokens=itl / tpot, **ms)
    elif itl and not tpot and (row.accept_length or 1.0) > CHUNK_RATIO:
        yield finding("itl_per_chunk", "backend")


def _nothing_accepted(row: LogRow, drafts: bool, algorithm: object) -> Iterator[Diagnosis]:
    if row.accept_length is None or row.accept_length >= LEAST_ACCEPT:
        return
    if algorithm == "none":
        yield finding("speculation_off", "batches", where="")
    elif row.drafted_per_round or drafts:
        yield finding("zero_acceptance", "result")
    else:
        yield from nothing_accepted(algorithm)


def _queued(row: LogRow) -> Iterator[Diagnosis]:
    """Tell where the first token waited in a queue, unless the server's work explains it."""
    ttft, tpot, out = row.ttft_s, row.tpot_s, row.output_len
    if not (ttft and row.duration_s and row.num_requests):
        return
    each_s = row.duration_s / row.num_requests
    total_s = ttft + (tpot or 0.0) * max((out or 1.0) - 1, 0.0)
    if ttft < MIN_QUEUE_S or ttft < QUEUE_FACTOR * each_s or ttft < QUEUE_SHARE * total_s:
        return
    decode = None if tpot is None else tpot * (row.output_tps or 0)
    running = "" if decode is None else words("queue_dominated", "running", running=decode)
    yield finding("queue_dominated", "ttft", ttft_s=ttft, each_s=each_s, running=running)
