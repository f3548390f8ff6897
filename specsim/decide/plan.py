"""What to measure next: measurements ranked by how much they should cut the decision's regret.

What is believed of all cells, and what a measurement would make of it, is linear and Gaussian. The
state x holds the parameters' coordinates (and psi), the cells' own model errors and the loads'
shared ones. ln X = base + view x. A measurement with rows A and noise R turns the covariance P into

    P' = P - G V^-1 G',  G = P A',  V = A P A' + R                                     (UPDATE)

whatever is measured, so that its worth is known before: the posterior mean of the cells will be
normal around today's with covariance view G V^-1 G' view', and

    worth = E[max_i m'_i] - max_i m_i                                                   (WORTH)

is what the decision is expected to gain in ln(throughput): the cut of its expected regret.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from specsim.arrays import Floats, Ints
from specsim.calibrate.problem import ACCEPT_SIGMA
from specsim.decide import Planned
from specsim.decide.contest import contest_of
from specsim.decide.outlook import Outlook, root
from specsim.engine import RunPlan, engine_named
from specsim.parameters import ALLREDUCE_SD
from specsim.profile import Profile
from specsim.question import Question
from specsim.uncertainty import each


@dataclass(frozen=True, slots=True)
class Belief:
    """A Gaussian over the state."""

    base: Floats  # (settings, loads): ln X at state zero
    view: Floats  # (cells, state): what the state adds to each cell, settings first
    shared: Floats  # (cells, state): what a measurement sees besides, and no comparison does
    mean: Floats  # of the state
    covariance: Floats
    parameters: int  # how many of the state, the first, are coordinates of the profile, psi too

    @property
    def cells(self) -> Floats:
        """(settings, loads): expected ln X."""
        return self.base + (self.view @ self.mean).reshape(self.base.shape)

    def foreseen(self, rows: Floats, noise: Floats) -> Floats:
        """Return F: the cells' posterior mean moves by F u with u standard normal, (cells, m).

        Measured are m numbers that see the state by `rows` (m, state), with errors `noise` (m,).
        """
        gain = self.covariance @ rows.T
        total = rows @ gain + np.diag(noise**2)
        half = np.linalg.cholesky(total + 1e-12 * np.eye(len(total)))
        return np.asarray(self.view @ np.linalg.solve(half, gain.T).T)

    def cell_rows(self, setting: int, loads: Ints) -> Floats:
        """Return the rows of a sweep of one setting over loads."""
        cells = setting * self.base.shape[1] + loads
        return np.asarray(self.view[cells] + self.shared[cells])

    def regret(self, normal: Floats, weights: Floats) -> float:
        """Return the expected regret of choosing the best mean at every load, in ln X (`worth`)."""
        drawn = normal @ (self.view @ root(self.covariance)).T
        return float((_excess(self.cells, drawn) * weights).sum())


def belief(view: Outlook) -> Belief:
    """Return the belief that an outlook is, state at zero."""
    settings, loads = view.grid.shape
    cells, parameters = settings * loads, len(view.covariance)
    size = parameters + cells + loads
    covariance = np.zeros((size, size))
    covariance[:parameters, :parameters] = view.covariance
    covariance[parameters : parameters + cells, parameters : parameters + cells] = view.specific()
    covariance[parameters + cells :, parameters + cells :] = view.shared_sd**2 * view.alike_loads
    seen, shared = np.zeros((cells, size)), np.zeros((cells, size))
    seen[:, :parameters] = view.flat_jacobian
    seen[:, parameters : parameters + cells] = np.eye(cells)
    shared[:, parameters + cells :] = np.tile(np.eye(loads), (settings, 1))
    return Belief(view.mean, seen, shared, np.zeros(size), covariance, parameters)


def worth(now: Belief, rows: Floats, noise: Floats, normal: Floats, weights: Floats) -> float:
    """Return what a measurement is expected to gain (WORTH), in ln(throughput).

    Parameters
    ----------
    now
        What is believed.
    rows, noise
        The measurement, as :meth:`Belief.foreseen` takes it.
    normal
        (draws, at least m): standard normal numbers, the same for all measurements.
    weights
        (loads,): how much each load counts, adding up to 1.
    """
    moved = normal[:, : len(rows)] @ now.foreseen(rows, noise).T
    return float((_excess(now.cells, moved) * weights).sum())


def _excess(mean: Floats, moves: Floats) -> Floats:
    """Return E[max(m + move) - (m + move) of today's best] per load, moves (draws, cells).

    The second term has mean zero beyond max(m): it only takes out noise.
    """
    after = mean + moves.reshape(-1, *mean.shape)
    today = np.take_along_axis(after, mean.argmax(axis=0)[None, None, :], axis=1)[:, 0, :]
    return np.asarray((after.max(axis=1) - today).mean(axis=0))


SCHEMA = "specsim.plan/1"

Kind = Literal["sweep", "accept-log", "pinned-timing", "nccl-tests", "trace"]

LOADS = (1, 10, 30, 100)
FINALISTS = 12
CANDIDATES = 6  # settings in the decision, and those among them whose measurement is considered

RESTART_MIN, CELL_MIN, LOG_MIN, TRACE_MIN, NCCL_MIN = 10.0, 3.0, 3.0, 3.0, 2.0
"""Assumed minutes: another launch, one load of a sweep, one more log, a trace, nccl-tests."""

TRACE_SD = 0.05  # assumed: error of ln(time) of a phase in a trace of one batch size

TRACE_DEPTH_SD = 0.1
"""Assumed: error of the share psi of the overhead that grows with depth, read off a trace."""

STOP = 0.002
"""A measurement that is expected to bring less than this in ln(throughput) is not worth it."""

DRAWS = 4000

ACCEPTANCE = ("accept_", "rank_scale", "confidence_shift")
"""Parameters that a pinned acceptance does not see."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One thing that could be measured."""

    kind: Kind
    setting: Planned | None  # with which setting; None for nccl-tests
    regret_cut: float  # expected cut of the decision's regret, a fraction of the throughput
    gpu_minutes: float  # of all GPUs, a restart included
    cells: int  # throughput cells that it measures
    how: str  # what to do

    @property
    def label(self) -> str:
        """Kind and setting, without what tells no measurements apart."""
        return self.kind + ("" if self.setting is None else f": {self.setting.plan.setting.brief}")


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """Measurements by worth, the best first; fields as in ``specsim.plan/1``."""

    profile: str
    concurrency: tuple[int, ...]  # loads that the decision is about
    regret: float  # expected of deciding now, as a fraction of the throughput
    stop_below: float
    worth_measuring: bool
    measurements: tuple[Measurement, ...]
    notes: tuple[str, ...] = ()  # what it rests on

    @property
    def worthwhile(self) -> tuple[Measurement, ...]:
        """Those that would change the choice often enough; empty: decide now."""
        return tuple(m for m in self.measurements if m.regret_cut >= self.stop_below)


def plan_measurements(profile: Profile, question: Question | None = None) -> MeasurementPlan:
    """Rank measurements by the expected cut of the regret of the choice at every load (WORTH).

    Parameters
    ----------
    profile
        The server.
    question
        Loads that matter, equally unless it has a mix; limits of the candidates, engine version,
        requests.
    """
    question = question or Question(concurrency=LOADS)
    shares = dict(question.mix) or dict.fromkeys(question.concurrency, 1.0)
    levels = tuple(sorted(shares))
    of = replace(question, concurrency=levels)
    found = contest_of(profile, of, most=FINALISTS, refused_too=False)
    weights = np.array([shares[c] for c in levels]) / sum(shares.values())
    rng = np.random.default_rng(question.seed)
    now = belief(found.outlook)
    normal = rng.standard_normal((DRAWS, len(now.mean)))
    bench = _Bench(profile, found.outlook, found.current, now, normal, weights)
    ranked = sorted(
        bench.measurements(), key=lambda m: (-round(m.regret_cut, 4), m.gpu_minutes, m.label)
    )
    return MeasurementPlan(
        profile.name,
        levels,
        now.regret(normal, weights),
        STOP,
        any(m.regret_cut >= STOP for m in ranked),
        tuple(ranked),
    )


@dataclass(frozen=True, slots=True)
class _Bench:
    """What could be measured for a decision, and what weighs it."""

    profile: Profile
    view: Outlook
    current: int | None  # index of what runs today
    now: Belief
    normal: Floats
    weights: Floats

    def measurements(self) -> Iterator[Measurement]:
        """Weigh everything that could be measured."""
        plans, loads = self.view.grid.plans, self.view.grid.shape[1]
        noise = np.full(loads, max(self.profile.fit.noise, 1e-3))
        length, sigma = self._accept_length_rows(), np.array([ACCEPT_SIGMA["run"]])
        blind = np.ones(len(self.now.mean))  # to the parameters of acceptance
        accepting = [p.name.startswith(ACCEPTANCE) for p in self.profile.parameters]
        blind[np.flatnonzero(accepting)] = 0.0
        looked_at = self._worth_a_look()
        for i in looked_at:
            plan, restart = plans[i], 0.0 if i == self.current else RESTART_MIN
            rows, sweep = self.now.cell_rows(i, np.arange(loads)), CELL_MIN * loads
            how = f"{loads} loads with {plan.setting.name}"
            yield self._weighed("sweep", plan, rows, noise, restart + sweep, how, loads)
            if not plan.setting.speculates:
                continue
            log = f"the accept length from the log of a run with {plan.setting.name}"
            yield self._weighed("accept-log", plan, length[[i]], sigma, restart + LOG_MIN, log)
            how += f" and pinned acceptance ({engine_named(plan.engine).pins_acceptance})"
            minutes = RESTART_MIN + sweep
            yield self._weighed("pinned-timing", plan, rows * blind, noise, minutes, how, loads)
        yield from self._allreduce()
        traced = looked_at[-1] if self.current is None else self.current
        if plans[traced].setting.speculates:
            yield self._trace(traced)

    def _weighed(
        self,
        kind: Kind,
        plan: RunPlan | None,
        rows: Floats,
        noise: Floats,
        minutes: float,
        how: str,
        cells: int = 0,
    ) -> Measurement:
        """Weigh a measurement; rows and noise are as `Belief.foreseen` takes them."""
        cut = worth(self.now, rows, noise, self.normal, self.weights)
        setting = None if plan is None else Planned(plan)
        gpu_minutes = minutes * self.profile.setup.hardware.gpu_count
        return Measurement(kind, setting, cut, gpu_minutes, cells, how)

    def _worth_a_look(self) -> list[int]:
        """Return no speculation, what runs today and the most promising, each setting once."""
        plans, mean = self.view.grid.plans, self.view.mean
        gap = (mean.max(axis=0) - mean).min(axis=1)
        chosen = [0] if self.current is None else [0, self.current]
        for i in np.argsort(gap, kind="stable").tolist():
            keys = {plans[k].setting.key for k in chosen}
            if plans[i].setting.key not in keys and len(chosen) < CANDIDATES:
                chosen.append(i)
        return chosen

    def _accept_length_rows(self) -> Floats:
        """Differentiate ln of every setting's accept length by the state, (settings, state)."""
        grid = replace(self.view.grid, loads=self.view.grid.loads[:1])

        def log_length(coordinates: Floats) -> Floats:
            return np.log(grid.solve(self.profile, coordinates).accept_length[:, 0])

        return self._state_rows(log_length)

    def _state_rows(self, function: Callable[[Floats], Floats]) -> Floats:
        """Differentiate a function of the parameters by the state, (values, state)."""
        jacobian = self.profile.spread(each(function)).jacobian
        rows = np.zeros((len(jacobian), len(self.now.mean)))
        rows[:, : jacobian.shape[1]] = jacobian
        return rows

    def _allreduce(self) -> Iterator[Measurement]:
        """nccl-tests pin latency and bandwidth down to what a measured table is worth."""
        names = ("allreduce_latency", "allreduce_bandwidth")
        known = dict(zip(names, ALLREDUCE_SD["measured"], strict=True))
        pinned = [(k, p) for k, p in enumerate(self.profile.parameters) if p.name in known]
        if pinned:
            rows = np.eye(len(self.now.mean))[[k for k, _ in pinned]]
            noise = np.array([known[p.name] / p.prior_sd for _, p in pinned])
            how = "all_reduce_perf of nccl-tests from 4 KiB to 4 MiB, the server stopped"
            yield self._weighed("nccl-tests", None, rows, noise, RESTART_MIN + NCCL_MIN, how)

    def _trace(self, traced: int) -> Measurement:
        """One profiler trace: the phases of a round at one batch, and what grows with depth."""
        plan = self.view.grid.plans[traced]
        one = replace(self.view.grid, plans=(plan,), loads=self.view.grid.loads[-1:])

        def phases(coordinates: Floats) -> Floats:
            time = one.solve(self.profile, coordinates).time
            draft = time.draft_s + time.extend_s + time.tree_s
            target = time.target_s - time.allreduce_s
            parts = [target, time.allreduce_s, draft, time.overhead_s, time.host_s]
            return np.log(np.maximum(np.concatenate(parts), 1e-9))

        rows = self._state_rows(phases)
        noise = np.append(np.full(len(rows), TRACE_SD), TRACE_DEPTH_SD)
        psi = np.eye(len(self.now.mean))[[self.now.parameters - 1]]
        minutes = TRACE_MIN + (0.0 if traced == self.current else RESTART_MIN)
        clients = one.loads[0].concurrency
        how = f"a profiler trace of some rounds with {plan.setting.name} at {clients} clients"
        return self._weighed("trace", plan, np.concatenate([rows, psi]), noise, minutes, how)
