"""The text of ``/metrics``: samples of the engines' gauges and counters, of one scrape or several.

Of several scrapes, one after the other, a counter is the difference between the first and the last
one, which leaves out what happened before.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from specsim.logs import unread as why
from specsim.logs.formats import listed, pattern, patterns
from specsim.logs.formats._benchmarks import names
from specsim.logs.unread import Unread, check, counted

_LINE = patterns("lines")
START = pattern(listed("formats", "prometheus", "mark")[0])
_REPLICA_LABELS = (b"dp_rank", b"engine", b"instance", b"pod")
_PARTS = (b"position", b"mode", b"is_streaming", b"category", b"forward_overlap")
"""Labels that part a series of one replica."""
_SHARD_LABELS = (b"tp_rank", b"pp_rank")
MOST_SERVERS = 64
COUNTERS = ("drafts", "drafted", "accepted")

INCOMPLETE, LOST = "scrapes are incomplete", "a counter is missing"

SCRAPE_SLACK = 0.02  # counters are read one after the other, and may differ by a round or two


@dataclass(slots=True)
class _Series:
    """First and last value of one series."""

    shard: bytes  # of the replica; the others say the same
    first: float
    last: float = 0.0
    total: float = 0.0  # of all scrapes
    scrapes: int = 0
    reset: bool = False

    def count(self, value: float) -> None:
        """Take the value of a scrape."""
        self.reset |= value < self.last
        self.last, self.total, self.scrapes = value, self.total + value, self.scrapes + 1

    @property
    def mean(self) -> float:
        """Mean of a gauge since the first scrape."""
        return (self.total - self.first) / (self.scrapes - 1) if self.scrapes > 1 else self.last

    @property
    def increase(self) -> float:
        """Increase of a counter; since the start if there is but one scrape, or a reset."""
        return self.last - (self.first if self.scrapes > 1 and not self.reset else 0.0)


class Replica(dict[tuple[str, bytes], _Series]):
    """The series of one replica, by name and position of a draft."""

    def series(self, what: str, end: str = "") -> _Series | None:
        """First of the metrics that say something (``benchmarks.toml``), None if none is there."""
        found = (self.get((name + end, b"")) for name in names("prometheus")[what])
        return next(filter(None, found), None)

    def gauge(self, what: str) -> float | None:
        """Last value."""
        found = self.series(what)
        return found.last if found else None

    def counter(self, what: str, end: str = "") -> float | None:
        """Increase."""
        found = self.series(what, end)
        return found.increase if found else None

    def by_position(self) -> dict[int, float]:
        """Drafts that were accepted at each position."""
        return {
            int(position): series.increase
            for (name, position), series in self.items()
            if name in names("prometheus")["by_position"] and _is_position(position)
        }

    def scrapes(self, prefix: str) -> set[int]:
        """How often series were scraped; more than one number is damage."""
        return {series.scrapes for (name, _), series in self.items() if name.startswith(prefix)}


@dataclass(slots=True)
class Dump:
    """Scrapes of one server, the first before the last; and of others that labels tell apart."""

    replicas: dict[bytes, Replica] = field(default_factory=dict)
    engines: Counter[str] = field(default_factory=Counter)
    model: str = ""
    unread: Counter[str] = field(default_factory=Counter)
    known: dict[bytes, _Series | None] = field(default_factory=dict)  # by name and labels
    depth: int = 0  # positions of drafts that any line names
    kinds: int = 0  # series of all replicas
    servers: dict[str, "Dump"] = field(default_factory=dict)  # this one, and the others

    @property
    def count(self) -> int:
        """Replicas that labels tell apart."""
        return sum(1 for labels in self.replicas if labels.strip(b"/")) or 1

    def gauges(self, what: str) -> list[float]:
        """Last values of a gauge, of the replicas that have it."""
        values = (replica.gauge(what) for replica in self.replicas.values())
        return [value for value in values if value is not None]

    def total(self, what: str) -> float | None:
        """Sum of a gauge over replicas; None where one of them does not say."""
        values = self.gauges(what)
        return sum(values) if len(values) == self.count else None

    def means(self, what: str) -> list[float]:
        """Mean of a gauge over the scrapes after the first, of the replicas that have it."""
        every = (replica.series(what) for replica in self.replicas.values())
        return [series.mean for series in every if series]

    def increase(self, what: str, of: bytes = b"") -> float | None:
        """Increase of a counter, summed over replicas and labels, or those that end so."""
        every = [item for replica in self.replicas.values() for item in replica.items()]
        for name in names("prometheus")[what]:
            found = [s.increase for (n, at), s in every if n == name and at.endswith(of)]
            if found:
                return sum(found)
        return None

    def even(self, *counters: str) -> bool:
        """Whether counters are in as many scrapes and parted alike: else a line is lost."""
        wanted = {name for what in counters for name in names("prometheus")[what]}
        every = [i for of in self.replicas.values() for i in of.items() if i[0][0] in wanted]
        parts = Counter(part for (_, part), _ in every if part)
        return len({s.scrapes for _, s in every}) == 1 and len(set(parts.values())) <= 1

    @property
    def restarted(self) -> bool:
        """Whether a counter of tokens went back: the server was started anew."""
        every = (item for replica in self.replicas.values() for item in replica.items())
        return any(s.reset for (name, _), s in every if name.endswith("tokens_total"))

    def mean_s(self, what: str) -> float | None:
        """Mean of a histogram over the replicas that export both its sum and its count."""
        for name in names("prometheus")[what]:
            if len(set[int]().union(*(r.scrapes(name) for r in self.replicas.values()))) > 1:
                self.unread[INCOMPLETE] += 1
                continue
            ends = ((f"{name}_sum", b""), (f"{name}_count", b""))
            whole = [r for r in self.replicas.values() if all(end in r for end in ends)]
            total, count = (sum(r[end].increase for r in whole) for end in ends)
            if count and total:
                return total / count
        return None


def scraped(lines: Iterable[bytes]) -> Dump:
    """Read the lines of one scrape, or of several, one after the other."""
    dump = Dump()
    for line in _whole(lines, dump):
        text, _, value = line.rpartition(b" ")
        series = dump.known.get(text, dump)
        if isinstance(series, Dump) or not _LINE["plain_value"].fullmatch(value):
            _new_sample(line, text, dump)
        elif series:
            series.count(float(value))
    return dump


def _whole(lines: Iterable[bytes], dump: Dump) -> Iterator[bytes]:
    """Drop a line that is followed by the end of another: one was written into the other."""
    previous = b""
    for line in lines:
        end: object = b'"}' in line and b"{" not in line
        end = end or (line[:1] in b" 0123456789" and _LINE["plain_value"].fullmatch(line.lstrip()))
        if end and START.match(previous):
            dump.unread["two lines in one"] += 1
        elif previous:
            yield previous
        previous = line
    if previous:
        yield previous


def _new_sample(line: bytes, text: bytes, dump: Dump) -> None:
    """Read a sample of a series that was not seen before, or whose value is written oddly."""
    if not line.endswith((b"\n", b"\r")):
        dump.unread[why.TRUNCATED] += 1
    elif START.match(line):
        with counted(dump.unread):
            series = _sample(line, dump)
            if text.rstrip(b" |").endswith(b"}") and len(dump.known) < why.MOST_KINDS:
                dump.known[text] = series


@cache
def _known() -> frozenset[str]:
    """Names of the metrics that say something here."""
    known = {name for of in names("prometheus").values() for name in of}
    return frozenset(known | {f"{name}_{end}" for name in known for end in ("sum", "count")})


def _is_position(label: bytes) -> bool:
    return label.isdigit() and len(label) < 3


def _sample(line: bytes, dump: Dump) -> _Series | None:
    found = _LINE["sample"].match(line)
    if found is None:
        raise Unread("damaged sample")
    name, engine = found["name"].decode(), found["engine"].decode()
    labels = dict(_LINE["label"].findall(found["labels"] or b""))
    if model := labels.get(b"model_name", b"").decode("utf-8", "replace"):
        check(len(dump.servers) < MOST_SERVERS or model in dump.servers, why.TOO_MANY)
        own = Dump(unread=dump.unread) if dump.servers else dump
        dump = dump.servers.setdefault(model, own)
    dump.engines[engine] += 1
    position = b"/".join(labels[key] for key in _PARTS if key in labels)
    if _is_position(position):
        dump.depth = max(dump.depth, int(position) + 1)
    if name not in _known() or labels.get(b"engine_type") == b"prefill":  # which decodes nothing
        return None
    value = float(found["value"])
    check(value == 0 or 1e-30 < value < 1e30, why.OUT_OF_RANGE)
    dump.model = model or dump.model
    replica = b"/".join(labels.get(k, b"") for k in _REPLICA_LABELS)
    shard = b"/".join(labels.get(k, b"") for k in _SHARD_LABELS)
    of = dump.replicas.get(replica, Replica())
    if (name, position) not in of:
        check(dump.kinds < why.MOST_KINDS, why.TOO_MANY)
        dump.kinds += 1
    dump.replicas[replica] = of
    series = of.setdefault((name, position), _Series(shard, value))
    if series.shard != shard:
        return None
    series.count(value)
    return series


class Drafting(NamedTuple):
    """Counters of one replica, checked against each other."""

    drafts: float
    drafted: float | None
    accepted: float
    by_position: list[float]  # accepted at each; empty where one is lost


def drafting(dump: Dump) -> Iterator[Drafting]:
    """Drafting of the replicas whose counters are complete; others are counted as unread."""
    replicas = [
        replica
        for _, replica in sorted(dump.replicas.items())
        if replica.by_position() or any(replica.series(of) for of in COUNTERS)
    ]
    stated = {of for of in COUNTERS for r in replicas if r.series(of)}
    # Without a total the positions must be complete: time stamps of lost ones count too.
    sure = "accepted" in stated or why.TRUNCATED not in dump.unread
    for replica in replicas:
        with counted(dump.unread):
            check(len(replica.by_position()) >= dump.depth and sure, LOST)
            check(all(replica.series(of) for of in {"drafts", *stated}), LOST)
            check(len(replica.scrapes("spec_decode")) <= 1, INCOMPLETE)
            if replica.counter("drafts"):
                yield _checked(replica)


def _checked(replica: Replica) -> Drafting:
    """Join the counters of one replica; raises :class:`Unread` if they make no measurement."""
    drafted, accepted = replica.counter("drafted"), replica.counter("accepted")
    drafts, positions = replica.counter("drafts") or 0.0, replica.by_position()
    whole = sorted(positions) == list(range(len(positions)))
    counts = [positions[i] for i in sorted(positions)]
    check(accepted is not None or (counts and whole), LOST)
    total = sum(counts) if accepted is None else accepted
    full = drafted is None or len(positions) >= round(drafted / drafts)
    check(accepted is not None or full, LOST)
    if counts and whole and full:
        check(abs(sum(counts) - total) <= SCRAPE_SLACK * total, why.CONTRADICTION)
    check(all(later <= earlier for earlier, later in pairwise(counts)), why.CONTRADICTION)
    check(max(counts, default=0.0) <= drafts * (1 + SCRAPE_SLACK), why.CONTRADICTION)
    check(drafted is None or total <= drafted * (1 + SCRAPE_SLACK), why.CONTRADICTION)
    return Drafting(drafts, drafted, total, counts if whole else [])
