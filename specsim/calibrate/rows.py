"""Observations as cases that the closed form solves, at any values of the parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from specsim.acceptance import Acceptance, AcceptTable, accept_table
from specsim.analytic import solve_along
from specsim.case import Case
from specsim.cost.model import cost_values
from specsim.engine import RunPlan
from specsim.observations import Observation
from specsim.parameters import ACCEPTANCE
from specsim.profile import (
    assembled,
    level_name,
    main_algorithm,
    moved_acceptance,
    of_drafter,
)
from specsim.server import Setup
from specsim.setting import SpecSetting
from specsim.uncertainty import Parameter
from specsim.workload import Lengths, Load, Workload, answer_cv

if TYPE_CHECKING:
    from specsim.arrays import Floats

FIELDS = ("output_tps", "tpot_s", "round_s", "itl_s", "ttft_s", "accept_length", "draft_s")
"""Fields of a solution that observations can be compared with."""

GRID = 2.0
"""Prior standard deviations between points at which trees are grown."""


def steps_are_priced(observation: Observation, setup: Setup) -> bool:
    """Whether the model gives the drafter's steps a time: not of a lookup, or of a single step."""
    system = assembled(setup)
    draft, plan = system.cost.draft, system.plan(observation.setting, what_if=True)
    weights = draft is not None and (draft.part is not None or draft.depth_bytes > 0)
    return weights and plan.draft_forwards > 0


def workload_of(observation: Observation, setup: Setup) -> Workload:
    """Return the requests of a row: what it states, else what the setup states."""
    default = setup.workload
    input_len = default.input_len.mean if observation.input_len is None else observation.input_len
    output_len = (
        default.output_len.mean if observation.output_len is None else observation.output_len
    )
    cached = observation.input_cached
    if cached is None:
        cached = default.input_cached if observation.input_len is None else 0.0
    shared = observation.shared_prefix_len
    if shared is None:
        shared = default.shared_prefix_len if observation.input_len is None else 0.0
    if observation.context_len is not None:  # steady decode: the prompt is in the context
        input_len = max(input_len, shared)
    dataset = default.dataset if observation.dataset is None else observation.dataset
    return Workload(
        Lengths(input_len, default.input_len.cv),
        Lengths(output_len, _answer_cv(dataset, observation.output_len, default)),
        min(cached, input_len),
        dataset,
        default.temperature if observation.temperature is None else observation.temperature,
        default.evidence if observation.input_len is None else "measured",
        min(shared, input_len),
    )


def _answer_cv(dataset: str, output_len: float | None, default: Workload) -> float:
    """Return the default's spread of answers where it was stated, or the row is as the default."""
    mean, cv = default.output_len.mean, default.output_len.cv
    usual = answer_cv(default.dataset, None)
    stated = cv not in (usual, answer_cv(default.dataset, mean))
    alike = answer_cv(dataset, None) == usual
    return cv if alike and (stated or output_len is None) else answer_cv(dataset, output_len)


@dataclass(frozen=True, slots=True)
class Rows:
    """Observations with what does not depend on the parameters worked out."""

    setup: Setup
    observations: tuple[Observation, ...]
    # that rows may belong to, named, before any level is applied
    acceptances: tuple[Acceptance, ...]

    def predict(self, parameters: tuple[Parameter, ...], coordinates: Floats) -> dict[str, Floats]:
        """Solve every row at each row of coordinates, all in one go.

        Returns
        -------
        Field of the solution -> array (coordinate vectors, observations).
        """
        prepared = _prepared(self.setup, self.observations)
        cost, count = assembled(self.setup).cost, len(self.observations)
        solution = solve_along(
            cost, parameters, coordinates, lambda row: self._cases(prepared, parameters, row)
        )
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
        main = main_algorithm(self.setup)
        like = []
        tables: dict[tuple[SpecSetting, str, float], AcceptTable] = {}
        for plan, work, load in prepared.kinds:
            key = (plan.setting, work.dataset, work.temperature)
            if key not in tables:
                algorithm = plan.setting.algorithm if plan.setting.speculates else main
                bought = next(
                    a
                    for a in of_drafter(self.acceptances, algorithm, main)
                    if (a.dataset, a.temperature) == key[1:]
                )
                tables[key] = table_near(bought, plan.setting, parameters, coordinates)
            like.append(Case.of(system, plan, tables[key], work, load))
        return [like[kind].at(load) for kind, load in prepared.rows]


def table_near(
    acceptance: Acceptance,
    setting: SpecSetting,
    parameters: tuple[Parameter, ...],
    coordinates: Floats,
) -> AcceptTable:
    """Accept table at coordinates; of a tree by its Taylor series from a point of a coarse grid.

    A tree takes a thousand beams, and a fit asks for it at some hundred points close to each other.
    """
    if setting.topk == 1:
        return accept_table(moved_acceptance(acceptance, parameters, coordinates), setting)
    own = (level_name(acceptance), *ACCEPTANCE)
    mine = [i for i, p in enumerate(parameters) if p.name in own]
    grid = np.round(coordinates[mine] / GRID) * GRID
    moved = tuple(parameters[i] for i in mine)
    middle, slopes, bends = _series(acceptance, setting, moved, tuple(grid.tolist()))
    away = coordinates[mine] - grid
    survival = middle.survival + np.tensordot(away, slopes + np.tensordot(away, bends, 1), 1)
    return AcceptTable.of(np.clip(survival, 0.0, 1.0), middle.draft_share)


@lru_cache(maxsize=256)
def _series(
    acceptance: Acceptance,
    setting: SpecSetting,
    parameters: tuple[Parameter, ...],
    grid: tuple[float, ...],
) -> tuple[AcceptTable, Floats, Floats]:
    """Accept table at a grid point, with slopes and half the bends of its survival."""

    def at(*places: Floats) -> Floats:
        place = np.array(grid) + sum(places)
        return accept_table(moved_acceptance(acceptance, parameters, place), setting).survival

    middle, steps = at(np.zeros(len(grid))), GRID / 2 * np.eye(len(grid))
    up, down = [at(s) for s in steps], [at(-s) for s in steps]
    slopes = np.array([(u - d) / GRID for u, d in zip(up, down, strict=True)])
    bends = np.zeros((len(grid), *slopes.shape))
    for i, step in enumerate(steps):
        bends[i, i] = (up[i] + down[i] - 2 * middle) * 2 / GRID**2
        for j in range(i):
            both = (at(step, steps[j]) - up[i] - up[j] + middle) * 2 / GRID**2
            bends[i, j] = bends[j, i] = both
    moved = moved_acceptance(acceptance, parameters, np.array(grid))
    return accept_table(moved, setting), slopes, bends


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
        workload, load = workload_of(row, setup), row.load
        key = (plan, workload, load.kind, load.context_len)
        if key not in kinds:
            kinds[key] = len(firsts)
            firsts.append((plan, workload, load))
        rows.append((kinds[key], load))
    return _Prepared(tuple(firsts), tuple(rows))
