"""Prometheus text of the engines: gauges of the moment, counters differenced.

A file may hold several scrapes one after the other (``cat before.prom after.prom``): counters are
then differences between the first and the last one, which leaves out what happened before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from specsim.logs.diagnose import Finding, told
from specsim.logs.entry import LogEntry, LogRow, WindowCount, measures
from specsim.logs.format import Format
from specsim.logs.formats._results import LONGEST_ACCEPT
from specsim.logs.settings import chain_settings
from specsim.logs.source import Source
from specsim.logs.unread import (
    CONTRADICTION,
    MOST_KINDS,
    OUT_OF_RANGE,
    TOO_MANY,
    TRUNCATED,
    Unread,
    check,
    counted,
)

_NAME = rb"(?P<engine>sglang|vllm|trtllm|llamacpp)[:_](?P<name>[a-zA-Z_]\w{0,120})"
_PAIR = rb"\w{1,64}=\"(?:[^\"\\\n]|\\.)*\" *"
"""A label; two lines that ran into each other do not make a list of them."""
_SAMPLE = re.compile(
    _NAME + rb"(?:\{(?P<labels>(?: *" + _PAIR + rb"(?:, *" + _PAIR + rb")*,? *)?)\})?"
    rb"(?: \| | +|\t)(?P<value>[+-]?(?:\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?|Inf|NaN))"
    rb"(?: \d{13,16})?\s*\Z"
)
"""Stamps are milliseconds since 1970: fewer digits are a value that a blank has cut in two."""
_START = re.compile(rb"^" + _NAME + rb"[{ \t]", re.MULTILINE)
_LABEL = re.compile(rb"(\w{1,64})=\"((?:[^\"\\\n]|\\.)*)\"")
_PLAIN_VALUE = re.compile(rb"\d{1,15}(?:\.\d{1,12})?\r?\n")
_RELEVANT = re.compile(
    r"(?!.*_(?:created|bucket)\Z)(?:spec_|num_requests_|num_running_reqs|num_queue_reqs|requests_"
    r"|n_busy_slots_|tokens_predicted_|gen_throughput|token_usage"
    r"|kv_cache_utilization|(?:kv|gpu)_cache_usage_(?:perc|ratio)|[a-z_]{1,64}_seconds_(?:sum|count)\Z)"
)
"""``_created`` series are time stamps."""
_REPLICA_LABELS = (b"dp_rank", b"engine", b"instance")
_SHARD_LABELS = (b"tp_rank", b"pp_rank")

RUNNING = ("num_requests_running", "num_running_reqs", "requests_processing")
WAITING = ("num_requests_waiting", "num_queue_reqs", "requests_deferred")
KV_USAGE = (
    *("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage"),
    *("kv_cache_utilization", "kv_cache_usage_ratio"),
)
TPOT = ("time_per_output_token_seconds", "request_time_per_output_token_seconds")
ACCEPT_LENGTH = ("spec_accept_length", "spec_decode_acceptance_length")
DRAFTS, DRAFTED, ACCEPTED, BY_POSITION = (
    (f"spec_decode_num_{what}_total", f"spec_decode_num_{what}")
    for what in ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")
)
COUNTERS = (DRAFTS, DRAFTED, ACCEPTED)
"""Names of one metric in different engines and versions."""

ENGINES = {"trtllm": "tensorrt-llm", "llamacpp": "llama.cpp"}
ONE_SLOT = 1.05
"""Up to so many slots in a decode, on average, there was one client."""

INCOMPLETE, LOST = "scrapes are incomplete", "a counter is missing"

SCRAPE_SLACK = 0.02
"""Counters of one scrape are read one after the other, and may differ by a round or two."""


@dataclass(slots=True)
class _Series:
    """First and last value of one series."""

    shard: bytes  # of the replica; the others say the same
    first: float
    last: float = 0.0
    scrapes: int = 0
    reset: bool = False

    def count(self, value: float) -> None:
        """Take the value of a scrape."""
        self.reset |= value < self.last
        self.last, self.scrapes = value, self.scrapes + 1

    @property
    def increase(self) -> float:
        """Increase of a counter; since the start if there is but one scrape, or a reset."""
        return self.last - (self.first if self.scrapes > 1 and not self.reset else 0.0)


class _Replica(dict[tuple[str, bytes], _Series]):
    """The series of one replica, by name and position of a draft."""

    def gauge(self, *names: str) -> float | None:
        """Last value of the first of the names that is there."""
        return next((self[name, b""].last for name in names if (name, b"") in self), None)

    def counter(self, *names: str) -> float | None:
        """Increase of the first of the names that is there."""
        return next((self[name, b""].increase for name in names if (name, b"") in self), None)

    def by_position(self) -> dict[int, float]:
        """Drafts that were accepted at each position."""
        return {
            int(position): series.increase
            for (name, position), series in self.items()
            if name in BY_POSITION and position.isdigit() and len(position) < 3
        }

    def scrapes(self, prefix: str) -> set[int]:
        """How often series were scraped; more than one number is damage."""
        return {series.scrapes for (name, _), series in self.items() if name.startswith(prefix)}


@dataclass(slots=True)
class _Dump:
    replicas: dict[bytes, _Replica] = field(default_factory=dict)
    engines: Counter[str] = field(default_factory=Counter)
    models: set[str] = field(default_factory=set)
    unread: Counter[str] = field(default_factory=Counter)
    known: dict[bytes, _Series | None] = field(default_factory=dict)  # by name and labels
    depth: int = 0  # positions of drafts that any line names
    kinds: int = 0  # series of all replicas

    @property
    def count(self) -> int:
        """Replicas that labels tell apart."""
        return sum(1 for labels in self.replicas if labels.strip(b"/")) or 1

    def gauges(self, *names: str) -> list[float]:
        """Last values of a gauge, of the replicas that have it."""
        values = (replica.gauge(*names) for replica in self.replicas.values())
        return [value for value in values if value is not None]

    def total(self, *names: str) -> float | None:
        """Sum of a gauge over replicas; None where one of them does not say."""
        values = self.gauges(*names)
        return sum(values) if len(values) == self.count else None

    def mean_s(self, *names: str) -> float | None:
        """Mean of a histogram over the replicas that export both its sum and its count."""
        for name in names:
            if len(set[int]().union(*(r.scrapes(name) for r in self.replicas.values()))) > 1:
                self.unread[INCOMPLETE] += 1
                continue
            total = count = 0.0
            for replica in self.replicas.values():
                one, of = replica.counter(f"{name}_sum"), replica.counter(f"{name}_count")
                if one is not None and of is not None:
                    total, count = total + one, count + of
            if count and total:
                return total / count
        return None


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read metrics, from ``/metrics`` or pasted from a dashboard; replicas are summed."""
    dump = _Dump()
    for line in _whole(source.lines(), dump):
        text, _, value = line.rpartition(b" ")
        series = dump.known.get(text, dump)
        if isinstance(series, _Dump) or not _PLAIN_VALUE.fullmatch(value):
            _new_sample(line, text, dump)
        elif series:
            series.count(float(value))
    return [_entry(dump, source.path)]


def _whole(lines: Iterable[bytes], dump: _Dump) -> Iterator[bytes]:
    """Drop a line that is followed by the end of another: one was written into the other."""
    previous = b""
    for line in lines:
        if b'"}' in line and b"{" not in line and _START.match(previous):
            dump.unread["two lines in one"] += 1
        elif previous:
            yield previous
        previous = line
    if previous:
        yield previous


def _new_sample(line: bytes, text: bytes, dump: _Dump) -> None:
    """Read a sample of a series that was not seen before, or whose value is written oddly."""
    if not line.endswith((b"\n", b"\r")):
        dump.unread[TRUNCATED] += 1
    elif _START.match(line):
        with counted(dump.unread):
            series = _sample(line, dump)
            if text.rstrip(b" |").endswith(b"}") and len(dump.known) < MOST_KINDS:
                dump.known[text] = series


def _sample(line: bytes, dump: _Dump) -> _Series | None:
    """Count one sample; return its series, None if it says nothing here."""
    found = _SAMPLE.match(line)
    if found is None:
        raise Unread("damaged sample")
    name = found["name"].decode()
    dump.engines[found["engine"].decode()] += 1
    labels = dict(_LABEL.findall(found["labels"] or b""))
    position = labels.get(b"position", b"")
    if position.isdigit() and len(position) < 3:
        dump.depth = max(dump.depth, int(position) + 1)
    if not _RELEVANT.match(name):
        return None
    value = float(found["value"])
    check(value == 0 or 1e-30 < value < 1e30, OUT_OF_RANGE)
    if b"model_name" in labels:
        dump.models.add(labels[b"model_name"].decode("utf-8", "replace"))
    replica = b"/".join(labels.get(k, b"") for k in _REPLICA_LABELS)
    shard = b"/".join(labels.get(k, b"") for k in _SHARD_LABELS)
    of = dump.replicas.get(replica, _Replica())
    if (name, position) not in of:
        check(dump.kinds < MOST_KINDS, TOO_MANY)
        dump.kinds += 1
    dump.replicas[replica] = of
    series = of.setdefault((name, position), _Series(shard, value))
    if series.shard != shard:
        return None
    series.count(value)
    return series


def _entry(dump: _Dump, path: str) -> LogEntry:
    engine = max(dump.engines, key=lambda name: dump.engines[name], default="sglang")
    row = LogRow(
        kind="closed_loop",
        batch_size=dump.total(*RUNNING),
        accept_length_scope="pooled",
        ttft_s=dump.mean_s("time_to_first_token_seconds"),
        tpot_s=dump.mean_s(*TPOT),
        itl_s=dump.mean_s("inter_token_latency_seconds"),
        queue=dump.total(*WAITING),
        kv_usage=_mean(dump.gauges(*KV_USAGE)),
    )
    row, settings = (_with_gauges if engine == "sglang" else _with_counters)(row, dump)
    if engine == "llamacpp":
        row = _with_slots(row, dump)
    if len(dump.models) == 1:
        settings["model"] = next(iter(dump.models))
    n, cut = dump.count, TRUNCATED in dump.unread
    findings: list[Finding] = [
        ("ranks_summed", f"{n} data-parallel replicas were summed" if n > 1 else ""),
        ("truncated", "the last line is cut short and was not read" if cut else ""),
    ]
    used = 1 if measures(row) else 0
    return LogEntry(
        path=path,
        format="prometheus",
        engine=ENGINES.get(engine, engine),
        settings=settings,
        rows=(row,) if used else (),
        windows=WindowCount(used, used),
        diagnoses=tuple(told(findings)),
        unread=dict(dump.unread),
    )


def _with_gauges(row: LogRow, dump: _Dump) -> tuple[LogRow, dict[str, object]]:
    """Add SGLang's throughput and accept length; and return its settings."""
    # The throughput gauge keeps its last value when a replica is idle.
    busy = [r for r in dump.replicas.values() if r.gauge(*RUNNING)]
    tps = [v for r in busy if (v := r.gauge("gen_throughput")) is not None]
    total = sum(tps) if len(tps) == len(busy) else 0.0
    length, batch = _accept_length(dump), row.batch_size
    row = replace(
        row,
        output_tps=(total or None) if batch else None,
        accept_length=length,
        round_time_s=length * batch / total if length and batch and total else None,
        accept_rate=_mean(dump.gauges("spec_accept_rate")),
    )
    steps, n = (_mean(dump.gauges(f"spec_num_{what}")) for what in ("steps", "draft_tokens"))
    return row, {"num_steps": round(steps), "num_draft_tokens": round(n)} if steps and n else {}


def _accept_length(dump: _Dump) -> float | None:
    """Mean by running requests where these are known of all replicas, else the plain mean."""
    pairs = [
        (length, replica.gauge(*RUNNING))
        for replica in dump.replicas.values()
        if (length := replica.gauge(*ACCEPT_LENGTH)) and 1 <= length <= LONGEST_ACCEPT
    ]
    lengths, running = [a for a, _ in pairs], [n for _, n in pairs if n is not None]
    if len(running) < len(lengths) or not sum(running):
        return _mean(lengths)
    return sum(a * n for a, n in zip(lengths, running, strict=True)) / sum(running)


def _with_counters(row: LogRow, dump: _Dump) -> tuple[LogRow, dict[str, object]]:
    """Add what vLLM, llama.cpp and TensorRT-LLM count of drafts; and return their settings."""
    if not dump.engines["vllm"] and (length := _accept_length(dump)):
        return replace(row, accept_length=length), {}  # a gauge: rounds are not counted
    parts = list(_drafting(dump))
    drafts, accepted = sum(p.drafts for p in parts), sum(p.accepted for p in parts)
    drafted = sum(p.drafted for p in parts if p.drafted is not None)
    depths = [len(p.by_position) for p in parts] or [0]
    k = max(*depths, round(drafted / drafts) if drafted else 0)
    survival = (sum(p.by_position[i] for p in parts) / drafts for i in range(min(depths)))
    row = replace(
        row,
        accept_length=1 + accepted / drafts if drafts else None,
        survival=tuple(survival) or None,
        drafted_per_round=drafted / drafts if drafted else None,
        accept_rate=accepted / drafted if drafted else None,
    )
    return row, chain_settings(k) if k else {}


def _with_slots(row: LogRow, dump: _Dump) -> LogRow:
    """Add the time per token in a busy slot; of one client, it is the throughput too."""
    of = next(iter(dump.replicas.values()), _Replica())  # none: no line says anything
    seconds, tokens = of.counter(f"{_SLOT}_seconds_total"), of.counter(f"{_SLOT}_total")
    if not (seconds and tokens) or len(of.scrapes(_SLOT)) > 1:
        return row
    busy = of.gauge("n_busy_slots_per_decode")
    alone = row.batch_size == 1 and (busy is None or busy <= ONE_SLOT)
    accept, tpot_s = row.accept_length, seconds / tokens
    return replace(
        row,
        tpot_s=tpot_s,
        output_tps=1 / tpot_s if alone else None,
        round_time_s=accept * tpot_s if accept else None,
    )


_SLOT = "tokens_predicted"


class _Drafting(NamedTuple):
    """Counters of one replica, checked against each other."""

    drafts: float
    drafted: float | None
    accepted: float
    by_position: list[float]  # accepted at each; empty where one is lost


def _drafting(dump: _Dump) -> Iterator[_Drafting]:
    """Drafting of the replicas whose counters are complete; others are counted as unread."""
    names = {name for of in (*COUNTERS, BY_POSITION) for name in of}
    replicas = [r for _, r in sorted(dump.replicas.items()) if any(name in names for name, _ in r)]
    stated = {of for of in COUNTERS for r in replicas if r.counter(*of) is not None}
    # Without a total the positions must be complete: time stamps of lost ones count too.
    sure = ACCEPTED in stated or TRUNCATED not in dump.unread
    for replica in replicas:
        with counted(dump.unread):
            check(len(replica.by_position()) >= dump.depth and sure, LOST)
            check(all(replica.counter(*of) is not None for of in {DRAFTS, *stated}), LOST)
            check(len(replica.scrapes("spec_decode")) <= 1, INCOMPLETE)
            if replica.counter(*DRAFTS):
                yield _checked(replica)


def _checked(replica: _Replica) -> _Drafting:
    """Join the counters of one replica; raises :class:`Unread` if they make no measurement."""
    drafted, accepted = replica.counter(*DRAFTED), replica.counter(*ACCEPTED)
    drafts, positions = replica.counter(*DRAFTS) or 0.0, replica.by_position()
    whole = sorted(positions) == list(range(len(positions)))
    counts = [positions[i] for i in sorted(positions)]
    check(accepted is not None or (counts and whole), LOST)
    total = sum(counts) if accepted is None else accepted
    full = drafted is None or len(positions) >= round(drafted / drafts)
    check(accepted is not None or full, LOST)
    if counts and whole and full:
        check(abs(sum(counts) - total) <= SCRAPE_SLACK * total, CONTRADICTION)
    check(all(later <= earlier for earlier, later in pairwise(counts)), CONTRADICTION)
    check(max(counts, default=0.0) <= drafts * (1 + SCRAPE_SLACK), CONTRADICTION)
    check(drafted is None or total <= drafted * (1 + SCRAPE_SLACK), CONTRADICTION)
    return _Drafting(drafts, drafted, total, counts if whole else [])


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


FORMAT = Format(name="prometheus", mark=_START, parse=parse)
