"""Adaptive speculation under a load that changes: what a table by batch brings, simulated.

The best table (`specsim.decide.schedule`) runs beside no speculation, the best fixed settings and
the engine's own adaptive table, all under the same requests: arrivals, lengths and accept draws
are the same numbers for every one of them, and everything is repeated with other numbers.

The score is requests per second that meet the latency targets, if there are any; else tokens per
second where clients wait for their answers, and 1 / (mean time of a request) where requests come
by themselves, for then the throughput is that of the load. What one way brings over another is a
mean over repeats of ratios within a repeat, in which both saw the same random numbers:

    gain = mean_r(score_r / score'_r) - 1,   se = sd_r / sqrt(R)                   (PAIRED-GAIN)
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Literal, get_args

import numpy as np

from specsim.decide import HIDDEN, Planned
from specsim.decide.outlook import candidate_plans
from specsim.decide.schedule import SWITCH_GAIN, Schedule, best_schedule, chain_plans
from specsim.decide.slo import limits_of
from specsim.engine import RunPlan
from specsim.errors import InputError
from specsim.metrics import e2e_s, goodput
from specsim.predict import Grid
from specsim.profile import Profile
from specsim.question import Question, Target
from specsim.setting import SpecSetting
from specsim.simulate import (
    Adaptation,
    Policy,
    SimulationResult,
    Trace,
    by_batch,
    fixed,
    sglang_default,
    simulate,
)
from specsim.workload import Load, VaryingLoad

SCHEMA = "specsim.schedule/1"

Role = Literal["none", "fixed", "table", "given", "default", "idle"]
"""No speculation, a fixed setting, the best table, the user's, the engine's default table, or
``idle``: the drafter loaded, nothing drafted."""

Score = Literal["goodput", "throughput", "request_time"]

REPEATS = 4

TRIED = 6
"""Fixed settings that are simulated for their mean over all loads; the best at the lowest and at
the highest load are too."""

KEPT = 2  # of them, those that are repeated: the best of the first run

SIMULATED = (
    *("output_tps", "tpot_s", "tpot_p99_s", "ttft_s", "ttft_p99_s", "batch_size"),
    *("accept_length", "switches"),
)
"""Numbers that a run takes from its simulation."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to run the server."""

    role: Role
    name: str  # for people
    plan: RunPlan  # what it is launched with
    policy: Policy | None = None  # None for a fixed setting


@dataclass(frozen=True, slots=True)
class Run:
    """What one simulated run says."""

    score: float
    numbers: dict[str, float]  # as an `Outcome` has them
    time_share: dict[int, float]  # of the decoding, by draft steps


@dataclass(frozen=True, slots=True)
class StepsShare:
    """Share of the decoding time that ran with so many draft steps."""

    num_steps: int
    time_share: float


@dataclass(frozen=True, slots=True)
class Outcome(Planned):
    """One way to run the server under the load: means over its runs, one for each repeat.

    The setting is what it is launched with: of a table its deepest. `gain` is by score against the
    best of the settings without a table, `gain_se` its standard error over the repeats.
    """

    role: Role
    name: str  # for people
    output_tps: float
    output_tps_se: float
    tpot_s: float
    tpot_p99_s: float
    ttft_s: float
    ttft_p99_s: float
    request_time_s: float
    goodput_rps: float
    good_share: float
    batch_size: float
    accept_length: float
    switches: float
    requests: float
    steps: tuple[StepsShare, ...]
    gain: float
    gain_se: float
    score: float = field(metadata=HIDDEN)
    policy: Policy | None = field(metadata=HIDDEN)  # None for a fixed setting
    runs: tuple[Run, ...] = field(metadata=HIDDEN)

    def __post_init__(self) -> None:
        Planned.__post_init__(self)
        if self.policy is not None:
            most = max(self.policy.steps)
            for name, value in (("topk", 1), ("num_steps", most), ("num_draft_tokens", most + 1)):
                object.__setattr__(self, name, value)

    def error(self, name: str) -> float:
        """Return the standard error of a mean; NaN for a single repeat."""
        return standard_error([run.numbers[name] for run in self.runs])


@dataclass(frozen=True, slots=True)
class LoadAnswer(Schedule):
    """The best table, and what ways to run a server under a changing load gave."""

    profile: str
    seed: int
    repeats: int
    load: str  # in words
    score: Score  # what they are compared by
    targets: tuple[Target, ...]  # latency targets of the goodput
    worth_it: bool  # the table beats every setting without one, by more than noise and a percent
    best_static: str  # the best of no speculation and the fixed settings
    idle_drafter_gain: float | None  # loaded and drafting nothing, over none loaded
    idle_drafter_gain_se: float | None
    outcomes: tuple[Outcome, ...]  # by role, in the order that Role has; the best fixed one first

    def of(self, role: Role) -> Outcome | None:
        """Return the first outcome of that role."""
        return next((o for o in self.outcomes if o.role == role), None)

    @property
    def best_fixed(self) -> Outcome:
        """What the table is held against."""
        return next(o for o in self.outcomes if o.name == self.best_static)


def schedule_under_load(
    profile: Profile,
    load: VaryingLoad | Trace,
    question: Question | None = None,
    *,
    repeats: int = REPEATS,
    given: Policy | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LoadAnswer:
    """Simulate the best table by batch and its rivals under a load that changes.

    Parameters
    ----------
    profile
        The server.
    load
        A ramp, bursts, or a trace to replay.
    question
        Limits, targets, release and lengths; `targets` are on single requests here.
    repeats
        Runs with other random numbers, at least 1; with one there are no standard errors.
    given
        A table that the server runs already, or one to try.
    progress
        Called with (runs done, runs in all).

    Raises
    ------
    InputError
        If the server has no drafter, or `repeats` is out of range.
    """
    question = question or Question()
    if not 1 <= repeats <= 100:
        raise InputError(f"repeats {repeats}", "must lie in 1..100", "4 give a standard error")
    lab = _Lab(profile, load, question)
    whole = best_schedule(profile, question)
    tables = whole.simpler()
    statics, others = lab.fixed_settings(), list(lab.rivals(whole))
    if given is not None:
        others.append(Contender("given", given.name, others[-1].plan, given))
    total = len(statics) + len(tables) + (repeats - 1) * (KEPT + 1) + repeats * len(others)
    done = iter(range(1, total))

    def run(contender: Contender, repeat: int) -> Run:
        result = lab.run(contender, repeat)
        if progress is not None:
            progress(next(done, total), total)
        return result

    tried = sorted(((c, run(c, 0)) for c in statics), key=lambda pair: -pair[1].score)[:KEPT]
    tried += [(c, run(c, 0)) for c in others]
    schedule, best = tables[0], run(lab.of_table(tables[0]), 0)
    for table in tables[1:]:  # a simpler table only if it is clearly better, for one run is noisy
        rival = run(lab.of_table(table), 0)
        if rival.score > best.score * (1.0 + SWITCH_GAIN):
            schedule, best = table, rival
    tried.append((lab.of_table(schedule), best))
    runs = {c: [first, *(run(c, r) for r in range(1, repeats))] for c, first in tried}
    return lab.answer(schedule, runs)


@dataclass(frozen=True, slots=True)
class _Lab:
    """What all runs share."""

    profile: Profile
    load: VaryingLoad | Trace
    question: Question

    @property
    def score(self) -> Score:
        if self.question.targets:
            return "goodput"
        closed = isinstance(self.load, VaryingLoad) and self.load.unit == "clients"
        return "throughput" if closed else "request_time"

    def fixed_settings(self) -> list[Contender]:
        """Return the settings that could be the best fixed one."""
        most = 64.0
        if isinstance(self.load, VaryingLoad) and self.load.unit == "clients":
            most = max(self.load.level)
        clients = sorted({round(most**share) for share in np.linspace(0.0, 1.0, 7)})
        plans = [p for p in candidate_plans(self.profile, self.question) if p.setting.speculates]
        grid = Grid.of(self.profile, replace(self.question, concurrency=tuple(clients)), plans)
        tps = grid.solve(self.profile).log_tps
        best: dict[tuple[int, int, int], int] = {}  # of one shape the better scheduler
        for i in np.argsort(-tps.mean(axis=1), kind="stable").tolist():
            best.setdefault(plans[i].setting.key, i)
        ends = [int(np.argmax(tps[:, 0])), int(np.argmax(tps[:, -1]))]
        chosen = dict.fromkeys([*list(best.values())[:TRIED], *ends])
        fixed = []
        for plan in (plans[i] for i in chosen):
            s = plan.setting
            tree = f", tree {s.topk}x{s.num_draft_tokens}" if s.topk > 1 else ""
            name = f"always {s.num_steps} steps{tree}, {s.scheduler}"
            fixed.append(Contender("fixed", name, plan))
        return fixed

    def rivals(self, schedule: Schedule) -> Iterator[Contender]:
        """Yield no speculation, the engine's own table, and the idle drafter."""
        plain, *drafts = chain_plans(self.profile, self.question)
        yield Contender("none", "no speculation", plain)
        if schedule.engine == "sglang":
            own = sglang_default(drafts[0].version)
            yield Contender("default", "SGLang's default table", drafts[0], own)
        yield Contender("idle", "drafter loaded, K = 0", drafts[0], by_batch({1: 0}))

    def of_table(self, schedule: Schedule) -> Contender:
        """Return the contender that runs a table."""
        plan = chain_plans(self.profile, self.question)[1]
        return Contender("table", "best table", plan, schedule.policy)

    def run(self, contender: Contender, repeat: int) -> Run:
        """Simulate a contender; all of one repeat see the same numbers."""
        adaptation, plan = None, contender.plan
        if contender.policy is not None:
            acceptance = self.profile.acceptance(self.question.dataset, self.question.temperature)
            adaptation = Adaptation.of(contender.policy, partial(self._chain, plan), acceptance)
            plan = adaptation.head
        one = Grid.of(self.profile, self.question, (plan,), (Load(concurrency=1),))
        cost, cases = one.cases(self.profile)
        result = simulate(
            cost,
            cases[0],
            rng=np.random.default_rng(np.random.SeedSequence([self.question.seed, repeat])),
            trace=self.load if isinstance(self.load, Trace) else None,
            varying=None if isinstance(self.load, Trace) else self.load,
            adaptation=adaptation,
        )
        return self._measured(result, contender.policy or fixed(plan.setting.num_steps))

    def _chain(self, like: RunPlan, steps: int) -> RunPlan:
        """Plan a chain of so many steps under the scheduler of another plan, refused or not."""
        drafts = like.setting
        return self.profile.system().plan(
            SpecSetting(drafts.algorithm, 1, steps, steps + 1, drafts.scheduler),
            engine_version=like.version,
            max_running_requests=self.question.max_running_requests,
            what_if=True,
        )

    def _measured(self, result: SimulationResult, policy: Policy) -> Run:
        span = result.window_s[1] - result.window_s[0]
        good = goodput(result.requests, limits_of(self.question.targets), span)
        numbers = {name: float(getattr(result, name)) for name in SIMULATED}
        numbers["request_time_s"] = float(np.nanmean(e2e_s(result.requests)))
        numbers |= {"goodput_rps": good.requests_per_s, "good_share": good.share}
        numbers["requests"] = float(len(result.requests))
        scores: dict[Score, float] = {
            "goodput": good.requests_per_s,
            "throughput": result.output_tps,
            "request_time": 1.0 / numbers["request_time_s"],
        }
        rounds = result.rounds
        length = rounds["end_s"] - rounds["start_s"]
        time = np.bincount(rounds["gear"], length, minlength=len(policy.steps))
        share = time / max(float(time.sum()), 1e-300)
        return Run(
            scores[self.score], numbers, dict(zip(policy.steps, share.tolist(), strict=True))
        )

    def answer(self, schedule: Schedule, runs: dict[Contender, list[Run]]) -> LoadAnswer:
        """Compare all ways with the best of those without a table."""
        mean = {c: float(np.mean([run.score for run in of_c])) for c, of_c in runs.items()}
        ways = sorted(runs, key=lambda c: (get_args(Role).index(c.role), -mean[c]))
        static = max((c for c in ways if c.role in ("none", "fixed")), key=mean.__getitem__)
        outcomes = [outcome_of(c, runs[c], runs[static]) for c in ways]
        table = next(o for o in outcomes if o.role == "table")
        by_role = {c.role: of_c for c, of_c in runs.items()}
        of_idle = [by_role[role] for role in ("idle", "none") if role in by_role]
        idle = paired_gain(*of_idle) if len(of_idle) == 2 else (None, None)
        noise = 0.0 if math.isnan(table.gain_se) else 2.0 * table.gain_se
        of_table = {f.name: getattr(schedule, f.name) for f in fields(schedule) if f.init}
        return LoadAnswer(
            **of_table | {"notes": (*schedule.notes, *self._notes())},
            profile=self.profile.name,
            seed=self.question.seed,
            repeats=len(table.runs),
            load=self.load.label,
            score=self.score,
            targets=self.question.targets,
            worth_it=table.gain > max(noise, SWITCH_GAIN),
            best_static=static.name,
            idle_drafter_gain=idle[0],
            idle_drafter_gain_se=idle[1],
            outcomes=tuple(outcomes),
        )

    def _notes(self) -> Iterator[str]:
        yield "changing the steps takes no time: assumed, engines swap prepared graphs"
        workload = self.question.workload(self.profile.setup.workload)
        if workload.evidence == "assumed" and not isinstance(self.load, Trace):
            yield workload.assumed_lengths
        today = self.profile.setup.current
        if today is not None and today.speculates:
            yield (
                f"only {today.num_steps} steps ran on this server as far as its profile tells: "
                "other depths are the model's word, measure one before you rely on a table"
            )


def outcome_of(contender: Contender, runs: Sequence[Run], static: Sequence[Run]) -> Outcome:
    """Average the runs of one way, and compare them with those of the best fixed setting."""
    values = {name: [run.numbers[name] for run in runs] for name in runs[0].numbers}
    depths = sorted({depth for run in runs for depth in run.time_share})
    shares = [float(np.mean([run.time_share.get(d, 0.0) for run in runs])) for d in depths]
    gain, error = paired_gain(runs, static)
    return Outcome(
        contender.plan,
        role=contender.role,
        name=contender.name,
        output_tps_se=standard_error(values["output_tps"]),
        steps=tuple(map(StepsShare, depths, shares)),
        gain=gain,
        gain_se=error,
        score=float(np.mean([run.score for run in runs])),
        policy=contender.policy,
        runs=tuple(runs),
        **{name: float(np.mean(of_runs)) for name, of_runs in values.items()},
    )


def paired_gain(runs: Sequence[Run], others: Sequence[Run]) -> tuple[float, float]:
    """Return by how much one way scores above another, and the standard error (PAIRED-GAIN)."""
    pairs = zip(runs, others, strict=True)
    ratios = [a.score / b.score - 1.0 if b.score > 0 else math.nan for a, b in pairs]
    return float(np.mean(ratios)), standard_error(ratios)


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of a mean; NaN for a single value."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
