"""Prometheus text of the engines: gauges of the moment, counters differenced.

A file may hold several scrapes one after the other (``cat before.prom after.prom``).
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from specsim.arrays import Floats
from specsim.logs.diagnose import finding
from specsim.logs.entry import MOST_ACCEPT, LogEntry, LogRow, WindowCount, measures, per_round
from specsim.logs.formats._results import engine_of
from specsim.logs.formats._scrape import INCOMPLETE, Dump, Replica, drafting, scraped
from specsim.logs.json_values import json_values, number, table
from specsim.logs.levels import level_rows
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, DAMAGED, TRUNCATED, Unread, check, counted
from specsim.logs.windows import PREFILL_LEAST, Columns, Windows
from specsim.setting import chain_settings

OVERLAPS = 0.5  # from this share of stages that begin and end under a forward on they overlap it
ONE_SLOT = 1.05  # up to so many slots in a decode, on average, there was one client
MOST_POSITIONS = 32
LOOKUP = 1.1  # rounds over drafts from which on some rounds draft nothing: a lookup finds nothing


def parse(source: Source) -> list[LogEntry]:
    """Read metrics, from ``/metrics`` or pasted from a dashboard; replicas are summed."""
    return _entries(scraped(source.lines()), source.path)


def _entries(dump: Dump, path: str) -> list[LogEntry]:
    if len(dump.servers) <= 1:
        return [entry_of(dump, path)]
    return [replace(entry_of(of, path), label=server) for server, of in dump.servers.items()]


def parse_api(source: Source) -> list[LogEntry]:
    """Read answers of Prometheus' own API: a scrape for each moment, windows between them."""
    scrapes: dict[float, list[bytes]] = {}
    unread: Counter[str] = Counter()
    for value in json_values(source.lines()):
        with counted(unread):
            for at, line in list(_samples(value)):  # all of an answer, or nothing
                scrapes.setdefault(at, []).append(line)
    times = sorted(scrapes)
    dump = scraped(line for at in times for line in scrapes[at])
    windows, engine = no_windows(), max(dump.engines, default="")
    for begin, end in pairwise(times if len(dump.servers) <= 1 else ()):
        window = scraped(scrapes[begin] + scrapes[end])
        tokens = window.increase("tokens") if engine == "vllm" else None
        scrapes_of = {s.scrapes for of in window.replicas.values() for s in of.values()}
        whole = scrapes_of == {2} and not window.restarted  # no series is lost at a moment
        if whole and (tokens is not None or engine == "sglang"):
            windows.add(columns_of(window, end, end - begin, tokens, True), [b""], final=True)
    rows, count = level_rows(windows, finished)
    if not rows:
        entries = _entries(dump, source.path)
    else:
        entries = [replace(entry_of(dump, source.path), rows=rows, windows=count)]
    return [replace(e, unread=dict(Counter(e.unread) + unread)) for e in entries]


def _samples(answer: Any) -> Iterator[tuple[float, bytes]]:
    """Yield when and what: the samples of an answer, as lines of ``/metrics``."""
    if isinstance(answer, Unread):
        raise answer
    result = table(answer, "data").get("result") if isinstance(answer, dict) else None
    for series in _listed(result):
        check(isinstance(series, dict), DAMAGED)
        labels = {k: str(v) for k, v in table(series, "metric").items() if re.fullmatch(r"\w+", k)}
        name = labels.pop("__name__", "")
        check(re.fullmatch(r"[\w:]+", name), "the result of an expression has no name")
        text = ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
        for point in _listed(series.get("values", [series.get("value")])):
            check(isinstance(point, list) and len(point) == 2, DAMAGED)
            at = number({"": point[0]}, "")
            check(at is not None and type(point[1]) is str, DAMAGED)
            yield at or 0.0, f"{name}{{{text}}} {point[1]}\n".encode()


def _listed(value: Any) -> list[Any]:
    check(isinstance(value, list), DAMAGED)
    return list(value)


def entry_of(dump: Dump, path: str) -> LogEntry:
    """Return what scrapes say, as an entry."""
    engine = max(dump.engines, key=lambda name: dump.engines[name], default="sglang")
    row = LogRow(
        kind="closed_loop",
        batch_size=dump.total("running"),
        accept_length_scope="pooled",
        ttft_s=dump.mean_s("ttft"),
        tpot_s=dump.mean_s("tpot"),
        itl_s=dump.mean_s("itl"),
        queue=dump.total("waiting"),
        kv_usage=_mean(dump.gauges("kv_usage")),
    )
    row, settings = (_with_gauges if engine == "sglang" else _with_counters)(row, dump)
    if engine == "llamacpp":
        row = _with_slots(row, dump)
    full, partial = (dump.increase("stages", of) or 0.0 for of in (b"/full", b"/partial"))
    if full > OVERLAPS * (full + partial):  # one that waits for each forward has no stage all so
        settings["scheduler"] = "overlap"
    if dump.model:
        settings["model"] = dump.model
    several = [finding("ranks_summed", "prometheus", n=dump.count)] if dump.count > 1 else []
    cut = [finding("truncated", "last_line")] if TRUNCATED in dump.unread else []
    rows = tuple(filter(measures, (row, _of_ended(dump))))
    windows, found = WindowCount(len(rows), len(rows)), (*several, *cut)
    entry = LogEntry(path, "prometheus", engine_of(engine), None, settings, rows, windows, found)
    return replace(entry, unread=dict(dump.unread))


def _with_gauges(row: LogRow, dump: Dump) -> tuple[LogRow, dict[str, object]]:
    """Add SGLang's throughput and accept length; and return its settings."""
    # The throughput gauge keeps its last value when a replica is idle.
    busy = [r for r in dump.replicas.values() if r.gauge("running")]
    tps = [v for r in busy if (v := r.gauge("output_tps")) is not None]
    total = sum(tps) if len(tps) == len(busy) else 0.0
    length, batch = _accept_length(dump), row.batch_size
    row = replace(
        row,
        output_tps=(total or None) if batch else None,
        accept_length=length,
        round_time_s=length * batch / total if length and batch and total else None,
        accept_rate=_mean(dump.gauges("accept_rate")),
    )
    steps, n = (_mean(dump.gauges(what)) for what in ("num_steps", "num_draft_tokens"))
    return row, {"num_steps": round(steps), "num_draft_tokens": round(n)} if steps and n else {}


def _of_ended(dump: Dump) -> LogRow:
    """Return the acceptance of SGLang's ended requests, whose first token the prompt gave."""
    parts = ("tokens", "ended_all", "verified")
    tokens, requests, rounds = (dump.increase(of) for of in parts)
    row = LogRow(kind="closed_loop", accept_length_scope="pooled")
    if tokens and requests and rounds:
        with counted(dump.unread):
            check(dump.even(*parts) and not dump.unread, INCOMPLETE)
            check(rounds <= tokens - requests, CONTRADICTION)
            row = replace(row, accept_length=(tokens - requests) / rounds)
    return row


def _accept_length(dump: Dump) -> float | None:
    """Mean by running requests where these are known of all replicas, else the plain mean."""
    pairs = [
        (length, replica.gauge("running"))
        for replica in dump.replicas.values()
        if (length := replica.gauge("accept_length")) and 1 <= length <= MOST_ACCEPT
    ]
    lengths, running = [a for a, _ in pairs], [n for _, n in pairs if n is not None]
    if len(running) < len(lengths) or not sum(running):
        return _mean(lengths)
    return sum(a * n for a, n in zip(lengths, running, strict=True)) / sum(running)


def _with_counters(row: LogRow, dump: Dump) -> tuple[LogRow, dict[str, object]]:
    """Add what vLLM, llama.cpp and TensorRT-LLM count of drafts; and return their settings."""
    if not dump.engines["vllm"] and (length := _accept_length(dump)):
        return replace(row, accept_length=length), {}  # a gauge: rounds are not counted
    parts = list(drafting(dump))
    drafts, accepted = sum(p.drafts for p in parts), sum(p.accepted for p in parts)
    drafted = sum(p.drafted for p in parts if p.drafted is not None)
    depths = [len(p.by_position) for p in parts] or [0]
    k = max(*depths, round(drafted / drafts) if drafted else 0)
    survived = [sum(p.by_position[i] for p in parts) for i in range(min(depths))]
    row = replace(row, **per_round(drafts, accepted, drafted, survived))
    return row, chain_settings(k) if k else {}


def _with_slots(row: LogRow, dump: Dump) -> LogRow:
    """Add the time per token in a busy slot; of one client, it is the throughput too."""
    of = next(iter(dump.replicas.values()), Replica())  # none: no line says anything
    seconds, tokens = of.counter("slot_seconds"), of.counter("slot_tokens")
    if not (seconds and tokens) or len(of.scrapes("tokens_predicted")) > 1:
        return row
    busy = of.gauge("busy_slots")
    alone = row.batch_size == 1 and (busy is None or busy <= ONE_SLOT)
    accept, tpot_s = row.accept_length, seconds / tokens
    return replace(
        row,
        tpot_s=tpot_s,
        output_tps=1 / tpot_s if alone else None,
        round_time_s=accept * tpot_s if accept else None,
    )


def no_windows() -> Windows:
    """Return windows of one server whose replicas are summed already, each of any length."""
    return Windows(lambda _: (None, ()), True, 0.0)


def columns_of(
    dump: Dump, time_s: float, seconds: float, tokens: float | None, counts_all: bool
) -> Columns:
    """Return what the scrapes of a window say: of gauges the mean, of counters the increase.

    `tokens` came out in these `seconds`; None where gauges tell the speed. `counts_all`: whether
    counters of drafts are of all rounds.
    """
    sums = np.zeros(5 + MOST_POSITIONS)
    running, waiting = (sum(dump.means(what)) for what in ("running", "waiting"))
    means = (_mean(dump.means(what)) for what in ("kv_usage", "accept_length"))
    usage, length = (np.nan if mean is None else mean for mean in means)
    if tokens is None:
        tokens = sum(dump.means("output_tps")) * seconds
        drafts = running if length >= 1 else 0.0
        emitted = drafts * length
    else:
        parts = list(drafting(dump))
        drafts, accepted = sum(p.drafts for p in parts), sum(p.accepted for p in parts)
        if drafts and counts_all and tokens - accepted > LOOKUP * drafts:
            drafts = tokens - accepted
        emitted = drafts + accepted
        length = emitted / drafts if drafts else 1.0
        sums[:2] = drafts, sum(p.drafted or 0.0 for p in parts)
        for part in parts:
            kept = part.by_position[:MOST_POSITIONS]
            sums[5 : 5 + len(kept)] += kept
    prompt = dump.increase("realtime_tokens", of=b"prefill_compute")
    prompt = dump.increase("prompt_tokens") if prompt is None else prompt
    sums[2:5] = [dump.increase(of) or 0.0 for of in ("ended", "ended_prompt", "ended_output")]
    said = {
        "time_s": time_s,
        "running": running,
        "queue": waiting,
        "usage": usage,
        "output_tps": tokens / seconds,
        "emitted": emitted,
        "rounds": drafts,
        "graph": np.nan,
        "prefill": float((prompt or 0.0) > PREFILL_LEAST * tokens / max(length, 1.0)),
        "drafting": sums,
    }
    return {name: np.array([value]) for name, value in said.items()}


def finished(row: LogRow, sums: Floats) -> LogRow:
    """Complete a row by the sums over its windows."""
    rounds, drafted, ended, prompt, output, *positions = sums.tolist()
    depth = max((i for i, n in enumerate(positions, 1) if n), default=0)
    return replace(
        row,
        survival=tuple(n / rounds for n in positions[:depth]) if rounds and depth else None,
        drafted_per_round=drafted / rounds if rounds and drafted else None,
        input_len=prompt / ended if ended else None,
        output_len=output / ended if ended and output else None,
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
