"""The best setting at every load: by how much, how surely, and what is lost if it is not.

Every setting that the engine takes is solved in closed form. Those that could win are compared in
a joint Gaussian (`specsim.decide.outlook`), by the rules of `specsim.decide.contest`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from specsim.decide.advice import advice_of, notes_of
from specsim.decide.candidates import (
    Limits,
    algorithm_of,
    candidate_plans,
    candidate_settings,
    with_current,
)
from specsim.decide.contest import Contest
from specsim.decide.outlook import Grid, outlook
from specsim.decide.recommendation import Band, Launch, LoadChoice, MixChoice, Recommendation
from specsim.decide.slo import Target, latencies, parse_slo
from specsim.engine import RunPlan, launch_env, launch_flags
from specsim.errors import InputError
from specsim.profile import Profile
from specsim.question import CONCURRENCY
from specsim.setting import SpecSetting
from specsim.workload import Load, Workload

KEEP = 40
"""Settings that are compared in detail."""

MARGIN = 0.3
"""In ln(throughput): what is further from the best at every load is not compared in detail."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a recommendation is asked for, besides the loads.

    Parameters
    ----------
    limits
        How far the candidates go.
    settings
        Instead of the candidates.
    targets
        Latency targets.
    engine_version, any_engine
        Another release instead of the profile's; later ones too.
    max_running_requests
        Instead of the setup's.
    workload
        Requests; None is the profile's.
    dataset, temperature
        Whose acceptance; None is the profile's first.
    mix
        Share of the time by load, for one setting for all.
    measured
        Settings that the profile was fitted to, besides what runs today, as far as is known.
    gpu_hour_price
        Money per GPU and hour.
    draft_model
        Path of the drafter for the launch flags.
    seed
        Of the Monte Carlo, and of the simulations that percentiles need.
    """

    limits: Limits = field(default_factory=Limits)
    settings: tuple[SpecSetting, ...] = ()
    targets: tuple[Target, ...] = ()
    engine_version: str | None = None
    any_engine: bool = False
    max_running_requests: int | None = None
    workload: Workload | None = None
    dataset: str | None = None
    temperature: float | None = None
    mix: tuple[tuple[int, float], ...] = ()
    measured: tuple[SpecSetting, ...] = ()
    gpu_hour_price: float | None = None
    draft_model: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for concurrency, share in self.mix:
            if concurrency < 1 or not share > 0:
                raise InputError(
                    f"mix {concurrency}:{share}",
                    "needs a load of at least 1 and a positive share",
                    "write e.g. 1:0.5,30:0.5",
                )
        if self.gpu_hour_price is not None and not self.gpu_hour_price > 0:
            raise InputError(
                f"GPU hour price {self.gpu_hour_price}", "must be positive", "or leave it out"
            )


def recommend(
    profile: Profile,
    concurrency: Sequence[int] = CONCURRENCY,
    wish: Wish | None = None,
    *,
    max_draft_tokens: int | None = None,
    max_steps: int | None = None,
    max_topk: int | None = None,
    slo: str | None = None,
    engine_version: str | None = None,
    any_engine: bool = False,
    mix: Mapping[int, float] | None = None,
) -> Recommendation:
    """Choose a setting for every load.

    Parameters
    ----------
    profile
        The server.
    concurrency
        Clients in flight; those of the mix are added.
    wish
        Everything else; defaults where None.
    max_draft_tokens, max_steps, max_topk, engine_version, any_engine
        Short for the same of the wish.
    slo
        Latency targets, e.g. ``tpot=20ms,ttft=2s@p99``.
    mix
        Share of the time by load.

    Raises
    ------
    InputError
        If no load is given, or one is out of range.

    Examples
    --------
    >>> from specsim.profile import load_profile
    >>> answer = recommend(load_profile(), [1, 30], max_draft_tokens=4, max_topk=1)
    >>> [choice.choice.label for choice in answer.loads]
    ['no speculation', 'topk=1 steps=2, overlap']
    """
    wish = wish or Wish()
    limits = wish.limits
    wish = replace(
        wish,
        limits=Limits(
            max_draft_tokens or limits.max_draft_tokens,
            max_steps or limits.max_steps,
            max_topk or limits.max_topk,
        ),
        targets=wish.targets if slo is None else parse_slo(slo),
        engine_version=engine_version or wish.engine_version,
        any_engine=any_engine or wish.any_engine,
        mix=wish.mix if mix is None else tuple(sorted(mix.items())),
    )
    asked = _levels(concurrency, wish)
    contest, looked_at = _contest(profile, asked, wish)
    choices = [contest.choose(j, c) for j, c in enumerate(asked)]
    if wish.targets:
        met = np.any(contest.allowed, axis=0).tolist()
        choices = [replace(c, meets_targets=m) for c, m in zip(choices, met, strict=True)]
    choices = _steadied(choices)
    one: MixChoice | None = None
    if wish.mix:
        shares = dict(wish.mix)
        one = contest.mixed([shares.get(c, 0.0) for c in asked])[1]
    return Recommendation(
        profile=profile.name,
        gpus=profile.setup.hardware.gpu_count,
        gpu_hour_price=wish.gpu_hour_price,
        targets=wish.targets,
        loads=tuple(choices),
        bands=bands_of(choices),
        mix=one,
        launch=_launches(profile, choices, one, wish),
        advice=advice_of(profile, contest, choices),
        notes=notes_of(profile, contest, wish.targets),
        considered=(looked_at, len(contest.plans)),
        seed=wish.seed,
    )


def _levels(concurrency: Sequence[int], wish: Wish) -> tuple[int, ...]:
    levels = sorted({*concurrency, *(c for c, _ in wish.mix)})
    if not levels:
        raise InputError("concurrency", "is empty", "give at least one load, e.g. 1,10,100")
    if levels[0] < 1 or levels[-1] > 1_000_000:
        raise InputError(
            f"concurrency {levels[0]}..{levels[-1]}", "must lie in 1..1000000", "give clients"
        )
    return tuple(levels)


def _contest(profile: Profile, levels: Sequence[int], wish: Wish) -> tuple[Contest, int]:
    """Return the settings that could win, compared, and how many were looked at."""
    loads = tuple(Load("closed_loop", c) for c in levels)
    workload = wish.workload or profile.setup.workload.workload
    plans, today = with_current(profile, possible_plans(profile, wish), wish.max_running_requests)
    whole = Grid(plans, loads, workload, wish.dataset, wish.temperature)
    kept = promising(whole.solve(profile).log_tps, [0] if today is None else [0, today])
    grid = whole.only(kept)
    view = outlook(profile, grid, wish.measured)
    current = None if today is None else kept.index(today)
    allowed = np.ones(grid.shape, dtype=np.bool_)
    if wish.targets:
        always = [0] if current is None else [0, current]
        allowed = latencies(profile, grid, view.cells, wish.targets, always, wish.seed).met
    for i, plan in enumerate(grid.plans):  # what runs today is shown even if it cannot be chosen
        if not plan.allowed or (i == current and wish.engine_version not in (None, plan.version)):
            allowed[i] = False
    keys = {setting.key for setting in wish.measured}
    measured = [i in (0, current) or plan.setting.key in keys for i, plan in enumerate(grid.plans)]
    contest = Contest(
        view,
        view.draws(np.random.default_rng(wish.seed)),
        tuple(known and profile.fit.observations > 0 for known in measured),
        current,
        wish.engine_version or profile.setup.engine.version,
        allowed,
    )
    return contest, len(plans)


def possible_plans(profile: Profile, wish: Wish) -> tuple[RunPlan, ...]:
    """Return no speculation and every candidate that the engine runs."""
    algorithm = algorithm_of(profile)
    settings = wish.settings
    if not settings and algorithm is not None:
        settings = tuple(candidate_settings(algorithm, wish.limits))
    return candidate_plans(
        profile,
        settings,
        engine_version=wish.engine_version,
        any_engine=wish.any_engine,
        max_running_requests=wish.max_running_requests,
    )


def promising(log_tps: NDArray[np.float64], must: Sequence[int], most: int = KEEP) -> list[int]:
    """Return the settings that could win somewhere: the nearest to the best, at most `most`."""
    gap = (log_tps.max(axis=0) - log_tps).min(axis=1)
    near = [int(i) for i in np.argsort(gap, kind="stable") if gap[i] < MARGIN]
    return sorted({*must, *near[: most - len(must)]})


def _steadied(choices: Sequence[LoadChoice]) -> list[LoadChoice]:
    """Let a single load that interrupts a band join it if the band's choice is tied there."""
    result = list(choices)
    for i in range(1, len(result) - 1):
        around, here = result[i - 1].choice.plan, result[i]
        if result[i + 1].choice.plan != around or here.choice.plan == around:
            continue
        same = next((option for option in here.tied if option.plan == around), None)
        if same is not None:
            others = (here.choice, *(o for o in here.tied if o is not same))
            result[i] = replace(here, choice=same, tied=others)
    return result


def bands_of(choices: Sequence[LoadChoice]) -> tuple[Band, ...]:
    """Join neighbouring loads with the same choice."""
    groups: list[list[LoadChoice]] = []
    for choice in choices:
        if groups and groups[-1][-1].choice.plan == choice.choice.plan:
            groups[-1].append(choice)
        else:
            groups.append([choice])
    return tuple(Band(tuple(group)) for group in groups)


def _launches(
    profile: Profile, choices: Sequence[LoadChoice], mix: MixChoice | None, wish: Wish
) -> tuple[Launch, ...]:
    """Return flags and environment of every chosen plan, once each."""
    engine = profile.system().engine
    if wish.max_running_requests is not None:
        engine = replace(engine, max_running_requests=wish.max_running_requests)
    plans = [c.choice.plan for c in choices] + ([] if mix is None else [mix.plan])
    result = {}
    for plan in plans:
        if plan.allowed and plan not in result:
            versioned = replace(engine, version=plan.version)
            result[plan] = Launch(
                plan,
                tuple(launch_flags(plan, versioned, wish.draft_model)),
                tuple(sorted(launch_env(plan).items())),
            )
    return tuple(result.values())
