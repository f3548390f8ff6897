"""Errors of a fit: a covariance about the mode that holds what the data know tightly.

Costs add up while coordinates are logarithms: what the data know is a sum of positive terms, so the
posterior is bent and lopsided, and slopes at the mode alone would say too little (:func:`widened`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from specsim.calibrate.problem import Problem

if TYPE_CHECKING:
    from specsim.arrays import Floats

SECANT = 1.28
"""Posterior errors over which the bend of the model counts: one draw in ten lies beyond."""


def laplace(problem: Problem, mode: Floats, noise: float) -> Floats:
    """Covariance of all coordinates from the slopes of the residuals at the mode."""
    return _covariance(problem, problem.jacobian(mode, noise))


def widened(problem: Problem, mode: Floats, noise: float) -> Floats:
    """Laplace's covariance with the bends of the model in it.

    What the prior alone drives can grow by more than its slope says, and what the data drive then
    has to give way by as much. Slopes are replaced by secants over `SECANT` posterior errors, on
    the side where they are steeper; no error becomes smaller by that.
    """
    slopes = laplace(problem, mode, noise)
    steps = np.diag(SECANT * np.sqrt(np.diag(slopes)))
    size = len(mode)
    values = problem.residuals(np.concatenate([mode[None], mode + steps, mode - steps]), noise)
    up, down = values[1 : size + 1] - values[0], values[0] - values[size + 1 :]
    steeper = (up**2).sum(axis=1) >= (down**2).sum(axis=1)
    secants = np.where(steeper[:, None], up, down) / np.diag(steps)[:, None]
    bent = _covariance(problem, secants.T)
    scale = np.sqrt(np.maximum(np.diag(slopes) / np.diag(bent), 1.0))
    return np.asarray(bent * np.outer(scale, scale), dtype=np.float64)


def _covariance(problem: Problem, jacobian: Floats) -> Floats:
    prior = np.linalg.inv(problem.prior + 1e-9 * np.eye(len(problem.prior)))
    covariance = np.linalg.inv(jacobian.T @ jacobian + prior)
    return np.asarray((covariance + covariance.T) / 2, dtype=np.float64)
