"""The best setting at every load: by how much, how surely, and what is lost if it is not.

What could win (`specsim.decide.candidates`) is compared by the rules of `specsim.decide.contest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from specsim.decide import LoadChoice
from specsim.decide.advice import advice_of, notes_of
from specsim.decide.candidates import Wish
from specsim.decide.contest import Contest, choices_of, contest_of, free_flags
from specsim.decide.launch import launches_of
from specsim.decide.recommendation import Band, Recommendation
from specsim.decide.slo import largest_load, latency
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
    contest = contest_of(profile, wish)
    choices = choices_of(contest)
    most = None
    if wish.targets:
        choices, most = _under_targets(contest, choices)
    free = free_flags(contest, choices)
    mix = contest.mixed(shares) if shares else None
    chosen = [c.choice.plan for c in choices] + ([] if mix is None else [mix.plan])
    return Recommendation(
        profile=profile.name,
        seed=wish.seed,
        gpus=profile.setup.hardware.gpu_count,
        gpu_hour_price=wish.gpu_hour_price,
        targets=wish.targets,
        largest_load=most,
        settings_considered=contest.considered,
        settings_compared=len(contest.plans),
        loads=choices,
        bands=bands_of(choices),
        free=free,
        mix=mix,
        launch=launches_of(
            profile, chosen, wish.model_path, wish.draft_model, wish.max_running_requests
        ),
        advice=advice_of(contest, choices, free, most),
        notes=notes_of(contest),
    )


def _under_targets(
    contest: Contest, choices: Sequence[LoadChoice]
) -> tuple[tuple[LoadChoice, ...], int | None]:
    """Return the choices with what requests see, and the most clients at which targets are met."""
    profile, wish, grid = contest.profile, contest.wish, contest.outlook.grid
    told = []
    for load, choice in zip(grid.loads, choices, strict=True):
        cell = replace(grid, plans=(choice.choice.plan,), loads=(load,))
        (seen,) = latency(profile, cell, wish.targets, wish.seed)
        told.append(replace(choice, latency=seen))
    met = [choice.concurrency for choice in choices if choice.meets_targets]
    if not met:
        return tuple(told), None
    above = [choice.concurrency for choice in choices if choice.concurrency > max(met)]
    if not above or wish.request_rate is not None:
        return tuple(told), max(met)
    runs = replace(grid, plans=tuple(plan for plan in grid.plans if plan.allowed))
    between = max(met), above[0]
    return tuple(told), largest_load(profile, runs, wish.targets, between, wish.seed)


def bands_of(choices: Sequence[LoadChoice]) -> tuple[Band, ...]:
    """Join neighbouring loads with the same choice."""
    bands = []
    for plan, group in groupby(choices, key=lambda c: c.choice.plan):
        alike = tuple(group)
        first, last = alike[0].concurrency, alike[-1].concurrency
        bands.append(Band(plan, first, last, any(c.tied for c in alike), alike))
    return tuple(bands)
