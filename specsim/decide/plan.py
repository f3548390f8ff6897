"""What to measure next: measurements ranked by how much they should cut the decision's regret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from specsim.calibrate.residuals import ACCEPT_SIGMA
from specsim.decide.belief import Belief, belief, worth
from specsim.decide.candidates import with_current
from specsim.decide.outlook import Grid, Outlook, outlook
from specsim.decide.recommend import Wish, possible_plans, promising
from specsim.decide.recommendation import plan_name
from specsim.engine import RunPlan
from specsim.errors import InputError
from specsim.parameters import ALLREDUCE_SD
from specsim.profile import Profile
from specsim.uncertainty import each
from specsim.workload import Load

if TYPE_CHECKING:
    from specsim.arrays import Floats

Kind = Literal["sweep", "accept-log", "pinned-timing", "nccl-tests", "trace"]

LOADS = (1, 10, 30, 100)
FINALISTS = 12
CANDIDATES = 6
"""Settings in the decision, and those among them whose measurement is considered."""

RESTART_MIN, CELL_MIN, LOG_MIN, TRACE_MIN, NCCL_MIN = 10.0, 3.0, 3.0, 3.0, 2.0
"""Assumed minutes: another launch, one load of a sweep, one more log, a trace, nccl-tests."""

TRACE_SD = 0.05
"""Assumed: error of ln(time) of a phase in a trace of one batch size."""

TRACE_DEPTH_SD = 0.1
"""Assumed: error of the share psi of the overhead that grows with depth, read off a trace."""

STOP = 0.002
"""A measurement that is expected to bring less than this in ln(throughput) is not worth it."""

DRAWS = 4000

ACCEPTANCE = ("accept_", "rank_scale", "confidence_shift")
"""Parameters that a pinned acceptance does not see."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One thing that could be measured.

    Parameters
    ----------
    kind, plan
        What, and with which setting; None for nccl-tests.
    rows, noise
        As `belief.Belief.updated` takes them.
    cells
        Throughput cells that it measures.
    minutes
        Wall time, the restart included.
    how
        What to do.
    """

    kind: Kind
    plan: RunPlan | None
    rows: Floats
    noise: Floats
    cells: int
    minutes: float
    how: str


@dataclass(frozen=True, slots=True)
class PlannedMeasurement:
    """A measurement, what it is worth and what it costs.

    Parameters
    ----------
    measurement
        What to do.
    worth
        Expected cut of the decision's regret, as a fraction of the throughput.
    gpu_minutes
        Its cost.
    """

    measurement: Measurement
    worth: float
    gpu_minutes: float

    @property
    def label(self) -> str:
        """Kind and setting."""
        plan = self.measurement.plan
        return self.measurement.kind + ("" if plan is None else f": {plan_name(plan)}")


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """Measurements by worth, the best first.

    Parameters
    ----------
    profile
        Name.
    concurrency
        Loads that the decision is about.
    regret
        Expected regret of deciding now, as a fraction of the throughput.
    ranked
        All that were considered.
    """

    profile: str
    concurrency: tuple[int, ...]
    regret: float
    ranked: tuple[PlannedMeasurement, ...]

    @property
    def worthwhile(self) -> tuple[PlannedMeasurement, ...]:
        """Those that would change the choice often enough; empty: decide now."""
        return tuple(m for m in self.ranked if m.worth >= STOP)


def plan_measurements(
    profile: Profile, concurrency: Sequence[int] = LOADS, wish: Wish | None = None
) -> MeasurementPlan:
    """Rank measurements by the expected cut of the regret of the choice at every load (WORTH).

    Parameters
    ----------
    profile
        The server.
    concurrency
        Loads that matter, equally unless the wish has a mix.
    wish
        Limits of the candidates, engine version, requests.

    Raises
    ------
    InputError
        If there is no load.
    """
    wish = wish or Wish()
    shares = dict(wish.mix) or dict.fromkeys(concurrency, 1.0)
    levels = tuple(sorted(shares))
    if not levels or levels[0] < 1:
        raise InputError("concurrency", "is empty or below 1", "give loads, e.g. 1,10,100")
    view, current = _finalists(profile, levels, wish)
    now = belief(view)
    weights = np.array([shares[c] for c in levels]) / sum(shares.values())
    rng = np.random.default_rng(wish.seed)
    normal = rng.standard_normal((DRAWS, len(now.mean)))
    gpus = profile.setup.hardware.gpu_count
    ranked = [
        PlannedMeasurement(m, worth(now, m.rows, m.noise, normal, weights), m.minutes * gpus)
        for m in measurements(profile, view, now, current)
    ]
    ranked.sort(key=lambda m: (-round(m.worth, 4), m.gpu_minutes, m.label))
    return MeasurementPlan(profile.name, levels, now.regret(normal, weights), tuple(ranked))


def _finalists(profile: Profile, levels: Sequence[int], wish: Wish) -> tuple[Outlook, int | None]:
    """Return no speculation, what runs today and the settings that could win."""
    possible = possible_plans(profile, wish)
    plans, today = with_current(profile, possible, wish.max_running_requests)
    if today is not None and not plans[today].allowed:
        plans, today = possible, None
    loads = tuple(Load("closed_loop", c) for c in levels)
    workload = wish.workload or profile.setup.workload.workload
    whole = Grid(plans, loads, workload, wish.dataset, wish.temperature)
    must = [0] if today is None else [0, today]
    kept = promising(whole.solve(profile).log_tps, must, FINALISTS)
    grid = whole.only(kept)
    view = outlook(profile, grid, wish.measured)
    return view, None if today is None else kept.index(today)


def measurements(
    profile: Profile, view: Outlook, now: Belief, current: int | None
) -> list[Measurement]:
    """Return what could be measured for a decision between the settings of an outlook."""
    loads = view.grid.shape[1]
    everywhere = np.arange(loads)
    noise = max(profile.fit.noise, 1e-3)
    length = _log_derivative(profile, view, "accept_length")
    blind = _without_acceptance(profile, now)
    found: list[Measurement] = []
    for i in _worth_a_look(view, current):
        plan = view.grid.plans[i]
        restart = 0.0 if i == current else RESTART_MIN
        rows = now.cell_rows(i, everywhere)
        minutes = restart + CELL_MIN * loads
        errors = np.full(loads, noise)
        text = f"{loads} loads with {plan_name(plan)}"
        found.append(Measurement("sweep", plan, rows, errors, loads, minutes, text))
        if not plan.setting.speculates:
            continue
        row = np.zeros((1, len(now.mean)))
        row[0, : now.parameters - 1] = length[i]
        sigma = np.array([ACCEPT_SIGMA["run"]])
        text = f"the accept length from the log of a run with {plan_name(plan)}"
        found.append(Measurement("accept-log", plan, row, sigma, 0, restart + LOG_MIN, text))
        text = f"{loads} loads with {plan_name(plan)} and pinned acceptance ({_pin(plan)})"
        minutes = RESTART_MIN + CELL_MIN * loads
        found.append(Measurement("pinned-timing", plan, rows * blind, errors, loads, minutes, text))
    found += _allreduce(profile, now)
    traced = current if current is not None else _worth_a_look(view, None)[-1]
    if view.grid.plans[traced].setting.speculates:
        found.append(_trace(profile, view, now, traced, current))
    return found


def _worth_a_look(view: Outlook, current: int | None) -> list[int]:
    """Return no speculation, what runs today and the most promising others, each setting once."""
    gap = (view.mean.max(axis=0) - view.mean).min(axis=1)
    chosen = [0] if current is None else [0, current]
    for i in np.argsort(gap, kind="stable").tolist():
        keys = {view.grid.plans[k].setting.key for k in chosen}
        if view.grid.plans[i].setting.key not in keys and len(chosen) < CANDIDATES:
            chosen.append(i)
    return chosen


def _pin(plan: RunPlan) -> str:
    if plan.engine == "sglang":
        return "SGLANG_SIMULATE_ACC_LEN"
    return "synthetic acceptance"


def _without_acceptance(profile: Profile, now: Belief) -> Floats:
    """Return a mask over the state without the parameters of acceptance."""
    mask = np.ones(len(now.mean))
    for k, parameter in enumerate(profile.parameters):
        if parameter.name.startswith(ACCEPTANCE):
            mask[k] = 0.0
    return mask


def _log_derivative(profile: Profile, view: Outlook, field: str) -> Floats:
    """Differentiate ln of a field at the first load, (settings, parameters)."""
    grid = view.grid
    first = Grid(grid.plans, grid.loads[:1], grid.workload, grid.dataset, grid.temperature)

    def value(coordinates: Floats) -> Floats:
        column = getattr(first.solve(profile, coordinates), field)[:, 0]
        return np.asarray(np.log(column), dtype=np.float64)

    return profile.spread(each(value)).jacobian


def _allreduce(profile: Profile, now: Belief) -> list[Measurement]:
    """nccl-tests pin latency and bandwidth down to what a measured table is worth."""
    rows, noise = [], []
    for name, sd in zip(
        ("allreduce_latency", "allreduce_bandwidth"), ALLREDUCE_SD["measured"], strict=True
    ):
        for k, parameter in enumerate(profile.parameters):
            if parameter.name == name:
                row = np.zeros(len(now.mean))
                row[k] = 1.0
                rows.append(row)
                noise.append(sd / parameter.prior_sd)
    if not rows:
        return []
    how = "all_reduce_perf of nccl-tests from 4 KiB to 4 MiB, the server stopped"
    minutes = RESTART_MIN + NCCL_MIN
    return [Measurement("nccl-tests", None, np.array(rows), np.array(noise), 0, minutes, how)]


def _trace(
    profile: Profile, view: Outlook, now: Belief, traced: int, current: int | None
) -> Measurement:
    """One profiler trace: the phases of a round at one batch, and what grows with depth."""
    plan, grid = view.grid.plans[traced], view.grid
    one = Grid((plan,), grid.loads[-1:], grid.workload, grid.dataset, grid.temperature)

    def phases(coordinates: Floats) -> Floats:
        time = one.solve(profile, coordinates).solution.time
        draft = time.draft_s + time.extend_s + time.tree_s
        target = time.target_s - time.allreduce_s
        parts = [target, time.allreduce_s, draft, time.overhead_s, time.host_s]
        return np.log(np.maximum(np.concatenate(parts), 1e-9))

    jacobian = profile.spread(each(phases)).jacobian
    rows = np.zeros((len(jacobian) + 1, len(now.mean)))
    rows[:-1, : jacobian.shape[1]] = jacobian
    rows[-1, now.parameters - 1] = 1.0
    noise = np.append(np.full(len(jacobian), TRACE_SD), TRACE_DEPTH_SD)
    restart = 0.0 if traced == current else RESTART_MIN
    clients = grid.loads[-1].concurrency
    how = f"a profiler trace of some rounds with {plan_name(plan)} at {clients} clients"
    return Measurement("trace", plan, rows, noise, 0, restart + TRACE_MIN, how)
