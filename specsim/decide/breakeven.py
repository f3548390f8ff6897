"""Break-even: the accept length that speculation needs, and the load at which it stops paying.

At equal throughput a round must yield what it costs in plain steps. Without a profile that is

    accept length* = round time / step time                                        (BREAK-EVEN)

of at most S + 1 tokens for a chain of S drafts. With a profile the whole system is solved: what a
round costs does not depend on what is accepted, save the extend of the accepted tokens.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from specsim.acceptance import AcceptTable
from specsim.analytic import solve
from specsim.arrays import Floats
from specsim.decide import Planned
from specsim.engine import RunPlan
from specsim.errors import InputError
from specsim.predict import Cells, Grid
from specsim.profile import Profile
from specsim.question import Question
from specsim.setting import SpecSetting

if TYPE_CHECKING:
    from specsim.case import Case
    from specsim.cost.model import CostModel

SCHEMA = "specsim.breakeven/1"
BISECTIONS = 40


def breakeven_accept_length(round_time_s: float, step_time_s: float) -> float:
    """Return the tokens per round that equal no speculation (BREAK-EVEN).

    Parameters
    ----------
    round_time_s
        One round: draft, verification, extend and everything else.
    step_time_s
        One step without speculation, at the same batch.

    Examples
    --------
    The thread vllm#47277: 98.7 ms a round with one draft, 37.7 ms a step; a round of one draft
    yields two tokens at most.

    >>> round(breakeven_accept_length(98.7e-3, 37.7e-3), 2)
    2.62
    """
    for name, seconds in (("round time", round_time_s), ("step time", step_time_s)):
        if not (math.isfinite(seconds) and seconds > 0):
            raise InputError(f"{name} {seconds}", "must be positive and finite", "give seconds")
    return round_time_s / step_time_s


@dataclass(frozen=True, slots=True)
class BreakEven:
    """One setting at one load."""

    concurrency: int
    breakeven_accept_length: float  # infinite if even a perfect drafter loses
    expected_accept_length: float  # by the profile
    most_accept_length: float  # of a perfect drafter
    reachable: bool
    gain: float  # expected throughput against no speculation, minus 1
    limit: str  # what binds the setting there


@dataclass(frozen=True, slots=True)
class Crossover:
    """A load at which the sign of the gain changes."""

    concurrency: float  # between two loads, interpolated in log
    pays_below: bool  # whether speculation pays at smaller loads, and not at larger ones
    limit: str  # what binds just above


@dataclass(frozen=True, slots=True)
class BreakEvenCurve(Planned):
    """A setting over load."""

    points: tuple[BreakEven, ...]
    crossovers: tuple[Crossover, ...]


@dataclass(frozen=True, slots=True)
class BreakEvens:
    """Some settings of a server; fields as in ``specsim.breakeven/1``."""

    profile: str
    settings: tuple[BreakEvenCurve, ...]
    notes: tuple[str, ...] = ()  # what it rests on


def break_even(profile: Profile, plan: RunPlan, question: Question) -> BreakEvenCurve:
    """Return what a setting needs at each load to equal no speculation, and where it stops paying.

    Parameters
    ----------
    profile
        The server.
    plan
        The setting as the engine runs it; it must speculate.
    question
        Loads, requests, and whose acceptance.

    Raises
    ------
    InputError
        If the plan does not speculate.
    """
    if not plan.setting.speculates:
        label = plan.setting.label
        raise InputError(label, "has no break-even", "ask about a setting that speculates")
    question = replace(question, concurrency=tuple(sorted(set(question.concurrency))))
    race = _Race.of(profile, plan, question)
    needed, most, cells = race.needed(), 1.0 + race.depth, race.cells
    points = tuple(
        BreakEven(
            concurrency,
            breakeven_accept_length=float(needed[j]),
            expected_accept_length=race.table.accept_length,
            most_accept_length=most,
            reachable=bool(needed[j] <= most),
            gain=float(cells.output_tps[1, j] / cells.output_tps[0, j] - 1.0),
            limit=cells.limit(1, j),
        )
        for j, concurrency in enumerate(question.concurrency)
    )
    return BreakEvenCurve(plan, points, _crossovers(points))


@dataclass(frozen=True, slots=True)
class GainMap:
    """Throughput of a setting, and its gain over no speculation, over accept length and load."""

    name: str  # of the setting
    concurrency: tuple[int, ...]  # columns
    accept_length: Floats  # rows: what the drafter might yield
    output_tps: Floats  # (rows, columns)
    plain_tps: Floats  # (columns), without speculation
    expected: float  # the accept length of the profile

    @property
    def gain(self) -> Floats:
        """Over no speculation (rows, columns), fractions."""
        return self.output_tps / self.plain_tps - 1.0


def gain_map(profile: Profile, plan: RunPlan, question: Question, rows: int = 25) -> GainMap:
    """Solve a plan at two loads or more, for `rows` drafters from useless to perfect.

    Raises
    ------
    InputError
        If there are less than two loads.
    """
    loads = question.concurrency
    if len(loads) < 2:
        what = f"concurrency of {len(loads)} loads"
        raise InputError(what, "makes no map", "give two loads or more")
    race = _Race.of(profile, plan, question)
    tables = [blended(race.table, race.depth, x) for x in np.linspace(-1.0, 1.0, rows).tolist()]
    tps = np.stack([race.output_tps([table] * len(loads)) for table in tables])
    lengths = np.array([table.accept_length for table in tables])
    name = f"{plan.setting.label}, {plan.setting.scheduler}"
    return GainMap(name, loads, lengths, tps, race.cells.output_tps[0], race.table.accept_length)


@dataclass(frozen=True, slots=True)
class _Race:
    """A setting beside no speculation over load, whatever would be accepted."""

    grid: Grid  # of both, the setting last
    cells: Cells
    cost: CostModel
    cases: Sequence[Case]  # of the setting

    @classmethod
    def of(cls, profile: Profile, plan: RunPlan, question: Question) -> _Race:
        plain = profile.system().plan(SpecSetting.none(), engine_version=plan.version)
        grid = Grid.of(profile, question, (plain, plan))
        cost, cases = grid.only([1]).cases(profile)
        return cls(grid, grid.solve(profile, with_limit=True), cost, cases)

    @property
    def table(self) -> AcceptTable:
        """What is accepted by the profile."""
        return self.cases[0].table

    @property
    def depth(self) -> int:
        """Most drafts that can be accepted."""
        return self.grid.plans[1].setting.most_accepted - 1

    def output_tps(self, tables: Sequence[AcceptTable]) -> Floats:
        """Return the throughput at each load under a table of its own."""
        given = [replace(case, table=t) for case, t in zip(self.cases, tables, strict=True)]
        return solve(self.cost, given, with_limit=False).output_tps

    def needed(self) -> Floats:
        """Bisect the share of `blended` at every load at once; infinite where out of reach."""
        base = self.cells.output_tps[0]
        low, high = np.full(base.shape, -1.0), np.full(base.shape, 1.0)
        at = partial(blended, self.table, self.depth)
        free, reach = (self.output_tps([at(x)] * len(base)) for x in (-1.0, 1.0))
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            slower = self.output_tps([at(float(m)) for m in middle]) < base
            low, high = np.where(slower, middle, low), np.where(slower, high, middle)
        length = np.array([at(float(m)).accept_length for m in (low + high) / 2])
        return np.where(reach < base, math.inf, np.where(free >= base, 1.0, length))


def blended(table: AcceptTable, depth: int, share: float) -> AcceptTable:
    """Return a table with more or less acceptance: from nothing (-1) by itself (0) to all (1).

    Survival falls to zero, or rises to one down to `depth`, by the same share at every depth.

    Examples
    --------
    >>> table = AcceptTable(np.array([[1.0, 0.5, 0.25]]), 1.75)
    >>> [blended(table, 2, share).accept_length for share in (-1.0, 0.0, 1.0)]
    [1.0, 1.75, 3.0]
    """
    end = np.zeros_like(table.survival)
    end[:, : depth + 1 if share > 0 else 1] = 1.0
    survival = table.survival + abs(share) * (end - table.survival)
    accept_length = 1.0 / float(np.mean(1.0 / survival.sum(axis=1)))
    return AcceptTable(survival, accept_length, table.draft_share)


def _crossovers(points: Sequence[BreakEven]) -> tuple[Crossover, ...]:
    """Find sign changes of the gain between neighbouring loads."""
    result = []
    for left, right in itertools.pairwise(points):
        if left.gain * right.gain >= 0:
            continue
        a, b = math.log1p(left.gain), math.log1p(right.gain)
        share = a / (a - b)
        place = math.log(left.concurrency) * (1 - share) + math.log(right.concurrency) * share
        result.append(Crossover(math.exp(place), left.gain > 0, right.limit))
    return tuple(result)
