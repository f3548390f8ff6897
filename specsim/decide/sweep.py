"""Grids over settings, loads and what-ifs, cut into tasks that need nothing but themselves.

A cell that fails is a row with its error, and costs no other cell.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np

from specsim.curve import Solver
from specsim.decide.outlook import Cells, Grid
from specsim.engine import RunPlan
from specsim.errors import InputError, SpecsimError
from specsim.profile import Profile
from specsim.question import Question
from specsim.scenario import apply_overrides, parse_overrides
from specsim.setting import SpecSetting

CHUNK = 250
"""Settings per task of a closed-form sweep; a simulated task is one setting."""

FAILURES = (SpecsimError, ArithmeticError, ValueError)


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One cell. Numbers are None where it failed, and `error` says why."""

    scenario: str  # overrides as they are typed; empty for the profile itself
    algorithm: str  # what was asked for
    topk: int
    num_steps: int
    num_draft_tokens: int
    asked_scheduler: str
    concurrency: int
    solver: str
    seed: int
    scheduler: str = ""  # what runs
    engine: str = ""
    engine_version: str = ""
    output_tps: float | None = None
    accept_length: float | None = None
    batch_size: float | None = None
    round_time_s: float | None = None
    tpot_s: float | None = None
    ttft_s: float | None = None
    limit: str = ""  # what binds (closed form only)
    error: str = ""

    def texts(self) -> list[str]:
        """Return the cells of a CSV line."""
        return [_text(getattr(self, name)) for name in COLUMNS]

    @property
    def key(self) -> tuple[str, ...]:
        """What tells the cell from all others, as texts."""
        return tuple(self.texts()[: len(KEY)])


COLUMNS = tuple(f.name for f in fields(SweepRow))
KEY = COLUMNS[:9]


@dataclass(frozen=True, slots=True)
class Sweep:
    """What to compute: the product of settings, loads and what-ifs."""

    profile: Profile
    settings: tuple[SpecSetting, ...]  # no speculation is not added by itself
    concurrency: tuple[int, ...]
    scenarios: tuple[tuple[str, ...], ...] = ((),)  # overrides of each what-if, as they are typed
    solver: Solver = "analytic"
    seed: int = 0  # of all cells, which so share their random numbers
    what_if: bool = False  # model what the engine refuses

    def __post_init__(self) -> None:
        for name in ("settings", "concurrency", "scenarios"):
            if not getattr(self, name):
                raise InputError(f"sweep: {name}", "is empty", "give at least one")

    def tasks(self, done: frozenset[tuple[str, ...]] = frozenset()) -> list[Sweep]:
        """Cut what is not done yet into sweeps of one what-if, in a fixed order."""
        size = CHUNK if self.solver == "analytic" else 1
        result = []
        for scenario in self.scenarios:
            one = replace(self, scenarios=(scenario,))
            left = [s for s in self.settings if not all(r.key in done for r in one.blank(s))]
            result += [
                replace(one, settings=tuple(left[i : i + size])) for i in range(0, len(left), size)
            ]
        return result

    def blank(self, setting: SpecSetting) -> list[SweepRow]:
        """Return the rows of a setting under the first what-if, not computed."""
        return [
            SweepRow(
                " ".join(self.scenarios[0]),
                setting.algorithm,
                setting.topk,
                setting.num_steps,
                setting.num_draft_tokens,
                setting.scheduler,
                concurrency,
                self.solver,
                self.seed,
            )
            for concurrency in self.concurrency
        ]

    def failed(self, setting: SpecSetting, error: Exception) -> list[SweepRow]:
        """Return the rows of a setting that cannot be computed."""
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return [replace(row, error=text) for row in self.blank(setting)]


def solve_task(task: Sweep) -> list[SweepRow]:
    """Compute the cells of one what-if; what fails is a row with its error."""
    try:
        profile = apply_overrides(task.profile, parse_overrides(task.scenarios[0])).profile
    except SpecsimError as error:
        return [row for s in task.settings for row in task.failed(s, error)]
    plans: dict[SpecSetting, RunPlan] = {}
    rows: list[SweepRow] = []
    for setting in task.settings:
        try:
            plans[setting] = profile.system().plan(setting, what_if=task.what_if)
        except SpecsimError as error:
            rows += task.failed(setting, error)
    if task.solver == "analytic":
        return rows + _solved(task, profile, plans)
    return rows + [row for s, plan in plans.items() for row in _simulated(task, profile, s, plan)]


def _solved(task: Sweep, profile: Profile, plans: dict[SpecSetting, RunPlan]) -> list[SweepRow]:
    """Solve all at once; if that fails, setting by setting."""
    if not plans:
        return []
    grid = _grid(task, profile, tuple(plans.values()))
    try:
        cells = grid.solve(profile, with_limit=True)
    except FAILURES as error:
        if len(plans) == 1:
            return task.failed(next(iter(plans)), error)
        return [row for s, plan in plans.items() for row in _solved(task, profile, {s: plan})]
    return [
        _filled(row, plan, partial(_of_cell, cells, i, j), cells.limit(i, j))
        for i, (setting, plan) in enumerate(plans.items())
        for j, row in enumerate(task.blank(setting))
    ]


def _simulated(
    task: Sweep, profile: Profile, setting: SpecSetting, plan: RunPlan
) -> list[SweepRow]:
    from specsim.simulate import simulate

    rows = []
    for j, blank in enumerate(task.blank(setting)):
        try:
            cost, cases = _grid(task, profile, (plan,)).cases(profile)
            rng = np.random.default_rng(task.seed)
            result = simulate(cost, cases[j], rng=rng, record_rounds=False)
            rows.append(_filled(blank, plan, partial(getattr, result)))
        except FAILURES as error:
            rows.append(task.failed(setting, error)[j])
    return rows


def _of_cell(cells: Cells, i: int, j: int, name: str) -> float:
    return float(getattr(cells, name)[i, j])


def _filled(
    row: SweepRow, plan: RunPlan, number: Callable[[str], float], limit: str = ""
) -> SweepRow:
    """Fill in what runs, and what a solver says of it by name."""
    return replace(
        row,
        scheduler=plan.setting.scheduler,
        engine=plan.engine,
        engine_version=plan.version,
        output_tps=number("output_tps"),
        accept_length=number("accept_length"),
        batch_size=number("batch_size"),
        round_time_s=number("round_s"),
        tpot_s=number("tpot_s"),
        ttft_s=number("ttft_s"),
        limit=limit,
    )


def _grid(task: Sweep, profile: Profile, plans: tuple[RunPlan, ...]) -> Grid:
    return Grid.of(profile, Question(concurrency=task.concurrency), plans)


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
