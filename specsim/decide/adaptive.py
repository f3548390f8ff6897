"""Adaptive speculation under a load that changes: what a table by batch brings, simulated.

The best table (`specsim.decide.schedule`) runs beside no speculation, the best fixed settings and
the engine's own adaptive table, all under the same requests: arrivals, lengths and accept draws
are the same numbers for every one of them, and everything is repeated with other numbers.

The score is requests per second that meet the latency targets, if there are any; else tokens per
second where clients wait for their answers, and 1 / (mean time of a request) where requests come
by themselves, for then the throughput is that of the load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specsim.acceptance import Acceptance, accept_table
from specsim.case import Case
from specsim.decide.load_answer import Contender, LoadAnswer, Outcome, Run, Score
from specsim.decide.outlook import Grid
from specsim.decide.recommend import Wish, possible_plans
from specsim.decide.schedule import SWITCH_GAIN, Schedule, Step, best_schedule, chain_plans
from specsim.decide.slo import Target
from specsim.engine import RunPlan
from specsim.errors import EngineRefusal, InputError
from specsim.metrics import Targets, e2e_s, goodput
from specsim.profile import Profile
from specsim.server.system import System
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
from specsim.workload import Load, VaryingLoad, Workload

REPEATS = 4

TRIED = 6
"""Fixed settings that are simulated for their mean over all loads; the best at the lowest and at
the highest load are too."""

KEPT = 2
"""Of them, those that are repeated: the best of the first run."""


def schedule_under_load(
    profile: Profile,
    load: VaryingLoad | Trace,
    wish: Wish | None = None,
    *,
    repeats: int = REPEATS,
    progress: Callable[[int, int], None] | None = None,
) -> LoadAnswer:
    """Simulate the best table by batch and its rivals under a load that changes.

    Parameters
    ----------
    profile
        The server.
    load
        A ramp, bursts, or a trace to replay.
    wish
        Limits, targets, release and lengths; `targets` are on single requests here.
    repeats
        Runs with other random numbers, at least 1; with one there are no standard errors.
    progress
        Called with (runs done, runs in all).

    Raises
    ------
    InputError
        If the server has no drafter, or `repeats` is out of range.
    """
    wish = wish or Wish()
    if not 1 <= repeats <= 100:
        raise InputError(f"repeats {repeats}", "must lie in 1..100", "4 give a standard error")
    lab = _Lab(profile, load, wish)
    whole = best_schedule(profile, wish)
    tables = [replace(whole, steps=steps) for steps in simpler_tables(whole.steps)]
    statics = [Contender("fixed", _name(plan), plan) for plan in lab.fixed_plans()]
    others = list(lab.contenders(whole))
    total = len(statics) + len(tables) + (repeats - 1) * (KEPT + 1) + repeats * len(others)
    done = 0

    def run(contender: Contender, repeat: int) -> Run:
        nonlocal done
        result = lab.run(contender, repeat)
        done += 1
        if progress is not None:
            progress(min(done, total), total)
        return result

    tried = sorted(((run(c, 0), c) for c in statics), key=lambda pair: -pair[0].score)
    runs = [(c, [first]) for first, c in tried[:KEPT]] + [(c, [run(c, 0)]) for c in others]
    asked = [(run(c, 0), c, table) for c, table in ((lab.of_table(t), t) for t in tables)]
    first, contender, schedule = asked[0]
    for other in asked[1:]:  # a simpler table only if it is clearly better, for one run is noisy
        if other[0].score > first.score * (1.0 + SWITCH_GAIN):
            first, contender, schedule = other
    runs.append((contender, [first]))
    for repeat in range(1, repeats):
        for one, known in runs:
            known.append(run(one, repeat))
    outcomes = [Outcome(one, tuple(known)) for one, known in runs]
    order = {"none": 0, "fixed": 1, "table": 2, "default": 3, "idle": 4}
    outcomes.sort(key=lambda o: (order[o.contender.role], -o.mean("score")))
    return LoadAnswer(
        profile.name,
        wish.seed,
        repeats,
        lab.label,
        lab.score,
        wish.targets,
        schedule,
        tuple(outcomes),
        (*schedule.notes, *lab.notes),
    )


def simpler_tables(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    """Return a table, itself without K = 0, and its cuts into two rows.

    >>> rows = [Step(b, s, 0.0, 0.0) for b, s in ((1, 5), (8, 2), (32, 0))]
    >>> [[(r.batch, r.num_steps) for r in table] for table in simpler_tables(rows)]
    [[(1, 5), (8, 2), (32, 0)], [(1, 5), (8, 2)], [(1, 5), (32, 0)], [(1, 5), (8, 0)]]
    """
    rows = tuple(steps)
    drafting = tuple(row for row in rows if row.num_steps > 0)
    tables = [rows]
    if drafting and drafting[0].batch == 1:
        tables.append(drafting)
    if len(rows) > 2:
        tables.append((rows[0], rows[-1]))
        tables += [(rows[0], replace(rows[-1], batch=row.batch)) for row in rows[1:-1]]
    return list(dict.fromkeys(tables))


@dataclass(slots=True)
class _Lab:
    """What all runs share."""

    profile: Profile
    load: VaryingLoad | Trace
    wish: Wish

    @property
    def label(self) -> str:
        if isinstance(self.load, Trace):
            span = float(self.load.arrival_s[-1] - self.load.arrival_s[0])
            return f"trace of {len(self.load.arrival_s)} requests over {span:.0f} s"
        return self.load.label

    @property
    def score(self) -> Score:
        if self.wish.targets:
            return "goodput"
        closed = isinstance(self.load, VaryingLoad) and self.load.unit == "clients"
        return "throughput" if closed else "request_time"

    @property
    def workload(self) -> Workload:
        return self.wish.workload or self.profile.setup.workload.workload

    @property
    def acceptance(self) -> Acceptance:
        return self.profile.acceptance(self.wish.dataset, self.wish.temperature)

    @property
    def notes(self) -> tuple[str, ...]:
        notes = ["changing the steps takes no time: assumed, engines swap prepared graphs"]
        if self.workload.evidence == "assumed" and not isinstance(self.load, Trace):
            notes.append(
                f"prompt and answer lengths are assumed: {self.workload.input_len.mean:g} and "
                f"{self.workload.output_len.mean:g} tokens"
            )
        today = self.profile.setup.current
        if today is not None and today.speculates:
            notes.append(
                f"only {today.num_steps} steps ran on this server as far as its profile tells: "
                "other depths are the model's word, measure one before you rely on a table"
            )
        return tuple(notes)

    def levels(self) -> list[int]:
        """Clients at which fixed settings are looked at beforehand."""
        most = 64.0
        if isinstance(self.load, VaryingLoad) and self.load.unit == "clients":
            most = max(self.load.level)
        return sorted({round(most**share) for share in np.linspace(0.0, 1.0, 7)})

    def fixed_plans(self) -> list[RunPlan]:
        """Return the settings that could be the best fixed one."""
        plans = [p for p in possible_plans(self.profile, self.wish) if p.setting.speculates]
        loads = tuple(Load("closed_loop", c) for c in self.levels())
        grid = Grid(tuple(plans), loads, self.workload, self.wish.dataset, self.wish.temperature)
        tps = grid.solve(self.profile).log_tps
        by_mean = np.argsort(-tps.mean(axis=1), kind="stable").tolist()
        best: dict[tuple[int, int, int], int] = {}  # of one shape the better scheduler
        for i in by_mean:
            best.setdefault(plans[i].setting.key, i)
        ends = [int(np.argmax(tps[:, 0])), int(np.argmax(tps[:, -1]))]
        return [plans[i] for i in dict.fromkeys([*list(best.values())[:TRIED], *ends])]

    def contenders(self, schedule: Schedule) -> Iterator[Contender]:
        """Yield no speculation, the engine's own table, and the idle drafter."""
        plain, *drafts = chain_plans(self.profile, self.wish)
        yield Contender("none", "no speculation", plain)
        if schedule.engine == "sglang":
            yield Contender("default", "SGLang's default table", drafts[0], sglang_default())
        yield Contender("idle", "drafter loaded, K = 0", drafts[0], by_batch({1: 0}))

    def of_table(self, schedule: Schedule) -> Contender:
        """Return the contender that runs a table."""
        plan = chain_plans(self.profile, self.wish)[1]
        return Contender("table", "best table", plan, schedule.policy)

    def run(self, contender: Contender, repeat: int) -> Run:
        """Simulate a contender; all of one repeat see the same numbers."""
        system, adaptation, plan = self.profile.system(), None, contender.plan
        if contender.policy is not None:
            adaptation = self._adaptation(system, contender.policy, plan)
            plan = adaptation.head
        table = accept_table(self.acceptance, plan.setting)
        case = Case.of(system, plan, table, self.workload, Load(concurrency=1))
        trace = self.load if isinstance(self.load, Trace) else None
        result = simulate(
            system.cost,
            case,
            rng=np.random.default_rng(np.random.SeedSequence([self.wish.seed, repeat])),
            trace=trace,
            varying=None if isinstance(self.load, Trace) else self.load,
            adaptation=adaptation,
        )
        return _run_of(result, contender, plan, self.wish.targets, self.score)

    def _adaptation(self, system: System, policy: Policy, plan: RunPlan) -> Adaptation:
        def plan_of(steps: int) -> RunPlan:
            setting = SpecSetting.of(
                1, steps, algorithm=plan.setting.algorithm, scheduler=plan.setting.scheduler
            )
            try:
                return system.plan(
                    setting,
                    engine_version=plan.version,
                    max_running_requests=self.wish.max_running_requests,
                )
            except EngineRefusal:  # a rule on depth would hold for the engine's table too
                return replace(plan, setting=setting)

        return Adaptation.of(policy, plan_of, self.acceptance)


def _run_of(
    result: SimulationResult,
    contender: Contender,
    plan: RunPlan,
    targets: Sequence[Target],
    score: Score,
) -> Run:
    """Measure a run."""
    requests, rounds = result.requests, result.rounds
    wanted = {f"{t.metric}_s": t.seconds for t in targets}
    span = result.window_s[1] - result.window_s[0]
    good = goodput(requests, Targets(**wanted), span)
    request_s = float(np.nanmean(e2e_s(requests)))
    scores = {
        "goodput": good.requests_per_s,
        "throughput": result.output_tps,
        "request_time": 1.0 / request_s,
    }
    policy = contender.policy or fixed(plan.setting.num_steps)
    time = np.bincount(
        rounds["gear"], rounds["end_s"] - rounds["start_s"], minlength=len(policy.steps)
    )
    share = time / max(float(time.sum()), 1e-300)
    return Run(
        scores[score],
        result.output_tps,
        result.tpot_s,
        result.tpot_p99_s,
        result.ttft_s,
        result.ttft_p99_s,
        request_s,
        good.requests_per_s,
        good.share,
        result.batch_size,
        result.accept_length,
        result.switches,
        len(requests),
        tuple(zip(policy.steps, share.tolist(), strict=True)),
    )


def _name(plan: RunPlan) -> str:
    s = plan.setting
    shape = f"{s.num_steps} steps" + (f", tree {s.topk}x{s.num_draft_tokens}" if s.topk > 1 else "")
    return f"always {shape}, {s.scheduler}"
