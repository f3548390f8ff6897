"""The front door of the library: a profile, settings and loads in, a curve out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.acceptance import accept_table
from specsim.analytic import Solution, solve
from specsim.case import Case
from specsim.cost import CostModel
from specsim.curve import Comparison, Curve, CurvePoint, Role, Series, Solver
from specsim.engine import RunPlan, engine_named
from specsim.errors import EngineRefusal
from specsim.evidence import Evidence, weakest
from specsim.parameters import cost_parameters
from specsim.profile import Profile
from specsim.question import Question
from specsim.setting import SpecSetting
from specsim.uncertainty import Z90, Spread, normal_cdf
from specsim.workload import Load, Workload

if TYPE_CHECKING:
    from specsim.arrays import Floats

Progress = Callable[[int, int], None]


def predict(
    profile: Profile,
    question: Question,
    *,
    solver: Solver = "simulate",
    seed: int = 0,
    progress: Progress | None = None,
) -> Curve:
    """Answer a question: throughput over load for the baseline, the current and asked settings.

    Parameters
    ----------
    profile
        The server.
    question
        What is asked.
    solver
        ``simulate`` for the shown curve, or ``analytic``; intervals are always analytic.
    seed
        Of the simulation; compared settings share random numbers.
    progress
        Called with (cells done, cells in all).

    Raises
    ------
    EngineRefusal
        If the engine refuses an asked setting and `what_if` is not set.
    """
    lanes = _lanes(profile, question)
    loads = question.loads
    workload = question.workload(profile.setup.workload.workload)
    points = [(lane, load) for lane in lanes for load in loads]

    def at(coordinates: Floats) -> tuple[CostModel, list[Case]]:
        return _cases(profile, points, workload, question, coordinates)

    def log_output(coordinates: Floats) -> Floats:
        """ln(throughput) under each row of coordinates, all solved in one go."""
        flat = [case for row in coordinates for case in at(row)[1]]
        costs = [cost_parameters(profile.parameters, row) for row in coordinates]
        tps = solve(cost.stacked(costs, len(points)), flat, with_limit=False).output_tps
        return np.log(tps).reshape(len(coordinates), len(points))

    cost, cases = at(profile.coordinates)
    centre = solve(cost, cases)
    errors = profile.spread(log_output)
    if solver == "simulate":
        numbers = _simulated(cost, cases, seed, progress)
    else:
        numbers = [_of_solution(centre, i) for i in range(len(points))]
    series = _series(profile, lanes, points, workload, numbers, centre.limit, errors)
    return Curve(profile.name, seed, solver, series, _notes(profile, lanes, workload))


@dataclass(frozen=True, slots=True)
class _Lane:
    """One line of the plot."""

    role: Role
    plan: RunPlan


@dataclass(frozen=True, slots=True)
class _Numbers:
    """What a solver says of one point."""

    output_tps: float
    batch_size: float
    round_s: float
    accept_length: float
    tpot: tuple[float, float | None, float | None]
    ttft: tuple[float | None, float | None, float | None]


def _lanes(profile: Profile, question: Question) -> tuple[_Lane, ...]:
    """Baseline, current, asked; and asked where a later version runs it differently."""
    system = profile.system()

    def plan(setting: SpecSetting, version: str | None, what_if: bool) -> RunPlan:
        return system.plan(
            setting,
            engine_version=version,
            max_running_requests=question.max_running_requests,
            what_if=what_if,
        )

    version = question.engine_version
    lanes = [_Lane("baseline", plan(SpecSetting.none(), version, False))]
    current = profile.setup.current
    if current is not None and current.speculates:
        # what runs today is shown as it runs today
        lanes.append(_Lane("current", plan(current, None, True)))
    for setting in question.settings:
        asked = plan(setting, version, question.what_if)
        new = [_Lane("asked", asked)]
        later = engine_named(asked.engine).trees_overlap_from
        waits = setting.topk > 1 and asked.setting.scheduler == "sequential"
        if version is None and later and waits and setting.scheduler == "auto":
            with suppress(EngineRefusal):  # what the later version refuses is no alternative
                other = plan(setting, later, False)
                if other.setting.scheduler != asked.setting.scheduler:
                    new.append(_Lane("alternative", other))
        for lane in new:
            if not any(_same(lane.plan, known.plan) for known in lanes):
                lanes.append(lane)
    return tuple(lanes)


def _same(one: RunPlan, other: RunPlan) -> bool:
    return (one.setting, one.version) == (other.setting, other.version)


def _cases(
    profile: Profile,
    points: Sequence[tuple[_Lane, Load]],
    workload: Workload,
    question: Question,
    coordinates: Floats,
) -> tuple[CostModel, list[Case]]:
    """All points under given parameter values."""
    system = profile.system(coordinates)
    acceptance = profile.acceptance(question.dataset, question.temperature, coordinates)
    of_lane: dict[int, Case] = {}
    cases = []
    for lane, load in points:
        case = of_lane.get(id(lane))
        if case is None:  # only the load differs within a lane
            table = accept_table(acceptance, lane.plan.setting)
            case = of_lane[id(lane)] = Case.of(system, lane.plan, table, workload, load)
        cases.append(case.at(load))
    return system.cost, cases


def _of_solution(solution: Solution, i: int) -> _Numbers:
    ttft = float(solution.ttft_s[i])
    return _Numbers(
        float(solution.output_tps[i]),
        float(solution.batch_size[i]),
        float(solution.round_s[i]),
        float(solution.accept_length[i]),
        (float(solution.tpot_s[i]), None, None),
        (None if math.isnan(ttft) else ttft, None, None),
    )


def _simulated(
    cost: CostModel, cases: Sequence[Case], seed: int, progress: Progress | None
) -> list[_Numbers]:
    """Simulate every point; all of one load see the same lengths and request quantiles."""
    from specsim.simulate import simulate

    result = []
    for done, case in enumerate(cases):
        load = case.load
        stream = np.random.SeedSequence([seed, load.concurrency])
        run = simulate(cost, case, rng=np.random.default_rng(stream), record_rounds=False)
        result.append(
            _Numbers(
                run.output_tps,
                run.batch_size,
                run.round_s,
                run.accept_length,
                (run.tpot_s, _known(run.tpot_p50_s), _known(run.tpot_p99_s)),
                (_known(run.ttft_s), _known(run.ttft_p50_s), _known(run.ttft_p99_s)),
            )
        )
        if progress is not None:
            progress(done + 1, len(cases))
    return result


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _series(
    profile: Profile,
    lanes: Sequence[_Lane],
    points: Sequence[tuple[_Lane, Load]],
    workload: Workload,
    numbers: Sequence[_Numbers],
    limits: Sequence[str],
    errors: Spread,
) -> tuple[Series, ...]:
    """Join the solver's numbers with intervals; the baseline's rows come first."""
    loads = len(points) // len(lanes)
    sd = errors.sd
    series = []
    for k in range(len(lanes)):
        rows, comparisons = [], []
        for j in range(loads):
            i = k * loads + j
            ratio = numbers[i].output_tps / numbers[j].output_tps
            rows.append(
                _point(
                    points[i],
                    workload,
                    numbers[i],
                    float(sd[i]),
                    ratio,
                    limits[i],
                    _evidence(profile, errors, i, workload),
                )
            )
            comparisons.append(_comparison(points[i][1], ratio, errors.ratio_sd(i, j), k == 0))
        series.append(Series(tuple(rows), tuple(comparisons)))
    return tuple(series)


def _comparison(load: Load, ratio: float, sd: float, baseline: bool) -> Comparison:
    if baseline:
        return Comparison(load.concurrency, 0.0, 0.0, 0.0, 0.0)
    low, high = ratio * math.exp(-Z90 * sd), ratio * math.exp(Z90 * sd)
    probability = normal_cdf(math.log(ratio) / sd) if sd > 0 else float(ratio > 1)
    return Comparison(load.concurrency, ratio - 1, low - 1, high - 1, probability)


def _point(
    point: tuple[_Lane, Load],
    workload: Workload,
    numbers: _Numbers,
    sd: float,
    ratio: float,
    limit: str,
    evidence: Evidence,
) -> CurvePoint:
    lane, load = point
    plan, setting = lane.plan, lane.plan.setting
    steady = load.kind == "steady_decode"
    return CurvePoint(
        role=lane.role,
        algorithm=setting.algorithm,
        topk=setting.topk,
        num_steps=setting.num_steps,
        num_draft_tokens=setting.num_draft_tokens,
        scheduler="sequential" if setting.scheduler == "sequential" else "overlap",
        engine=plan.engine,
        engine_version=plan.version,
        allowed=plan.allowed,
        what_if=plan.what_if,
        reason=plan.reason,
        concurrency=load.concurrency,
        input_len=None if steady else workload.input_len.mean,
        output_len=None if steady else workload.output_len.mean,
        context_len=load.context_len if steady else None,
        output_tps=numbers.output_tps,
        output_tps_low=numbers.output_tps * math.exp(-Z90 * sd),
        output_tps_high=numbers.output_tps * math.exp(Z90 * sd),
        speedup=ratio,
        accept_length=numbers.accept_length,
        batch_size=numbers.batch_size,
        round_time_s=numbers.round_s,
        tpot_s=numbers.tpot[0],
        tpot_p50_s=numbers.tpot[1],
        tpot_p99_s=numbers.tpot[2],
        ttft_s=numbers.ttft[0],
        ttft_p50_s=numbers.ttft[1],
        ttft_p99_s=numbers.ttft[2],
        evidence=evidence,
        limit=limit,
    )


def _evidence(profile: Profile, errors: Spread, row: int, workload: Workload) -> Evidence:
    """Return the weakest of the lengths and of the parameters with over 5 % of the variance."""
    shares = errors.shares(row)
    heavy = [
        p.evidence for p, share in zip(profile.parameters, shares, strict=True) if share > 0.05
    ]
    return weakest([workload.evidence, "fitted" if profile.fit.observations else "assumed", *heavy])


def _notes(profile: Profile, lanes: Sequence[_Lane], workload: Workload) -> tuple[str, ...]:
    """Say what the engine changed or has to be told, once each, and what is assumed."""
    notes: list[str] = []
    for lane in lanes:
        for note in (*lane.plan.notes, *([lane.plan.reason] if lane.plan.reason else [])):
            text = f"{lane.plan.setting.label}: {note}"
            if lane.role in ("asked", "alternative") and text not in notes:
                notes.append(text)
    if workload.evidence == "assumed":
        notes.append(
            f"prompt and answer lengths are assumed: {workload.input_len.mean:g} "
            f"({workload.input_cached:g} cached) and {workload.output_len.mean:g} tokens"
        )
    assumed = [p.name for p in profile.parameters if p.fitted and p.driven == "prior"]
    if assumed:
        notes.append("fitted but prior-driven: " + ", ".join(assumed))
    return tuple(notes)
