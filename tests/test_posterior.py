"""Errors of a fit against posteriors that are known: a linear one, and a sum of two terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from specsim.calibrate.posterior import laplace, widened
from specsim.calibrate.problem import STEP, Place, Problem
from specsim.uncertainty import Z90

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Linear:
    """Residuals that are linear in the coordinates."""

    slope: Floats
    offset: Floats
    prior: Floats

    def residuals(self, coordinates: Floats, noise: float) -> Floats:
        return (coordinates @ self.slope.T - self.offset) / noise

    def jacobian(self, coordinates: Floats, noise: float) -> Floats:
        offsets = STEP * np.eye(len(coordinates))
        around = [coordinates[None], coordinates + offsets, coordinates - offsets]
        errors = self.residuals(np.concatenate(around), noise)
        return Place(coordinates, errors).slopes(lambda errors: errors)


@dataclass(frozen=True)
class Sum:
    """Two costs of which only the sum is known, the first with the wider prior."""

    spread: Floats
    total: float
    prior: Floats

    def residuals(self, coordinates: Floats, noise: float) -> Floats:
        both = np.exp(coordinates * self.spread).sum(axis=-1)
        return np.asarray(np.log(both / self.total)[..., None] / noise)

    def jacobian(self, coordinates: Floats, noise: float) -> Floats:
        offsets = STEP * np.eye(len(coordinates))
        around = [coordinates[None], coordinates + offsets, coordinates - offsets]
        errors = self.residuals(np.concatenate(around), noise)
        return Place(coordinates, errors).slopes(lambda errors: errors)


def test_a_linear_posterior_is_found_exactly() -> None:
    """Gaussian: mean C A'b and covariance C = (A'A + P^-1)^-1 (Rasmussen & Williams, eq. 2.8)."""
    rng = np.random.default_rng(1)
    slope, prior = rng.normal(size=(5, 3)), np.array([[1.0, 0.4, 0], [0.4, 1.0, 0], [0, 0, 1.0]])
    truth, noise = np.array([0.3, -0.5, 1.0]), 0.5
    problem = cast(Problem, Linear(slope, slope @ truth, prior))
    exact = np.linalg.inv(slope.T @ slope / noise**2 + np.linalg.inv(prior))
    mean = exact @ slope.T @ (slope @ truth) / noise**2
    for covariance in (laplace(problem, mean, noise), widened(problem, mean, noise)):
        assert covariance == pytest.approx(exact, rel=1e-5, abs=1e-8)


def by_quadrature(problem: Sum, noise: float) -> tuple[Floats, Floats, Floats]:
    """Mode, mean and standard deviation on a grid."""
    axis = np.linspace(-5, 5, 1201)
    z = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    log_p = -0.5 * (problem.residuals(z, noise)[..., 0] ** 2 + (z**2).sum(axis=-1))
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = np.einsum("ij,ijk->k", p, z)
    sd = np.sqrt(np.einsum("ij,ijk->k", p, (z - mean) ** 2))
    return z[np.unravel_index(log_p.argmax(), log_p.shape)], mean, sd


@pytest.mark.parametrize("total", [1.0, 2.5])
def test_of_a_known_sum_the_errors_about_the_mode_hold_the_mean(total: float) -> None:
    """The mode gives the surplus to the wider prior; exact values by quadrature."""
    noise = 0.05
    problem = Sum(np.array([1.0, 0.5]), total, np.eye(2))
    mode, mean, sd = by_quadrature(problem, noise)
    stated = np.sqrt(np.diag(widened(cast(Problem, problem), mode, noise)))
    assert np.all(np.abs(mode - mean) < Z90 * stated)
    assert np.all(stated > 0.6 * sd)
