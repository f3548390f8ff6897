"""Windows of a server from its counters: what scrapes say of the time between them."""

from dataclasses import replace

import numpy as np

from specsim.arrays import Floats
from specsim.logs.entry import LogRow
from specsim.logs.formats._scrape import Dump, drafting
from specsim.logs.windows import PREFILL_LEAST, Columns, Windows

MOST_POSITIONS = 32
LOOKUP = 1.1  # rounds over drafts from which on some rounds draft nothing: a lookup finds nothing


def no_windows() -> Windows:
    """Return windows of one server whose replicas are summed already, each of any length."""
    return Windows(lambda _: (None, ()), True, 0.0)


def columns_of(
    dump: Dump, time_s: float, seconds: float, tokens: float | None, counts_all: bool
) -> Columns:
    """Return what the scrapes of a window say: of gauges the mean, of counters the increase.

    `tokens` came out in these `seconds`; None where gauges tell the speed. `counts_all`: whether
    counters of drafts are of all rounds.
    """
    sums = np.zeros(5 + MOST_POSITIONS)
    running, waiting = (sum(dump.means(what)) for what in ("running", "waiting"))
    usage, length = (_mean(dump.means(what)) for what in ("kv_usage", "accept_length"))
    if tokens is None:
        tokens = sum(dump.means("output_tps")) * seconds
        drafts = running if length >= 1 else 0.0
        emitted = drafts * length
    else:
        parts = list(drafting(dump))
        drafts, accepted = sum(p.drafts for p in parts), sum(p.accepted for p in parts)
        if drafts and counts_all and tokens - accepted > LOOKUP * drafts:
            drafts = tokens - accepted
        emitted = drafts + accepted
        length = emitted / drafts if drafts else 1.0
        sums[:2] = drafts, sum(p.drafted or 0.0 for p in parts)
        for part in parts:
            kept = part.by_position[:MOST_POSITIONS]
            sums[5 : 5 + len(kept)] += kept
    prompt = dump.increase("realtime_tokens", of=b"prefill_compute")
    prompt = dump.increase("prompt_tokens") if prompt is None else prompt
    sums[2:5] = [dump.increase(of) or 0.0 for of in ("ended", "ended_prompt", "ended_output")]
    said = {
        "time_s": time_s,
        "running": running,
        "queue": waiting,
        "usage": usage,
        "output_tps": tokens / seconds,
        "emitted": emitted,
        "rounds": drafts,
        "graph": np.nan,
        "prefill": float((prompt or 0.0) > PREFILL_LEAST * tokens / max(length, 1.0)),
        "drafting": sums,
    }
    return {name: np.array([value]) for name, value in said.items()}


def finished(row: LogRow, sums: Floats) -> LogRow:
    """Complete a row by the sums over its windows."""
    rounds, drafted, ended, prompt, output, *positions = sums.tolist()
    depth = max((i for i, n in enumerate(positions, 1) if n), default=0)
    return replace(
        row,
        survival=tuple(n / rounds for n in positions[:depth]) if rounds and depth else None,
        drafted_per_round=drafted / rounds if rounds and drafted else None,
        input_len=prompt / ended if ended else None,
        output_len=output / ended if ended and output else None,
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else np.nan
