"""What is known of many settings at many loads at once: a joint Gaussian of ln(throughput).

    ln X ~ N(m, J C J' + e^2/2 (1 1') + e^2/2 K)                                     (OUTLOOK)

m is the closed-form solution, J its derivative by the profile's parameters, C their covariance, e
the profile's model error. How much of e two settings share is not known; assumed is one half of
its variance. The other half belongs to a setting at a load, and neighbours share it:

    K = exp(-d^2 / 2),  d^2 = (dlog2 n)^2 + (dlog2 topk)^2 + (dlog2(S+1))^2 + (dlog2 C / 2)^2
                              + 1/4 under another scheduler                              (SPECIFIC)

and K = 0 between drafting and not drafting.

For no speculation against a setting that drafts this is equation (DELTA) of
`specsim.uncertainty`, but for one more term. What a drafting round pays beyond the derived times
is one number of the model, whatever the depth. Measured at one depth only, a share psi of it may
as well grow with the depth; so psi joins the parameters, as a normal around zero:

    overhead(S) = overhead (1 + psi (S / S_measured - 1))                                (DEPTH)

In published sweeps of the depth about half of it grows: vLLM issue 20780 (10.2 ms at S = 2, 15.2
at 7, 7.1 plain), pull request 16035 (10.8 at 2, 12.6 at 4, 7.8 plain), issue 47277 (35 + 26 S ms).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.acceptance import accept_tables
from specsim.analytic import Solution, solve
from specsim.case import Case
from specsim.engine import RunPlan
from specsim.profile import Profile
from specsim.setting import SpecSetting
from specsim.uncertainty import each
from specsim.workload import Load, Workload

if TYPE_CHECKING:
    from specsim.arrays import Floats

SPECIFIC_SHARE = 0.5
"""Assumed: share of the model error's variance that belongs to one setting."""

LOAD_LENGTH = 2.0
"""Assumed: octaves of load over which that part stays alike."""

DEPTH_SD = 0.25
"""Of psi (DEPTH): the published half lies at two of it. Where the profile's data tell what a draft
step costs, psi is zero."""

DRAWS = 4000
"""Of the joint Gaussian: a probability of 0.5 is known to 0.8 %."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Settings by loads that are asked about.

    Parameters
    ----------
    plans
        Settings as the engine runs them.
    loads
        Loads of one kind.
    workload
        Requests.
    dataset, temperature
        Whose acceptance; None is the profile's first.
    """

    plans: tuple[RunPlan, ...]
    loads: tuple[Load, ...]
    workload: Workload
    dataset: str | None = None
    temperature: float | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Settings, loads."""
        return len(self.plans), len(self.loads)

    def only(self, rows: Sequence[int]) -> Grid:
        """Return the same loads for some of the settings."""
        plans = tuple(self.plans[i] for i in rows)
        return Grid(plans, self.loads, self.workload, self.dataset, self.temperature)

    def solve(self, profile: Profile, at: Floats | None = None, with_limit: bool = False) -> Cells:
        """Solve all cells in closed form.

        Parameters
        ----------
        profile
            The server.
        at
            Coordinates of its parameters; its own if None.
        with_limit
            Whether to find out what binds.
        """
        coordinates = profile.coordinates if at is None else at
        system = profile.system(coordinates)
        acceptance = profile.acceptance(self.dataset, self.temperature, coordinates)
        tables = accept_tables(acceptance, [plan.setting for plan in self.plans])
        cases = [
            Case.of(system, plan, table, self.workload, load)
            for plan, table in zip(self.plans, tables, strict=True)
            for load in self.loads
        ]
        return Cells(solve(system.cost, cases, with_limit), self.shape)


@dataclass(frozen=True, slots=True)
class Cells:
    """A solution as arrays (settings, loads)."""

    solution: Solution
    shape: tuple[int, int]

    @property
    def output_tps(self) -> Floats:
        """Tokens per second."""
        return self.solution.output_tps.reshape(self.shape)

    @property
    def log_tps(self) -> Floats:
        """Logarithm of it."""
        return np.asarray(np.log(self.output_tps), dtype=np.float64)

    @property
    def batch_size(self) -> Floats:
        """Mean running requests."""
        return self.solution.batch_size.reshape(self.shape)

    @property
    def accept_length(self) -> Floats:
        """Tokens per request and round."""
        return self.solution.accept_length.reshape(self.shape)

    @property
    def round_s(self) -> Floats:
        """Length of a round."""
        return self.solution.round_s.reshape(self.shape)

    @property
    def tpot_s(self) -> Floats:
        """Mean time per output token."""
        return self.solution.tpot_s.reshape(self.shape)

    @property
    def ttft_s(self) -> Floats:
        """Mean time to the first token."""
        return self.solution.ttft_s.reshape(self.shape)

    def limit(self, i: int, j: int) -> str:
        """Return what binds setting i at load j; it must have been solved for."""
        return self.solution.limit[i * self.shape[1] + j]


@dataclass(frozen=True, slots=True)
class Outlook:
    """The joint Gaussian (OUTLOOK).

    Parameters
    ----------
    grid
        Settings and loads.
    cells
        The closed-form solution at the profile's values.
    mean
        (settings, loads): m. It equals ln of `cells` unless something was learnt since.
    jacobian
        (settings, loads, parameters): J; the last parameter is psi (DEPTH).
    covariance
        C.
    alike_settings, alike_loads
        K of (SPECIFIC) is their Kronecker product; cells are numbered setting by setting.
    specific_sd, shared_sd
        Standard deviations of the two parts of the model error.
    """

    grid: Grid
    cells: Cells
    mean: Floats
    jacobian: Floats
    covariance: Floats
    alike_settings: Floats
    alike_loads: Floats
    specific_sd: float
    shared_sd: float

    @property
    def flat_jacobian(self) -> Floats:
        """(cells, parameters)."""
        return self.jacobian.reshape(-1, self.jacobian.shape[-1])

    def specific(self) -> Floats:
        """Return the covariance of the cells' own part of the model error, (cells, cells)."""
        kernel = np.kron(self.alike_settings, self.alike_loads)
        return np.asarray(self.specific_sd**2 * kernel, dtype=np.float64)

    def ratio_sd(self, load: int) -> Floats:
        """Return the standard deviation of ln(X_i / X_k) at a load, (settings, settings)."""
        j = self.jacobian[:, load]
        c = j @ self.covariance @ j.T + self.specific_sd**2 * self.alike_settings
        variance = np.diag(c)
        ratio = variance[:, None] + variance[None, :] - 2 * c
        return np.asarray(np.sqrt(np.maximum(ratio, 0.0)), dtype=np.float64)

    def sd(self) -> Floats:
        """Return the standard deviation of ln X, the shared part included, (settings, loads)."""
        own = self.specific_sd**2 + self.shared_sd**2
        variance = np.einsum("slp,pq,slq->sl", self.jacobian, self.covariance, self.jacobian)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0) + own), dtype=np.float64)

    def draws(self, rng: np.random.Generator, count: int = DRAWS) -> Floats:
        """Draw ln X from the Gaussian without the shared part, (count, settings, loads)."""
        parameters = rng.standard_normal((count, len(self.covariance))) @ root(self.covariance).T
        own = rng.standard_normal((count, *self.grid.shape))
        own = root(self.alike_settings) @ own @ root(self.alike_loads).T
        moved = (parameters @ self.flat_jacobian.T).reshape(own.shape)
        return np.asarray(self.mean + moved + self.specific_sd * own, dtype=np.float64)


def outlook(profile: Profile, grid: Grid, measured: Sequence[SpecSetting] = ()) -> Outlook:
    """Return the joint Gaussian of all cells under a profile.

    Parameters
    ----------
    profile
        The server.
    grid
        Cells.
    measured
        Settings that the profile was fitted to, besides what runs today, as far as is known.
    """
    cells = grid.solve(profile, with_limit=True)

    def log_output(coordinates: Floats) -> Floats:
        return grid.solve(profile, coordinates).log_tps.reshape(-1)

    errors = profile.spread(each(log_output))
    jacobian = errors.jacobian.reshape(*grid.shape, -1)
    size = len(errors.covariance)
    covariance = np.zeros((size + 1, size + 1))
    covariance[:size, :size] = errors.covariance
    covariance[size, size] = depth_sd(profile, measured) ** 2
    variance = profile.fit.model_error**2
    return Outlook(
        grid,
        cells,
        cells.log_tps,
        np.concatenate([jacobian, _depth_column(profile, grid, jacobian)], axis=2),
        covariance,
        setting_likeness(grid.plans),
        load_likeness(grid.loads),
        (SPECIFIC_SHARE * variance) ** 0.5,
        ((1 - SPECIFIC_SHARE) * variance) ** 0.5,
    )


def depth_sd(profile: Profile, measured: Sequence[SpecSetting] = ()) -> float:
    """Return the error of psi (DEPTH); none where nothing or more than one depth was measured.

    Without measurements the overhead is the prior's, whose factor of three either way says it.
    """
    current = profile.setup.current
    depths = {s.num_steps for s in (*measured, *([current] if current else [])) if s.speculates}
    told = any(p.name == "draft" and p.driven == "data" for p in profile.parameters)
    known = told or len(depths) > 1
    return 0.0 if known or not profile.fit.observations else DEPTH_SD


def _depth_column(profile: Profile, grid: Grid, jacobian: Floats) -> Floats:
    """Return d ln X / d psi from d ln X / d ln(overhead), (settings, loads, 1)."""
    steps = np.array([plan.setting.num_steps for plan in grid.plans], dtype=np.float64)
    current = profile.setup.current
    measured = current.num_steps if current is not None and current.speculates else 0
    for k, parameter in enumerate(profile.parameters):
        if parameter.name == "round_overhead" and measured:
            by_log = jacobian[:, :, k] / parameter.prior_sd
            return np.asarray((by_log * (steps / measured - 1.0)[:, None])[:, :, None])
    return np.zeros((*grid.shape, 1))


def load_likeness(loads: Sequence[Load]) -> Floats:
    """Return the part of (SPECIFIC) that belongs to the loads, (loads, loads)."""
    octaves = np.log2([_level(load) for load in loads])
    distance = np.subtract.outer(octaves, octaves) / LOAD_LENGTH
    return np.asarray(np.exp(-0.5 * np.square(distance)), dtype=np.float64)


def setting_likeness(plans: Sequence[RunPlan]) -> Floats:
    """Return the part of (SPECIFIC) that belongs to the settings, (settings, settings)."""
    settings = [plan.setting for plan in plans]
    place = np.array(
        [
            [
                np.log2(s.num_draft_tokens),
                np.log2(s.topk),
                np.log2(s.num_steps + 1),
                0.5 * (s.scheduler == "overlap"),
            ]
            for s in settings
        ]
    )
    distance = place[:, None, :] - place[None, :, :]
    alike = np.exp(-0.5 * np.square(distance).sum(axis=2))
    drafts = np.array([s.speculates for s in settings])
    return np.asarray(np.where(drafts[:, None] == drafts[None, :], alike, 0.0), dtype=np.float64)


def root(covariance: Floats) -> Floats:
    """Return A with A A' = covariance, for one that is semi-definite up to rounding."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)


def _level(load: Load) -> float:
    return load.request_rate if load.request_rate is not None else float(load.concurrency)
