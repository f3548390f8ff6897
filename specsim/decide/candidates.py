"""What a decision is asked for, the settings that an engine takes, and those that could win.

Every setting that the engine takes is solved in closed form. Those that could be the fastest
somewhere are compared in a joint Gaussian (`specsim.decide.outlook`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from specsim.decide.outlook import Grid, Outlook, outlook
from specsim.engine import RunPlan, engine_named, parse_version
from specsim.errors import EngineRefusal, InputError
from specsim.profile import Profile
from specsim.question import MOST_CLIENTS, Question, Target
from specsim.setting import FAMILY_OF, Algorithm, SpecSetting, parse_algorithm
from specsim.tree import tree_capacity

if TYPE_CHECKING:
    from specsim.arrays import Floats

CHAIN_STEPS = 8
TREE_STEPS = 6
TREE_TOPK = (2, 3, 4, 8)
TREE_TOKENS = (4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Budgets that are tried for a tree, with its capacity; verification time is flat between them."""

KEEP = 40
"""Settings that are compared in detail."""

MARGIN = 0.3
"""In ln(throughput): what is further from the best at every load is not compared in detail."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How far the candidates go."""

    max_draft_tokens: int = 64  # most verified per request, root included
    max_steps: int = CHAIN_STEPS  # deepest draft
    max_topk: int = TREE_TOPK[-1]  # widest tree

    def __post_init__(self) -> None:
        if self.max_draft_tokens < 2:
            raise InputError(
                f"max draft tokens {self.max_draft_tokens}", "must be at least 2", "the root counts"
            )
        for name, value in (("max steps", self.max_steps), ("max topk", self.max_topk)):
            if value < 1:
                raise InputError(f"{name} {value}", "must be at least 1", "leave it out")


@dataclass(frozen=True, slots=True)
class Wish(Question):
    """A question about the best setting; `settings`, if any, stand instead of the candidates."""

    limits: Limits = field(default_factory=Limits)  # how far the candidates go
    targets: tuple[Target, ...] = ()  # latencies
    any_engine: bool = False  # later releases of the engine too
    mix: tuple[tuple[int, float], ...] = ()  # share of the time by load, for one setting for all
    measured: tuple[SpecSetting, ...] = ()  # what the profile was fitted to besides today's setting
    gpu_hour_price: float | None = None  # money per GPU and hour
    model_path: str | None = None  # of the model and
    draft_model: str | None = None  # of the drafter, for the launch line
    seed: int = 0  # of the Monte Carlo, and of simulations

    def __post_init__(self) -> None:
        Question.__post_init__(self)
        for concurrency, share in self.mix:
            if not 1 <= concurrency <= MOST_CLIENTS or not share > 0:
                raise InputError(
                    f"mix {concurrency}:{share}",
                    "needs a load of at least 1 and a positive share",
                    "write e.g. 1:0.5,30:0.5",
                )
        if self.gpu_hour_price is not None and not self.gpu_hour_price > 0:
            raise InputError(
                f"GPU hour price {self.gpu_hour_price}", "must be positive", "or leave it out"
            )


def algorithm_of(profile: Profile) -> Algorithm | None:
    """Return how this server drafts: as it does today, else by its drafter; None without one."""
    current = profile.setup.current
    if current is not None and current.speculates:
        return current.algorithm
    draft = profile.system().cost.draft
    return None if draft is None else parse_algorithm(draft.kind)


def candidate_settings(algorithm: Algorithm, limits: Limits) -> Iterator[SpecSetting]:
    """Yield chains, then trees, each from small to large.

    >>> [s.label for s in candidate_settings("EAGLE3", Limits(4, 2, 2))]
    ['topk=1 steps=1 tokens=2', 'topk=1 steps=2 tokens=3', 'topk=2 steps=2 tokens=4']
    """
    for steps in range(1, limits.max_steps + 1):
        if steps + 1 <= limits.max_draft_tokens:
            yield SpecSetting(algorithm, 1, steps, steps + 1)
    for topk in TREE_TOPK if FAMILY_OF[algorithm] != "block" else ():
        for steps in range(2, min(limits.max_steps, TREE_STEPS) + 1):
            if topk > limits.max_topk:
                return
            most = min(limits.max_draft_tokens, tree_capacity(topk, steps))
            budgets = {n for n in (*TREE_TOKENS, tree_capacity(topk, steps)) if steps < n <= most}
            for tokens in sorted(budgets):
                yield SpecSetting(algorithm, topk, steps, tokens)


def candidate_plans(
    profile: Profile,
    settings: Sequence[SpecSetting],
    asked: Question | None = None,
    *,
    any_engine: bool = False,
) -> tuple[RunPlan, ...]:
    """Plan no speculation and the settings under every scheduler that the engine has for them.

    What an engine refuses is left out; of equal plans the first is kept, which needs the fewest
    flags. Trees are tried under the scheduler that the version gives them.

    Parameters
    ----------
    profile
        The server.
    settings
        Candidates; chains whose scheduler is ``auto`` are tried under both.
    asked
        Its release and cap, if it names any, stand instead of the setup's.
    any_engine
        Whether later releases of the engine count too.
    """
    asked, system = asked or Question(), profile.system()
    own = asked.engine_version or system.engine.version
    versions = [own]
    if any_engine:
        later = engine_named(system.engine.name).other_rules
        versions += [v for v in later if parse_version(own).before(v)]
    plans: dict[RunPlan, RunPlan] = {}
    for version in versions:
        for setting in (SpecSetting.none(), *settings):
            for scheduled in _schedulers(setting, version == own):
                with suppress(EngineRefusal):
                    plan = system.plan(
                        scheduled,
                        engine_version=version,
                        max_running_requests=asked.max_running_requests,
                    )
                    if plan.setting.key == setting.key:  # else the engine runs another in its place
                        plans.setdefault(replace(plan, version="", notes=()), plan)
    return tuple(plans.values())


def with_current(
    profile: Profile, plans: Sequence[RunPlan], max_running_requests: int | None = None
) -> tuple[tuple[RunPlan, ...], int | None]:
    """Return the plans with what runs today among them, and its index.

    None if that is not known, or does not draft.
    """
    current = profile.setup.current
    if current is None or not current.speculates:
        return tuple(plans), None
    today = profile.system().plan(current, max_running_requests=max_running_requests, what_if=True)
    return with_plan(plans, today)


def with_plan(plans: Sequence[RunPlan], wanted: RunPlan) -> tuple[tuple[RunPlan, ...], int]:
    """Return the plans with another among them, whatever its notes, and its index."""
    for i, plan in enumerate(plans):
        if replace(plan, notes=()) == replace(wanted, notes=()):
            return tuple(plans), i
    return (*plans, wanted), len(plans)


def _schedulers(setting: SpecSetting, own: bool) -> Iterator[SpecSetting]:
    """Yield the default first; chains of the own version also under the other scheduler."""
    yield setting
    if setting.speculates and setting.scheduler == "auto" and own and setting.topk == 1:
        yield setting.with_scheduler("overlap")
        yield setting.with_scheduler("sequential")


def possible_plans(profile: Profile, wish: Wish) -> tuple[RunPlan, ...]:
    """Return no speculation and every candidate that the engine runs."""
    algorithm = algorithm_of(profile)
    settings = wish.settings
    if not settings and algorithm is not None:
        settings = tuple(candidate_settings(algorithm, wish.limits))
    return candidate_plans(profile, settings, wish, any_engine=wish.any_engine)


def promising(log_tps: Floats, must: Sequence[int], most: int = KEEP) -> list[int]:
    """Return the settings that could win somewhere: the nearest to the best, at most `most`."""
    gap = (log_tps.max(axis=0) - log_tps).min(axis=1)
    near = [i for i in gap.argsort(kind="stable").tolist() if gap[i] < MARGIN]
    return sorted({*must, *near[: most - len(must)]})


@dataclass(frozen=True, slots=True)
class Finalists:
    """No speculation, what runs today, what is asked and the settings that could win, compared."""

    outlook: Outlook  # the first setting is no speculation
    current: int | None  # index of what runs today, if that is known and drafts
    asked: tuple[int, ...]  # indices of the plans that were asked about
    versions: frozenset[str]  # releases of the engine whose settings may be chosen
    considered: int  # settings that were looked at


def finalists(
    profile: Profile,
    wish: Wish,
    most: int = KEEP,
    refused_too: bool = True,
    asked: Sequence[RunPlan] = (),
) -> Finalists:
    """Compare the settings that could win at the loads of a wish, at most so many.

    What runs today is among them, unless the engine refuses it and `refused_too` is false; and so
    is what is asked about, refused or not.
    """
    possible = possible_plans(profile, wish)
    plans, today = with_current(profile, possible, wish.max_running_requests)
    if today is not None and not (refused_too or plans[today].allowed):
        plans, today = plans[:today], None
    places = []
    for plan in asked:
        plans, place = with_plan(plans, plan)
        places.append(place)
    whole = Grid.of(profile, wish, plans)
    log_tps = whole.solve(profile).log_tps[: len(possible)]
    shown = places if today is None else [today, *places]
    kept = sorted({*promising(log_tps, [0], most), *shown})  # who else is asked about changes none
    return Finalists(
        outlook(profile, whole.only(kept), wish.measured),
        None if today is None else kept.index(today),
        tuple(kept.index(place) for place in places),
        frozenset(plan.version for plan in possible),
        len(plans),
    )
