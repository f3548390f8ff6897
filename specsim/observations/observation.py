"""One measured cell: the row of observations.csv, typed and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from specsim.errors import InputError, UnknownNameError
from specsim.observations.cells import COLUMNS, PERCENTILE, SURVIVAL, Cells
from specsim.setting import Algorithm, Scheduler, SpecSetting, parse_algorithm
from specsim.workload import Load, LoadKind

Scope = Literal["cell", "run", "pooled"]

ROUNDING = 1.005
"""An accept length may exceed its bound by as much: engines print two or three digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One row; None is not measured or not stated.

    Parameters
    ----------
    kind
        How load was applied.
    setting
        Aliases resolved; ``none`` is (1, 0, 1); scheduler ``auto`` where the row does not say.
    engine_version, max_running_requests
        Where they differ from the setup's.
    concurrency
        Clients in flight (closed loop) or held batch (steady decode).
    request_rate
        1/s (open loop).
    batch_size
        Mean running requests in the window.
    num_requests
        Requests of the run.
    input_len, output_len, input_cached
        Mean tokens per request.
    context_len
        KV tokens per request at the start of the window (steady decode).
    window_s
        Length of the measuring window, s.
    output_tps
        Tokens delivered to clients per second of wall time, all clients.
    accept_length, accept_length_scope
        Tokens per request and round, bonus included, and what they were averaged over; 1 for
        ``none``.
    survival
        P(at least d drafts accepted), d = 1, 2, ...
    ttft_s, tpot_s, itl_s, round_time_s
        Means, s.
    draft_time_s
        Of a round, what the drafter's steps take, all requests together, s.
    dataset, temperature
        Acceptance belongs to them.
    weight
        Relative inverse variance.
    source
        Where the row is from.
    extra
        Percentiles (numbers, s) and columns outside the format (texts), as they were.
    row
        Line in the file, or index, for messages.
    """

    kind: LoadKind
    setting: SpecSetting
    engine_version: str | None = None
    concurrency: int | None = None
    request_rate: float | None = None
    batch_size: float | None = None
    max_running_requests: int | None = None
    num_requests: int | None = None
    input_len: float | None = None
    output_len: float | None = None
    input_cached: float | None = None
    context_len: float | None = None
    window_s: float | None = None
    output_tps: float | None = None
    accept_length: float | None = None
    accept_length_scope: Scope | None = None
    survival: tuple[float, ...] = ()
    ttft_s: float | None = None
    tpot_s: float | None = None
    itl_s: float | None = None
    round_time_s: float | None = None
    draft_time_s: float | None = None
    dataset: str | None = None
    temperature: float | None = None
    weight: float = 1.0
    source: str = ""
    extra: Mapping[str, float | str] = field(default_factory=dict, hash=False)
    row: int = field(default=0, compare=False)

    @property
    def load(self) -> Load:
        """The load level as the solvers take it."""
        return Load(
            self.kind,
            1 if self.concurrency is None else self.concurrency,
            self.request_rate,
            self.num_requests,
            self.context_len,
            self.window_s,
        )

    def to_row(self) -> dict[str, float | int | str]:
        """Return what is stated, by column, in the order of the format."""
        cells: dict[str, float | int | str | None] = dict.fromkeys(COLUMNS)
        setting = self.setting
        cells |= {
            "algorithm": setting.algorithm,
            "topk": setting.topk,
            "num_steps": setting.num_steps,
            "num_draft_tokens": setting.num_draft_tokens,
            "scheduler": None if setting.scheduler == "auto" else setting.scheduler,
            **dict(zip(SURVIVAL, self.survival, strict=False)),
        }
        for column in COLUMNS:
            if column not in _SETTING_COLUMNS and column not in SURVIVAL:
                cells[column] = getattr(self, column)
        cells |= self.extra
        return {column: cell for column, cell in cells.items() if cell not in (None, "")}


_SETTING_COLUMNS = {"algorithm", "topk", "num_steps", "num_draft_tokens", "scheduler"}


def observation_from_cells(cells: Cells, row: int) -> Observation:
    """Check one row.

    Raises
    ------
    InputError, UnknownNameError
        Names file, line, column and value of the first cell that is wrong.
    """
    kinds: tuple[LoadKind, ...] = get_args(LoadKind)
    scopes: tuple[Scope, ...] = get_args(Scope)
    kind = cells.name("kind", kinds)
    if kind is None:
        raise cells.refusal("kind", "is not stated", f"use one of: {', '.join(kinds)}")
    setting = _setting(cells)
    observation = Observation(
        kind=kind,
        setting=setting,
        engine_version=cells.text("engine_version"),
        concurrency=cells.count("concurrency", 1),
        request_rate=cells.positive("request_rate"),
        batch_size=cells.positive("batch_size"),
        max_running_requests=cells.count("max_running_requests", 1),
        num_requests=cells.count("num_requests", 1),
        input_len=cells.number("input_len"),
        output_len=cells.number("output_len", 1),
        input_cached=cells.number("input_cached"),
        context_len=cells.tokens("context_len"),
        window_s=cells.positive("window_s"),
        output_tps=cells.positive("output_tps"),
        accept_length=_accept_length(cells, setting),
        accept_length_scope=cells.name("accept_length_scope", scopes),
        survival=_survival(cells, setting),
        ttft_s=cells.positive("ttft_s"),
        tpot_s=cells.positive("tpot_s"),
        itl_s=cells.positive("itl_s"),
        round_time_s=cells.positive("round_time_s"),
        draft_time_s=cells.positive("draft_time_s"),
        dataset=cells.text("dataset"),
        temperature=cells.number("temperature"),
        weight=cells.positive("weight") or 1.0,
        source=cells.text("source") or "",
        extra=_extra(cells),
        row=row,
    )
    _check_together(cells, observation)
    return observation


def _setting(cells: Cells) -> SpecSetting:
    """Read the setting; where topk is not stated it is a chain, whose n follows from its depth."""
    name = cells.text("algorithm")
    if name is None:
        raise cells.refusal("algorithm", "is not stated", "write none for no speculation")
    try:
        algorithm: Algorithm = parse_algorithm(name)
    except UnknownNameError as error:
        where = f"{cells.where}, column algorithm:"
        raise UnknownNameError(where, name, error.known) from None
    schedulers: tuple[Scheduler, ...] = get_args(Scheduler)
    scheduler = cells.name("scheduler", schedulers) or "auto"
    topk, steps = cells.count("topk"), cells.count("num_steps")
    tokens = cells.count("num_draft_tokens")
    if algorithm == "none":
        for column, value, allowed in (
            ("topk", topk, (None, 0, 1)),
            ("num_steps", steps, (None, 0)),
            ("num_draft_tokens", tokens, (None, 0, 1)),
        ):
            if value not in allowed:
                raise cells.refusal(column, "is not none's", "none is written 1, 0, 1")
        return SpecSetting.none(scheduler)
    if steps is None:
        raise cells.refusal("num_steps", "is not stated", "write the draft depth")
    if tokens is None and topk is not None and topk > 1:
        raise cells.refusal("num_draft_tokens", "is not stated", "a tree needs its size, with root")
    try:
        return SpecSetting.of(topk, steps, tokens, algorithm, scheduler)
    except InputError as error:
        where = f"{cells.where}: {error.value}"
        raise InputError(where, error.reason, "correct topk, num_steps, num_draft_tokens") from None


def _accept_length(cells: Cells, setting: SpecSetting) -> float | None:
    """Read tau: 1 .. min(S, n-1) + 1, what a perfect drafter reaches."""
    most = 1 + min(setting.num_steps, setting.num_draft_tokens - 1)
    value = cells.number("accept_length")
    if value is None:
        return None if setting.speculates else 1.0
    if not 1 <= value <= ROUNDING * most:
        raise cells.refusal(
            "accept_length",
            f"must lie in 1..{most}, the bonus token included ({setting.label})",
            "count the emitted tokens per request and round",
        )
    return value


def _survival(cells: Cells, setting: SpecSetting) -> tuple[float, ...]:
    """Read survival by depth: fractions that never rise, without gaps, zero below the tree."""
    values = [cells.number(column, 0.0, 1.0) for column in SURVIVAL]
    stated = [value is not None for value in values]
    depth = stated.index(False) if False in stated else len(stated)
    for column, value in zip(SURVIVAL[depth:], values[depth:], strict=True):
        if value is not None:
            raise cells.refusal(column, "follows a depth that is not stated", "fill the gap")
    survival = tuple(value for value in values[:depth] if value is not None)
    most = min(setting.num_steps, setting.num_draft_tokens - 1)
    for index, column in enumerate(SURVIVAL[:depth]):
        if index and survival[index] > survival[index - 1]:
            reason = f"is above {SURVIVAL[index - 1]} = {survival[index - 1]:g}"
            raise cells.refusal(column, reason, "P(at least d drafts accepted) falls with d")
        if index >= most and survival[index] > 0:
            raise cells.refusal(
                column, f"is deeper than {setting.label} drafts", "leave the cell empty"
            )
    return survival[:most]


def _extra(cells: Cells) -> dict[str, float | str]:
    """Keep percentiles as numbers, and other columns outside the format as they are."""
    extra: dict[str, float | str] = {}
    for column, text in cells.texts.items():
        if column in COLUMNS or not text:
            continue
        value = cells.positive(column) if PERCENTILE.fullmatch(column) else text
        if value is not None:
            extra[column] = value
    return extra


def _check_together(cells: Cells, row: Observation) -> None:
    """Refuse rows that measure nothing, lack their load, or contradict themselves."""
    if row.kind == "open_loop" and row.request_rate is None:
        raise cells.refusal("request_rate", "is not stated", "open_loop needs requests per second")
    if row.kind != "open_loop" and row.concurrency is None:
        needs = "the held batch" if row.kind == "steady_decode" else "the clients in flight"
        raise cells.refusal("concurrency", "is not stated", f"{row.kind} needs {needs}")
    if (
        row.input_cached is not None
        and row.input_len is not None
        and row.input_cached > row.input_len
    ):
        raise cells.refusal(
            "input_cached", f"is above input_len = {row.input_len:g}", "count prompt tokens"
        )
    measured = [row.output_tps, row.tpot_s, row.itl_s, row.round_time_s]
    names = "output_tps, tpot_s, itl_s, round_time_s"
    if row.setting.speculates:
        measured += [row.accept_length, row.draft_time_s, *row.survival[:1]]
        names += ", accept_length, draft_time_s, survival_1"
    if all(value is None for value in measured):
        raise InputError(cells.where, "measures nothing", f"fill at least one of: {names}")
