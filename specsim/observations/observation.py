"""One measured cell: the row of observations.csv, typed, and the checks that every row passes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from specsim.errors import InputError
from specsim.observations.schema import (
    BY_NAME,
    COLUMNS,
    PERCENTILE,
    SCHEMA,
    SETTING,
    SURVIVAL,
    Column,
    Scope,
    further_column,
    refusal,
)
from specsim.setting import SpecSetting
from specsim.workload import Load, LoadKind

ROUNDING = 1.005
"""An accept length may exceed its bound by as much: engines print two or three digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One row; what the columns mean says :data:`SCHEMA`. None is not measured or not stated."""

    kind: LoadKind
    setting: SpecSetting  # its five columns; scheduler auto where the row does not say
    engine_version: str | None = None
    concurrency: int | None = None
    request_rate: float | None = None
    batch_size: float | None = None
    max_running_requests: int | None = None
    num_requests: int | None = None
    input_len: float | None = None
    output_len: float | None = None
    input_cached: float | None = None
    shared_prefix_len: float | None = None
    context_len: float | None = None
    window_s: float | None = None
    output_tps: float | None = None
    accept_length: float | None = None
    accept_length_scope: Scope | None = None
    survival: tuple[float, ...] = ()  # its columns, as deep as stated
    ttft_s: float | None = None
    tpot_s: float | None = None
    itl_s: float | None = None
    round_time_s: float | None = None
    draft_time_s: float | None = None
    dataset: str | None = None
    temperature: float | None = None
    weight: float = 1.0
    source: str = ""
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


def checked(observation: Observation, where: str) -> Observation:
    """Return an observation that the format allows; raise where it does not.

    Parameters
    ----------
    observation
        Of a file or of a program.
    where
        File and line, for messages.

    Returns
    -------
    The same, as a file would give it: without speculation the accept length is 1.

    Raises
    ------
    InputError
        If a number is not finite or out of bounds, if numbers contradict each other, or if the
        load is not stated or nothing is measured; names the column.
    """
    for column in SCHEMA:
        value = getattr(observation, column.name, None)
        if value is not None and column.type in ("count", "number"):
            _check_bounds(column, value, where)
    for name, extra in observation.extra.items():
        if PERCENTILE.fullmatch(name):
            _check_bounds(further_column(name), float(extra), where)
    most = min(observation.setting.num_steps, observation.setting.num_draft_tokens - 1)
    result = replace(
        observation,
        accept_length=_accept_length(observation, most, where),
        survival=_survival(observation, most, where),
    )
    _check_load(result, where)
    _check_measured(result, where)
    return result


def _check_bounds(column: Column, value: float, where: str) -> None:
    """Raise InputError unless a number is finite and within the column's bounds."""
    if not math.isfinite(value):
        raise refusal(where, column.name, value, "is not finite")
    low = value <= column.least if column.above else value < column.least
    if low or value > column.most:
        bound = f"{'above' if column.above else 'at least'} {column.least:g}"
        raise refusal(where, column.name, value, f"must be {bound} and at most {column.most:g}")


def _accept_length(row: Observation, most: int, where: str) -> float | None:
    """Check tau: 1 .. min(S, n-1) + 1, what a perfect drafter reaches."""
    value = row.accept_length
    if value is None:
        return None if row.setting.drafts else 1.0
    if not 1 <= value <= ROUNDING * (most + 1):
        raise refusal(
            where,
            "accept_length",
            value,
            f"must lie in 1..{most + 1}, the bonus token included ({row.setting.label})",
            "count the emitted tokens per request and round",
        )
    return value


def _survival(row: Observation, most: int, where: str) -> tuple[float, ...]:
    """Check survival by depth: fractions that never rise, zero below the tree."""
    before = 1.0
    for index, (name, value) in enumerate(zip(SURVIVAL, row.survival, strict=False)):
        _check_bounds(BY_NAME[name], value, where)
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
    """Refuse a row that measures nothing."""
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
