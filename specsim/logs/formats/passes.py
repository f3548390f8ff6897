"""Forward passes, each with its time and its requests: windows of a round each.

vLLM prints a line per iteration (``--enable-logging-iteration-details``), 0.14 to 0.33. The elapsed
time is what the engine waited for the GPU: its scheduling before and after is not in it. That is
told by the stamps: what is left of a second whose iterations are all there.

SGLang sends a message per forward pass and data-parallel rank (``--enable-forward-pass-metrics``),
dumped as JSON lines: what it held, and how long the GPU was at it. Whether drafts were verified is
not said, nor is the time that the GPU waits for the CPU.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from specsim.arrays import Floats
from specsim.logs import unread as why
from specsim.logs.columns import seconds
from specsim.logs.diagnose import FULL_DRAFTS, finding
from specsim.logs.durations import Durations
from specsim.logs.entry import MOST_ACCEPT, LogEntry, LogRow, WindowCount
from specsim.logs.formats import patterns
from specsim.logs.formats._results import with_unread
from specsim.logs.formats.vllm.lines import parse_prefix
from specsim.logs.json_values import json_values, number, table, whole
from specsim.logs.levels import level_rows
from specsim.logs.source import Source
from specsim.logs.unread import Unread, check, counted
from specsim.logs.windows import Windows
from specsim.setting import NO_SPECULATION, chain_settings


class Pass(NamedTuple):
    """One forward pass of a batch; NaN where nothing says it."""

    requests: int  # that decode
    seconds: float
    prefill: bool  # whether prompts are in it too
    queue: float = nan  # requests that wait
    kv_usage: float = nan  # fraction of the KV cache
    kv_tokens: float = nan  # of all requests that decode
    tokens: float = nan  # of them that are verified: one each, and the drafts


class Passes:
    """Passes of one server, in constant memory; of several ranks those of the first one seen."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._windows = Windows(lambda _: (None, ()), tps_quantum=0.0)
        self._open: list[Pass] = []
        self._dropped: Counter[str] = Counter()
        self._depth: int | None = None  # the most drafts of a request, where tokens are stated

    def take(self, rank: int, one: Pass) -> None:
        """Count a pass."""
        if rank != self._rank:
            self._dropped["duplicate_rank"] += 1
        elif not (one.requests and one.seconds):
            self._dropped["idle"] += 1
        else:
            self._open.append(one)
            if isfinite(one.tokens) and not one.prefill:
                self._depth = max(self._depth or 0, int(one.tokens // one.requests) - 1)
        if len(self._open) >= 4096:  # in constant memory
            self._flush()

    def _flush(self) -> None:
        passes, self._open = np.array(self._open, dtype=np.float64).reshape(-1, 7), []
        running, seconds, prefill, queue, usage, kv_tokens, tokens = passes.T
        unknown, none = np.full(len(passes), np.nan), np.zeros(len(passes))
        lines = {
            "time_s": unknown,
            "running": running,
            "queue": queue,
            "usage": usage,
            "output_tps": running / seconds,
            "emitted": none,
            "rounds": none,  # a token each
            "graph": unknown,
            "prefill": prefill,
            "drafting": np.stack((running, kv_tokens, tokens), axis=1),
        }
        self._windows.add(lines, [b""] * len(passes), final=True)

    def entry(
        self, path: str, name: str, engine: str, host_s: Callable[[float], float] = lambda _: 0.0
    ) -> LogEntry:
        """Return rows of round times; `host_s` adds what passes between two, by batch.

        How many tokens a pass gave nothing says here. Rows with fewer drafts than others are left
        out: of a schedule of depths, or of a lookup that found less.
        """
        self._flush()
        rows, count = level_rows(self._windows, lambda row, sums: _round(row, sums, host_s))
        kept, dropped = [], self._dropped + Counter(count.dropped)
        for row in rows:
            full = (row.drafted_per_round or 0.0) >= FULL_DRAFTS * (self._depth or 0)
            if row.mixed or not full:
                dropped["prefill" if row.mixed else "drafts_vary"] += row.windows
            else:
                kept.append(row)
        used, several = sum(r.windows for r in kept), self._rank or dropped["duplicate_rank"]
        alone = (finding("one_rank", "passes", rank=self._rank),) if several else ()
        plain = NO_SPECULATION if self._depth == 0 else {}
        settings = chain_settings(self._depth) if self._depth else plain
        windows = WindowCount(used + dropped.total(), used, dict(dropped))
        return LogEntry(path, name, engine, None, settings, tuple(kept), windows, alone)


def _round(row: LogRow, sums: Floats, host_s: Callable[[float], float]) -> LogRow:
    requests, kv_tokens, tokens = sums.tolist()[:3]
    batch, context = row.batch_size or 0.0, kv_tokens / requests
    round_s = batch / (row.output_tps or nan) + host_s(batch)
    return replace(
        row,
        output_tps=None,
        output_tps_sem=None,
        concurrency=batch,
        round_time_s=round_s if isfinite(round_s) else None,
        drafted_per_round=tokens / requests - 1 if isfinite(tokens) else None,
        extra={"context_len": context} if isfinite(context) else {},
    )


_MARK, _ELAPSED = b"Iteration(", b"iteration elapsed time: "
_LINE, _RANK = (patterns("lines")[name] for name in ("iteration", "iteration_rank"))
_LEAST_MS, _WHOLE_SECONDS, _MOST_LEFT = 0.01, 5, 3.0


@dataclass(slots=True)
class _Server:
    """Iterations since a start, and what is left of their seconds."""

    rank: int
    passes: Passes
    between: dict[int, Durations] = field(default_factory=dict)  # by the bits of the batch
    index: int = -1
    stamp: bytes = b""
    whole: bool = False  # all iterations since the second began were read
    now: Counter[str] = field(default_factory=Counter)  # of this second

    def take(self, stamp: bytes, rank: int, index: int, one: Pass) -> None:
        """Count an iteration."""
        self.passes.take(rank, one)
        if rank != self.rank:
            return
        follows = index == self.index + 1
        if stamp != self.stamp or not follows:
            begins = bool(follows and stamp and self.stamp)
            if begins and self.whole and seconds([stamp])[0] - seconds([self.stamp])[0] == 1:
                n, left_us = self.now["iterations"], 1e6 - self.now["us"]
                durations = self.between.setdefault(_bits(self.now["requests"] / n), Durations())
                if left_us <= _MOST_LEFT * self.now["us"]:  # else the server waited for requests
                    durations.add(max(left_us, 1.0) / n / 1e6)
            self.whole, self.now = begins, Counter()
        self.index, self.stamp = index, stamp
        self.now.update(iterations=1, requests=one.requests, us=round(1e6 * one.seconds))

    def host_s(self, batch: float) -> float:
        """Time between two iterations of so many requests; NaN where too few seconds tell."""
        left = self.between.get(_bits(batch))
        return left.quantile(0.5) if left and left.count >= _WHOLE_SECONDS else math.nan


def _bits(batch: float) -> int:
    return round(batch).bit_length()


def parse_iterations(source: Source) -> list[LogEntry]:
    """Read the iterations: an entry per start of the server."""
    servers: list[_Server] = []
    unread: Counter[str] = Counter()
    for line in source.lines():
        at = line.find(_MARK)
        if at < 0 or _ELAPSED not in line[at:]:
            continue
        with counted(unread):
            stamp, rank, index, one = _iteration(line, at)
            if not servers or (index == 0 and rank == servers[-1].rank and servers[-1].index > 0):
                servers.append(_Server(rank, Passes(rank)))
            servers[-1].take(stamp, rank, index, one)
    entries = [s.passes.entry(source.path, "vllm_iterations", "vllm", s.host_s) for s in servers]
    return with_unread(entries, unread, source.path, "vllm_iterations")


def _iteration(line: bytes, at: int) -> tuple[bytes, int, int, Pass]:
    """Return time stamp, rank, number and content of an iteration."""
    check(line.endswith((b"\n", b"\r")), why.TRUNCATED)
    found = _LINE.match(line, at)
    if found is None:
        raise Unread(why.DAMAGED)
    rank, (stamp, _) = _RANK.search(line, 0, at), parse_prefix(line[:at])
    index, prompts, requests, tokens = map(int, found.group(1, 2, 3, 4))
    wait_s = max(float(found[5]), _LEAST_MS) / 1e3
    usage = float(found[6]) / 100 if found[6] else math.nan
    check(requests <= tokens <= MOST_ACCEPT * requests and not usage > 1, why.OUT_OF_RANGE)
    one = Pass(requests, wait_s, prompts > 0, kv_usage=usage, tokens=float(tokens))
    return stamp, int(rank[1]) if rank else 0, index, one


MOST_SECONDS, MOST_CONTEXT, MOST_WORKERS = 1e3, 1e8, 64


def parse_metrics(source: Source) -> list[LogEntry]:
    """Read a dump: an entry per worker."""
    workers: dict[str, Passes] = {}
    unread: Counter[str] = Counter()
    for value in json_values(source.lines()):
        for message in value if isinstance(value, list) else [value]:
            with counted(unread):
                worker, rank, one = _pass_of(message)
                check(worker in workers or len(workers) < MOST_WORKERS, why.TOO_MANY)
                workers.setdefault(worker, Passes(rank)).take(rank, one)
    entries = [of.entry(source.path, "fpm", "sglang") for of in workers.values()]
    return with_unread(entries, unread, source.path, "fpm")


def _pass_of(message: Any) -> tuple[str, int, Pass]:
    """Return worker and rank of a message, and its forward pass."""
    if isinstance(message, Unread):
        raise message
    check(isinstance(message, Mapping), "not an object")
    held, waiting = table(message, "scheduled_requests"), table(message, "queued_requests")
    check(number(message, "version") == 1, "a version of the messages that is not known")
    seconds, rank = number(message, "wall_time"), whole(message, "dp_rank")
    requests, prompts = whole(held, "num_decode_requests"), whole(held, "num_prefill_requests")
    tokens, wait = whole(held, "sum_decode_kv_tokens"), whole(waiting, "num_prefill_requests")
    if seconds is None or rank is None or requests is None or prompts is None or tokens is None:
        raise Unread(why.MISSING)
    fits = 0 <= seconds <= MOST_SECONDS and requests <= tokens <= MOST_CONTEXT * requests
    check(fits, why.OUT_OF_RANGE)
    queue = float("nan" if wait is None else wait)
    one = Pass(requests, seconds, prompts > 0, queue, kv_tokens=float(tokens))
    return str(message.get("worker_id", "")), rank, one
