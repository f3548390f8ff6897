"""The best setting at every load: by how much, how surely, and what is lost if it is not.

What could win is compared by the rules of `specsim.decide.contest`; here is what else is worth
saying: do not speculate, raise the cap, measure first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from specsim.decide import (
    HIDDEN,
    FreeFlag,
    FreeKind,
    LoadChoice,
    MixChoice,
    Planned,
    bands,
    whole_percent,
)
from specsim.decide.contest import Contest, choices_of, contest_of, free_flags
from specsim.decide.launch import Launch, launches_of
from specsim.decide.slo import largest_load, latency
from specsim.engine import RunPlan
from specsim.profile import Profile
from specsim.question import Question, Target
from specsim.uncertainty import SURE, beats

SCHEMA = "specsim.recommendation/1"

AdviceKind = Literal[
    "do-not-speculate",
    "raise-max-running-requests",
    "overlap-scheduler",
    "newer-release",
    "measure-first",
    "target-missed",
    "tie",
]


@dataclass(frozen=True, slots=True)
class Band(Planned):
    """Neighbouring loads with the same choice."""

    from_concurrency: int
    to_concurrency: int
    tied: bool  # whether another setting is as good at some of them
    choices: tuple[LoadChoice, ...] = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class Advice:
    """Something better than, or besides, a setting."""

    kind: AdviceKind
    text: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The answer of `recommend`."""

    profile: str
    seed: int  # of the Monte Carlo
    gpus: int
    gpu_hour_price: float | None  # money per GPU and hour, if given
    targets: tuple[Target, ...]
    largest_load: int | None  # clients up to which a setting meets them; None if none does
    settings_considered: int
    settings_compared: int  # those among them that were compared in detail
    loads: tuple[LoadChoice, ...]
    bands: tuple[Band, ...]
    free: tuple[FreeFlag, ...]  # launch flags that make a setting faster
    mix: MixChoice | None  # where a mix was given
    launch: tuple[Launch, ...]  # every recommended plan, once
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]


ADVISED: dict[FreeKind, AdviceKind] = {
    "raise-cap": "raise-max-running-requests",
    "overlap": "overlap-scheduler",
    "release": "newer-release",
}

WORTH_MEASURING = 0.02
"""Expected gain of an unmeasured setting over the choice from which it is pointed out."""


def recommend(profile: Profile, question: Question | None = None) -> Recommendation:
    """Choose a setting for every load of a question and of its mix.

    Examples
    --------
    >>> from specsim.profile import load_profile
    >>> asked = Question(concurrency=(1, 30), max_draft_tokens=4, max_topk=1)
    >>> [choice.choice.label for choice in recommend(load_profile(), asked).loads]
    ['no speculation', 'topk=1 steps=2, overlap']
    """
    question = question or Question()
    shares = dict(question.mix)
    question = replace(question, concurrency=tuple(sorted({*question.concurrency, *shares})))
    contest = contest_of(profile, question)
    choices = choices_of(contest)
    most = None
    if question.targets:
        choices, most = _under_targets(contest, choices)
    free = free_flags(contest, choices)
    mix = contest.mixed(shares) if shares else None
    good = [c for c in choices if c.meets_targets is not False] or choices
    chosen = [c.choice.plan for c in good] + ([] if mix is None else [mix.plan])
    return Recommendation(
        profile=profile.name,
        seed=question.seed,
        gpus=profile.setup.hardware.gpu_count,
        gpu_hour_price=question.gpu_hour_price,
        targets=question.targets,
        largest_load=most,
        settings_considered=contest.considered,
        settings_compared=len(contest.plans),
        loads=choices,
        bands=bands_of(choices),
        free=free,
        mix=mix,
        launch=launches_of(profile, chosen, question),
        advice=advice_of(contest, choices, free, most),
        notes=notes_of(contest),
    )


def _under_targets(
    contest: Contest, choices: Sequence[LoadChoice]
) -> tuple[tuple[LoadChoice, ...], int | None]:
    """Return the choices with what requests see, and the most clients at which targets are met."""
    profile, question, grid = contest.profile, contest.question, contest.outlook.grid
    told = []
    for load, choice in zip(grid.loads, choices, strict=True):
        cell = replace(grid, plans=(choice.choice.plan,), loads=(load,))
        (seen,) = latency(profile, cell, question.targets, question.seed)
        told.append(replace(choice, latency=seen))
    met = [choice.concurrency for choice in choices if choice.meets_targets]
    if not met:
        return tuple(told), None
    above = [choice.concurrency for choice in choices if choice.concurrency > max(met)]
    if not above or question.request_rate is not None:
        return tuple(told), max(met)
    runs = replace(grid, plans=tuple(plan for plan in grid.plans if plan.allowed))
    between = max(met), above[0]
    return tuple(told), largest_load(profile, runs, question.targets, between, question.seed)


def bands_of(choices: Sequence[LoadChoice]) -> tuple[Band, ...]:
    """Join neighbouring loads with the same choice."""
    result = []
    for plan, first, last in bands([c.choice.plan for c in choices]):
        alike = tuple(choices[first : last + 1])
        ends = choices[first].concurrency, choices[last].concurrency
        result.append(Band(plan, *ends, any(c.tied for c in alike), alike))
    return tuple(result)


def advice_of(
    contest: Contest,
    choices: Sequence[LoadChoice],
    free: Sequence[FreeFlag],
    most: int | None = None,
) -> tuple[Advice, ...]:
    """Return what is worth saying, the most important first; targets are met by `most` clients."""
    result: list[Advice] = []
    if all(not c.choice.plan.setting.speculates for c in choices):
        result.append(Advice("do-not-speculate", _do_not(choices)))
    missed = [c.concurrency for c in choices if c.meets_targets is False]
    if missed:
        wanted = ", ".join(target.label for target in contest.question.targets)
        text = f"no setting meets {wanted} at {_clients(*missed)}"
        if most is not None:
            text = f"the targets are met up to about {_clients(most)}; {text}"
        result.append(Advice("target-missed", text))
    result += [Advice(ADVISED[flag.kind], flag.text) for flag in free]
    result += _measure_first(contest, choices)
    return tuple(result)


def _do_not(choices: Sequence[LoadChoice]) -> str:
    gains = []
    for c in choices:
        options = (c.choice, c.fastest, *c.tied, *([c.current] if c.current else []))
        gains += [o.gain.value for o in options if o.plan.setting.speculates]
    if not gains:
        return "do not speculate: no setting of this server drafts"
    if max(gains) <= 0:
        return (
            "do not speculate: every setting is expected to be slower at every load "
            f"(the least bad {whole_percent(max(gains))})"
        )
    return (
        "do not speculate on this evidence: no setting is surely faster at any load "
        f"(the best is expected to give {whole_percent(max(gains))} somewhere)"
    )


def _measure_first(contest: Contest, choices: Sequence[LoadChoice]) -> list[Advice]:
    """Point out settings that promise more than the choice and were never measured here."""
    if not contest.profile.fit.observations:
        return []
    promise: dict[RunPlan, tuple[float, int, float]] = {}
    for j, choice in enumerate(choices):
        best, chosen = choice.fastest, choice.choice
        if best.plan == chosen.plan or best.measured:
            continue
        gain = best.output_tps.value / chosen.output_tps.value - 1.0
        i, k = (contest.plans.index(o.plan) for o in (best, chosen))
        probability = beats(math.log1p(gain), float(contest.outlook.ratio_sd(j)[i, k]))
        if gain >= WORTH_MEASURING and gain > promise.get(best.plan, (0.0, 0, 0.0))[0]:
            promise[best.plan] = (gain, choice.concurrency, probability)
    return [
        Advice(
            "measure-first",
            f"{plan.setting.name} would give {whole_percent(gain)} at {_clients(c)} "
            f"({100 * probability:.0f} % sure), but this server was never measured with it: "
            "measure it first (specsim plan)",
        )
        for plan, (gain, c, probability) in promise.items()
    ]


def notes_of(contest: Contest) -> tuple[str, ...]:
    """Return what the numbers rest on."""
    profile, workload = contest.profile, contest.outlook.grid.workload
    own = profile.setup.engine.version
    versions = ", ".join(sorted({p.version for p in contest.plans} - {own}))
    notes = {
        workload.assumed_lengths: workload.evidence == "assumed",
        "nothing was measured on this server: library physics with wide priors": (
            not profile.fit.observations
        ),
        f"a simpler setting is kept unless another is faster with {100 * SURE:.0f} % "
        "probability": True,
        f"model error {100 * profile.fit.model_error:.1f} % of the throughput, half of its "
        "variance assumed to be a setting's own": True,
        "measured at one draft depth, as far as is known: what deeper drafts cost is uncertain": (
            contest.outlook.covariance[-1, -1] > 0
        ),
        "percentiles of latency are simulated, the rest is in closed form": any(
            target.statistic != "mean" for target in contest.question.targets
        ),
        f"other releases ({versions}) are modelled with the times of {own}; their kernels may "
        "differ": bool(versions),
        "nothing that speculates is known to run today": contest.current is None,
        "the setup names no drafter and no current setting: nothing to compare": all(
            not p.setting.speculates for p in contest.plans
        ),
    }
    return tuple(note for note, holds in notes.items() if holds)


def _clients(*levels: int) -> str:
    return f"{', '.join(map(str, levels))} client{'s' * (levels != (1,))}"
