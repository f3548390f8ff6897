"""TensorRT-LLM: its iteration log, and its iteration statistics.

Iterations, however printed, make an entry by running batch.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from specsim.logs.diagnose import finding, truncated
from specsim.logs.durations import Durations
from specsim.logs.entry import Diagnosis, LogEntry, LogRow, Timing, WindowCount
from specsim.logs.formats import patterns
from specsim.logs.json_values import json_values, number, table, whole
from specsim.logs.source import Source
from specsim.logs.unread import MISSING, Unread, check, counted
from specsim.setting import NO_SPECULATION

LEAST_PROMPTS = 5  # prompts that ran alone, for their time to be worth a number
MOST_KV_TOKENS, MOST_POOLS = 1e10, 64  # more, and more sizes of one cache, come from damage
MIXED_SHARE = 0.1  # from this share of iterations with prefill on it is worth a word


class Iteration(NamedTuple):
    """One forward pass of a batch."""

    number: int
    rank: int
    requests: int | None  # that decode; None if not stated
    usage: float | None  # share of the KV cache in use
    seconds: float
    prefills: float  # prompts in the batch
    prompt_tokens: float
    decodes: bool
    stated: bool = False  # whether it is of the statistics, which also say:
    queue: int = 0
    kv_tokens: float = 0.0  # size of the KV cache; 0 if not stated
    accepted: int = 0  # tokens of drafts, of as many requests as `drafting`
    drafting: int = 0
    speculates: bool | None = None  # None if not stated


@dataclass(slots=True)
class _Level:
    """Iterations of pure decoding at one running batch."""

    rounds: Durations = field(default_factory=Durations)
    accepted: int = 0
    drafting: int = 0
    queue: int = 0
    usage: float = 0.0


@dataclass(slots=True)
class Server:
    """What has been read of one server; the key None is an unknown batch."""

    format: str
    levels: dict[int | None, _Level] = field(default_factory=lambda: defaultdict(_Level))
    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    latest: dict[int, int] = field(default_factory=dict)  # rank -> iteration
    states_requests: bool | None = None
    speculates: bool | None = None
    pools: Counter[int] = field(default_factory=Counter)  # sizes of the KV cache, tokens
    prompts: Durations = field(default_factory=Durations)  # of prompts that ran alone
    prompt_tokens: float = 0.0

    def continues(self, it: Iteration) -> bool:
        """Whether an iteration can follow: numbers grow, and the layout stays."""
        alike = self.states_requests in (None, it.requests is not None)
        return alike and it.number > self.latest.get(it.rank, -1)

    def take(self, it: Iteration) -> None:
        """Count one iteration."""
        self.latest[it.rank], self.states_requests = it.number, it.requests is not None
        self.read += 1
        if len(self.latest) > 1 and it.rank != min(self.latest):
            self.dropped["duplicate_rank"] += 1
        elif it.prefills:
            self.dropped["prefill"] += 1
            if it.prefills == 1 and not it.decodes and it.prompt_tokens >= 1 and it.seconds > 0:
                self.prompts.add(it.seconds)
                self.prompt_tokens += it.prompt_tokens
        elif not it.decodes or it.seconds <= 0:
            self.dropped["idle"] += 1
        else:
            level = self.levels[it.requests or None]
            level.rounds.add(it.seconds)
            level.usage += it.usage or 0.0
            if not it.stated:
                return
            level.queue += it.queue
            level.accepted += it.accepted
            level.drafting += it.drafting
            if it.speculates is not None:
                self.speculates = self.speculates or it.speculates
            known = it.kv_tokens in self.pools or len(self.pools) < MOST_POOLS
            if 1 <= it.kv_tokens <= MOST_KV_TOKENS and it.kv_tokens % 1 == 0 and known:
                self.pools[int(it.kv_tokens)] += 1

    def entry(self, path: str) -> LogEntry:
        """Return the server as an entry."""
        levels = sorted(self.levels.items(), key=lambda item: (item[0] is None, item[0] or 0))
        rows = tuple(self._row(batch, level) for batch, level in levels)
        settings: dict[str, object] = dict(NO_SPECULATION) if self.speculates is False else {}
        if self.pools:  # every iteration says it again: one that is damaged does not count
            settings["kv_tokens"] = self.pools.most_common(1)[0][0]
        windows = WindowCount(self.read, sum(r.windows for r in rows), dict(self.dropped))
        entry = LogEntry(path, self.format, "tensorrt-llm", None, settings, rows, windows)
        found, timings = tuple(self._diagnoses()), self._timings()
        return replace(entry, diagnoses=found, timings=timings, unread=dict(self.unread))

    def _row(self, batch: int | None, level: _Level) -> LogRow:
        rounds = level.rounds
        accept = 1.0 if self.speculates is False else None
        if accept is None and level.drafting:
            accept = 1 + level.accepted / level.drafting
        return LogRow(
            batch_size=batch,
            concurrency=batch,
            output_tps=accept * batch / rounds.typical if accept is not None and batch else None,
            accept_length=accept,
            round_time_s=rounds.typical,
            windows=rounds.count,
            queue=level.queue / rounds.count,
            kv_usage=level.usage / rounds.count,
        )

    def _timings(self) -> tuple[Timing, ...]:
        n, name = self.prompts.count, "one prompt alone"
        if n < LEAST_PROMPTS:
            return ()
        each = self.prompt_tokens / n
        return (Timing("prefill", self.prompts.typical, n, 1, prompt_tokens=each, name=name),)

    def _diagnoses(self) -> Iterator[Diagnosis]:
        yield from truncated(self.unread)
        share = self.dropped["prefill"] / self.read if self.read else 0.0
        if share >= MIXED_SHARE:
            yield finding("prefill_mixed", "iterations", percent=100 * share)


_MARK = b"iter = "
_LINE = patterns("lines")["trtllm"]


def parse_log(source: Source) -> list[LogEntry]:
    """Read the iteration log of TensorRT-LLM (``print_iter_log``).

    The batch is ``num_scheduled_requests``; ``num_generation_tokens`` counts the padding of CUDA
    graphs, so a line without the former gives a round time at an unknown batch.
    """
    servers = [Server("trtllm_log")]
    for line in source.lines():
        start = line.find(_MARK)
        if start < 0:
            continue
        found = _LINE.match(line, start)
        if found is None:
            cut = not line.endswith((b"\n", b"\r")) or b"states = " not in line
            servers[-1].unread["truncated" if cut else "damaged field"] += 1
            continue
        number, rank, requests, usage, ms, s, prefills, prompt, tokens = found.groups()
        wait_s = float(ms) / 1e3 if ms else float(s or 0)
        held = int(requests) if requests else None, float(usage) if usage else None
        prompts = int(prefills), int(prompt)
        iteration = Iteration(int(number), int(rank), *held, wait_s, *prompts, int(tokens) > 0)
        if not servers[-1].continues(iteration):
            servers.append(Server("trtllm_log"))
        servers[-1].take(iteration)
    return [server.entry(source.path) for server in servers]


_RANKS = ("attentionDpRank", "attention_dp_rank", "dpRank", "rank")
_SLOWEST = ("iterLatencyMS", "numQueuedRequests", "tokensPerBlock", "iter")
"""Figures that ranks share; others they add up to."""


def parse_stats(source: Source) -> list[LogEntry]:
    """Read iteration statistics: JSON objects with ``iterLatencyMS``.

    With attention data parallelism each rank has requests of its own, and a record of each
    iteration: they are summed, and the slowest is how long it took.
    """
    server, summed = Server("trtllm_stats"), Server("trtllm_stats")
    ranks: dict[int | None, dict[int, Mapping[str, Any]]] = {}
    for value in json_values(source.lines()):
        for record in value if isinstance(value, list) else [value]:
            with counted(server.unread):
                if isinstance(record, Unread):
                    raise record
                iteration = _of_record(record)
                rank = next((record[key] for key in _RANKS if key in record), None)
                if isinstance(rank, int):
                    ranks.setdefault(whole(record, "iter"), {})[rank] = record
                else:
                    server.take(iteration)
    if not ranks:
        return [server.entry(source.path)]
    most, lost = max(map(len, ranks.values())), server.read  # these do not say of which rank
    for at, together in ranks.items():
        if at is not None and len(together) == most > 1:
            with counted(summed.unread):
                summed.take(_of_record(_sum(list(together.values()))))
        else:
            lost += len(together)
    summed.unread += server.unread + Counter({"ranks are missing": lost})
    return [summed.entry(source.path)]


def _sum(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the records of one iteration of all ranks, which must say the same."""
    total: dict[str, Any] = {}
    check(all(rank.keys() == ranks[0].keys() for rank in ranks), MISSING)
    for key, first in ranks[0].items():
        values = [rank[key] for rank in ranks]
        if isinstance(first, dict) and all(isinstance(value, dict) for value in values):
            total[key] = _sum(values)
        elif all(type(value) in (int, float) for value in values):
            total[key] = max(values) if key in _SLOWEST else sum(values)
        else:
            total[key] = first
    return total


def _of_record(record: Mapping[str, Any]) -> Iteration:
    check(isinstance(record, dict), "not an object")
    flight, cache = table(record, "inflightBatchingStats"), table(record, "kvCacheStats")
    latency_ms = number(record, "iterLatencyMS")
    batch, prefills = number(flight, "numGenRequests"), number(flight, "numContextRequests")
    if latency_ms is None or batch is None or prefills is None or latency_ms < 0 or batch % 1:
        raise Unread(MISSING)
    used, blocks = number(cache, "usedNumBlocks"), number(cache, "maxNumBlocks")
    drafts = table(record, "specDecodingStats")
    accepted = number(drafts, "numAcceptedTokens")
    drafting = number(drafts, "numRequestsWithDraftTokens")
    counted = accepted is not None and bool(drafting)
    return Iteration(
        number=0,
        rank=0,
        requests=int(batch),
        usage=used / blocks if used is not None and blocks else None,
        seconds=latency_ms / 1e3,
        prefills=prefills,
        prompt_tokens=number(flight, "numCtxTokens") or 0.0,
        decodes=batch >= 1,
        stated=True,
        queue=int(number(record, "numQueuedRequests") or 0),
        kv_tokens=(blocks or 0.0) * (number(cache, "tokensPerBlock") or 0.0),
        accepted=int(accepted or 0) if counted else 0,
        drafting=int(drafting or 0) if counted else 0,
        speculates=counted or (None if drafts or "specDecodingStats" not in record else False),
    )
