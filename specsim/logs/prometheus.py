"""Prometheus text of SGLang and vLLM: gauges of the moment, counters differenced.

A file may hold several scrapes one after the other (``cat before.prom after.prom``): counters are
then differences between the first and the last one, which leaves out what happened before.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from specsim.logs.entry import Diagnosis, LogEntry, LogRow, WindowCount, measures
from specsim.logs.settings import chain_settings
from specsim.logs.source import as_lines

_NAME = rb"(?P<engine>sglang|vllm)[:_](?P<name>[a-zA-Z_]\w{0,120})"
_PAIR = rb"\w{1,64}=\"(?:[^\"\\\n]|\\.)*\" *"
"""A label; two lines that ran into each other do not make a list of them."""
_SAMPLE = re.compile(
    _NAME + rb"(?:\{(?P<labels>(?: *" + _PAIR + rb"(?:, *" + _PAIR + rb")*,? *)?)\})?"
    rb"(?: \| | +|\t)(?P<value>[+-]?(?:\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?|Inf|NaN))"
    rb"(?P<stamp> \d{13,16})?\s*\Z"
)
"""Stamps are milliseconds since 1970: fewer digits are a value that a blank has cut in two."""
START = re.compile(rb"^" + _NAME + rb"[{ \t]")
_LABEL = re.compile(rb"(\w{1,64})=\"((?:[^\"\\\n]|\\.)*)\"")
_PLAIN_VALUE = re.compile(rb"\d{1,15}(?:\.\d{1,12})?\r?\n")
_RELEVANT = re.compile(
    r"spec_|num_requests_|num_running_reqs|num_queue_reqs|gen_throughput|token_usage"
    r"|(?:kv|gpu)_cache_usage_perc|[a-z_]{1,64}_seconds_(?:sum|count)\Z"
)
MAX_SERIES = 1 << 16
_REPLICA_LABELS = (b"dp_rank", b"engine", b"instance")
_SHARD_LABELS = (b"tp_rank", b"pp_rank")

SCRAPE_SLACK = 0.02
"""Counters of one scrape are read one after the other, and may differ by a round or two."""

Key = tuple[str, bytes, bytes, bytes]
"""name, replica, shard, the label that distinguishes (position)."""


@dataclass(slots=True)
class _Series:
    """First and last value of one series."""

    first: float
    last: float
    scrapes: int = 1
    reset: bool = False

    def count(self, value: float) -> None:
        """Take the value of a further scrape."""
        self.reset |= value < self.last
        self.last, self.scrapes = value, self.scrapes + 1


@dataclass(slots=True)
class _Dump:
    series: dict[Key, _Series] = field(default_factory=dict)
    engines: Counter[str] = field(default_factory=Counter)
    models: set[str] = field(default_factory=set)
    unread: Counter[str] = field(default_factory=Counter)
    known: dict[bytes, _Series | None] = field(default_factory=dict)
    cut: bool = False
    depth: int = 0

    def counter(self, *names: str) -> dict[bytes, float]:
        """Return a counter by replica, as a difference where there are several scrapes."""
        for name in names:
            found = {k[1]: _increase(s) for k, s in self._of(name).items() if k[3] == b""}
            if found:
                return found
        return {}

    def gauge(self, *names: str) -> dict[bytes, float]:
        """Return the last value of a gauge by replica."""
        for name in names:
            found = {k[1]: s.last for k, s in self._of(name).items() if k[3] == b""}
            if found:
                return found
        return {}

    def positions(self, *names: str) -> dict[bytes, dict[int, float]]:
        """Return a counter by replica and the label ``position``."""
        total: dict[bytes, dict[int, float]] = {}
        for name in names:
            for key, series in self._of(name).items():
                if key[3].isdigit() and len(key[3]) < 3:
                    total.setdefault(key[1], {})[int(key[3])] = _increase(series)
            if total:
                break
        return total

    def scrapes(self, replica: bytes) -> set[int]:
        """How often the drafting counters of a replica were scraped; more than one is damage."""
        return {
            series.scrapes
            for key, series in self.series.items()
            if key[1] == replica and key[0].startswith("spec_decode")
        }

    def replicas(self) -> int:
        """Replicas that labels tell apart."""
        return len({key[1] for key in self.series if key[1].strip(b"/")}) or 1

    def _of(self, name: str) -> dict[Key, _Series]:
        """Series of a name; of a replica's shards, which say the same, only the first."""
        found = {k: s for k, s in self.series.items() if k[0] == name}
        first: dict[tuple[bytes, bytes], bytes] = {}
        for _, replica, shard, position in found:
            at = (replica, position)
            first[at] = min(first.get(at, shard), shard)
        return {k: s for k, s in found.items() if first[k[1], k[3]] == k[2]}


def read_prometheus(lines: Iterable[bytes] | Iterable[str], path: str = "-") -> list[LogEntry]:
    """Read metrics in Prometheus text format, from ``/metrics`` or pasted from a dashboard.

    ``_created`` series are time stamps and are ignored. Data-parallel replicas are summed.

    Parameters
    ----------
    lines
        Lines with their ends.
    path
        Name for the entries.
    """
    dump = _Dump()
    for line in _whole(as_lines(lines), dump):
        text, _, value = line.rpartition(b" ")
        series = dump.known.get(text, dump)
        if series is dump or not _PLAIN_VALUE.fullmatch(value):
            _new_sample(line, text, dump)
        elif isinstance(series, _Series):
            series.count(float(value))
    vllm = dump.engines["vllm"] > dump.engines["sglang"]
    return [_vllm_entry(dump, path) if vllm else _sglang_entry(dump, path)]


def _whole(lines: Iterable[bytes], dump: _Dump) -> Iterator[bytes]:
    """Drop a line that is followed by the end of another: one was written into the other."""
    previous = b""
    for line in lines:
        if b'"}' in line and b"{" not in line and START.match(previous):
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
        dump.unread["truncated"] += 1
    elif START.match(line):
        found = _sample(line, dump)
        if isinstance(found, str):
            dump.unread[found] += 1
        elif text.rstrip(b" |").endswith(b"}") and len(dump.known) < MAX_SERIES:
            dump.known[text] = found


def _sample(line: bytes, dump: _Dump) -> _Series | str | None:
    """Count one sample; return its series, None if it says nothing here, or why it is unread."""
    found = _SAMPLE.match(line)
    if found is None:
        return "damaged sample"
    name = found["name"].decode()
    dump.engines[found["engine"].decode()] += 1
    labels = dict(_LABEL.findall(found["labels"] or b""))
    position = labels.get(b"position", b"")
    if position.isdigit() and len(position) < 3:
        dump.depth = max(dump.depth, int(position) + 1)
    if name.endswith(("_created", "_bucket")) or not _RELEVANT.match(name):
        return None
    try:
        value = float(found["value"])
    except ValueError:
        return "damaged sample"
    if value < 0 or not math.isfinite(value):
        return "a number is out of range"
    if b"model_name" in labels:
        dump.models.add(labels[b"model_name"].decode("utf-8", "replace"))
    replica = b"/".join(labels.get(k, b"") for k in _REPLICA_LABELS)
    shard = b"/".join(labels.get(k, b"").rjust(6) for k in _SHARD_LABELS)
    key: Key = (name, replica, shard, position)
    series = dump.series.get(key)
    if series is None:
        series = dump.series[key] = _Series(value, value)
    else:
        series.count(value)
    return series


def _increase(series: _Series) -> float:
    """Increase of a counter over the scrapes; since the start if there is but one, or a reset."""
    return series.last - (series.first if series.scrapes > 1 and not series.reset else 0.0)


def _latency(dump: _Dump, name: str) -> float | None:
    """Mean of a histogram over the replicas that export both its sum and its count."""
    totals, counts = dump.counter(name + "_sum"), dump.counter(name + "_count")
    if len({s.scrapes for k, s in dump.series.items() if k[0].startswith(name)}) > 1:
        dump.unread["scrapes are incomplete"] += 1
        return None
    both = totals.keys() & counts.keys()
    count = sum(counts[r] for r in both)
    return sum(totals[r] for r in both) / count if count else None


@dataclass(slots=True)
class _Drafting:
    """Counters of one replica, checked against each other."""

    drafts: float
    drafted: float | None
    accepted: float
    positions: dict[int, float]


def _replica(
    drafts: float, drafted: float | None, accepted: float | None, positions: dict[int, float]
) -> _Drafting | str:
    """Join the counters of one replica, or say why they make no measurement."""
    whole = sorted(positions) == list(range(len(positions)))
    counts = [positions[i] for i in sorted(positions)]
    falling = all(later <= earlier for earlier, later in pairwise(counts))
    if accepted is None and not (positions and whole):
        return "a counter is missing"
    total = sum(counts) if accepted is None else accepted
    full = drafted is None or len(positions) >= round(drafted / drafts)
    if positions and whole and full and abs(sum(counts) - total) > SCRAPE_SLACK * total:
        return "numbers contradict each other"
    if not falling or (counts and max(counts) > drafts * (1 + SCRAPE_SLACK)):
        return "numbers contradict each other"
    if drafted is not None and total > drafted * (1 + SCRAPE_SLACK):
        return "numbers contradict each other"
    return _Drafting(drafts, drafted, total, positions if whole else {})


def _drafting(dump: _Dump) -> list[_Drafting]:
    """Drafting of the replicas whose counters are complete; others are counted as unread."""
    prefix = "spec_decode_num_"
    drafts = dump.counter(prefix + "drafts_total", prefix + "drafts")
    drafted = dump.counter(prefix + "draft_tokens_total", prefix + "draft_tokens")
    accepted = dump.counter(prefix + "accepted_tokens_total", prefix + "accepted_tokens")
    positions = dump.positions(
        prefix + "accepted_tokens_per_pos_total", prefix + "accepted_tokens_per_pos"
    )
    # Without a total the positions must be complete: time stamps of lost ones count too.
    sure = bool(accepted) or not dump.cut
    found = []
    for replica in sorted(drafts.keys() | drafted.keys() | accepted.keys() | positions.keys()):
        by_position = positions.get(replica, {})
        lacks = any(counters and replica not in counters for counters in (drafted, accepted))
        if lacks or replica not in drafts or len(by_position) < dump.depth or not sure:
            dump.unread["a counter is missing"] += 1
            continue
        if len(dump.scrapes(replica)) > 1:
            dump.unread["scrapes are incomplete"] += 1
            continue
        if not drafts[replica]:
            continue
        joined = _replica(drafts[replica], drafted.get(replica), accepted.get(replica), by_position)
        if isinstance(joined, str):
            dump.unread[joined] += 1
        else:
            found.append(joined)
    return found


def _vllm_entry(dump: _Dump, path: str) -> LogEntry:
    parts = _drafting(dump)
    drafts, accepted = sum(p.drafts for p in parts), sum(p.accepted for p in parts)
    drafted = sum(p.drafted for p in parts if p.drafted is not None)
    depth = min((len(p.positions) for p in parts), default=0)
    k = max((max(p.positions, default=-1) + 1 for p in parts), default=0)
    if drafted:
        k = max(k, round(drafted / drafts))
    row = LogRow(
        kind="closed_loop",
        batch_size=_total(dump.gauge("num_requests_running"), dump),
        accept_length=1 + accepted / drafts if drafts else None,
        accept_length_scope="pooled",
        survival=tuple(sum(p.positions[i] for p in parts) / drafts for i in range(depth)) or None,
        ttft_s=_latency(dump, "time_to_first_token_seconds"),
        tpot_s=_latency(dump, "time_per_output_token_seconds")
        or _latency(dump, "request_time_per_output_token_seconds"),
        itl_s=_latency(dump, "inter_token_latency_seconds"),
        queue=_total(dump.gauge("num_requests_waiting"), dump),
        kv_usage=_mean(dump.gauge("kv_cache_usage_perc", "gpu_cache_usage_perc")),
        drafted_per_round=drafted / drafts if drafted else None,
        accept_rate=accepted / drafted if drafted else None,
    )
    return _entry(dump, path, "vllm", dict(chain_settings(k)) if k else {}, row)


def _sglang_entry(dump: _Dump, path: str) -> LogEntry:
    running, tps = dump.gauge("num_running_reqs"), dump.gauge("gen_throughput")
    accept = {r: v for r, v in dump.gauge("spec_accept_length").items() if v >= 1}
    steps = _mean(dump.gauge("spec_num_steps"))
    n = _mean(dump.gauge("spec_num_draft_tokens"))
    # The throughput gauge keeps its last value when a replica is idle.
    busy = {r: tps.get(r) for r in running if running[r] > 0}
    batch = _total(running, dump)
    total = sum(v for v in busy.values() if v is not None) if None not in busy.values() else None
    length = _weighted(accept, running)
    row = LogRow(
        kind="closed_loop",
        batch_size=batch,
        output_tps=(total or None) if batch else None,
        accept_length=length,
        accept_length_scope="pooled",
        round_time_s=length * batch / total if length and batch and total else None,
        ttft_s=_latency(dump, "time_to_first_token_seconds"),
        tpot_s=_latency(dump, "time_per_output_token_seconds"),
        itl_s=_latency(dump, "inter_token_latency_seconds"),
        queue=_total(dump.gauge("num_queue_reqs"), dump),
        kv_usage=_mean(dump.gauge("token_usage")),
        accept_rate=_mean(dump.gauge("spec_accept_rate")),
    )
    settings: dict[str, object] = {}
    if steps and n:
        settings = {"num_steps": round(steps), "num_draft_tokens": round(n)}
    return _entry(dump, path, "sglang", settings, row)


def _total(values: dict[bytes, float], dump: _Dump) -> float | None:
    """Sum over replicas; None where one of them does not say."""
    return sum(values.values()) if len(values) == dump.replicas() else None


def _mean(values: dict[bytes, float]) -> float | None:
    return sum(values.values()) / len(values) if values else None


def _weighted(values: dict[bytes, float], weights: dict[bytes, float]) -> float | None:
    """Mean by running requests where these are known of all replicas, else the plain mean."""
    total = sum(weights.get(r, 0.0) for r in values)
    if total <= 0 or not values.keys() <= weights.keys():
        return _mean(values)
    return sum(values[r] * weights[r] for r in values) / total


def _entry(
    dump: _Dump, path: str, engine: str, settings: dict[str, object], row: LogRow
) -> LogEntry:
    found = []
    if dump.replicas() > 1:
        text = f"{dump.replicas()} data-parallel replicas were summed"
        found.append(Diagnosis("ranks_summed", text))
    if dump.unread.get("truncated"):
        found.append(Diagnosis("truncated", "the last line is cut short and was not read"))
    if len(dump.models) == 1:
        settings["model"] = next(iter(dump.models))
    used = 1 if measures(row) else 0
    return LogEntry(
        path=path,
        format="prometheus",
        engine=engine,
        settings=settings,
        rows=(row,) if used else (),
        windows=WindowCount(used, used),
        diagnoses=tuple(found),
        unread=dict(dump.unread),
    )
