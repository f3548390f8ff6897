"""Grids over settings, loads and what-ifs, cut into tasks that need nothing but themselves.

A cell that fails is a row with its error, and costs no other cell.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from specsim.acceptance import accept_table
from specsim.case import Case
from specsim.curve import Solver
from specsim.decide.outlook import Cells, Grid
from specsim.engine import RunPlan
from specsim.errors import InputError, SpecsimError
from specsim.profile import Profile
from specsim.scenario import apply_overrides, parse_overrides
from specsim.setting import SpecSetting
from specsim.workload import Load

CHUNK = 250
"""Settings per task of a closed-form sweep; a simulated task is one setting."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One cell. Numbers are None where it failed, and `error` says why.

    Parameters
    ----------
    scenario
        Overrides as they are typed; empty for the profile itself.
    algorithm, topk, num_steps, num_draft_tokens, asked_scheduler
        What was asked for.
    scheduler, engine, engine_version
        What runs.
    concurrency
        Clients in flight.
    solver, seed
        How it was computed.
    output_tps, accept_length, batch_size, round_time_s, tpot_s, ttft_s
        As in the curve.
    limit
        What binds (closed form only).
    """

    scenario: str
    algorithm: str
    topk: int
    num_steps: int
    num_draft_tokens: int
    asked_scheduler: str
    concurrency: int
    solver: str
    seed: int
    scheduler: str = ""
    engine: str = ""
    engine_version: str = ""
    output_tps: float | None = None
    accept_length: float | None = None
    batch_size: float | None = None
    round_time_s: float | None = None
    tpot_s: float | None = None
    ttft_s: float | None = None
    limit: str = ""
    error: str = ""

    def texts(self) -> list[str]:
        """Return the cells of a CSV line."""
        return [_text(getattr(self, name)) for name in COLUMNS]


COLUMNS = tuple(f.name for f in fields(SweepRow))
KEY = COLUMNS[:9]


@dataclass(frozen=True, slots=True)
class Sweep:
    """What to compute: the product of all three axes.

    Parameters
    ----------
    profile
        The server.
    settings
        No speculation is not added by itself.
    concurrency
        Clients in flight.
    scenarios
        Overrides of each what-if, as they are typed; an empty tuple is the profile itself.
    solver, seed
        How to compute; cells share the seed, and so their random numbers.
    what_if
        Model what the engine refuses.
    """

    profile: Profile
    settings: tuple[SpecSetting, ...]
    concurrency: tuple[int, ...]
    scenarios: tuple[tuple[str, ...], ...] = ((),)
    solver: Solver = "analytic"
    seed: int = 0
    what_if: bool = False

    def __post_init__(self) -> None:
        for name in ("settings", "concurrency", "scenarios"):
            if not getattr(self, name):
                raise InputError(f"sweep: {name}", "is empty", "give at least one")

    def tasks(self, done: frozenset[tuple[str, ...]] = frozenset()) -> list[Task]:
        """Cut what is not done yet into tasks, in a fixed order."""
        size = CHUNK if self.solver == "analytic" else 1
        result = []
        for overrides in self.scenarios:
            settings = [s for s in self.settings if not self._done(overrides, s, done)]
            result += [
                Task(
                    self.profile,
                    overrides,
                    tuple(settings[i : i + size]),
                    self.concurrency,
                    self.solver,
                    self.seed,
                    self.what_if,
                )
                for i in range(0, len(settings), size)
            ]
        return result

    def _done(
        self, overrides: Sequence[str], setting: SpecSetting, done: frozenset[tuple[str, ...]]
    ) -> bool:
        blank = (_blank(overrides, setting, c, self.solver, self.seed) for c in self.concurrency)
        return all(tuple(row.texts()[: len(KEY)]) in done for row in blank)


@dataclass(frozen=True, slots=True)
class Task:
    """Some settings at all loads under one what-if."""

    profile: Profile
    overrides: tuple[str, ...]
    settings: tuple[SpecSetting, ...]
    concurrency: tuple[int, ...]
    solver: Solver
    seed: int
    what_if: bool


def solve_task(task: Task) -> list[SweepRow]:
    """Compute a task's cells; what fails is a row with its error."""
    try:
        profile = apply_overrides(task.profile, parse_overrides(task.overrides)).profile
    except SpecsimError as error:
        return [row for s in task.settings for row in _failed(task, s, error)]
    plans: list[tuple[SpecSetting, RunPlan]] = []
    rows: list[SweepRow] = []
    for setting in task.settings:
        try:
            plans.append((setting, profile.system().plan(setting, what_if=task.what_if)))
        except SpecsimError as error:
            rows += _failed(task, setting, error)
    if task.solver == "analytic":
        return rows + _solved(task, profile, plans)
    return rows + [_simulated(task, profile, s, p, c) for s, p in plans for c in task.concurrency]


def _solved(
    task: Task, profile: Profile, plans: Sequence[tuple[SpecSetting, RunPlan]]
) -> list[SweepRow]:
    """Solve all at once; if that fails, setting by setting."""
    if not plans:
        return []
    loads = tuple(Load("closed_loop", c) for c in task.concurrency)
    grid = Grid(tuple(p for _, p in plans), loads, profile.setup.workload.workload)
    try:
        cells = grid.solve(profile, with_limit=True)
    except (SpecsimError, ArithmeticError, ValueError) as error:
        if len(plans) == 1:
            return _failed(task, plans[0][0], error)
        return [row for pair in plans for row in _solved(task, profile, [pair])]
    return [
        _of_cells(task, setting, plan, cells, i, j)
        for i, (setting, plan) in enumerate(plans)
        for j in range(len(loads))
    ]


def _of_cells(
    task: Task, setting: SpecSetting, plan: RunPlan, cells: Cells, i: int, j: int
) -> SweepRow:
    return _blank(
        task.overrides,
        setting,
        task.concurrency[j],
        task.solver,
        task.seed,
        **_runs(plan),
        output_tps=float(cells.output_tps[i, j]),
        accept_length=float(cells.accept_length[i, j]),
        batch_size=float(cells.batch_size[i, j]),
        round_time_s=float(cells.round_s[i, j]),
        tpot_s=float(cells.tpot_s[i, j]),
        ttft_s=float(cells.ttft_s[i, j]),
        limit=cells.limit(i, j),
    )


def _simulated(
    task: Task, profile: Profile, setting: SpecSetting, plan: RunPlan, concurrency: int
) -> SweepRow:
    from specsim.simulate import simulate

    try:
        system = profile.system()
        table = accept_table(profile.acceptance(), plan.setting)
        load = Load("closed_loop", concurrency)
        case = Case.of(system, plan, table, profile.setup.workload.workload, load)
        rng = np.random.default_rng(task.seed)
        result = simulate(system.cost, case, rng=rng, record_rounds=False)
    except (SpecsimError, ArithmeticError, ValueError) as error:
        return _failure(task, setting, concurrency, error)
    return _blank(
        task.overrides,
        setting,
        concurrency,
        task.solver,
        task.seed,
        **_runs(plan),
        output_tps=result.output_tps,
        accept_length=result.accept_length,
        batch_size=result.batch_size,
        round_time_s=result.round_s,
        tpot_s=result.tpot_s,
        ttft_s=result.ttft_s,
    )


def _runs(plan: RunPlan) -> dict[str, str]:
    return {
        "scheduler": plan.setting.scheduler,
        "engine": plan.engine,
        "engine_version": plan.version,
    }


def _failed(task: Task, setting: SpecSetting, error: Exception) -> list[SweepRow]:
    return [_failure(task, setting, c, error) for c in task.concurrency]


def _failure(task: Task, setting: SpecSetting, concurrency: int, error: Exception) -> SweepRow:
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return _blank(task.overrides, setting, concurrency, task.solver, task.seed, error=text)


def _blank(
    overrides: Sequence[str],
    setting: SpecSetting,
    concurrency: int,
    solver: str,
    seed: int,
    **numbers: Any,
) -> SweepRow:
    return SweepRow(
        " ".join(overrides),
        setting.algorithm,
        setting.topk,
        setting.num_steps,
        setting.num_draft_tokens,
        setting.scheduler,
        concurrency,
        solver,
        seed,
        **numbers,
    )


def product_of(axes: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return every combination of one override per axis; one empty combination for no axis.

    >>> product_of([["tp=4", "tp=8"], ["link=nvlink4"]])
    (('tp=4', 'link=nvlink4'), ('tp=8', 'link=nvlink4'))
    """
    return tuple(itertools.product(*axes))


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.10g}" if isinstance(value, float) else str(value)
