"""Two servers side by side: the same settings at the same loads, and the best of each."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from specsim.decide import LoadChoice, Planned
from specsim.decide.contest import verdict
from specsim.decide.outlook import Outlook, outlook, with_current
from specsim.engine import RunPlan
from specsim.errors import EngineRefusal
from specsim.predict import Grid
from specsim.profile import Profile
from specsim.question import Question
from specsim.setting import Algorithm, SpecSetting
from specsim.uncertainty import Interval

SCHEMA = "specsim.comparison/1"


@dataclass(frozen=True, slots=True)
class Pair:
    """One setting at one load on both servers; None where an engine refuses it.

    `change` is second / first - 1. Parameters of equal error on both sides are taken to be the
    same numbers, which move together; the model error counts unless the hardware is the same.
    """

    algorithm: Algorithm
    topk: int
    num_steps: int
    num_draft_tokens: int
    concurrency: int
    first_output_tps: Interval | None
    second_output_tps: Interval | None
    change: Interval | None
    first_limit: str | None
    second_limit: str | None

    @property
    def setting(self) -> SpecSetting:
        """What is compared."""
        return SpecSetting(self.algorithm, self.topk, self.num_steps, self.num_draft_tokens)


@dataclass(frozen=True, slots=True)
class Fastest(Planned):
    """The fastest expected setting of a server at a load."""

    output_tps: float


@dataclass(frozen=True, slots=True)
class BestPair:
    """The fastest expected setting of each server at a load."""

    concurrency: int
    first: Fastest
    second: Fastest


@dataclass(frozen=True, slots=True)
class ServerChoices:
    """What every command chooses on one of the servers."""

    name: str
    settings_considered: int
    loads: tuple[LoadChoice, ...]


@dataclass(frozen=True, slots=True)
class ServerComparison:
    """Servers side by side, the first two setting by setting; ``specsim.comparison/1``."""

    first: str
    second: str
    rows: tuple[Pair, ...]
    best: tuple[BestPair, ...]
    servers: tuple[ServerChoices, ...]  # all of them
    notes: tuple[str, ...] = ()  # what it rests on


def compare(
    first: Profile, second: Profile, question: Question, others: Sequence[Profile] = ()
) -> ServerComparison:
    """Compare servers.

    Parameters
    ----------
    first, second
        Profiles, or scenarios of one.
    question
        Loads, and settings besides no speculation and what runs today on either.
    others
        Further servers, of which the choices are shown.
    """
    todays = [p.setup.current for p in (first, second) if p.setup.current is not None]
    drafting = (s.with_scheduler("auto") for s in (*question.settings, *todays) if s.speculates)
    wanted = [SpecSetting.none(), *dict.fromkeys(drafting)]
    question = replace(question, concurrency=tuple(sorted(set(question.concurrency))))
    one, other = (_Side.of(profile, wanted, question) for profile in (first, second))
    rows = [_pair(one, other, setting, j) for setting in wanted for j in range(len(question.loads))]
    servers = []
    for profile in (first, second, *others):
        decision = verdict(profile, replace(question, settings=()))
        servers.append(ServerChoices(profile.name, decision.settings_considered, decision.loads))
    best = []
    for at_load in zip(servers[0].loads, servers[1].loads, strict=True):
        fastest = [Fastest(x.fastest.plan, x.fastest.output_tps.value) for x in at_load]
        best.append(BestPair(at_load[0].concurrency, *fastest))
    return ServerComparison(first.name, second.name, tuple(rows), tuple(best), tuple(servers))


@dataclass(frozen=True, slots=True)
class _Side:
    """One server of a comparison, and what is known of the cells that its engine runs."""

    profile: Profile
    view: Outlook
    place: dict[SpecSetting, int]  # where in the view a setting is

    @classmethod
    def of(cls, profile: Profile, settings: Sequence[SpecSetting], question: Question) -> Self:
        """Solve the settings: as today what runs today, others by the engine's default."""
        plans: dict[SpecSetting, RunPlan] = {}
        known, today = with_current(profile, ())
        for setting in settings:
            with suppress(EngineRefusal):
                same = today is not None and known[today].setting.key == setting.key
                plans[setting] = known[0] if same else profile.system().plan(setting)
        view = outlook(profile, Grid.of(profile, question, tuple(plans.values())))
        return cls(profile, view, {setting: i for i, setting in enumerate(plans)})

    def cell(self, setting: SpecSetting, j: int) -> tuple[Interval | None, str | None]:
        """Return the throughput of a setting at load j, and what binds it; None if refused."""
        if setting not in self.place:
            return None, None
        i, cells = self.place[setting], self.view.cells
        tps = Interval.of_log(float(cells.output_tps[i, j]), float(self.view.sd()[i, j]))
        return tps, cells.limit(i, j)

    def errors(self) -> dict[str, float]:
        """Return the errors of the parameters by name, in the order of the covariance."""
        psi = float(self.view.covariance[-1, -1])
        return {p.name: p.sd for p in self.profile.parameters} | {"psi": psi}


def _pair(first: _Side, second: _Side, setting: SpecSetting, j: int) -> Pair:
    (a, limit), (b, other_limit) = first.cell(setting, j), second.cell(setting, j)
    change = None
    if a is not None and b is not None:
        log_ratio = float(np.log(b.value / a.value))
        change = Interval.of_change(log_ratio, _change_sd(first, second, setting, j))
    return Pair(
        setting.algorithm,
        setting.topk,
        setting.num_steps,
        setting.num_draft_tokens,
        first.view.grid.loads[j].concurrency,
        a,
        b,
        change,
        limit,
        other_limit,
    )


def _change_sd(first: _Side, second: _Side, setting: SpecSetting, j: int) -> float:
    """Return the error of ln(second / first): parameters that both share move together."""
    sides = (first, second)
    rows = [side.view.jacobian[side.place[setting], j] for side in sides]
    variance = sum(row @ side.view.covariance @ row for row, side in zip(rows, sides, strict=True))
    one, other = first.errors(), second.errors()
    shared = [name for name, sd in one.items() if other.get(name) == sd]
    if shared:
        a, b = (np.array([list(e).index(name) for name in shared]) for e in (one, other))
        variance -= 2.0 * rows[0][a] @ first.view.covariance[np.ix_(a, a)] @ rows[1][b]
    setups = [side.profile.setup for side in sides]
    this, that = ((s.hardware, s.model, s.engine.tp) for s in setups)
    own = first.view.specific_sd**2 + second.view.specific_sd**2
    if this == that:  # on the same server the model misses the same
        own = 0.0
    return float(np.sqrt(max(variance, 0.0) + own))
