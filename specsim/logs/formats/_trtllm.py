"""TensorRT-LLM: from its iterations, however printed, to an entry."""

from collections import Counter, defaultdict
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


class Statistics(NamedTuple):
    """What only the iteration statistics say."""

    queue: int
    kv_tokens: float  # size of the KV cache; 0 if not stated
    accepted: int  # tokens of drafts, of as many requests as `drafting`
    drafting: int
    speculates: bool | None  # None if not stated


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
    stated: Statistics | None = None


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
        number, rank, requests, usage, seconds, prefills, prompt_tokens, decodes, stated = it
        self.latest[rank], self.states_requests = number, requests is not None
        self.read += 1
        if len(self.latest) > 1 and rank != min(self.latest):
            self.dropped["duplicate_rank"] += 1
        elif prefills:
            self.dropped["prefill"] += 1
            if prefills == 1 and not decodes and prompt_tokens >= 1 and seconds > 0:
                self.prompts.add(seconds)
                self.prompt_tokens += prompt_tokens
        elif not decodes or seconds <= 0:
            self.dropped["idle"] += 1
        else:
            level = self.levels[requests or None]
            level.rounds.add(seconds)
            level.usage += usage or 0.0
            if stated:
                self._count(stated, level)

    def _count(self, stated: Statistics, level: _Level) -> None:
        level.queue += stated.queue
        level.accepted += stated.accepted
        level.drafting += stated.drafting
        if stated.speculates is not None:
            self.speculates = self.speculates or stated.speculates
        tokens = stated.kv_tokens
        known = tokens in self.pools or len(self.pools) < MOST_POOLS
        if 1 <= tokens <= MOST_KV_TOKENS and tokens % 1 == 0 and known:
            self.pools[int(tokens)] += 1

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
