"""The best setting at every load: by how much, how surely, and what is lost if it is not.

What could win (`specsim.decide.wish`) is compared by the rules of `specsim.decide.contest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from specsim.decide.advice import advice_of, notes_of
from specsim.decide.contest import Contest
from specsim.decide.recommendation import Band, Launch, LoadChoice, Recommendation
from specsim.decide.slo import meeting
from specsim.decide.wish import Wish, finalists
from specsim.engine import RunPlan, engine_named, launch_flags
from specsim.profile import Profile


def recommend(profile: Profile, wish: Wish | None = None) -> Recommendation:
    """Choose a setting for every load of a wish and of its mix.

    Examples
    --------
    >>> from specsim.decide.candidates import Limits
    >>> from specsim.profile import load_profile
    >>> wish = Wish(concurrency=(1, 30), limits=Limits(max_draft_tokens=4, max_topk=1))
    >>> [choice.choice.label for choice in recommend(load_profile(), wish).loads]
    ['no speculation', 'topk=1 steps=2, overlap']
    """
    wish = wish or Wish()
    shares = dict(wish.mix)
    wish = replace(wish, concurrency=tuple(sorted({*wish.concurrency, *shares})))
    contest, considered = _contest(profile, wish)
    choices = _steadied([contest.choose(j) for j in range(len(wish.concurrency))])
    mix = contest.mixed(shares) if shares else None
    chosen = [c.choice.plan for c in choices] + ([] if mix is None else [mix.plan])
    return Recommendation(
        profile=profile.name,
        seed=wish.seed,
        gpus=profile.setup.hardware.gpu_count,
        gpu_hour_price=wish.gpu_hour_price,
        targets=wish.targets,
        settings_considered=considered,
        settings_compared=len(contest.plans),
        loads=tuple(choices),
        bands=bands_of(choices),
        mix=mix,
        launch=_launches(profile, chosen, wish),
        advice=advice_of(contest, choices),
        notes=notes_of(contest),
    )


def _contest(profile: Profile, wish: Wish) -> tuple[Contest, int]:
    """Return the settings that could win, ready to choose from, and how many were looked at."""
    found = finalists(profile, wish)
    view, current = found.outlook, found.current
    grid = view.grid
    allowed = np.ones(grid.shape, dtype=np.bool_)
    if wish.targets:
        always = [0] if current is None else [0, current]
        allowed = meeting(profile, grid, view.cells, wish.targets, always, wish.seed)
    for i, plan in enumerate(grid.plans):  # what runs today is shown even if it cannot be chosen
        if not plan.allowed or (i == current and wish.engine_version not in (None, plan.version)):
            allowed[i] = False
    draws = view.draws(np.random.default_rng(wish.seed))
    return Contest(profile, wish, view, draws, current, allowed), found.considered


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
    bands = []
    for plan, group in groupby(choices, key=lambda c: c.choice.plan):
        alike = tuple(group)
        first, last = alike[0].concurrency, alike[-1].concurrency
        bands.append(Band(plan, first, last, any(c.tied for c in alike), alike))
    return tuple(bands)


def _launches(profile: Profile, plans: Sequence[RunPlan], wish: Wish) -> tuple[Launch, ...]:
    """Return flags and environment of every plan that the engine runs, once each."""
    engine = profile.system().engine
    if wish.max_running_requests is not None:
        engine = replace(engine, max_running_requests=wish.max_running_requests)
    result = []
    for plan in dict.fromkeys(plan for plan in plans if plan.allowed):
        flags = launch_flags(plan, replace(engine, version=plan.version), wish.draft_model)
        env = engine_named(plan.engine).launch_env(plan)
        result.append(Launch(plan, tuple(flags), dict(sorted(env.items()))))
    return tuple(result)
