"""What is worth saying besides the choice: do not speculate, raise the cap, measure first."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from specsim.decide.contest import SURE, Contest, beats
from specsim.decide.outlook import Grid
from specsim.decide.recommendation import Advice, LoadChoice, Option, plan_name
from specsim.decide.slo import Target
from specsim.engine import RunPlan
from specsim.profile import Profile

CAP_GAIN = 0.03
"""What doubling the cap of running requests must bring to be advised."""

CAP_FLAGS = {
    "sglang": "--max-running-requests",
    "vllm": "--max-num-seqs",
    "llama.cpp": "--parallel",
    "tensorrt-llm": "max_batch_size",
}

WORTH_MEASURING = 0.02
"""Expected gain of an unmeasured setting over the choice from which it is pointed out."""


def advice_of(
    profile: Profile, contest: Contest, choices: Sequence[LoadChoice]
) -> tuple[Advice, ...]:
    """Return what is worth saying, the most important first."""
    result: list[Advice] = []
    if all(not c.choice.plan.setting.speculates for c in choices):
        result.append(Advice("do-not-speculate", _do_not(contest, choices)))
    missed = [c for c in choices if c.meets_targets is False]
    if missed:
        at = _clients([c.concurrency for c in missed])
        result.append(Advice("target-missed", f"no setting meets the latency targets {at}"))
    result += _raise_cap(profile, contest, choices)
    result += _measure_first(contest, choices)
    return tuple(result)


def _do_not(contest: Contest, choices: Sequence[LoadChoice]) -> str:
    gains = [o.gain.value for c in choices if (o := _fastest_draft(contest, c)) is not None]
    if not gains:
        return "do not speculate: no setting of this server drafts"
    if max(gains) <= 0:
        return (
            "do not speculate: every setting is expected to be slower at every load "
            f"(the least bad {_percent(max(gains))})"
        )
    return (
        "do not speculate on this evidence: no setting is surely faster at any load "
        f"(the best is expected to give {_percent(max(gains))} somewhere)"
    )


def _fastest_draft(contest: Contest, choice: LoadChoice) -> Option | None:
    """Return the fastest setting that drafts, as far as it is in the choice at hand."""
    options = [
        choice.choice,
        choice.best,
        *choice.tied,
        *([choice.current] if choice.current else []),
    ]
    drafts = [o for o in options if o.plan.setting.speculates]
    return max(drafts, key=lambda o: o.gain.value, default=None)


def _raise_cap(profile: Profile, contest: Contest, choices: Sequence[LoadChoice]) -> list[Advice]:
    """Say where doubling the cap of running requests would pay, once per setting."""
    cells, grid = contest.outlook.cells, contest.outlook.grid
    capped: dict[int, list[int]] = {}
    for j, choice in enumerate(choices):
        for option in {choice.choice.plan, choice.best.plan, *_plan_of(choice.current)}:
            i = grid.plans.index(option)
            if cells.limit(i, j) == "cap":
                capped.setdefault(i, []).append(j)
    result = []
    for i, loads in sorted(capped.items()):
        plan = grid.plans[i]
        asked, raised = _doubled(profile, plan)
        new = Grid((raised,), grid.loads, grid.workload, grid.dataset, grid.temperature)
        gains = np.exp(new.solve(profile).log_tps[0] - cells.log_tps[i]) - 1.0
        best = max(loads, key=lambda j: float(gains[j]))
        if gains[best] < CAP_GAIN:
            continue
        flag = CAP_FLAGS.get(plan.engine, "the cap of running requests")
        against = float(new.solve(profile).log_tps[0][best] - contest.outlook.mean[0, best])
        result.append(
            Advice(
                "raise-max-running-requests",
                f"{plan_name(plan)}: its cap of {plan.max_running_requests} running "
                f"requests binds from {grid.loads[loads[0]].concurrency} clients on; "
                f"{flag} {asked} would give {_percent(float(gains[best]))} at "
                f"{grid.loads[best].concurrency} clients "
                f"({_percent(math.expm1(against))} against no speculation)",
            )
        )
    return result


def _plan_of(option: Option | None) -> tuple[RunPlan, ...]:
    return () if option is None else (option.plan,)


def _doubled(profile: Profile, plan: RunPlan) -> tuple[int, RunPlan]:
    """Return the doubled cap as the engine takes it, and the plan under it."""
    system = profile.system()
    ranks = system.engine.dp if plan.engine == "sglang" else 1
    asked = 2 * plan.max_running_requests * ranks
    return asked, system.plan(
        plan.setting, engine_version=plan.version, max_running_requests=asked, what_if=True
    )


def _measure_first(contest: Contest, choices: Sequence[LoadChoice]) -> list[Advice]:
    """Point out settings that promise more than the choice and were never measured here."""
    if not any(contest.measured):
        return []
    promise: dict[RunPlan, tuple[float, int, float]] = {}
    for j, choice in enumerate(choices):
        best, chosen = choice.best, choice.choice
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
            f"{plan_name(plan)} would give {_percent(gain)} at {_clients([c])[3:]} "
            f"({100 * probability:.0f} % sure), but this server was never measured with it: "
            "measure it first (specsim plan)",
        )
        for plan, (gain, c, probability) in promise.items()
    ]


def notes_of(profile: Profile, contest: Contest, targets: Sequence[Target]) -> tuple[str, ...]:
    """Return what the numbers rest on."""
    workload = contest.outlook.grid.workload
    notes = []
    if workload.evidence == "assumed":
        notes.append(
            f"prompt and answer lengths are assumed: {workload.input_len.mean:g} "
            f"({workload.input_cached:g} cached) and {workload.output_len.mean:g} tokens"
        )
    if not profile.fit.observations:
        notes.append("nothing was measured on this server: library physics with wide priors")
    notes.append(
        f"a simpler setting is kept unless another is faster with {100 * SURE:.0f} % probability"
    )
    notes.append(
        f"model error {100 * profile.fit.model_error:.1f} % of the throughput, half of its "
        "variance assumed to be a setting's own"
    )
    if contest.outlook.covariance[-1, -1] > 0:
        notes.append(
            "measured at one draft depth, as far as is known: what deeper drafts cost is uncertain"
        )
    if any(target.statistic != "mean" for target in targets):
        notes.append("percentiles of latency are simulated, the rest is in closed form")
    versions = sorted({p.version for p in contest.plans} - {profile.setup.engine.version})
    if versions:
        notes.append(
            f"other releases ({', '.join(versions)}) are modelled with the times of "
            f"{profile.setup.engine.version}; their kernels may differ"
        )
    if contest.current is None:
        notes.append("what runs today is not known, or does not speculate")
    if all(not p.setting.speculates for p in contest.plans):
        notes.append("the setup names no drafter and no current setting: nothing to compare")
    return tuple(notes)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:+.0f} %".replace("-0 %", "0 %").replace("+0 %", "0 %")


def _clients(levels: Sequence[int]) -> str:
    unit = "client" if list(levels) == [1] else "clients"
    return f"at {', '.join(map(str, levels))} {unit}"
