"""Grids over settings, loads and what-ifs, cut into tasks that need nothing but themselves.

A cell that fails is a row with its error, and costs no other cell.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any

from specsim import __version__
from specsim.curve import Solver
from specsim.decide.candidates import TREE_TOKENS
from specsim.engine import RunPlan
from specsim.errors import InputError, SpecsimError, UnknownNameError
from specsim.predict import Grid
from specsim.profile import Profile
from specsim.question import Question
from specsim.scenario import apply_overrides, parse_override, parse_overrides
from specsim.setting import MOST_DRAFT_TOKENS, Algorithm, SpecSetting
from specsim.textfile import csv_cell
from specsim.tree import tree_capacity

CHUNK = 250
"""Settings per task of a closed-form sweep; a simulated task is one setting."""

AXES = ("topk", "steps", "tokens")
"""Of a grid of settings."""

FAILURES = (SpecsimError, ArithmeticError, ValueError)

NUMBERS = {
    **{name: name for name in ("output_tps", "accept_length", "batch_size", "tpot_s", "ttft_s")},
    "round_s": "round_time_s",
}
"""Column of each number that both solvers give."""


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
    profile: str
    run: str  # fingerprint of the profile's content, the version of specsim, and what_if
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
KEY = COLUMNS[:11]


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
    run: str = field(init=False)  # fingerprint of what all numbers rest on

    def __post_init__(self) -> None:
        object.__setattr__(self, "run", _fingerprint(self.profile, self.what_if))
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
                self.profile.name,
                self.run,
            )
            for concurrency in self.concurrency
        ]


def _fingerprint(profile: Profile, what_if: bool) -> str:
    """Return what tells an edited profile, one of its own files or another version of specsim."""
    rests_on = f"{__version__} {what_if} {profile!r}"
    with contextlib.suppress(SpecsimError):  # of a server that cannot be: each cell says so
        rests_on += repr(profile.system())
    return hashlib.sha256(rests_on.encode()).hexdigest()[:12]


def solve_task(task: Sweep) -> list[SweepRow]:
    """Compute the cells of one what-if; what fails is a row with its error."""
    try:
        profile = apply_overrides(task.profile, parse_overrides(task.scenarios[0])).profile
    except SpecsimError as error:
        return _failed([row for setting in task.settings for row in task.blank(setting)], error)
    plans: dict[SpecSetting, RunPlan] = {}
    rows: list[SweepRow] = []
    for setting in task.settings:
        try:
            plans[setting] = profile.system().plan(setting, what_if=task.what_if)
        except SpecsimError as error:
            rows += _failed(task.blank(setting), error)
    return rows + _solved(task, profile, plans)


def _failed(rows: Sequence[SweepRow], error: Exception) -> list[SweepRow]:
    """Return rows that cannot be computed."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return [replace(row, error=text) for row in rows]


def _solved(task: Sweep, profile: Profile, plans: dict[SpecSetting, RunPlan]) -> list[SweepRow]:
    """Compute all at once; if that fails, cell by cell."""
    rows = [row for setting in plans for row in task.blank(setting)]
    grid = Grid.of(profile, Question(concurrency=task.concurrency), tuple(plans.values()))
    try:
        if task.solver == "analytic":
            cells = grid.solve(profile, with_limit=True)
            found: dict[str, list[Any]] = {
                column: getattr(cells, n).ravel().tolist() for n, column in NUMBERS.items()
            }
            limits = cells.limits
        else:
            runs = list(grid.simulate(profile, task.seed))
            found = {column: [getattr(r, n) for r in runs] for n, column in NUMBERS.items()}
            limits = ("",) * len(runs)
    except FAILURES as error:
        if len(rows) <= 1:
            return _failed(rows, error)
        singles = product(plans.items(), task.concurrency)
        return [
            row
            for (setting, plan), c in singles
            for row in _solved(replace(task, concurrency=(c,)), profile, {setting: plan})
        ]
    runs_as = (plan for plan in plans.values() for _ in task.concurrency)
    return [
        replace(
            row,
            scheduler=plan.setting.scheduler,
            engine=plan.engine,
            engine_version=plan.version,
            limit=limits[i],
            **{column: values[i] for column, values in found.items()},
        )
        for i, (row, plan) in enumerate(zip(rows, runs_as, strict=True))
    ]


def scenarios(axes: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return every combination of one override per axis; one empty combination for no axis.

    >>> scenarios(["tp=4,8", "allreduce.latency=*0.5"])
    (('tp=4', 'allreduce.latency=*0.5'), ('tp=8', 'allreduce.latency=*0.5'))
    """
    return tuple(product(*map(_overrides, axes)))


def _overrides(text: str) -> list[str]:
    """Return the overrides of one axis: ``tp=4,8`` is ``tp=4`` and ``tp=8``."""
    key, equals, said = text.partition("=")
    parts = [v.strip() for v in said.split(",") if v.strip()]
    if not equals or not parts:
        raise InputError(f"--vary {text}", "is not KEY=VALUE,...", "write e.g. tp=4,8")
    return [parse_override(f"{key}={value}").label for value in parts]


def grid_settings(texts: Sequence[str], algorithm: Algorithm) -> list[SpecSetting]:
    """Return every setting of axes like ``topk=1,2 steps=1-6 tokens=8,all`` that a tree can have.

    A chain verifies S + 1 tokens.

    Raises
    ------
    InputError
        If an axis is unknown or empty, or there are no steps.

    Examples
    --------
    >>> [s.label for s in grid_settings(["topk=1,2 steps=2"], "EAGLE3")][:2]
    ['topk=1 steps=2 tokens=3', 'topk=2 steps=2 tokens=4']
    """
    axes: dict[str, list[int | None]] = {}
    for part in " ".join(texts).split():
        axis, equals, said = part.partition("=")
        if axis not in AXES:
            raise UnknownNameError("--grid axis", axis, AXES)
        numbers = [n for v in said.split(",") for n in _numbers(f"{axis}={v}", v)]
        if not equals or not numbers:
            raise InputError(f"--grid {part}", "has no values", "write e.g. topk=1,2,4")
        axes[axis] = numbers
    if texts and "steps" not in axes:
        raise InputError("--grid", "has no steps", "add --grid steps=1-6")
    result = []
    for k, s in product(axes.get("topk", [1]), axes.get("steps", ())):
        if k is None or s is None or k < 1 or s < 1:
            raise InputError("--grid topk, steps", "must be at least 1", "write e.g. 1-6")
        whole = tree_capacity(k, s)
        budgets = axes.get("tokens", [*TREE_TOKENS, None]) if k > 1 else [None]
        sizes = {whole if n is None else n for n in budgets}
        chosen = sorted(n for n in sizes if s < n <= min(whole, MOST_DRAFT_TOKENS))
        result += [SpecSetting(algorithm, k, s, n) for n in chosen]
    return result


def _numbers(where: str, text: str) -> list[int | None]:
    """Return the numbers of ``4``, ``1-6`` or ``all`` (None: the whole tree)."""
    if text.strip() == "all":
        return [None]
    match = re.fullmatch(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", text.strip())
    if match is None:
        raise InputError(f"--grid {where}", "is not a number or a range", "write e.g. 1-6")
    first, last = int(match[1]), int(match[2] or match[1])
    return list(range(first, last + 1))


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.10g}" if isinstance(value, float) else csv_cell(str(value))
