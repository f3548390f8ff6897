"""Observations to a profile: maximum a posteriori with stated priors (MAP).

All parameters move, and with them what physics misses (:mod:`.search`). Errors, from
:mod:`.posterior`, are over all of them, so that a prediction carries what stayed assumed, and what
physics may miss where nothing was measured.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from specsim.calibrate.depths import first_acceptances
from specsim.calibrate.misfits import misfits, whole_server
from specsim.calibrate.posterior import widened
from specsim.calibrate.problem import Problem, measured
from specsim.calibrate.rows import Rows, steps_are_priced
from specsim.calibrate.search import find, find_mode
from specsim.errors import CalibrationError
from specsim.observations import Observation
from specsim.parameters import (
    KNOT,
    SPECULATING_KNOT,
    acceptance_priors,
    cost_priors,
)
from specsim.profile import FitRecord, Profile, acceptance_name, assembled
from specsim.profile.uncalibrated import MODEL_ERROR
from specsim.server import Setup
from specsim.uncertainty import Parameter

if TYPE_CHECKING:
    from specsim.arrays import Floats

FLOOR_MODEL_ERROR = 0.02
"""No prediction of an unseen cell is surer than this."""


@dataclass(frozen=True, slots=True)
class FitResult:
    """A fitted profile and what a report needs."""

    profile: Profile
    observations: tuple[Observation, ...]  # rows used
    log_error: Floats  # ln(model / measured) of each row's throughput, else of its first time
    spread: Mapping[str, float]  # learnt standard deviation of each correction
    suspicion: str | None = None  # of all cells together


def fit_profile(
    setup: Setup,
    observations: Sequence[Observation],
    name: str = "profile",
    *,
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
    base = problem_of(setup, observations, fixed)
    rows, data = base.rows, base.data
    speculates = setup.draft is not None or any(o.setting.speculates for o in observations)
    families = (KNOT, SPECULATING_KNOT) if speculates else (KNOT,)
    found = find(rows, data, base.parameters, families)
    problem, mode, noise = found.problem, found.mode, found.noise
    covariance = widened(problem, mode, noise)
    sd = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(sd, sd)
    moved = tuple(
        p.moved(float(z), float(s), _says_something(float(z), float(s)))
        for p, z, s in zip(problem.parameters, mode, sd, strict=True)
    )
    error = _log_error(problem, mode)
    times = np.array([o.output_tps is None for o in rows.observations])
    before = _log_error(problem, np.zeros(len(mode))) * np.where(times, -1.0, 1.0)
    seen = FLOOR_MODEL_ERROR if np.isfinite(error).any() else MODEL_ERROR  # of acceptance alone
    record = FitRecord(
        observations=len(rows.observations),
        noise=round(noise, 6),
        model_error=round(max(noise, seen), 6),
        data_sha256=fingerprint(rows.observations),
        source=setup.source.text,
    )
    profile = Profile(
        name,
        setup,
        moved,
        tuple(map(tuple, correlation.tolist())),
        rows.acceptances,
        record,
        misfits(rows.observations, error),
    )
    return FitResult(profile, rows.observations, error, found.spread, whole_server(before))


def problem_of(
    setup: Setup, observations: Sequence[Observation], fixed: dict[str, float] | None = None
) -> Problem:
    """Return what a fit of rows minimises, what physics misses left out.

    Raises
    ------
    CalibrationError
        If no row measures a throughput or a time.
    """
    rows = Rows(setup, tuple(observations), first_acceptances(setup, observations))
    data = measured(rows.observations)
    return Problem.of(rows, data, _parameters(rows, fixed or {}))


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
    return find_mode(problem, problem.place(profile.coordinates), profile.fit.noise).at


def fingerprint(observations: Sequence[Observation]) -> str:
    """Hash of the rows' content."""
    text = "\n".join(repr(sorted(row.to_row().items())) for row in observations)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parameters(rows: Rows, fixed: dict[str, float]) -> tuple[Parameter, ...]:
    """All parameters, at their priors or where they are held."""
    system = assembled(rows.setup)
    parameters = list(cost_priors(system.facts))
    speculates = any(o.setting.speculates for o in rows.observations)
    if system.cost.draft is not None or speculates:
        names = tuple(acceptance_name(a) for a in rows.acceptances)
        known = frozenset(acceptance_name(a) for a in rows.acceptances if a.by_depth)
        standalone = any(o.setting.algorithm == "STANDALONE" for o in rows.observations)
        parameters += acceptance_priors(names, known, standalone)
    return tuple(_fix(p, fixed[p.name]) if p.name in fixed else p for p in parameters)


def _fix(parameter: Parameter, value: float) -> Parameter:
    return replace(
        parameter, prior_median=value, value=value, prior_sd=1e-6, sd=1e-6, low=value, high=value
    )


def _says_something(coordinate: float, sd: float) -> bool:
    """Whether the cells moved a parameter, or made it surer, by a tenth of its prior's error."""
    return abs(coordinate) > 0.1 or sd < 0.9


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
