"""Observations against the model: what is compared, on which scale, with which error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from specsim.acceptance import Acceptance, accept_table
from specsim.analytic import Solution, solve
from specsim.case import Case
from specsim.engine import RunPlan
from specsim.errors import CalibrationError
from specsim.observations import Observation
from specsim.parameters import (
    COST,
    KNOT,
    cost_parameters,
    cost_values,
)
from specsim.profile import acceptance_name, assembled, moved_acceptance
from specsim.server import Setup
from specsim.uncertainty import Parameter
from specsim.workload import Lengths, Load, Workload

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats, Ints

ACCEPT_SIGMA = {"cell": 0.05, "run": 0.02, "pooled": 0.015, None: 0.03}
"""Error of ln(accept length) by what it was averaged over; a short cell is mostly noise."""

FIELDS = ("output_tps", "tpot_s", "round_s", "itl_s", "ttft_s", "accept_length", "draft_s")
"""Fields of a solution that observations can be compared with."""

TTFT_SIGMA, TTFT_SIGMA_ALONE = 0.3, 0.1
"""Error of ln(TTFT): queueing and arrival bursts are only roughly in the closed form; a single
client meets neither."""

DRAFT_SIGMA = 0.05
"""Error of ln(time of the drafter's steps): engines count a little more or less to them."""


def steps_are_priced(observation: Observation, setup: Setup) -> bool:
    """Whether the model gives the drafter's steps a time: not of a lookup, or of a single step."""
    system = assembled(setup)
    draft, plan = system.cost.draft, system.plan(observation.setting, what_if=True)
    return draft is not None and draft.part is not None and plan.draft_forwards > 0


def workload_of(observation: Observation, setup: Setup) -> Workload:
    """Return the requests of a row: what it states, else what the setup states."""
    default = setup.workload
    input_len = default.input_len if observation.input_len is None else observation.input_len
    output_len = default.output_len if observation.output_len is None else observation.output_len
    cached = observation.input_cached
    if cached is None:
        cached = default.input_cached if observation.input_len is None else 0.0
    return Workload(
        Lengths(input_len, default.input_len_cv),
        Lengths(output_len, default.output_len_cv),
        min(cached, input_len),
        default.dataset if observation.dataset is None else observation.dataset,
        default.temperature if observation.temperature is None else observation.temperature,
        default.evidence if observation.input_len is None else "measured",
    )


def load_of(observation: Observation) -> Load:
    """Return the load of a row; a steady decode without a context starts empty."""
    load = observation.load
    if load.kind == "steady_decode" and load.context_len is None:
        return Load("steady_decode", load.concurrency, context_len=0.0, window_s=load.window_s)
    return load


@dataclass(frozen=True, slots=True)
class Rows:
    """Observations with what does not depend on the parameters worked out.

    Parameters
    ----------
    setup
        The server.
    observations
        Rows.
    acceptances
        Named acceptances that rows may belong to, before any level is applied.
    """

    setup: Setup
    observations: tuple[Observation, ...]
    acceptances: tuple[Acceptance, ...]

    def predict(self, parameters: tuple[Parameter, ...], coordinates: Floats) -> Solution:
        """Solve every row at given coordinates."""
        system = assembled(self.setup, cost_parameters(parameters, coordinates))
        cases = self._cases(_prepared(self.setup, self.observations), parameters, coordinates)
        return solve(system.cost, cases, with_limit=False)

    def predict_many(
        self, parameters: tuple[Parameter, ...], coordinates: Floats
    ) -> dict[str, Floats]:
        """Solve every row at each row of coordinates, all in one go.

        Returns
        -------
        Field of the solution -> array (coordinate vectors, observations).
        """
        prepared = _prepared(self.setup, self.observations)
        matter = [i for i, p in enumerate(parameters) if not _prices_alone(p.name)]
        known: dict[bytes, list[Case]] = {}  # most rows of a Jacobian differ in prices alone
        flat: list[Case] = []
        for row in coordinates:
            key = row[matter].tobytes()
            if key not in known:
                known[key] = self._cases(prepared, parameters, row)
            flat += known[key]
        count = len(self.observations)
        cost = assembled(self.setup).cost
        costs = [cost_parameters(parameters, row) for row in coordinates]
        solution = solve(cost.stacked(costs, count), flat, with_limit=False)
        shape = (len(coordinates), count)
        return {name: getattr(solution, name).reshape(shape) for name in FIELDS}

    def _cases(
        self, prepared: _Prepared, parameters: tuple[Parameter, ...], coordinates: Floats
    ) -> list[Case]:
        """Cases of every row; of the prices only the KV pool is in them."""
        pool = [
            p.at(float(z))
            for p, z in zip(parameters, coordinates, strict=True)
            if p.name == "kv_pool"
        ]
        system = assembled(self.setup, cost_values(kv_pool=pool[0] if pool else 1.0))
        by_name = {
            acceptance_name(a): moved_acceptance(a, parameters, coordinates)
            for a in self.acceptances
        }
        like = [
            Case.of(system, plan, accept_table(by_name[_name(work)], plan.setting), work, load)
            for plan, work, load in prepared.kinds
        ]
        return [like[kind].at(load) for kind, load in prepared.rows]


def _prices_alone(name: str) -> bool:
    """Whether a parameter changes what a round costs, but no case."""
    return name.startswith(KNOT) or (name in COST and name != "kv_pool")


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What no parameter changes: kinds of rows that differ in load alone, and each row's kind."""

    kinds: tuple[tuple[RunPlan, Workload, Load], ...]
    rows: tuple[tuple[int, Load], ...]


@lru_cache(maxsize=32)
def _prepared(setup: Setup, observations: tuple[Observation, ...]) -> _Prepared:
    system = assembled(setup)
    kinds: dict[tuple[RunPlan, Workload, str, float | None], int] = {}
    firsts: list[tuple[RunPlan, Workload, Load]] = []
    rows = []
    for row in observations:
        plan = system.plan(
            row.setting,
            engine_version=row.engine_version,
            max_running_requests=row.max_running_requests,
            what_if=True,
        )
        workload, load = workload_of(row, setup), load_of(row)
        key = (plan, workload, load.kind, load.context_len)
        if key not in kinds:
            kinds[key] = len(firsts)
            firsts.append((plan, workload, load))
        rows.append((kinds[key], load))
    return _Prepared(tuple(firsts), tuple(rows))


@lru_cache(maxsize=256)
def _name(workload: Workload) -> str:
    return acceptance_name(Acceptance(workload.dataset, workload.temperature))


@dataclass(frozen=True, slots=True)
class Measured:
    """Comparable numbers: ln(measured), which field of the solution, which row, which error.

    `noise` is True where the error is the fitted noise of throughput.
    """

    log_value: Floats
    field: tuple[str, ...]
    row: Ints
    sigma: Floats
    noise: Flags

    def residuals(self, solutions: dict[str, Floats], noise: float) -> Floats:
        """(ln model - ln measured) / error of every number, one row per coordinate vector."""
        model = np.stack(
            [solutions[f][:, r] for f, r in zip(self.field, self.row, strict=True)], axis=1
        )
        sigma = np.where(self.noise, noise * self.sigma, self.sigma)
        return np.asarray((np.log(model) - self.log_value) / sigma, dtype=np.float64)


def _is_product(row: Observation) -> bool:
    """Whether throughput is accept length times batch over round time, which are both stated.

    Then it says nothing of its own, and has the errors of both in it.
    """
    return (
        row.kind == "steady_decode"
        and row.setting.speculates
        and row.round_time_s is not None
        and row.accept_length is not None
    )


def measured(observations: Sequence[Observation]) -> Measured:
    """Collect what the rows measure: throughput or a time, and the accept length.

    Raises
    ------
    CalibrationError
        If no row measures a throughput or a time.
    """
    values: list[tuple[float, str, int, float, bool]] = []
    for i, row in enumerate(observations):
        spread = row.weight**-0.5
        # Throughput and TPOT of one run share its noise: together they count once, and their
        # ratio says what share of the time is prefill.
        both = row.output_tps is not None and row.tpot_s is not None
        shared = spread * math.sqrt(2.0) if both else spread
        if row.output_tps is not None and not _is_product(row):
            values.append((row.output_tps, "output_tps", i, shared, True))
        if row.tpot_s is not None:
            values.append((row.tpot_s, "tpot_s", i, shared, True))
        if row.round_time_s is not None:
            values.append((row.round_time_s, "round_s", i, spread, True))
        elif row.itl_s is not None and row.output_tps is None and row.tpot_s is None:
            values.append((row.itl_s, "itl_s", i, spread, True))
        if row.ttft_s is not None and row.kind == "closed_loop":
            error = TTFT_SIGMA_ALONE if row.concurrency == 1 else TTFT_SIGMA
            values.append((row.ttft_s, "ttft_s", i, error * spread, False))
        if row.draft_time_s is not None and row.setting.speculates:
            values.append((row.draft_time_s, "draft_s", i, DRAFT_SIGMA * spread, False))
        if row.accept_length is not None and row.setting.speculates:
            error = ACCEPT_SIGMA[row.accept_length_scope]
            values.append((row.accept_length, "accept_length", i, error * spread, False))
    if not any(is_noise for *_, is_noise in values):
        raise CalibrationError(
            f"{len(observations)} observations",
            "none measures output_tps, tpot_s, itl_s or round_time_s",
            "add a column with the throughput or a time of at least one cell",
        )
    number, field, index, sigma, noise = zip(*values, strict=True)
    return Measured(
        np.log(np.array(number)),
        tuple(field),
        np.array(index),
        np.array(sigma),
        np.array(noise),
    )
