"""One measured cell: a row of observations.csv, what its columns mean, and checks of any row."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from specsim.errors import InputError
from specsim.setting import Scheduler, SpecSetting
from specsim.workload import Load, LoadKind

Scope = Literal["cell", "run", "pooled"]

LARGEST = 1e15  # nothing measured here is larger, and above it a float skips whole numbers
ROUNDING = 1.005
"""An accept length may exceed its bound by as much: engines print two or three digits."""
BASE_NOISE = 0.03  # relative error of a weight of 1: beyond the windows' standard error


@dataclass(frozen=True, slots=True)
class Column:
    """One column; an empty cell is not measured, or not stated."""

    name: str
    type: str  # text, name, count or number
    meaning: str
    least: float = 0.0
    above: bool = False  # whether `least` itself is out of bounds
    most: float = LARGEST
    known: tuple[str, ...] = ()  # names that may stand there

    def check(self, value: float, where: str) -> None:
        """Raise InputError unless a number is finite and within the bounds."""
        if not math.isfinite(value):
            raise refusal(where, self.name, value, "is not finite")
        if value > self.most or (value <= self.least if self.above else value < self.least):
            bound = f"{'above' if self.above else 'at least'} {self.least:g}"
            raise refusal(where, self.name, value, f"must be {bound} and at most {self.most:g}")


SURVIVAL = tuple(f"survival_{depth}" for depth in range(1, 9))  # as deep as the format goes

_OTHERS = {
    "kind": (Column("kind", "name", "how load was applied", known=get_args(LoadKind)),),
    "setting": (
        Column("algorithm", "text", "how tokens are drafted; none for no speculation"),
        Column("topk", "count", "branches per draft step; 1 for a chain, and for none"),
        Column("num_steps", "count", "draft depth; 0 for none"),
        Column("num_draft_tokens", "count", "tokens verified per request, with root; 1 for none"),
        Column("scheduler", "name", "empty for the engine's default", known=get_args(Scheduler)),
    ),
    "accept_length_scope": (
        Column("accept_length_scope", "name", "what it was averaged over", known=get_args(Scope)),
    ),
    "survival": tuple(
        Column(name, "number", "P(at least so many drafts accepted)", most=1) for name in SURVIVAL
    ),
}
"""Columns of fields that are several, or take a few names."""
SETTING = tuple(column.name for column in _OTHERS["setting"])
"""Columns that are parts of the setting."""


def _column(meaning: str, default: Any = None, **bounds: Any) -> Any:
    """Return a field that is a column of its name, of the type of its annotation."""
    return field(default=default, metadata={"meaning": meaning, **bounds})


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One row; None is not measured or not stated."""

    kind: LoadKind
    setting: SpecSetting  # its five columns; scheduler auto where the row does not say
    engine_version: str | None = _column("where it differs from the setup's")
    concurrency: int | None = _column("clients in flight, or the held batch", least=1)
    request_rate: float | None = _column("requests per second (open loop)", above=True)
    batch_size: float | None = _column("mean running requests in the window", above=True)
    max_running_requests: int | None = _column("where it differs from the setup's", least=1)
    num_requests: int | None = _column("requests of the run", least=1)
    input_len: float | None = _column("mean prompt tokens per request")
    output_len: float | None = _column("mean answer tokens per request", least=1)
    input_cached: float | None = _column("mean prompt tokens found in the prefix cache")
    shared_prefix_len: float | None = _column("prompt tokens that all requests share")
    context_len: float | None = _column("KV tokens per request as the window begins; 16k is 16384")
    window_s: float | None = _column(
        "length of the window; the KV cache grows within it", above=True
    )
    output_tps: float | None = _column("tokens per second to all clients, wall time", above=True)
    accept_length: float | None = _column(
        "tokens per request and round, bonus included; 1 for none"
    )
    accept_length_scope: Scope | None = None
    survival: tuple[float, ...] = ()  # its columns, as deep as stated
    ttft_s: float | None = _column("mean time to first token", above=True)
    tpot_s: float | None = _column("mean time per output token after the first", above=True)
    itl_s: float | None = _column("mean gap between chunks", above=True)
    round_time_s: float | None = _column("mean length of a round", above=True)
    draft_time_s: float | None = _column("of a round, what the drafter's steps take", above=True)
    dataset: str | None = _column("acceptance belongs to it")
    temperature: float | None = _column("acceptance belongs to it")
    weight: float = _column("relative inverse variance; 1 if empty", 1.0, above=True)
    source: str = _column("where the row is from", "")
    # percentiles (numbers, s) and columns outside the format (texts), as they were
    extra: Mapping[str, float | str] = field(default_factory=dict, hash=False)
    row: int = field(default=0, compare=False)  # line in the file, or index, for messages

    @property
    def load(self) -> Load:
        """The load level as the solvers take it: what its kind has."""
        arrives, held = self.kind == "open_loop", self.kind == "steady_decode"
        return Load(
            self.kind,
            1 if self.concurrency is None else self.concurrency,
            self.request_rate if arrives else None,
            self.num_requests,
            self.context_len if held else None,
            self.window_s if held else None,
        )

    def to_row(self) -> dict[str, float | int | str]:
        """Return what is stated, by column, in the order of the format."""
        parts = {name: getattr(self.setting, name) for name in SETTING}
        parts |= dict(zip(SURVIVAL, self.survival, strict=False))
        if self.setting.scheduler == "auto":
            del parts["scheduler"]
        cells = {name: parts.get(name, getattr(self, name, None)) for name in COLUMNS}
        cells |= self.extra
        return {column: cell for column, cell in cells.items() if cell not in (None, "")}


def _columns(of: Field[Any]) -> tuple[Column, ...]:
    kind = {"int": "count", "float": "number", "str": "text"}.get(str(of.type).split(" ")[0])
    known = (Column(of.name, kind, **of.metadata),) if of.metadata and kind else ()
    return _OTHERS.get(of.name, known)


SCHEMA = tuple(column for of in fields(Observation) for column in _columns(of))
"""In the order of the format."""

COLUMNS = tuple(column.name for column in SCHEMA)

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


def checked(observation: Observation, where: str) -> Observation:
    """Return an observation as a file would give it; without speculation the accept length is 1.

    Raises :class:`InputError`, which names the column and `where` it stands, if a number is not
    finite or out of bounds, if numbers contradict each other, or if the load is not stated or
    nothing is measured.
    """
    for column in SCHEMA:
        value = getattr(observation, column.name, None)
        if value is not None and column.type in ("count", "number"):
            column.check(value, where)
    for name, extra in observation.extra.items():
        if PERCENTILE.fullmatch(name):
            further_column(name).check(float(extra), where)
    most = min(observation.setting.num_steps, observation.setting.num_draft_tokens - 1)
    result = replace(
        observation,
        accept_length=_accept_length(observation, most, where),
        survival=_survival(observation, most, where),
    )
    _check_load(result, where)
    _check_measured(result, where)
    return result


def _accept_length(row: Observation, most: int, where: str) -> float | None:
    """Check tau: 1 .. min(S, n-1) + 1, what a perfect drafter reaches."""
    value = row.accept_length
    if value is None:
        return None if row.setting.drafts else 1.0
    if not 1 <= value <= ROUNDING * (most + 1):
        reason = f"must lie in 1..{most + 1}, the bonus token included ({row.setting.label})"
        hint = "count the emitted tokens per request and round"
        raise refusal(where, "accept_length", value, reason, hint)
    return value


def _survival(row: Observation, most: int, where: str) -> tuple[float, ...]:
    """Check survival by depth: fractions that never rise, zero below the tree."""
    before = 1.0
    for index, (name, value) in enumerate(zip(SURVIVAL, row.survival, strict=False)):
        BY_NAME[name].check(value, where)
        if value > before:
            reason = f"is above {SURVIVAL[index - 1]} = {before:g}"
            hint = "P(at least d drafts accepted) falls with d"
            raise refusal(where, name, value, reason, hint)
        if index >= most and value > 0:
            reason = f"is deeper than {row.setting.label} drafts"
            raise refusal(where, name, value, reason, "leave the cell empty")
        before = value
    return row.survival[: min(most, len(SURVIVAL))]


def _check_load(row: Observation, where: str) -> None:
    """Refuse a row that lacks its load, or whose cached prompt is longer than the prompt."""
    if row.kind == "open_loop" and row.request_rate is None:
        hint = "open_loop needs requests per second"
        raise refusal(where, "request_rate", None, "is not stated", hint)
    if row.kind != "open_loop" and row.concurrency is None:
        needs = "the held batch" if row.kind == "steady_decode" else "the clients in flight"
        raise refusal(where, "concurrency", None, "is not stated", f"{row.kind} needs {needs}")
    cached, prompt = row.input_cached, row.input_len
    if cached is not None and prompt is not None and cached > prompt:
        reason = f"is above input_len = {prompt:g}"
        raise refusal(where, "input_cached", cached, reason, "count prompt tokens")
    shared, whole = row.shared_prefix_len, row.context_len if prompt is None else prompt
    if shared is not None and whole is not None and shared > whole:
        reason = f"is above the {whole:g} tokens of a request"
        raise refusal(where, "shared_prefix_len", shared, reason, "count prompt tokens")


def _check_measured(row: Observation, where: str) -> None:
    names = ["output_tps", "tpot_s", "itl_s", "round_time_s"]
    measured = [row.output_tps, row.tpot_s, row.itl_s, row.round_time_s]
    if row.setting.drafts:
        names += ["accept_length", "draft_time_s", "survival_1"]
        measured += [row.accept_length, row.draft_time_s, *row.survival[:1]]
    if all(value is None for value in measured):
        raise InputError(where, "measures nothing", f"fill at least one of: {', '.join(names)}")


def cell_name(o: Observation) -> str:
    """Short name of a cell."""
    load = f"{o.request_rate:g} req/s" if o.kind == "open_loop" else f"C={o.concurrency}"
    context = f" ctx={o.context_len:g}" if o.context_len is not None else ""
    scheduler = "" if o.setting.scheduler == "auto" else f" {o.setting.scheduler}"
    return f"{o.setting.label}{scheduler} {load}{context}"


def weight_of(variance: float) -> float:
    """Return the weight of a row with this relative variance on top of the base noise.

    >>> weight_of(BASE_NOISE**2)
    0.5
    """
    return round(BASE_NOISE**2 / (BASE_NOISE**2 + variance), 6)
