"""How sure a prediction is: what the parameters' errors do to ln(throughput).

To first order ln X moves by J z with z the parameters' coordinates, so that

    var ln X_i = (J C J')_ii + e^2,  var ln(X_i / X_j) = (J_i - J_j) C (J_i - J_j)' + e^2  (DELTA)

with C the posterior covariance and e the model error estimated from residuals. Two settings of
one server share their parameters, so their ratio is surer than either.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from specsim.arrays import Floats

Z90 = 1.6448536269514722
"""Half-width of the central 90 % of a normal, in standard deviations."""

STEP = 0.25
"""Of the central difference, in posterior standard deviations: secants see bends of caps."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its central 90 %."""

    value: float
    low: float
    high: float

    @classmethod
    def of_log(cls, value: float, sd: float) -> Interval:
        """Return the interval of a value whose logarithm has a standard deviation.

        >>> Interval.of_log(100.0, 0.0)
        Interval(value=100.0, low=100.0, high=100.0)
        """
        return cls(value, value * math.exp(-Z90 * sd), value * math.exp(Z90 * sd))

    @classmethod
    def of_change(cls, log_ratio: float, sd: float) -> Interval:
        """Return a ratio less 1 from its logarithm.

        >>> Interval.of_change(0.0, 0.0)
        Interval(value=0.0, low=0.0, high=0.0)
        """
        half = Z90 * sd
        return cls(
            math.expm1(log_ratio), math.expm1(log_ratio - half), math.expm1(log_ratio + half)
        )


@dataclass(frozen=True, slots=True)
class Spread:
    """Errors of ln(throughput) of several rows."""

    jacobian: Floats  # (rows, parameters): d ln X / d coordinate
    covariance: Floats  # of the coordinates
    model_error: float  # e of (DELTA)

    @property
    def sd(self) -> Floats:
        """Standard deviation of ln X per row."""
        variance = np.einsum("ij,jk,ik->i", self.jacobian, self.covariance, self.jacobian)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0) + self.model_error**2))

    def ratio_sd(self, first: int, second: int) -> float:
        """Return the standard deviation of ln(X_first / X_second)."""
        d = self.jacobian[first] - self.jacobian[second]
        return math.sqrt(max(float(d @ self.covariance @ d), 0.0) + self.model_error**2)

    def shares(self, row: int) -> Floats:
        """Share of each parameter in the parameters' variance of a row (correlations split)."""
        parts = self.jacobian[row] * (self.covariance @ self.jacobian[row])
        total = float(parts.sum())
        return np.asarray(parts / total if total > 0 else np.zeros_like(parts))


def spread(
    log_output: Callable[[Floats], Floats],
    centre: Floats,
    covariance: Floats,
    model_error: float = 0.0,
) -> Spread:
    """Differentiate ln(throughput) about a posterior's mode (DELTA).

    Parameters
    ----------
    log_output
        (points, parameters) coordinates to (points, rows) ln(throughput); see :func:`each`.
    centre, covariance
        Coordinates at the mode, and their posterior covariance.
    model_error
        e of (DELTA).
    """
    size = len(centre)
    if size == 0:
        rows = log_output(centre[None, :]).shape[1]
        return Spread(np.zeros((rows, 0)), covariance, model_error)
    steps = STEP * np.maximum(np.sqrt(np.diag(covariance)), 1e-3)
    values = log_output(np.concatenate([centre + np.diag(steps), centre - np.diag(steps)]))
    jacobian = ((values[:size] - values[size:]) / (2 * steps[:, None])).T
    return Spread(jacobian, covariance, model_error)


def each(function: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    """Let a function of one coordinate vector take many, one after the other."""
    return lambda points: np.stack([function(point) for point in points])


def normal_cdf(z: float) -> float:
    """P(standard normal < z)."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))
