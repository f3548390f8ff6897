"""Break-even: the accept length that speculation needs, and the load at which it stops paying.

At equal throughput a round must yield what it costs in plain steps. Without a profile that is

    accept length* = round time / step time                                        (BREAK-EVEN)
    (1 - p^(S+1)) / (1 - p) = 1 + S c                                       (BREAK-EVEN-CHAIN)

with c the cost of a draft step in plain steps and p the probability that a draft is accepted
(Leviathan et al., 2023, Eq. 1 and theorem 3.8). With a profile the whole system is solved: what a
round costs does not depend on what is accepted, save the extend of the accepted tokens.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.acceptance import AcceptTable, accept_table
from specsim.analytic import Solution, solve
from specsim.case import Case
from specsim.decide.outlook import Grid
from specsim.engine import RunPlan
from specsim.errors import InputError
from specsim.profile import Profile
from specsim.setting import SpecSetting
from specsim.workload import Load, Workload

if TYPE_CHECKING:
    from specsim.arrays import Floats

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
    _positive("round time", round_time_s)
    _positive("step time", step_time_s)
    return round_time_s / step_time_s


def most_accept_length(num_steps: int) -> int:
    """Return what a perfect drafter yields with a chain of that depth: S + 1.

    >>> most_accept_length(1)
    2
    """
    return num_steps + 1


def chain_accept_length(accept_prob: float, num_steps: int) -> float:
    """Return (1 - p^(S+1)) / (1 - p), the yield of a chain with equal accept probabilities.

    >>> round(chain_accept_length(0.8, 3), 3)
    2.952
    """
    if not 0 <= accept_prob <= 1:
        raise InputError(f"accept probability {accept_prob}", "must lie in 0..1", "give a fraction")
    return math.fsum(accept_prob**d for d in range(num_steps + 1))


def breakeven_accept_prob(num_steps: int, draft_cost: float) -> float | None:
    """Return p of (BREAK-EVEN-CHAIN); None if even a perfect drafter loses.

    Parameters
    ----------
    num_steps
        Depth S of the chain, at least 1.
    draft_cost
        Time of one draft step over that of one plain step (c).

    Examples
    --------
    The thread Soup#843: a target of 39.28 tokens/s, a draft of 65.9.

    >>> round(breakeven_accept_prob(5, 39.28 / 65.9), 3)
    0.832
    """
    if num_steps < 1:
        raise InputError(f"steps {num_steps}", "must be at least 1", "give the depth of the chain")
    if not (math.isfinite(draft_cost) and draft_cost >= 0):
        raise InputError(f"draft cost {draft_cost}", "must be finite and >= 0", "give a ratio")
    needed = 1.0 + num_steps * draft_cost
    if needed > most_accept_length(num_steps):
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if chain_accept_length(middle, num_steps) < needed:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def best_chain(accept_prob: float, draft_cost: float, max_steps: int = 16) -> tuple[int, float]:
    """Return the depth with the highest speed-up yield / (1 + S c), and that speed-up.

    Zero steps, speed-up 1, if no depth pays.

    >>> best_chain(0.813, 39.28 / 65.9)[0]
    1
    """
    gains = [
        chain_accept_length(accept_prob, s) / (1.0 + s * draft_cost) for s in range(max_steps + 1)
    ]
    best = max(range(len(gains)), key=gains.__getitem__)
    return best, gains[best]


@dataclass(frozen=True, slots=True)
class BreakEven:
    """One setting at one load.

    Parameters
    ----------
    concurrency
        Clients in flight.
    accept_length
        Tokens per round that equal no speculation; infinite if even a perfect drafter loses.
    expected, most
        What the profile expects, and what a perfect drafter yields.
    gain
        Expected throughput against no speculation, minus 1.
    limit
        What binds the setting there.
    """

    concurrency: int
    accept_length: float
    expected: float
    most: float
    gain: float
    limit: str

    @property
    def reachable(self) -> bool:
        """Whether some acceptance reaches it."""
        return self.accept_length <= self.most


@dataclass(frozen=True, slots=True)
class Crossover:
    """A load at which the sign of the gain changes.

    Parameters
    ----------
    concurrency
        Between two loads, interpolated in log.
    pays_below
        Whether speculation pays at smaller loads, and not at larger ones.
    limit
        What binds just above.
    """

    concurrency: float
    pays_below: bool
    limit: str


@dataclass(frozen=True, slots=True)
class BreakEvenCurve:
    """A setting over load."""

    plan: RunPlan
    points: tuple[BreakEven, ...]
    crossovers: tuple[Crossover, ...]


def break_even(
    profile: Profile,
    plan: RunPlan,
    concurrency: Sequence[int],
    workload: Workload | None = None,
    dataset: str | None = None,
    temperature: float | None = None,
) -> BreakEvenCurve:
    """Return what a setting needs at each load to equal no speculation, and where it stops paying.

    Parameters
    ----------
    profile
        The server.
    plan
        The setting as the engine runs it; it must speculate.
    concurrency
        Clients in flight.
    workload, dataset, temperature
        Instead of the profile's.

    Raises
    ------
    InputError
        If the plan does not speculate, or there is no load.
    """
    if not plan.setting.speculates or not concurrency:
        raise InputError(
            plan.setting.label if concurrency else "concurrency",
            "has no break-even" if concurrency else "is empty",
            "ask about a setting that speculates, at one load or more",
        )
    system = profile.system()
    levels = sorted(set(concurrency))
    loads = tuple(Load("closed_loop", c) for c in levels)
    work = workload or profile.setup.workload.workload
    plain = system.plan(SpecSetting.none(), engine_version=plan.version)
    grid = Grid((plain, plan), loads, work, dataset, temperature)
    cells = grid.solve(profile, with_limit=True)
    base = cells.output_tps[0]
    acceptance = profile.acceptance(dataset, temperature)
    table = accept_table(acceptance, plan.setting)

    def solved(tables: Sequence[AcceptTable]) -> Solution:
        cases = [
            Case.of(system, plan, t, work, load) for t, load in zip(tables, loads, strict=True)
        ]
        return solve(system.cost, cases, with_limit=False)

    needed = _needed(solved, table, plan, base)
    gains = cells.output_tps[1] / base - 1.0
    limits = [cells.limit(1, j) for j in range(len(levels))]
    most = 1.0 + min(plan.setting.num_steps, plan.setting.num_draft_tokens - 1)
    points = tuple(
        BreakEven(c, float(n), table.accept_length, most, float(g), limit)
        for c, n, g, limit in zip(levels, needed, gains, limits, strict=True)
    )
    return BreakEvenCurve(plan, points, _crossovers(points))


def blended(table: AcceptTable, depth: int, share: float) -> AcceptTable:
    """Return a table with more or less acceptance: from nothing (-1) by itself (0) to all (1).

    Survival falls to zero, or rises to one down to `depth`, by the same share at every depth.

    Examples
    --------
    >>> table = AcceptTable(np.array([[1.0, 0.5, 0.25]]), 1.75)
    >>> [blended(table, 2, share).accept_length for share in (-1.0, 0.0, 1.0)]
    [1.0, 1.75, 3.0]
    """
    perfect = np.zeros_like(table.survival)
    perfect[:, : depth + 1] = 1.0
    none = np.zeros_like(table.survival)
    none[:, 0] = 1.0
    other = perfect if share > 0 else none
    survival = table.survival + abs(share) * (other - table.survival)
    accept_length = 1.0 / float(np.mean(1.0 / survival.sum(axis=1)))
    return AcceptTable(survival, accept_length, table.draft_share)


def _needed(
    solved: Callable[[Sequence[AcceptTable]], Solution],
    table: AcceptTable,
    plan: RunPlan,
    base: Floats,
) -> Floats:
    """Bisect the share of `blended` at every load at once; infinite where it is out of reach."""
    depth = min(plan.setting.num_steps, plan.setting.num_draft_tokens - 1)
    low, high = np.full(base.shape, -1.0), np.full(base.shape, 1.0)
    reach = solved([blended(table, depth, 1.0)] * len(base)).output_tps
    free = solved([blended(table, depth, -1.0)] * len(base)).output_tps
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        tps = solved([blended(table, depth, float(m)) for m in middle]).output_tps
        low, high = np.where(tps < base, middle, low), np.where(tps < base, high, middle)
    length = np.array([blended(table, depth, float(m)).accept_length for m in (low + high) / 2])
    length = np.where(free >= base, 1.0, length)
    return np.where(reach < base, math.inf, length)


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


def _positive(name: str, seconds: float) -> None:
    if not (math.isfinite(seconds) and seconds > 0):
        raise InputError(f"{name} {seconds}", "must be positive and finite", "give seconds")
