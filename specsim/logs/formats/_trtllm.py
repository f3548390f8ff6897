"""TensorRT-LLM: from its iterations, however printed, to an entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from specsim.logs.diagnose import truncated
from specsim.logs.durations import Durations
from specsim.logs.entry import Diagnosis, LogEntry, LogRow, Timing, WindowCount
from specsim.logs.settings import NO_SPECULATION

LEAST_PROMPTS = 5
"""Prompts that ran alone, for their time to be worth a number."""
MOST_KV_TOKENS, MOST_POOLS = 1e10, 64
"""Larger caches, and more sizes of one cache, come from damaged lines."""
MIXED_SHARE = 0.1
"""From this share of iterations with prefill on it is worth a word."""


class Iteration(NamedTuple):
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
class Server:
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
            alone = it.prefills == 1 and not it.decodes
            if alone and it.prompt_tokens >= 1 and it.seconds > 0:
                self.prompts.add(it.seconds)
                self.prompt_tokens += it.prompt_tokens
        elif not it.decodes or it.seconds <= 0:
            self.dropped["idle"] += 1
        else:
            self._decoding(it)

    def _decoding(self, it: Iteration) -> None:
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
        yield from truncated(self.unread)
        share = self.dropped["prefill"] / self.read if self.read else 0.0
        if share >= MIXED_SHARE:
            text = f"{100 * share:.0f} % of iterations contain prefill and were left out"
            yield Diagnosis("prefill_mixed", text)
