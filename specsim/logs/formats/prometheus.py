"""Prometheus text of SGLang and vLLM: gauges of the moment, counters differenced.

A file may hold several scrapes one after the other (``cat before.prom after.prom``): counters are
then differences between the first and the last one, which leaves out what happened before.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from specsim.logs.entry import Diagnosis, LogEntry, LogRow, WindowCount, measures
from specsim.logs.format import Format
from specsim.logs.formats._results import LONGEST_ACCEPT
from specsim.logs.settings import chain_settings
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, OUT_OF_RANGE, TRUNCATED, Unread, check

_NAME = rb"(?P<engine>sglang|vllm)[:_](?P<name>[a-zA-Z_]\w{0,120})"
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
    r"(?!.*_(?:created|bucket)\Z)(?:spec_|num_requests_|num_running_reqs|num_queue_reqs"
    r"|gen_throughput|token_usage|(?:kv|gpu)_cache_usage_perc|[a-z_]{1,64}_seconds_(?:sum|count)\Z)"
)
"""``_created`` series are time stamps."""
_REPLICA_LABELS = (b"dp_rank", b"engine", b"instance")
_SHARD_LABELS = (b"tp_rank", b"pp_rank")
_MAX_SERIES = 1 << 16

RUNNING = ("num_requests_running", "num_running_reqs")
WAITING = ("num_requests_waiting", "num_queue_reqs")
KV_USAGE = ("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage")
TPOT = ("time_per_output_token_seconds", "request_time_per_output_token_seconds")
DRAFTS, DRAFTED, ACCEPTED, BY_POSITION = (
    (f"spec_decode_num_{what}_total", f"spec_decode_num_{what}")
    for what in ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")
)
"""Names of one metric in different engines and versions."""

SCRAPE_SLACK = 0.02
"""Counters of one scrape are read one after the other, and may differ by a round or two."""


class _Key(NamedTuple):
    """What tells the series of one name apart."""

    replica: bytes
    position: bytes  # of a draft


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


@dataclass(slots=True)
class _Dump:
    """What has been read of a file."""

    series: dict[str, dict[_Key, _Series]] = field(default_factory=dict)
    engines: Counter[str] = field(default_factory=Counter)
    models: set[str] = field(default_factory=set)
    unread: Counter[str] = field(default_factory=Counter)
    known: dict[bytes, _Series | None] = field(default_factory=dict)  # by name and labels
    cut: bool = False
    depth: int = 0  # positions of drafts that any line names

    def of(self, names: Iterable[str], positions: bool = False) -> dict[_Key, _Series]:
        """Return the series of the first name that is there, those by position or the others."""
        for name in names:
            series = self.series.get(name, {})
            found = {key: of for key, of in series.items() if bool(key.position) == positions}
            if found:
                return found
        return {}

    def counter(self, names: Iterable[str]) -> dict[bytes, float]:
        """Return a counter by replica."""
        return {key.replica: series.increase for key, series in self.of(names).items()}

    def gauge(self, names: Iterable[str]) -> dict[bytes, float]:
        """Return the last value of a gauge by replica."""
        return {key.replica: series.last for key, series in self.of(names).items()}

    def scrapes(self, prefix: str, replica: bytes | None = None) -> set[int]:
        """How often series were scraped, of one replica or all; more than one is damage."""
        return {
            series.scrapes
            for name, by_key in self.series.items()
            if name.startswith(prefix)
            for key, series in by_key.items()
            if replica in (None, key.replica)
        }

    def replicas(self) -> int:
        """Replicas that labels tell apart."""
        keys = (key for by_key in self.series.values() for key in by_key)
        return len({key.replica for key in keys if key.replica.strip(b"/")}) or 1

    def total(self, names: Iterable[str]) -> float | None:
        """Sum of a gauge over replicas; None where one of them does not say."""
        values = self.gauge(names)
        return sum(values.values()) if len(values) == self.replicas() else None

    def mean_s(self, *names: str) -> float | None:
        """Mean of a histogram over the replicas that export both its sum and its count."""
        for name in names:
            totals, counts = self.counter([f"{name}_sum"]), self.counter([f"{name}_count"])
            if len(self.scrapes(name)) > 1:
                self.unread["scrapes are incomplete"] += 1
                continue
            both = totals.keys() & counts.keys()
            count = sum(counts[r] for r in both)
            if count and (mean := sum(totals[r] for r in both) / count):
                return mean
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
        dump.cut = True
        dump.unread[TRUNCATED] += 1
    elif _START.match(line):
        try:
            series = _sample(line, dump)
        except Unread as error:
            dump.unread[error.reason] += 1
            return
        if text.rstrip(b" |").endswith(b"}") and len(dump.known) < _MAX_SERIES:
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
    check(value >= 0 and math.isfinite(value), OUT_OF_RANGE)
    if b"model_name" in labels:
        dump.models.add(labels[b"model_name"].decode("utf-8", "replace"))
    replica = b"/".join(labels.get(k, b"") for k in _REPLICA_LABELS)
    shard = b"/".join(labels.get(k, b"") for k in _SHARD_LABELS)
    of_name = dump.series.setdefault(name, {})
    series = of_name.setdefault(_Key(replica, position), _Series(shard, value))
    if series.shard != shard:
        return None
    series.count(value)
    return series


def _entry(dump: _Dump, path: str) -> LogEntry:
    engine = "vllm" if dump.engines["vllm"] > dump.engines["sglang"] else "sglang"
    row = LogRow(
        kind="closed_loop",
        batch_size=dump.total(RUNNING),
        accept_length_scope="pooled",
        ttft_s=dump.mean_s("time_to_first_token_seconds"),
        tpot_s=dump.mean_s(*TPOT),
        itl_s=dump.mean_s("inter_token_latency_seconds"),
        queue=dump.total(WAITING),
        kv_usage=_mean(dump.gauge(KV_USAGE)),
    )
    row, settings = (_with_counters if engine == "vllm" else _with_gauges)(row, dump)
    if len(dump.models) == 1:
        settings["model"] = next(iter(dump.models))
    diagnoses = []
    if dump.replicas() > 1:
        message = f"{dump.replicas()} data-parallel replicas were summed"
        diagnoses.append(Diagnosis("ranks_summed", message))
    if dump.cut:
        message = "the last line is cut short and was not read"
        diagnoses.append(Diagnosis("truncated", message))
    used = 1 if measures(row) else 0
    return LogEntry(
        path=path,
        format="prometheus",
        engine=engine,
        settings=settings,
        rows=(row,) if used else (),
        windows=WindowCount(used, used),
        diagnoses=tuple(diagnoses),
        unread=dict(dump.unread),
    )


def _with_gauges(row: LogRow, dump: _Dump) -> tuple[LogRow, dict[str, object]]:
    """Add SGLang's throughput and accept length; and return its settings."""
    running, tps = dump.gauge(RUNNING), dump.gauge(["gen_throughput"])
    accept = dump.gauge(["spec_accept_length"])
    accept = {r: v for r, v in accept.items() if 1 <= v <= LONGEST_ACCEPT}
    steps = _mean(dump.gauge(["spec_num_steps"]))
    n = _mean(dump.gauge(["spec_num_draft_tokens"]))
    # The throughput gauge keeps its last value when a replica is idle.
    busy = [r for r in running if running[r] > 0]
    total = sum(tps[r] for r in busy) if tps.keys() >= set(busy) else None
    length, batch = _weighted(accept, running), row.batch_size
    row = replace(
        row,
        output_tps=(total or None) if batch else None,
        accept_length=length,
        round_time_s=length * batch / total if length and batch and total else None,
        accept_rate=_mean(dump.gauge(["spec_accept_rate"])),
    )
    return row, {"num_steps": round(steps), "num_draft_tokens": round(n)} if steps and n else {}


def _with_counters(row: LogRow, dump: _Dump) -> tuple[LogRow, dict[str, object]]:
    """Add what vLLM counts of drafts; and return its settings."""
    parts = list(_drafting(dump))
    drafts, accepted = sum(p.drafts for p in parts), sum(p.accepted for p in parts)
    drafted = sum(p.drafted for p in parts if p.drafted is not None)
    depth = min((len(p.by_position) for p in parts), default=0)
    k = max((len(p.by_position) for p in parts), default=0)
    if drafted:
        k = max(k, round(drafted / drafts))
    survival = tuple(sum(p.by_position[i] for p in parts) / drafts for i in range(depth))
    row = replace(
        row,
        accept_length=1 + accepted / drafts if drafts else None,
        survival=survival or None,
        drafted_per_round=drafted / drafts if drafted else None,
        accept_rate=accepted / drafted if drafted else None,
    )
    return row, dict(chain_settings(k)) if k else {}


@dataclass(frozen=True, slots=True)
class _Drafting:
    """Counters of one replica, checked against each other."""

    drafts: float
    drafted: float | None
    accepted: float
    by_position: list[float]  # accepted at each; empty where one is lost


def _drafting(dump: _Dump) -> Iterator[_Drafting]:
    """Drafting of the replicas whose counters are complete; others are counted as unread."""
    drafts, drafted = dump.counter(DRAFTS), dump.counter(DRAFTED)
    accepted = dump.counter(ACCEPTED)
    positions: dict[bytes, dict[int, float]] = {}
    for key, series in dump.of(BY_POSITION, positions=True).items():
        if key.position.isdigit() and len(key.position) < 3:
            positions.setdefault(key.replica, {})[int(key.position)] = series.increase
    # Without a total the positions must be complete: time stamps of lost ones count too.
    sure = bool(accepted) or not dump.cut
    for replica in sorted(drafts.keys() | drafted.keys() | accepted.keys() | positions.keys()):
        counts = positions.get(replica, {})
        lacks = any(counters and replica not in counters for counters in (drafted, accepted))
        try:
            complete = not lacks and replica in drafts and len(counts) >= dump.depth and sure
            check(complete, "a counter is missing")
            check(len(dump.scrapes("spec_decode", replica)) <= 1, "scrapes are incomplete")
            if drafts[replica]:
                of = (drafts[replica], drafted.get(replica), accepted.get(replica))
                yield _replica(*of, counts)
        except Unread as error:
            dump.unread[error.reason] += 1


def _replica(
    drafts: float, drafted: float | None, accepted: float | None, positions: Mapping[int, float]
) -> _Drafting:
    """Join the counters of one replica; raises :class:`Unread` if they make no measurement."""
    whole = sorted(positions) == list(range(len(positions)))
    counts = [positions[i] for i in sorted(positions)]
    check(accepted is not None or (counts and whole), "a counter is missing")
    total = sum(counts) if accepted is None else accepted
    full = drafted is None or len(positions) >= round(drafted / drafts)
    if counts and whole and full:
        check(abs(sum(counts) - total) <= SCRAPE_SLACK * total, CONTRADICTION)
    check(all(later <= earlier for earlier, later in pairwise(counts)), CONTRADICTION)
    check(max(counts, default=0.0) <= drafts * (1 + SCRAPE_SLACK), CONTRADICTION)
    check(drafted is None or total <= drafted * (1 + SCRAPE_SLACK), CONTRADICTION)
    return _Drafting(drafts, drafted, total, counts if whole else [])


def _mean(values: Mapping[bytes, float]) -> float | None:
    return sum(values.values()) / len(values) if values else None


def _weighted(values: Mapping[bytes, float], weights: Mapping[bytes, float]) -> float | None:
    """Mean by running requests where these are known of all replicas, else the plain mean."""
    total = sum(weights.get(r, 0.0) for r in values)
    if total <= 0 or not values.keys() <= weights.keys():
        return _mean(values)
    return sum(values[r] * weights[r] for r in values) / total


FORMAT = Format(name="prometheus", mark=_START, parse=parse)
