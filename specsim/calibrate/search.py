"""Finding the mode of a fit: which parameters move, where the mode is, how large the noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from specsim.calibrate.posterior import laplace
from specsim.calibrate.problem import STUDENT_NU, Problem, differences

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats

PRIOR_NOISE, PRIOR_NOISE_CELLS = 0.03, 6
"""Noise of a cell before the data speak, worth this many cells."""
HOLD_LOSS = 0.1
"""A parameter whose holding costs less than this in 2 ln(posterior) is held at its prior."""


def chosen(problem: Problem, most: int, fixed: frozenset[str]) -> Flags:
    """Parameters that the fit may move: backward elimination on a quadratic of (MAP).

    From the mode over all parameters, hold at its prior median the one whose holding raises the
    objective least, again and again: z_j^2 / (H^-1)_jj for the least squares of the rest. The
    correction always stays, and each further dataset brings a level of its own.
    """
    names = [p.name for p in problem.parameters]
    most += max(sum(name.startswith("accept_level") for name in names) - 1, 0)
    smooth = np.array([name.startswith("correction") for name in names])
    free = np.array([name not in fixed for name in names])
    mode = find_mode(problem, free, PRIOR_NOISE, 1)[0]
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


def find_mode(
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


def cell_noise(problem: Problem, mode: Floats, free: Flags, noise: float) -> float:
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
