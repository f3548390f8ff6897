"""What is worth saying besides the choice: do not speculate, raise the cap, measure first."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specsim.decide import FreeFlag, FreeKind, LoadChoice, whole_percent
from specsim.decide.contest import Contest
from specsim.decide.recommendation import Advice, AdviceKind
from specsim.engine import RunPlan
from specsim.uncertainty import SURE, beats

ADVISED: dict[FreeKind, AdviceKind] = {
    "raise-cap": "raise-max-running-requests",
    "overlap": "overlap-scheduler",
    "release": "newer-release",
}

WORTH_MEASURING = 0.02
"""Expected gain of an unmeasured setting over the choice from which it is pointed out."""


def advice_of(
    contest: Contest,
    choices: Sequence[LoadChoice],
    free: Sequence[FreeFlag],
    most: int | None = None,
) -> tuple[Advice, ...]:
    """Return what is worth saying, the most important first.

    `most`: clients up to which a setting meets the latency targets.
    """
    result: list[Advice] = []
    if all(not c.choice.plan.setting.speculates for c in choices):
        result.append(Advice("do-not-speculate", _do_not(choices)))
    missed = [c.concurrency for c in choices if c.meets_targets is False]
    if missed:
        wanted = ", ".join(target.label for target in contest.wish.targets)
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
            target.statistic != "mean" for target in contest.wish.targets
        ),
        f"other releases ({versions}) are modelled with the times of {own}; their kernels may "
        "differ": bool(versions),
        "what runs today is not known, or does not speculate": contest.current is None,
        "the setup names no drafter and no current setting: nothing to compare": all(
            not p.setting.speculates for p in contest.plans
        ),
    }
    return tuple(note for note, holds in notes.items() if holds)


def _clients(*levels: int) -> str:
    return f"{', '.join(map(str, levels))} client{'s' * (levels != (1,))}"
