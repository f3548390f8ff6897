"""Observations to a profile: maximum a posteriori with stated priors.

Coordinates z are prior standard deviations from the prior medians, on log scale for multipliers.
The posterior mode minimises

    sum_i (nu + 1) ln(1 + r_i^2 / nu) + z' P^-1 z                                    (MAP)

with r_i the residuals in log throughput over the noise (Student's t with nu = 4, so that one wild
cell does not bend the rest) and P the prior correlation. Errors, from :mod:`.posterior`, are over
ALL parameters, whether the fit moved them or not, so that a prediction carries what stayed assumed.
Which parameters the fit moves: those whose variance the data cut most, at most
`MAX_FITTED`, and the smooth correction where ten cells at five or more token counts ask for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from specsim.calibrate.depths import first_acceptances
from specsim.calibrate.posterior import laplace, linearised, widened
from specsim.calibrate.problem import STUDENT_NU, Problem, differences
from specsim.calibrate.residuals import Measured, Rows, measured, steps_are_priced
from specsim.errors import CalibrationError
from specsim.observations import Observation
from specsim.parameters import (
    acceptance_priors,
    correction_correlation,
    correction_priors,
    cost_priors,
)
from specsim.profile import FitRecord, Profile, acceptance_name, assembled
from specsim.server import Setup
from specsim.uncertainty import Parameter

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats

MAX_FITTED = 9
PRIOR_NOISE, PRIOR_NOISE_CELLS = 0.03, 6
"""Noise of a cell before the data speak, worth this many cells."""
PRIOR_MODEL_ERROR, PRIOR_MODEL_CELLS = 0.06, 4
"""Error of a prediction of an unseen cell before the data speak, worth this many cells."""
FLOOR_MODEL_ERROR = 0.03
"""No prediction of an unseen cell is surer than this."""
STARTS = 3
HOLD_LOSS = 0.1
"""A parameter whose holding costs less than this in 2 ln(posterior) is held at its prior."""


@dataclass(frozen=True, slots=True)
class FitResult:
    """A fitted profile and what a report needs.

    Parameters
    ----------
    profile
        The profile.
    observations
        Rows used.
    log_error
        ln(model / measured) of each row's throughput (or time, sign turned).
    spread_of_starts
        Largest difference, in prior standard deviations, between the modes from all starts.
    """

    profile: Profile
    observations: tuple[Observation, ...]
    log_error: Floats
    spread_of_starts: float


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
    rows = Rows(setup, tuple(observations), first_acceptances(setup, observations))
    data = measured(rows.observations)
    parameters, prior = _priors(rows, data, fixed or {})
    problem = Problem(rows, data, parameters, prior)
    free = _chosen(problem, max_fitted, frozenset(fixed or {}))
    noise = PRIOR_NOISE
    mode, spread = _search(problem, free, noise, STARTS)
    for _ in range(2):
        noise = _noise(problem, mode, free, noise)
        mode, _ = _search(problem, free, noise, 1, mode)
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
    size = len(profile.parameters)
    prior = np.eye(size)
    smooth = [i for i, p in enumerate(profile.parameters) if p.name.startswith("correction")]
    if smooth:
        prior[np.ix_(smooth, smooth)] = correction_correlation()
    problem = Problem(rows, data, profile.parameters, prior)
    free = np.array([p.fitted for p in profile.parameters])
    return _search(problem, free, profile.fit.noise, 1, profile.coordinates)[0]


def fingerprint(observations: Sequence[Observation]) -> str:
    """Hash of the rows' content."""
    text = "\n".join(repr(sorted(row.to_row().items())) for row in observations)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _priors(
    rows: Rows, data: Measured, fixed: dict[str, float]
) -> tuple[tuple[Parameter, ...], Floats]:
    """All parameters and the prior correlation of their coordinates."""
    system = assembled(rows.setup)
    parameters = list(cost_priors(system.facts))
    speculates = any(o.setting.speculates for o in rows.observations)
    if system.cost.draft is not None or speculates:
        names = tuple(acceptance_name(a) for a in rows.acceptances)
        known = frozenset(acceptance_name(a) for a in rows.acceptances if len(a.accept_prob) > 1)
        standalone = any(o.setting.algorithm == "STANDALONE" for o in rows.observations)
        parameters += acceptance_priors(names, known, standalone)
    corrected = _wants_correction(rows, data, system.gpu.is_cpu)
    if corrected:
        parameters += correction_priors(system.gpu.is_cpu)
    parameters = [_fix(p, fixed[p.name]) if p.name in fixed else p for p in parameters]
    prior = np.eye(len(parameters))
    if corrected:
        knots = correction_correlation()
        prior[-len(knots) :, -len(knots) :] = knots
    return tuple(parameters), prior


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


def _chosen(problem: Problem, most: int, fixed: frozenset[str]) -> Flags:
    """Parameters that the fit may move: backward elimination on a quadratic of (MAP).

    From the mode over all parameters, hold at its prior median the one whose holding raises the
    objective least, again and again: z_j^2 / (H^-1)_jj for the least squares of the rest. The
    correction always stays, and each further dataset brings a level of its own.
    """
    names = [p.name for p in problem.parameters]
    most += max(sum(name.startswith("accept_level") for name in names) - 1, 0)
    smooth = np.array([name.startswith("correction") for name in names])
    free = np.array([name not in fixed for name in names])
    mode, _ = _search(problem, free, PRIOR_NOISE, 1)
    covariance = laplace(problem, mode, PRIOR_NOISE)
    left = [j for j in range(len(names)) if free[j]]
    z, cov = mode[left], covariance[np.ix_(left, left)]
    while True:
        loss = np.array([z[k] ** 2 / cov[k, k] for k in range(len(left))])
        loss[[k for k, j in enumerate(left) if smooth[j]]] = np.inf
        weakest = int(np.argmin(loss))
        if sum(not smooth[j] for j in left) <= most and loss[weakest] > HOLD_LOSS:
            break
        if not np.isfinite(loss[weakest]):
            break
        z = z - cov[:, weakest] / cov[weakest, weakest] * z[weakest]
        column = cov[:, [weakest]]
        cov = cov - column @ column.T / cov[weakest, weakest]
        keep = [k for k in range(len(left)) if k != weakest]
        left, z, cov = [left[k] for k in keep], z[keep], cov[np.ix_(keep, keep)]
    chosen = smooth.copy()
    chosen[left] = True
    return chosen


def _search(
    problem: Problem,
    free: Flags,
    noise: float,
    starts: int,
    first: Floats | None = None,
) -> tuple[Floats, float]:
    """Minimise (MAP) over the free coordinates from several starts: (mode, spread of modes)."""
    from scipy.optimize import least_squares

    def full(values: Floats) -> Floats:
        z = np.zeros((*values.shape[:-1], len(free)))
        z[..., free] = values
        return z

    def minimum(x0: Floats, robust: bool) -> tuple[float, Floats]:
        def distance(values: Floats) -> Floats:
            return problem.objective(full(values), noise, robust)

        def slope(values: Floats) -> Floats:
            return differences(distance, values, 0.02)  # the contexts' lattice is rough

        found = least_squares(distance, x0, jac=slope, x_scale=1.0, xtol=1e-7, ftol=1e-9)
        return float(found.cost), found.x

    rng = np.random.default_rng(20260201)
    begin = (np.zeros(len(free)) if first is None else first)[free]
    points = [begin]
    if first is None:  # a Gaussian fit cannot write a far cell off, as Student's t can
        points.append(minimum(begin, False)[1])
    points += [begin + rng.normal(0.0, 0.7, len(begin)) for _ in range(starts - 1)]
    modes = [(cost, full(x)) for cost, x in (minimum(point, True) for point in points)]
    modes.sort(key=lambda pair: pair[0])
    good = [mode for cost, mode in modes if cost < modes[0][0] + 0.5]
    spread = max(float(np.abs(mode - modes[0][1]).max()) for mode in good)
    return modes[0][1], spread


def _noise(problem: Problem, mode: Floats, free: Flags, noise: float) -> float:
    """Noise of a throughput cell from the residuals, shrunk to the prior noise.

    The degrees of freedom that the fit used are the trace of its hat matrix.
    """
    r = problem.residuals(mode, 1.0)[problem.data.noise]
    jacobian = problem.jacobian(mode, noise)[:, free]
    prior = np.linalg.inv(problem.prior[np.ix_(free, free)] + 1e-9 * np.eye(int(free.sum())))
    used = np.trace(np.linalg.solve(jacobian.T @ jacobian + prior, jacobian.T @ jacobian))
    cells = max(len(r) - float(used), 1.0)
    weight = (STUDENT_NU + 1) / (STUDENT_NU + (r / noise) ** 2)
    total = PRIOR_NOISE_CELLS * PRIOR_NOISE**2 + float((weight * r**2).sum())
    return float(np.clip(np.sqrt(total / (PRIOR_NOISE_CELLS + cells)), 0.005, 0.3))


def _model_error(noise: float, cells: int) -> float:
    """Error of unseen cells: the residuals' scatter, shrunk to the prior error."""
    total = PRIOR_MODEL_CELLS * PRIOR_MODEL_ERROR**2 + cells * noise**2
    return max(float(np.sqrt(total / (PRIOR_MODEL_CELLS + cells))), FLOOR_MODEL_ERROR)


def _log_error(problem: Problem, mode: Floats) -> Floats:
    """ln(model / measured) of each row's throughput, or else of its first time."""
    solution = problem.rows.predict(problem.parameters, mode)
    data = problem.data
    error = np.full(len(problem.rows.observations), np.nan)
    for i, observed in enumerate(problem.rows.observations):
        if observed.output_tps is not None:
            error[i] = np.log(solution.output_tps[i] / observed.output_tps)
    for value, name, row, noise in zip(
        data.log_value, data.field, data.row, data.noise, strict=True
    ):
        if noise and np.isnan(error[row]):
            error[row] = np.log(getattr(solution, name)[row]) - value
    return error
