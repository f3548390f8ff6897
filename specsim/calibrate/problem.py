"""What a fit minimises: residuals and prior as functions of the coordinates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.calibrate.residuals import Measured, Rows
from specsim.uncertainty import Parameter

if TYPE_CHECKING:
    from specsim.arrays import Floats

STUDENT_NU = 4.0


@dataclass(frozen=True, slots=True)
class Problem:
    """Residuals as a function of the coordinates."""

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
