"""Finding the mode of a fit, and with it the noise of cells and the spread of the corrections.

Physics is the prior mean, not the judge [1]_: over the parameters theta a discrepancy delta is
added, whose spread is learnt from the same cells,

    ln round = ln f(x; theta) + delta_tokens(x) + delta_speculating(x)              (DISCREPANCY)

    r' S^-1 r + ln det S,   S = J P J' + sum_k s_k^2 J_k C_k J_k' + N                (EVIDENCE)

with r the residuals at the prior means and J their slopes, both from the mode, C_k the correlation
of correction k's knots, s_k its spread, N the noise. Half-normal priors on the spreads let a
correction vanish where physics is right. Cells that stay far off weigh little in N, as Student's t
has it: so the search starts both from a Gaussian fit, which follows every cell, and from physics,
which may write one off; the better posterior wins.

References
----------
.. [1] M. Kennedy, A. O'Hagan, "Bayesian calibration of computer models", J. R. Stat. Soc. B 63
   (2001).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from specsim.calibrate.problem import STUDENT_NU, Measured, Problem, differences
from specsim.calibrate.rows import Rows
from specsim.parameters import CORRECTIONS, Facts, correction_priors, knot_of
from specsim.profile import assembled
from specsim.uncertainty import Parameter

if TYPE_CHECKING:
    from specsim.arrays import Floats

NOISE, NOISE_SPREAD = 0.025, 0.5
"""Noise of a cell before the data speak: median, and standard deviation of its logarithm."""
LEAST = {"spread": 0.003, "noise": 0.008}
MOST = {"spread": 2.0, "noise": 0.2}
NEAR = 1e-3
"""Tolerance of a mode that only the evidence is taken at."""
ROUNDS = 4
"""Of mode and evidence in turn: the spreads then move by less than a twentieth."""


@dataclass(frozen=True, slots=True)
class Found:
    """Where a search ended."""

    problem: Problem
    mode: Floats
    noise: float
    spread: Mapping[str, float]  # of each correction
    objective: float  # -ln of the posterior of spreads and noise, by Laplace


def find(
    rows: Rows, data: Measured, physics: Sequence[Parameter], corrections: Sequence[str]
) -> Found:
    """Find mode, noise and spreads.

    Parameters
    ----------
    rows, data
        What was measured.
    physics
        Parameters but for the corrections' knots.
    corrections
        Which there are.
    """

    def start(spread: float) -> Found:
        spreads = dict.fromkeys(corrections, spread)
        priors = correction_priors(assembled(rows.setup).facts, spreads)
        problem = Problem.of(rows, data, (*physics, *priors))
        return Found(problem, np.zeros(len(problem.parameters)), NOISE, spreads, np.inf)

    gaussian = _climb(start(0.1), robust=False)
    return min(
        (_climb(gaussian, robust=True), _climb(start(0.03), robust=True)),
        key=lambda found: found.objective,
    )


def find_mode(
    problem: Problem, first: Floats, noise: float, robust: bool = True, tolerance: float = 1e-8
) -> Floats:
    """Minimise (MAP) from a start, until a step gains less than `tolerance` of it."""
    from scipy.optimize import least_squares

    def distance(z: Floats) -> Floats:
        return problem.objective(z, noise, robust)

    def slope(z: Floats) -> Floats:
        return differences(distance, z, 0.02)  # the contexts' lattice is rough

    found = least_squares(
        distance, first, jac=slope, x_scale=1.0, xtol=1e-6, ftol=tolerance, max_nfev=60
    )
    mode: Floats = found.x
    return mode


def _climb(at: Found, robust: bool) -> Found:
    """Take mode and evidence in turn until they agree."""
    for _ in range(ROUNDS):
        mode = find_mode(at.problem, at.mode, at.noise, robust, NEAR)
        at = replace(at, mode=mode)
        spread, noise = _evidence(at, robust)
        change = [abs(np.log(spread[k] / at.spread[k])) for k in spread]
        settled = max([abs(np.log(noise / at.noise)), *change]) < 0.05
        at = _with_spread(at, spread, noise)
        if settled:
            break
    mode = find_mode(at.problem, at.mode, at.noise, robust)
    return replace(at, mode=mode, objective=_objective(replace(at, mode=mode)))


def _with_spread(at: Found, spread: Mapping[str, float], noise: float) -> Found:
    """Return the same place under other spreads: coordinates are in their units."""
    knots = {p.name: p for p in correction_priors(at.problem.facts, spread)}
    parameters = tuple(knots.get(p.name, p) for p in at.problem.parameters)
    scale = [
        old.prior_sd / new.prior_sd
        for old, new in zip(at.problem.parameters, parameters, strict=True)
    ]
    problem = Problem.of(at.problem.rows, at.problem.data, parameters)
    return Found(problem, at.mode * np.array(scale), noise, spread, np.inf)


def _evidence(at: Found, robust: bool) -> tuple[dict[str, float], float]:
    """Spreads and noise of the greatest (EVIDENCE)."""
    from scipy.optimize import minimize

    problem, data = at.problem, at.problem.data
    families = list(at.spread)
    r = problem.residuals(at.mode, at.noise)
    sigma = np.where(data.noise, at.noise * data.sigma, data.sigma)
    slopes = problem.jacobian(at.mode, at.noise) * sigma[:, None]
    off = r * sigma - slopes @ at.mode
    weight = (STUDENT_NU + 1) / (STUDENT_NU + r**2) if robust else np.ones_like(r)
    of = [knot[0] if (knot := knot_of(p.name)) else "" for p in problem.parameters]

    def shared(family: str) -> Floats:
        index = [i for i, name in enumerate(of) if name == family]
        part = slopes[:, index]
        unit = at.spread[family] if family else 1.0
        product: Floats = part @ problem.prior[np.ix_(index, index)] @ part.T / unit**2
        return product

    physics, parts = shared(""), [shared(family) for family in families]

    def cost(logs: Floats) -> float:
        *spread, noise = np.exp(logs)
        covariance = physics + np.diag(
            np.where(data.noise, noise * data.sigma, sigma) ** 2 / weight
        )
        for s, part in zip(spread, parts, strict=True):
            covariance = covariance + s**2 * part
        root = np.linalg.cholesky(covariance)
        misfit = np.linalg.solve(root, off)
        likelihood = 0.5 * float(misfit @ misfit) + float(np.log(np.diag(root)).sum())
        by_family = dict(zip(families, spread, strict=True))
        return likelihood + _hyperprior(problem.facts, by_family, noise)

    here = np.log([*at.spread.values(), at.noise])
    starts = [here, *(np.log([*[s] * len(families), NOISE]) for s in (0.03, 0.3))]
    best = min(
        (minimize(cost, s, method="Nelder-Mead", options={"maxiter": 400}) for s in starts),
        key=lambda found: float(found.fun),
    )
    *spread, noise = np.exp(best.x)
    return (
        {
            f: float(np.clip(s, LEAST["spread"], MOST["spread"]))
            for f, s in zip(families, spread, strict=True)
        },
        float(np.clip(noise, LEAST["noise"], MOST["noise"])),
    )


def _hyperprior(facts: Facts, spread: Mapping[str, float], noise: float) -> float:
    """-ln of the prior density of ln(spread) and ln(noise), up to a constant."""
    prior = {family: CORRECTIONS[family].on(facts) or (0.0, 1.0) for family in spread}
    half_normal = sum(0.5 * (s / prior[f][1]) ** 2 - np.log(s) for f, s in spread.items())
    return float(half_normal + 0.5 * (np.log(noise / NOISE) / NOISE_SPREAD) ** 2)


def _objective(at: Found) -> float:
    """-ln posterior of spreads and noise with the coordinates integrated out (Laplace)."""
    problem = at.problem
    r = problem.residuals(at.mode, at.noise)
    slopes = problem.jacobian(at.mode, at.noise)
    inverse = np.linalg.inv(problem.prior + 1e-9 * np.eye(len(at.mode)))
    weight = (STUDENT_NU + 1) / (STUDENT_NU + r**2)
    bend = slopes.T @ (weight[:, None] * slopes) + inverse
    count = int(problem.data.noise.sum())
    return (
        0.5 * float(((STUDENT_NU + 1) * np.log1p(r**2 / STUDENT_NU)).sum())
        + count * float(np.log(at.noise))
        + 0.5 * float(at.mode @ inverse @ at.mode)
        + 0.5 * float(np.linalg.slogdet(bend)[1])
        - 0.5 * float(np.linalg.slogdet(inverse)[1])
        + _hyperprior(problem.facts, at.spread, at.noise)
    )
