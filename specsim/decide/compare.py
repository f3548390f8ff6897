"""Two servers side by side: the same settings at the same loads, and the best of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specsim.decide.candidates import with_current
from specsim.decide.contest import ratio_range
from specsim.decide.outlook import Grid, Outlook, outlook
from specsim.decide.recommend import Wish, possible_plans
from specsim.decide.recommendation import Range
from specsim.engine import RunPlan
from specsim.errors import EngineRefusal, InputError
from specsim.profile import Profile
from specsim.setting import SpecSetting
from specsim.uncertainty import Z90
from specsim.workload import Load


@dataclass(frozen=True, slots=True)
class Pair:
    """One setting at one load on both servers; None where an engine refuses it.

    `change` is second / first - 1. Parameters of equal error on both sides are taken to be the
    same numbers, which move together; the model error counts unless the hardware is the same.
    """

    setting: SpecSetting
    concurrency: int
    first: Range | None
    second: Range | None
    change: Range | None
    limits: tuple[str, str]


@dataclass(frozen=True, slots=True)
class BestPair:
    """The fastest expected setting of each server at a load."""

    concurrency: int
    first: RunPlan
    second: RunPlan
    first_tps: float
    second_tps: float


@dataclass(frozen=True, slots=True)
class Side:
    """One server of a comparison: its name, and what is known of the cells."""

    profile: Profile
    view: Outlook
    place: dict[tuple[int, int, int], int]


@dataclass(frozen=True, slots=True)
class ServerComparison:
    """Two servers, their settings setting by setting, and the best of each."""

    first: str
    second: str
    pairs: tuple[Pair, ...]
    best: tuple[BestPair, ...]


def compare(
    first: Profile,
    second: Profile,
    settings: Sequence[SpecSetting],
    concurrency: Sequence[int],
) -> ServerComparison:
    """Compare two servers.

    Parameters
    ----------
    first, second
        Profiles, or scenarios of one.
    settings
        Besides no speculation and what runs today on either.
    concurrency
        Clients in flight.

    Raises
    ------
    InputError
        If no load is given.
    """
    if not concurrency:
        raise InputError("concurrency", "is empty", "give at least one load, e.g. 1,10,100")
    loads = tuple(Load("closed_loop", c) for c in sorted(set(concurrency)))
    wanted = [SpecSetting.none(), *settings]
    wanted += [p.setup.current for p in (first, second) if p.setup.current is not None]
    unique = list(dict.fromkeys(s.with_scheduler("auto") for s in wanted if s.speculates))
    wanted = [SpecSetting.none(), *unique]
    sides = [_side(p, wanted, loads) for p in (first, second)]
    pairs = [_pair(sides[0], sides[1], setting, j) for setting in wanted for j in range(len(loads))]
    tops = [_best(p, loads) for p in (first, second)]
    best = tuple(
        BestPair(load.concurrency, a[0], b[0], a[1], b[1])
        for load, a, b in zip(loads, *tops, strict=True)
    )
    return ServerComparison(first.name, second.name, tuple(pairs), best)


def _side(profile: Profile, settings: Sequence[SpecSetting], loads: tuple[Load, ...]) -> Side:
    """Solve the settings that the engine runs: as today if it runs today, else by its default."""
    plans: list[RunPlan] = []
    place: dict[tuple[int, int, int], int] = {}
    known, index = with_current(profile, ())
    for setting in settings:
        try:
            same = index is not None and known[index].setting.key == setting.key
            plan = known[0] if same else profile.system().plan(setting)
        except EngineRefusal:
            continue
        place[setting.key] = len(plans)
        plans.append(plan)
    grid = Grid(tuple(plans), loads, profile.setup.workload.workload)
    return Side(profile, outlook(profile, grid), place)


def _pair(first: Side, second: Side, setting: SpecSetting, j: int) -> Pair:
    a, b = (_range(side, setting, j) for side in (first, second))
    limits = tuple(
        side.view.cells.limit(side.place[setting.key], j) if setting.key in side.place else ""
        for side in (first, second)
    )
    change = None
    if a is not None and b is not None:
        change = ratio_range(
            float(np.log(b.value / a.value)), _change_sd(first, second, setting, j)
        )
    concurrency = first.view.grid.loads[j].concurrency
    return Pair(setting, concurrency, a, b, change, (limits[0], limits[1]))


def _range(side: Side, setting: SpecSetting, j: int) -> Range | None:
    if setting.key not in side.place:
        return None
    i = side.place[setting.key]
    tps, sd = float(np.exp(side.view.mean[i, j])), float(side.view.sd()[i, j])
    return Range(tps, tps * float(np.exp(-Z90 * sd)), tps * float(np.exp(Z90 * sd)))


def _change_sd(first: Side, second: Side, setting: SpecSetting, j: int) -> float:
    """Return the error of ln(second / first): parameters that both share move together."""
    rows = [side.view.jacobian[side.place[setting.key], j] for side in (first, second)]
    variance = sum(
        float(row @ side.view.covariance @ row)
        for row, side in zip(rows, (first, second), strict=True)
    )
    one, other = (_errors(side) for side in (first, second))
    shared = [name for name, sd in one.items() if other.get(name) == sd]
    if shared:
        a, b = (np.array([list(e).index(name) for name in shared]) for e in (one, other))
        covariance = first.view.covariance[np.ix_(a, a)]
        variance -= 2.0 * float(rows[0][a] @ covariance @ rows[1][b])
    own = 0.0 if _same_server(first.profile, second.profile) else 1.0
    own *= first.view.specific_sd**2 + second.view.specific_sd**2
    return float(np.sqrt(max(variance, 0.0) + own))


def _errors(side: Side) -> dict[str, float]:
    """Return the errors of the parameters by name, in the order of the covariance."""
    errors = {p.name: p.sd for p in side.profile.parameters}
    return errors | {"psi": float(side.view.covariance[-1, -1])}


def _same_server(first: Profile, second: Profile) -> bool:
    """Whether the hardware and the model are the same, and so what the model misses on them."""
    a, b = first.setup, second.setup
    return (a.hardware, a.model, a.engine.tp) == (b.hardware, b.model, b.engine.tp)


def _best(profile: Profile, loads: tuple[Load, ...]) -> list[tuple[RunPlan, float]]:
    """Return the fastest expected plan at each load."""
    plans = possible_plans(profile, Wish())
    grid = Grid(plans, loads, profile.setup.workload.workload)
    tps = grid.solve(profile).output_tps
    winner = np.argmax(tps, axis=0)
    return [(plans[i], float(tps[i, j])) for j, i in enumerate(winner)]
