"""The posterior of a fit: its objective, and its spread where the model bends.

Costs add up while coordinates are logarithms: what only a sum is known of has a posterior that is
no ellipse (an overhead can be next to nothing if the draft is dear), and whose mode is not its
middle. So the covariance is that of draws from the posterior, about the mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specsim.calibrate.residuals import PRICES, Measured, Rows
from specsim.profile import Parameter

Floats = NDArray[np.float64]

STUDENT_NU = 4.0
WALKERS, STEPS, BURN = 160, 60, 20
STRIDE = 0.5
"""Share of a fresh draw in a proposal."""
WIDTH = 1.4
"""Proposals come from Laplace's normal, wider by this."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Residuals as a function of the coordinates.

    Parameters
    ----------
    rows, data
        What is solved, and what was measured of it.
    parameters, prior
        Numbers, and the prior correlation of their coordinates.
    """

    rows: Rows
    data: Measured
    parameters: tuple[Parameter, ...]
    prior: Floats

    def residuals(self, coordinates: Floats, noise: float) -> Floats:
        """Residuals at each row of coordinates, or at one vector."""
        many = np.atleast_2d(coordinates)
        solutions = self.rows.predict_many(self.parameters, many)
        result = self.data.residuals(solutions, noise)
        return result if coordinates.ndim == 2 else result[0]

    def objective(self, coordinates: Floats, noise: float, robust: bool = True) -> Floats:
        """Vector whose squared length is (MAP), or its Gaussian limit; rows as in `residuals`."""
        r = self.residuals(coordinates, noise)
        if robust:
            r = np.sign(r) * np.sqrt((STUDENT_NU + 1) * np.log1p(r**2 / STUDENT_NU))
        whitened = np.linalg.solve(self.root, coordinates.T).T
        return np.concatenate([r, whitened], axis=-1)

    @property
    def root(self) -> Floats:
        """Cholesky factor of the prior correlation."""
        return np.asarray(np.linalg.cholesky(self.prior + 1e-9 * np.eye(len(self.prior))))

    def jacobian(self, coordinates: Floats, noise: float) -> Floats:
        """Differentiate the plain residuals by central differences."""
        return differences(lambda z: self.residuals(z, noise), coordinates, 0.02)


def differences(function: Callable[[Floats], Floats], at: Floats, step: float) -> Floats:
    """Jacobian (values, coordinates) of a function that takes rows of coordinates."""
    offsets = step * np.eye(len(at))
    values = function(np.concatenate([at + offsets, at - offsets]))
    return np.asarray(((values[: len(at)] - values[len(at) :]) / (2 * step)).T)


def sampled_covariance(problem: Problem, mode: Floats, noise: float, laplace: Floats) -> Floats:
    """Second moments of the posterior about its mode, by preconditioned Crank-Nicolson steps.

    Residuals are exact in the prices and linear in the rest (acceptance, KV pool), which bends
    little and is dear to solve for. Likelihoods are normal, as Laplace's are.

    Parameters
    ----------
    problem, mode, noise
        The fit.
    laplace
        Covariance from the slopes at the mode: where the walk starts, and no error becomes
        smaller than it.
    """
    rng = np.random.default_rng(20260202)
    prices = np.array([p.name in PRICES for p in problem.parameters])
    slopes = problem.jacobian(mode, noise)[:, ~prices]
    whiten = np.linalg.inv(problem.root)
    reference = np.linalg.cholesky(WIDTH**2 * laplace + 1e-12 * np.eye(len(mode)))
    back = np.linalg.inv(reference)

    def potential(z: Floats) -> Floats:
        """Minus the log posterior over the reference normal."""
        priced = np.where(prices, z, mode)
        r = problem.residuals(priced, noise) + (z - mode)[:, ~prices] @ slopes.T
        prior, normal = z @ whiten.T, (z - mode) @ back.T
        return np.asarray(0.5 * ((r**2).sum(1) + (prior**2).sum(1) - (normal**2).sum(1)))

    size = (WALKERS, len(mode))
    z = mode + rng.normal(size=size) @ reference.T / WIDTH
    now = potential(z)
    total, count = np.zeros_like(laplace), 0
    for step in range(STEPS):
        fresh = rng.normal(size=size) @ reference.T
        other = mode + np.sqrt(1 - STRIDE**2) * (z - mode) + STRIDE * fresh
        then = potential(other)
        taken = np.log(rng.random(WALKERS)) < now - then
        z, now = np.where(taken[:, None], other, z), np.where(taken, then, now)
        if step >= BURN:
            total += (z - mode).T @ (z - mode)
            count += WALKERS
    moments = total / count
    scale = np.sqrt(np.maximum(np.diag(laplace) / np.diag(moments), 1.0))
    return np.asarray(moments * np.outer(scale, scale), dtype=np.float64)
