"""Forward passes, each with its time and its requests -> an entry, as windows of a round each."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import isfinite, nan
from typing import NamedTuple

import numpy as np

from specsim.arrays import Floats
from specsim.logs.diagnose import FULL_DRAFTS, told
from specsim.logs.entry import LogEntry, LogRow, WindowCount
from specsim.logs.levels import level_rows
from specsim.logs.settings import NO_SPECULATION, chain_settings
from specsim.logs.windows import Windows


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
        said = f"only data-parallel rank {self._rank} was read: the server's batch is larger"
        plain = NO_SPECULATION if self._depth == 0 else {}
        return LogEntry(
            path=path,
            format=name,
            engine=engine,
            settings=chain_settings(self._depth) if self._depth else plain,
            rows=tuple(kept),
            windows=WindowCount(used + dropped.total(), used, dict(dropped)),
            diagnoses=tuple(told([("one_rank", said if several else "")])),
        )


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
