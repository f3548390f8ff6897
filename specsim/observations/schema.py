"""The columns of observations.csv: name, type, bounds and meaning of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from specsim.errors import InputError
from specsim.setting import Scheduler
from specsim.workload import LoadKind

Scope = Literal["cell", "run", "pooled"]

LARGEST = 1e15
"""Nothing measured here is larger, and above it a float skips whole numbers."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column; an empty cell is not measured, or not stated."""

    name: str
    type: Literal["text", "name", "count", "number"]
    meaning: str
    least: float = 0.0
    above: bool = False  # whether `least` itself is out of bounds
    most: float = LARGEST
    known: tuple[str, ...] = ()  # names that may stand there


SURVIVAL = tuple(f"survival_{depth}" for depth in range(1, 9))
"""Survival by depth, as deep as the format goes."""

SCHEMA = (
    Column("kind", "name", "how load was applied", known=get_args(LoadKind)),
    Column("algorithm", "text", "how tokens are drafted; none for no speculation"),
    Column("topk", "count", "branches per draft step; 1 for a chain, and for none"),
    Column("num_steps", "count", "draft depth; 0 for none"),
    Column("num_draft_tokens", "count", "tokens verified per request, with root; 1 for none"),
    Column("scheduler", "name", "empty for the engine's default", known=get_args(Scheduler)),
    Column("engine_version", "text", "where it differs from the setup's"),
    Column("concurrency", "count", "clients in flight, or the held batch", least=1),
    Column("request_rate", "number", "requests per second (open loop)", above=True),
    Column("batch_size", "number", "mean running requests in the window", above=True),
    Column("max_running_requests", "count", "where it differs from the setup's", least=1),
    Column("num_requests", "count", "requests of the run", least=1),
    Column("input_len", "number", "mean prompt tokens per request"),
    Column("output_len", "number", "mean answer tokens per request", least=1),
    Column("input_cached", "number", "mean prompt tokens found in the prefix cache"),
    Column("shared_prefix_len", "number", "prompt tokens that all requests share"),
    Column("context_len", "number", "KV tokens per request as the window begins; 16k is 16384"),
    Column("window_s", "number", "length of the window; the KV cache grows within it", above=True),
    Column("output_tps", "number", "tokens per second to all clients, wall time", above=True),
    Column("accept_length", "number", "tokens per request and round, bonus included; 1 for none"),
    Column("accept_length_scope", "name", "what it was averaged over", known=get_args(Scope)),
    *(Column(name, "number", "P(at least so many drafts accepted)", most=1) for name in SURVIVAL),
    Column("ttft_s", "number", "mean time to first token", above=True),
    Column("tpot_s", "number", "mean time per output token after the first", above=True),
    Column("itl_s", "number", "mean gap between chunks", above=True),
    Column("round_time_s", "number", "mean length of a round", above=True),
    Column("draft_time_s", "number", "of a round, what the drafter's steps take", above=True),
    Column("dataset", "text", "acceptance belongs to it"),
    Column("temperature", "number", "acceptance belongs to it"),
    Column("weight", "number", "relative inverse variance; 1 if empty", above=True),
    Column("source", "text", "where the row is from"),
)
"""In the order of the format."""

COLUMNS = tuple(column.name for column in SCHEMA)

SETTING = ("algorithm", "topk", "num_steps", "num_draft_tokens", "scheduler")
"""Columns that are parts of the setting."""

BY_NAME = {column.name: column for column in SCHEMA}

PERCENTILE = re.compile(r"(ttft|tpot|itl|round_time)_p[0-9]{1,3}_s")
"""Further columns, of percentiles of times, e.g. ``ttft_p99_s``."""


def further_column(name: str) -> Column:
    """Return what a column outside the format is: a percentile, or a text that is kept."""
    if PERCENTILE.fullmatch(name):
        return Column(name, "number", "a percentile of a time", above=True)
    return Column(name, "text", "kept, not used")


def refusal(
    where: str, column: str, value: object, reason: str, what_to_do: str | None = None
) -> InputError:
    """Return the error that names file, line, column and value of a wrong cell."""
    shown = cell_text(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    if what_to_do is None and column in SURVIVAL:
        what_to_do = "write a fraction: 0.45, not 45"
    elif what_to_do is None:
        unit = "give seconds" if column.endswith("_s") else "correct it"
        what_to_do = f"{unit}, or leave the cell empty if it is not known"
    return InputError(f"{where}, column {column}: {shown!r}", reason, what_to_do)


def cell_text(value: object) -> str:
    """Return the shortest text, on one line, that reads back as the value; none for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and value < LARGEST else repr(float(value))
    return " ".join(str(value).split())
