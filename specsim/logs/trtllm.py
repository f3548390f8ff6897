"""TensorRT-LLM: the iteration log and the iteration statistics in JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from specsim.logs.durations import Durations
from specsim.logs.entry import Diagnosis, LogEntry, LogRow, Timing, WindowCount
from specsim.logs.json_values import Unread, json_values, number, table
from specsim.logs.settings import NO_SPECULATION
from specsim.logs.source import as_lines

MARK = b"iter = "
LEAST_PROMPTS = 5
"""Prompts that ran alone, for their time to be worth a number."""
MOST_KV_TOKENS, MOST_POOLS = 1e10, 64
"""Larger caches, and more sizes of one cache, come from damaged lines."""
MIXED_SHARE = 0.1
"""From this share of iterations with prefill on it is worth a word."""

_LINE = re.compile(
    rb"iter = (?P<number>\d{1,12}), global_rank = \d{1,6}, rank = (?P<rank>\d{1,6}), "
    rb"(?:num_scheduled_requests(?: =|:) (?P<requests>\d{1,7}), "
    rb"|kv_cache_util = (?P<usage>[01]\.\d{1,9}), "
    rb"|host_step_time = (?P<ms>\d{1,9}\.\d{1,9})ms, |elapsed_time = (?P<s>\d{1,6}\.\d{1,9})s, "
    rb"|[a-z_]{2,40}(?: =|:) [\w./: -]{1,40}, ){0,12}"
    rb"states = \{'num_ctx_requests': (?P<prefills>\d{1,9}), 'num_ctx_tokens': (?P<prompt>\d{1,9}),"
    rb" 'num_generation_tokens': (?P<tokens>\d{1,9})\}\s*\Z"
)


class _Iteration(NamedTuple):
    """One forward pass of a batch."""

    seconds: float
    requests: int | None  # that decode; None if not stated
    prefills: float  # prompts in the batch
    prompt_tokens: float
    decodes: bool
    usage: float | None = None  # share of the KV cache in use
    number: int = 0
    rank: int = 0
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
class _Server:
    """What has been read of one server; the key None is an unknown batch."""

    format: str
    levels: dict[int | None, _Level] = field(default_factory=dict)
    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    latest: dict[int, int] = field(default_factory=dict)  # rank -> iteration
    states_requests: bool | None = None
    speculates: bool | None = None
    pools: Counter[int] = field(default_factory=Counter)  # sizes of the KV cache, tokens
    prompts: Durations = field(default_factory=Durations)  # of prompts that ran alone
    prompt_tokens: float = 0.0

    def continues(self, it: _Iteration) -> bool:
        """Whether an iteration can follow: numbers grow, and the layout stays."""
        alike = self.states_requests in (None, it.requests is not None)
        return alike and it.number > self.latest.get(it.rank, -1)

    def take(self, it: _Iteration) -> None:
        """Count one iteration."""
        self.latest[it.rank], self.states_requests = it.number, it.requests is not None
        self.read += 1
        if len(self.latest) > 1 and it.rank != min(self.latest):
            self.dropped["duplicate_rank"] += 1
        elif it.prefills:
            self.dropped["prefill"] += 1
            alone = it.prefills == 1 and not it.decodes
            if alone and it.prompt_tokens >= 1 and it.seconds > 0:
                self.prompts.add(it.seconds)
                self.prompt_tokens += it.prompt_tokens
        elif not it.decodes or it.seconds <= 0:
            self.dropped["idle"] += 1
        else:
            self._decoding(it)

    def _decoding(self, it: _Iteration) -> None:
        level = self.levels.get(it.requests or None)
        if level is None:
            level = self.levels[it.requests or None] = _Level()
        level.rounds.add(it.seconds)
        level.usage += it.usage or 0.0
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
        return LogEntry(
            path=path,
            format=self.format,
            engine="tensorrt-llm",
            settings=settings,
            rows=rows,
            windows=WindowCount(self.read, sum(r.windows for r in rows), dict(self.dropped)),
            timings=self._timings(),
            diagnoses=tuple(self._diagnoses()),
            unread=dict(self.unread),
        )

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
        """Return the time of a prompt alone: that of one client."""
        count = self.prompts.count
        if count < LEAST_PROMPTS:
            return ()
        prompt = Timing(
            "prefill",
            self.prompts.typical,
            count=count,
            batch_size=1,
            prompt_tokens=self.prompt_tokens / count,
            name="one prompt alone",
        )
        return (prompt,)

    def _diagnoses(self) -> Iterator[Diagnosis]:
        if cut := self.unread["truncated"]:
            yield Diagnosis("truncated", f"{cut} line(s) cut short were not read")
        share = self.dropped["prefill"] / self.read if self.read else 0.0
        if share >= MIXED_SHARE:
            text = f"{100 * share:.0f} % of iterations contain prefill and were left out"
            yield Diagnosis("prefill_mixed", text)


def read_trtllm_log(lines: Iterable[bytes] | Iterable[str], path: str = "-") -> list[LogEntry]:
    """Read the iteration log of TensorRT-LLM (``print_iter_log``).

    The batch is ``num_scheduled_requests``; ``num_generation_tokens`` counts the padding of CUDA
    graphs, so a line without the former gives a round time at an unknown batch.
    """
    servers = [_Server("trtllm_log")]
    for line in as_lines(lines):
        start = line.find(MARK)
        if start < 0:
            continue
        found = _LINE.match(line, start)
        if found is None:
            cut = not line.endswith((b"\n", b"\r")) or b"states = " not in line
            servers[-1].unread["truncated" if cut else "damaged field"] += 1
            continue
        iteration = _of_line(found)
        if not servers[-1].continues(iteration):
            servers.append(_Server("trtllm_log"))
        servers[-1].take(iteration)
    return [server.entry(path) for server in servers]


def _of_line(found: re.Match[bytes]) -> _Iteration:
    number, rank, requests, usage, ms, s, prefills, prompt, tokens = found.groups()
    return _Iteration(
        seconds=float(ms) / 1e3 if ms else float(s or 0),
        requests=int(requests) if requests else None,
        prefills=int(prefills),
        prompt_tokens=int(prompt),
        decodes=int(tokens) > 0,
        usage=float(usage) if usage else None,
        number=int(number),
        rank=int(rank),
    )


def read_trtllm_stats(lines: Iterable[bytes] | Iterable[str], path: str = "-") -> list[LogEntry]:
    """Read iteration statistics: JSON objects with ``iterLatencyMS``."""
    server = _Server("trtllm_stats")
    for value in json_values(as_lines(lines)):
        for record in value if isinstance(value, list) else [value]:
            iteration = record.reason if isinstance(record, Unread) else _of_record(record)
            if isinstance(iteration, str):
                server.unread[iteration] += 1
            else:
                server.take(iteration)
    return [server.entry(path)]


def _of_record(record: Any) -> _Iteration | str:
    """Return one iteration, or why it could not be read."""
    if not isinstance(record, dict):
        return "not an object"
    flight, cache = table(record, "inflightBatchingStats"), table(record, "kvCacheStats")
    latency_ms = number(record, "iterLatencyMS")
    batch, prefills = number(flight, "numGenRequests"), number(flight, "numContextRequests")
    if latency_ms is None or batch is None or prefills is None or latency_ms < 0 or batch % 1:
        return "a field is missing or damaged"
    used, blocks = number(cache, "usedNumBlocks"), number(cache, "maxNumBlocks")
    drafts = table(record, "specDecodingStats")
    accepted = number(drafts, "numAcceptedTokens")
    drafting = number(drafts, "numRequestsWithDraftTokens")
    counted = accepted is not None and bool(drafting)
    return _Iteration(
        seconds=latency_ms / 1e3,
        requests=int(batch),
        prefills=prefills,
        prompt_tokens=number(flight, "numCtxTokens") or 0.0,
        decodes=batch >= 1,
        usage=used / blocks if used is not None and blocks else None,
        queue=int(number(record, "numQueuedRequests") or 0),
        kv_tokens=(blocks or 0.0) * (number(cache, "tokensPerBlock") or 0.0),
        accepted=int(accepted or 0) if counted else 0,
        drafting=int(drafting or 0) if counted else 0,
        speculates=counted or (None if drafts or "specDecodingStats" not in record else False),
    )
