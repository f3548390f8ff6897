"""Adaptive speculation under a load that changes: what a table by batch brings, simulated.

The best table (`specsim.decide.schedule`) runs beside no speculation, the best fixed settings and
the engine's own adaptive table, all under the same requests: arrivals, lengths and accept draws
are the same numbers for every one of them, and everything is repeated with other numbers.

The score is requests per second that meet the latency targets, if there are any; else tokens per
second where clients wait for their answers, and 1 / (mean time of a request) where requests come
by themselves, for then the throughput is that of the load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

import numpy as np

from specsim.decide.candidates import candidate_plans
from specsim.decide.load_answer import Contender, LoadAnswer, Role, Run, Score, outcome_of
from specsim.decide.outlook import Grid
from specsim.decide.schedule import SWITCH_GAIN, Schedule, Step, best_schedule, chain_plans
from specsim.engine import RunPlan
from specsim.errors import EngineRefusal, InputError
from specsim.metrics import Targets, e2e_s, goodput
from specsim.profile import Profile
from specsim.question import Question
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

REPEATS = 4

TRIED = 6
"""Fixed settings that are simulated for their mean over all loads; the best at the lowest and at
the highest load are too."""

KEPT = 2
"""Of them, those that are repeated: the best of the first run."""


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
    tables = [replace(whole, table=rows) for rows in simpler_tables(whole.table)]
    statics, others = lab.fixed_settings(), list(lab.rivals(whole))
    if given is not None:
        others.append(Contender("given", given.name, others[-1].plan, given))
    total = len(statics) + len(tables) + (repeats - 1) * (KEPT + 1) + repeats * len(others)
    done = 0

    def run(contender: Contender, repeat: int) -> Run:
        nonlocal done
        result = lab.run(contender, repeat)
        done += 1
        if progress is not None:
            progress(min(done, total), total)
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


def simpler_tables(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    """Return a table, itself without K = 0, and its cuts into two rows.

    >>> rows = [Step(b, s, 0.0, 0.0) for b, s in ((1, 5), (8, 2), (32, 0))]
    >>> [[(r.from_batch_size, r.num_steps) for r in table] for table in simpler_tables(rows)]
    [[(1, 5), (8, 2), (32, 0)], [(1, 5), (8, 2)], [(1, 5), (32, 0)], [(1, 5), (8, 0)]]
    """
    rows = tuple(steps)
    drafting = tuple(row for row in rows if row.num_steps > 0)
    tables = [rows]
    if drafting and drafting[0].from_batch_size == 1:
        tables.append(drafting)
    if len(rows) > 2:
        tables.append((rows[0], rows[-1]))
        tables += [
            (rows[0], replace(rows[-1], from_batch_size=row.from_batch_size)) for row in rows[1:-1]
        ]
    return list(dict.fromkeys(tables))


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
        return [Contender("fixed", _always(plans[i].setting), plans[i]) for i in chosen]

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
        """Plan a chain of so many steps under the scheduler of another plan."""
        drafts = like.setting
        setting = SpecSetting(drafts.algorithm, 1, steps, steps + 1, drafts.scheduler)
        try:
            return self.profile.system().plan(
                setting,
                engine_version=like.version,
                max_running_requests=self.question.max_running_requests,
            )
        except EngineRefusal:  # a rule on depth would hold for the engine's table too
            return replace(like, setting=setting)

    def _measured(self, result: SimulationResult, policy: Policy) -> Run:
        rounds = result.rounds
        wanted = {f"{t.metric}_s": t.seconds for t in self.question.targets}
        span = result.window_s[1] - result.window_s[0]
        good = goodput(result.requests, Targets(**wanted), span)
        request_s = float(np.nanmean(e2e_s(result.requests)))
        scores: dict[Score, float] = {
            "goodput": good.requests_per_s,
            "throughput": result.output_tps,
            "request_time": 1.0 / request_s,
        }
        length = rounds["end_s"] - rounds["start_s"]
        time = np.bincount(rounds["gear"], length, minlength=len(policy.steps))
        share = time / max(float(time.sum()), 1e-300)
        return Run(
            score=scores[self.score],
            output_tps=result.output_tps,
            tpot_s=result.tpot_s,
            tpot_p99_s=result.tpot_p99_s,
            ttft_s=result.ttft_s,
            ttft_p99_s=result.ttft_p99_s,
            request_time_s=request_s,
            goodput_rps=good.requests_per_s,
            good_share=good.share,
            batch_size=result.batch_size,
            accept_length=result.accept_length,
            switches=result.switches,
            requests=len(result.requests),
            time_share=dict(zip(policy.steps, share.tolist(), strict=True)),
        )

    def answer(self, schedule: Schedule, runs: dict[Contender, list[Run]]) -> LoadAnswer:
        """Compare all ways with the best of those without a table."""
        mean = {c: float(np.mean([run.score for run in of_c])) for c, of_c in runs.items()}
        ways = sorted(runs, key=lambda c: (get_args(Role).index(c.role), -mean[c]))
        static = max((c for c in ways if c.role in ("none", "fixed")), key=mean.__getitem__)
        outcomes = [outcome_of(c, runs[c], runs[static]) for c in ways]
        table = next(o for o in outcomes if o.role == "table")
        noise = 0.0 if math.isnan(table.gain_se) else 2.0 * table.gain_se
        return LoadAnswer(
            profile=self.profile.name,
            seed=self.question.seed,
            repeats=len(table.runs),
            load=self.load.label,
            score=self.score,
            targets=self.question.targets,
            engine=schedule.engine,
            engine_version=schedule.engine_version,
            algorithm=schedule.algorithm,
            table=schedule.table,
            engine_config=schedule.engine_config,
            flags=schedule.flags,
            kv_pool_share_of_drafter=schedule.kv_pool_share_of_drafter,
            worth_it=table.gain > max(noise, SWITCH_GAIN),
            best_static=static.name,
            outcomes=tuple(outcomes),
            notes=(*schedule.notes, *self._notes()),
            config_lines=schedule.config_lines,
        )

    def _notes(self) -> Iterator[str]:
        """Say what is assumed."""
        yield "changing the steps takes no time: assumed, engines swap prepared graphs"
        workload = self.question.workload(self.profile.setup.workload)
        if workload.evidence == "assumed" and not isinstance(self.load, Trace):
            yield (
                f"prompt and answer lengths are assumed: {workload.input_len.mean:g} and "
                f"{workload.output_len.mean:g} tokens"
            )
        today = self.profile.setup.current
        if today is not None and today.speculates:
            yield (
                f"only {today.num_steps} steps ran on this server as far as its profile tells: "
                "other depths are the model's word, measure one before you rely on a table"
            )


def _always(setting: SpecSetting) -> str:
    tree = f", tree {setting.topk}x{setting.num_draft_tokens}" if setting.topk > 1 else ""
    return f"always {setting.num_steps} steps{tree}, {setting.scheduler}"
