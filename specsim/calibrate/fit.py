"""Observations to a profile: maximum a posteriori with stated priors (MAP).

The fit moves the parameters whose variance the data cut most, at most `MAX_FITTED`, and the smooth
correction where ten cells at five or more token counts ask for it. Errors, from
:mod:`.posterior`, are over ALL parameters, whether the fit moved them or not, so that a prediction
carries what stayed assumed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from specsim.calibrate.depths import first_acceptances
from specsim.calibrate.posterior import linearised, widened
from specsim.calibrate.problem import Measured, Problem, measured
from specsim.calibrate.rows import Rows, steps_are_priced
from specsim.calibrate.search import PRIOR_NOISE, cell_noise, chosen, find_mode
from specsim.errors import CalibrationError
from specsim.observations import Observation
from specsim.parameters import (
    acceptance_priors,
    correction_priors,
    cost_priors,
)
from specsim.profile import FitRecord, Profile, acceptance_name, assembled
from specsim.server import Setup
from specsim.uncertainty import Parameter

if TYPE_CHECKING:
    from specsim.arrays import Floats

MAX_FITTED = 9
PRIOR_MODEL_ERROR, PRIOR_MODEL_CELLS = 0.06, 4
"""Error of a prediction of an unseen cell before the data speak, worth this many cells."""
FLOOR_MODEL_ERROR = 0.03
"""No prediction of an unseen cell is surer than this."""
STARTS = 3


@dataclass(frozen=True, slots=True)
class FitResult:
    """A fitted profile and what a report needs."""

    profile: Profile
    observations: tuple[Observation, ...]  # rows used
    log_error: Floats  # ln(model / measured) of each row's throughput, else of its first time
    spread_of_starts: float  # most between the modes from all starts, prior standard deviations


def fit_profile(
    setup: Setup,
    observations: Sequence[Observation],
    name: str = "profile",
    *,
    max_fitted: int = MAX_FITTED,
    fixed: dict[str, float] | None = None,
) -> FitResult:
    """Fit a profile (MAP).

    Parameters
    ----------
    setup
        The server; resolves library ids.
    observations
        Measured rows.
    name
        Name of the profile.
    max_fitted
        Most parameters that the fit may move; not counted are the correction and the acceptance
        levels of further datasets.
    fixed
        Values of parameters to hold (ablations).

    Raises
    ------
    CalibrationError
        If there is nothing to fit.
    """
    if not observations:
        raise CalibrationError("observations", "are empty", "give at least one measured row")
    for row in observations:
        if row.draft_time_s is not None and not steps_are_priced(row, setup):
            raise CalibrationError(
                f"draft_time_s = {row.draft_time_s:g} of {row.setting.label}",
                "belongs to no drafter's steps: setup.toml names none, or the setting makes none",
                "add [draft] to setup.toml, or leave the cell empty",
            )
    problem = problem_of(setup, observations, fixed)
    rows, data, parameters = problem.rows, problem.data, problem.parameters
    free = chosen(problem, max_fitted, frozenset(fixed or {}))
    noise = PRIOR_NOISE
    mode, spread = find_mode(problem, free, noise, STARTS)
    for _ in range(2):
        noise = cell_noise(problem, mode, free, noise)
        mode, _ = find_mode(problem, free, noise, 1, mode)
    covariance = widened(problem, mode, noise)
    sd = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(sd, sd)
    alone = zip(*linearised(problem, mode, noise), strict=True)
    moved = tuple(
        p.moved(float(z), float(s), bool(f), (float(m), float(e)))
        for p, z, s, f, (m, e) in zip(parameters, mode, sd, free, alone, strict=True)
    )
    error = _log_error(problem, mode)
    record = FitRecord(
        observations=len(rows.observations),
        noise=round(noise, 6),
        model_error=round(_model_error(noise, int(data.noise.sum())), 6),
        data_sha256=fingerprint(rows.observations),
        source=setup.source.text,
    )
    profile = Profile(
        name, setup, moved, tuple(map(tuple, correlation.tolist())), rows.acceptances, record
    )
    return FitResult(profile, rows.observations, error, spread)


def problem_of(
    setup: Setup, observations: Sequence[Observation], fixed: dict[str, float] | None = None
) -> Problem:
    """Return what a fit of rows minimises.

    Raises
    ------
    CalibrationError
        If no row measures a throughput or a time.
    """
    rows = Rows(setup, tuple(observations), first_acceptances(setup, observations))
    data = measured(rows.observations)
    return Problem.of(rows, data, _parameters(rows, data, fixed or {}))


def refit(profile: Profile, observations: Sequence[Observation]) -> Floats | None:
    """Find the mode for other rows of the same server, with the same parameters free.

    Parameters
    ----------
    profile
        From a fit; its noise and its mode are where the search starts.
    observations
        Rows.

    Returns
    -------
    Coordinates; None if no row measures a throughput or a time.
    """
    rows = Rows(profile.setup, tuple(observations), profile.acceptances)
    try:
        data = measured(rows.observations)
    except CalibrationError:
        return None
    problem = Problem.of(rows, data, profile.parameters)
    free = np.array([p.fitted for p in profile.parameters])
    return find_mode(problem, free, profile.fit.noise, 1, profile.coordinates)[0]


def fingerprint(observations: Sequence[Observation]) -> str:
    """Hash of the rows' content."""
    text = "\n".join(repr(sorted(row.to_row().items())) for row in observations)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parameters(rows: Rows, data: Measured, fixed: dict[str, float]) -> tuple[Parameter, ...]:
    """All parameters, at their priors or where they are held."""
    system = assembled(rows.setup)
    parameters = list(cost_priors(system.facts))
    speculates = any(o.setting.speculates for o in rows.observations)
    if system.cost.draft is not None or speculates:
        names = tuple(acceptance_name(a) for a in rows.acceptances)
        known = frozenset(acceptance_name(a) for a in rows.acceptances if len(a.accept_prob) > 1)
        standalone = any(o.setting.algorithm == "STANDALONE" for o in rows.observations)
        parameters += acceptance_priors(names, known, standalone)
    if _wants_correction(rows, data, system.gpu.is_cpu):
        parameters += correction_priors(system.gpu.is_cpu)
    return tuple(_fix(p, fixed[p.name]) if p.name in fixed else p for p in parameters)


def _fix(parameter: Parameter, value: float) -> Parameter:
    return replace(
        parameter, prior_median=value, value=value, prior_sd=1e-6, sd=1e-6, low=value, high=value
    )


def _wants_correction(rows: Rows, data: Measured, is_cpu: bool) -> bool:
    """Ten cells at five or more token counts; on a CPU, whose prior is crude, four at three."""
    tokens = {
        o.setting.num_draft_tokens * (o.concurrency or 0)
        for i, o in enumerate(rows.observations)
        if i in set(data.row[data.noise].tolist())
    }
    cells, counts = (4, 3) if is_cpu else (10, 5)
    return int(data.noise.sum()) >= cells and len(tokens) >= counts


def _model_error(noise: float, cells: int) -> float:
    """Error of unseen cells: the residuals' scatter, shrunk to the prior error."""
    total = PRIOR_MODEL_CELLS * PRIOR_MODEL_ERROR**2 + cells * noise**2
    return max(float(np.sqrt(total / (PRIOR_MODEL_CELLS + cells))), FLOOR_MODEL_ERROR)


def _log_error(problem: Problem, mode: Floats) -> Floats:
    """ln(model / measured) of each row's throughput, or else of its first time."""
    solution, data = problem.rows.predict(problem.parameters, mode[None]), problem.data
    error = np.full(len(problem.rows.observations), np.nan)
    for i, observed in enumerate(problem.rows.observations):
        if observed.output_tps is not None:
            error[i] = np.log(solution["output_tps"][0, i] / observed.output_tps)
    for value, name, row, noise in zip(
        data.log_value, data.field, data.row, data.noise, strict=True
    ):
        if noise and np.isnan(error[row]):
            error[row] = np.log(solution[name][0, row]) - value
    return error
