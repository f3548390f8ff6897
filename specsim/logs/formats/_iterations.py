"""Forward passes, each with its time and its requests -> rows, as windows of one round each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specsim.logs.entry import LogRow, WindowCount
from specsim.logs.levels import level_rows
from specsim.logs.ranks import Rank
from specsim.logs.windows import Windows

if TYPE_CHECKING:
    from specsim.arrays import Floats

AT_ONCE = 4096
"""Passes that are counted at once."""


class Pass(NamedTuple):
    """One forward pass of a batch."""

    requests: int  # that decode
    seconds: float
    prefill: bool  # whether prompts are in it too
    queue: float = np.nan  # requests that wait; NaN where nothing says it, here and below
    kv_tokens: float = np.nan  # of all requests that decode
    kv_usage: float = np.nan  # fraction of the KV cache


class Passes:
    """Passes of one rank of a server, counted in constant memory."""

    def __init__(self) -> None:
        self._windows = Windows(_no_rank, tps_quantum=0.0)
        self._open: list[Pass] = []

    def add(self, one: Pass) -> None:
        """Count a pass; its time must be above zero."""
        self._open.append(one)
        if len(self._open) >= AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        passes, self._open = np.array(self._open, dtype=np.float64).reshape(-1, 6), []
        running, seconds, prefill, queue, kv_tokens, usage = passes.T
        stated = np.isfinite(kv_tokens)
        lines = {
            "time_s": np.full(len(passes), np.nan),
            "running": running,
            "queue": queue,
            "usage": usage,
            "output_tps": running / seconds,  # of one token each
            "emitted": np.zeros(len(passes)),
            "rounds": np.zeros(len(passes)),
            "graph": np.full(len(passes), np.nan),
            "prefill": prefill,
            "drafting": np.stack((np.where(stated, kv_tokens, 0.0), running * stated), axis=1),
        }
        self._windows.add(lines, [b""] * len(passes), final=True)

    def rows(
        self, complete: Callable[[LogRow], LogRow] = lambda row: row
    ) -> tuple[tuple[LogRow, ...], WindowCount]:
        """Return a row per level of pure decoding: its round time and context, no throughput.

        How many tokens a pass gave nothing says here; `complete` adds what the caller knows.
        """
        self._flush()
        rows, count = level_rows(self._windows, lambda row, sums: complete(_round(row, sums)))
        mixed = sum(row.windows for row in rows if row.mixed)
        dropped = dict(count.dropped)
        if mixed:
            dropped["prefill"] = dropped.get("prefill", 0) + mixed
        pure = tuple(row for row in rows if not row.mixed)
        return pure, replace(count, used=count.used - mixed, dropped=dropped)


def _no_rank(name: bytes) -> tuple[Rank, tuple[Rank, ...]]:
    return None, ()


def _round(row: LogRow, sums: Floats) -> LogRow:
    tokens, requests = sums[:2]
    return replace(
        row,
        output_tps=None,
        output_tps_sem=None,
        concurrency=row.batch_size,
        round_time_s=(row.batch_size or 0.0) / (row.output_tps or 1.0),
        extra={"context_len": float(tokens / requests)} if requests else {},
    )
