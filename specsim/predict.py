"""The front door of the library: a server and a question in, a curve out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from specsim.acceptance import AcceptTable
from specsim.analytic import Solution, solve, solve_along
from specsim.case import Case
from specsim.cost.model import CostModel
from specsim.cost.rounds import RoundTime
from specsim.curve import Curve, CurvePoint, Role, Solver
from specsim.engine import RunPlan, engine_named
from specsim.errors import EngineRefusal
from specsim.parameters import knot_of
from specsim.question import Question
from specsim.server import Setup
from specsim.server.system import System
from specsim.setting import Algorithm, SpecSetting
from specsim.uncertainty import Evidence, Interval, Parameter, Spread, normal_cdf, strayed, weakest
from specsim.workload import Load, Workload

if TYPE_CHECKING:
    from specsim.arrays import Floats
    from specsim.curve import Misfit
    from specsim.simulate import SimulationResult

Progress = Callable[[int, int], None]

HEAVY_SHARE = 0.05
"""Share of the variance from which a parameter's evidence counts."""


class Server(Protocol):
    """What a prediction needs of a profile."""

    @property
    def name(self) -> str:
        """Of the profile."""

    @property
    def setup(self) -> Setup:
        """What runs there."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its numbers."""

    @property
    def coordinates(self) -> Floats:
        """Where they stand."""

    @property
    def measured(self) -> bool:
        """Whether they rest on any measurement of this server."""

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        """Measured cells that they do not honour."""

    def spread(self, log_output: Callable[[Floats], Floats]) -> Spread:
        """Return the errors of ln(throughput), given as a function of coordinates."""

    def system(self, coordinates: Floats | None = None) -> System:
        """Return the server, priced."""

    def knows(self, algorithm: Algorithm) -> bool:
        """Whether anything is known of that drafter here."""

    def accept_tables(
        self,
        settings: Sequence[SpecSetting],
        dataset: str | None = None,
        temperature: float | None = None,
        coordinates: Floats | None = None,
    ) -> tuple[AcceptTable, ...]:
        """Return what settings buy."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Settings by loads that are asked about."""

    plans: tuple[RunPlan, ...]
    loads: tuple[Load, ...]  # of one kind, and of one context
    workload: Workload
    dataset: str | None = None  # whose acceptance; None is the profile's first
    temperature: float | None = None

    @classmethod
    def of(
        cls, profile: Server, asked: Question, plans: Sequence[RunPlan], loads: Sequence[Load] = ()
    ) -> Grid:
        """Return some settings at the loads of a question, or at others, for its requests."""
        workload = asked.workload(profile.setup.workload)
        at = tuple(loads or asked.loads)
        return cls(tuple(plans), at, workload, asked.dataset, asked.temperature)

    @property
    def shape(self) -> tuple[int, int]:
        """Settings, loads."""
        return len(self.plans), len(self.loads)

    def only(self, rows: Sequence[int]) -> Grid:
        """Return the same loads for some of the settings."""
        return replace(self, plans=tuple(self.plans[i] for i in rows))

    def firsts(self, profile: Server, at: Floats | None = None) -> tuple[CostModel, list[Case]]:
        """Return what prices rounds, and each setting at the first load.

        `at`: coordinates of the profile's parameters, where they are not its own.
        """
        coordinates = profile.coordinates if at is None else at
        system = profile.system(coordinates)
        settings = [plan.setting for plan in self.plans]
        tables = profile.accept_tables(settings, self.dataset, self.temperature, coordinates)
        return system.cost, [
            Case.of(system, plan, table, self.workload, self.loads[0])
            for plan, table in zip(self.plans, tables, strict=True)
        ]

    def cases(self, profile: Server) -> tuple[CostModel, list[Case]]:
        """Return what prices rounds, and all cells, setting by setting."""
        cost, firsts = self.firsts(profile)
        return cost, [case.at(load) for case in firsts for load in self.loads]

    def logs(self, profile: Server, at: Floats) -> Floats:
        """Return ln X of all cells, setting by setting, under each row of coordinates.

        Behind them ln(accept length) of all cells.
        """
        cost = profile.system().cost
        found = solve_along(
            cost, profile.parameters, at, lambda row: self.firsts(profile, row)[1], self.loads
        )
        both = [x.reshape(len(at), -1) for x in (found.output_tps, found.accept_length)]
        logs: Floats = np.log(np.concatenate(both, axis=1))
        return logs

    def simulate(
        self, profile: Server, seed: int, at: Sequence[tuple[int, int]] | None = None
    ) -> Iterator[SimulationResult]:
        """Simulate cells (setting, load), by default all; all share their random numbers."""
        from specsim.simulate import simulate

        cost, cases = self.cases(profile)
        for i, j in np.ndindex(self.shape) if at is None else at:
            rng = np.random.default_rng(seed)
            yield simulate(cost, cases[i * len(self.loads) + j], rng=rng, record_rounds=False)

    def solve(self, profile: Server, at: Floats | None = None, with_limit: bool = False) -> Cells:
        """Solve all cells in closed form; `with_limit` also finds out what binds each."""
        cost, firsts = self.firsts(profile, at)
        found = solve(cost, firsts, with_limit, self.loads)
        names = ("output_tps", "accept_length", "batch_size", "round_s", "tpot_s", "ttft_s")
        arrays = {name: getattr(found, name).reshape(self.shape) for name in names}
        return Cells(**arrays, limits=found.limit, time=found.time)


@dataclass(frozen=True, slots=True)
class Cells:
    """A closed-form solution, arrays (settings, loads)."""

    output_tps: Floats
    accept_length: Floats
    batch_size: Floats
    round_s: Floats
    tpot_s: Floats
    ttft_s: Floats
    limits: tuple[str, ...]  # setting by setting; empty if not asked for
    time: RoundTime  # parts of each cell's round, setting by setting

    @property
    def log_tps(self) -> Floats:
        """Logarithm of the throughput."""
        return np.log(self.output_tps)

    def limit(self, i: int, j: int) -> str:
        """Return what binds setting i at load j; it must have been solved for."""
        return self.limits[int(i * self.output_tps.shape[1] + j)]


Lane = tuple[Role, RunPlan]  # one line of the plot


def predict(
    profile: Server,
    question: Question,
    *,
    solver: Solver = "simulate",
    seed: int = 0,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Curve:
    """Answer a question: throughput over load for the baseline, the current and asked settings.

    Parameters
    ----------
    profile
        The server.
    question
        Settings, loads and requests.
    solver
        ``simulate`` for the shown curve, or ``analytic``; intervals are always analytic.
    seed
        Of the random numbers, which compared settings share.
    jobs
        Processes that simulate; the answer does not depend on it.
    progress
        Called with (cells done, cells in all).

    Raises
    ------
    EngineRefusal
        If the engine refuses an asked setting and `what_if` is not set.
    """
    lanes = lanes_of(profile, question)
    grid = Grid.of(profile, question, [plan for _, plan in lanes])
    cost, cases = grid.cases(profile)
    solution = solve(cost, cases)
    errors = profile.spread(partial(grid.logs, profile))
    if solver == "simulate":
        solution = _simulated(cost, cases, seed, solution, jobs, progress)
    rows = _rows(profile, lanes, cases, solution, errors)
    asked = [(case.plan.setting, case.load) for case in cases]
    near = [m.sentence for m in profile.misfits if any(m.is_near(*point) for point in asked)]
    notes = (*near, *_notes(profile, lanes, grid.workload))
    return Curve(profile.name, seed, solver, rows, notes)


def lanes_of(profile: Server, question: Question) -> tuple[Lane, ...]:
    """Return baseline, current, asked; and asked where a later version runs it differently."""
    system = profile.system()

    def plan(setting: SpecSetting, version: str | None, what_if: bool) -> RunPlan:
        return system.plan(
            setting,
            engine_version=version,
            max_running_requests=question.max_running_requests,
            what_if=what_if,
        )

    version = question.engine_version
    lanes: list[Lane] = [("baseline", plan(SpecSetting.none(), version, False))]
    current = profile.setup.current
    if current is not None and current.speculates:
        # what runs today is shown as it runs today
        lanes.append(("current", plan(current, None, True)))
    for setting in question.settings:
        asked = plan(setting, version, question.what_if)
        new: list[Lane] = [("asked", asked)]
        later = engine_named(asked.engine).trees_overlap_from
        waits = setting.topk > 1 and asked.setting.scheduler == "sequential"
        if version is None and later and waits and setting.scheduler == "auto":
            with suppress(EngineRefusal):  # what the later version refuses is no alternative
                other = plan(setting, later, False)
                if other.setting.scheduler != asked.setting.scheduler:
                    new.append(("alternative", other))
        known = {(p.setting, p.version) for _, p in lanes}
        lanes += [(role, p) for role, p in new if (p.setting, p.version) not in known]
    return tuple(lanes)


def _simulated(
    cost: CostModel,
    cases: Sequence[Case],
    seed: int,
    solution: Solution,
    jobs: int,
    progress: Progress | None,
) -> Solution:
    """Return the solution with what a simulation gives of every point.

    What limits a point stays what the closed form says, and what it delivers where all that
    arrives is served: that is known, arrivals are a sample.
    """
    from specsim.simulate.points import simulate_points

    runs = simulate_points(cost, cases, solution.saturated, seed, jobs, progress)
    is_open = np.array([case.load.kind == "open_loop" for case in cases])
    values: dict[str, Any] = {}
    for name, seen in runs.items():
        known = getattr(solution, name)
        # what a run of single tokens has not is left to the closed form
        values[name] = seen if known is None else np.where(np.isnan(seen), known, seen)
    known_rate = is_open & ~solution.saturated
    values["output_tps"] = np.where(known_rate, solution.output_tps, values["output_tps"])
    return replace(solution, **values)


def _rows(
    profile: Server,
    lanes: Sequence[Lane],
    cases: Sequence[Case],
    solution: Solution,
    errors: Spread,
) -> tuple[CurvePoint, ...]:
    """Join the solver's numbers with intervals; the baseline's points come first."""
    loads = len(cases) // len(lanes)
    tps, sd = solution.output_tps.tolist(), errors.sd.tolist()
    server: Evidence = "fitted" if profile.measured else "assumed"
    rows = []
    for i, case in enumerate(cases):
        role, same_load = lanes[i // loads][0], i % loads
        ratio, probability = Interval(1.0, 1.0, 1.0), 0.0
        if role != "baseline":
            ratio_sd = errors.ratio_sd(i, same_load)
            ratio = Interval.of_log(tps[i] / tps[same_load], ratio_sd)
            certain = float(ratio.value > 1)
            probability = normal_cdf(math.log(ratio.value) / ratio_sd) if ratio_sd > 0 else certain
        shares = zip(profile.parameters, errors.shares(i), strict=True)
        heavy = [parameter.evidence for parameter, share in shares if share > HEAVY_SHARE]
        point = _point(role, case, solution, i, Interval.of_log(tps[i], sd[i]))
        rows.append(
            replace(
                point,
                speedup=ratio.value,
                gain_low=ratio.low - 1,
                gain_high=ratio.high - 1,
                probability=probability,
                evidence=weakest([case.workload.evidence, server, *heavy]),
            )
        )
    return tuple(rows)


def _point(role: Role, case: Case, solution: Solution, i: int, output: Interval) -> CurvePoint:
    """Describe the i-th case, not yet compared with others."""
    plan, setting, load, workload = case.plan, case.plan.setting, case.load, case.workload
    steady, saturated = load.kind == "steady_decode", bool(solution.saturated[i])

    def known(values: Floats | None) -> float | None:
        return None if values is None or math.isnan(values[i]) else float(values[i])

    def waited(values: Floats | None) -> float | None:
        return None if saturated else known(values)

    return CurvePoint(
        role=role,
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
        saturated=saturated,
        concurrency=load.concurrency,
        input_len=None if steady else float(workload.input_len.mean),
        output_len=None if steady else float(workload.output_len.mean),
        context_len=load.context_len if steady else None,
        output_tps=output.value,
        output_tps_low=output.low,
        output_tps_high=output.high,
        speedup=1.0,
        accept_length=float(solution.accept_length[i]),
        batch_size=float(solution.batch_size[i]),
        round_time_s=float(solution.round_s[i]),
        tpot_s=float(solution.tpot_s[i]),
        tpot_p50_s=known(solution.tpot_p50_s),
        tpot_p99_s=known(solution.tpot_p99_s),
        ttft_s=waited(solution.ttft_s),
        ttft_p50_s=waited(solution.ttft_p50_s),
        ttft_p99_s=waited(solution.ttft_p99_s),
        evidence="assumed",
        limit=solution.limit[i],
    )


def _notes(profile: Server, lanes: Sequence[Lane], workload: Workload) -> tuple[str, ...]:
    """Say what the engine changed or has to be told, once each, and what is assumed."""
    asked = [plan for role, plan in lanes if role in ("asked", "alternative")]
    notes = [
        f"{plan.setting.label}: {note}"
        for plan in asked
        for note in (*plan.notes, *([plan.reason] if plan.reason else []))
    ]
    notes += [
        f"nothing is known of {s.algorithm} here: accept lengths are those of its kind"
        + ("; --set draft=.. names its drafter" if s.has_weights else "")
        for s in (plan.setting for plan in asked)
        if profile.measured and s.drafts and not profile.knows(s.algorithm)
    ]
    notes += [workload.assumed_lengths] if workload.evidence == "assumed" else []
    numbers = [p for p in profile.parameters if knot_of(p.name) is None]
    notes += strayed(numbers)
    assumed = [p.name for p in numbers if p.fitted and p.driven == "prior"]
    if assumed:
        notes.append("fitted but prior-driven: " + ", ".join(assumed))
    return tuple(dict.fromkeys(notes))
