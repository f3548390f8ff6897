"""What is believed of all cells, and what a measurement would make of it: linear and Gaussian.

The state x holds the parameters' coordinates (and psi), the cells' own model errors and the loads'
shared ones. ln X = base + view x. A measurement with rows A and noise R turns the covariance P into

    P' = P - G V^-1 G',  G = P A',  V = A P A' + R                                     (UPDATE)

whatever is measured, so that its worth is known before: the posterior mean of the cells will be
normal around today's with covariance view G V^-1 G' view', and

    worth = E[max_i m'_i] - max_i m_i                                                   (WORTH)

is what the decision is expected to gain in ln(throughput): the cut of its expected regret.
"""

from dataclasses import dataclass

import numpy as np

from specsim.arrays import Floats, Ints
from specsim.decide.outlook import Outlook, root


@dataclass(frozen=True, slots=True)
class Belief:
    """A Gaussian over the state."""

    base: Floats  # (settings, loads): ln X at state zero
    view: Floats  # (cells, state): what the state adds to each cell, settings first
    shared: Floats  # (cells, state): what a measurement sees besides, and no comparison does
    mean: Floats  # of the state
    covariance: Floats
    parameters: int  # how many of the state, the first, are coordinates of the profile, psi too

    @property
    def cells(self) -> Floats:
        """(settings, loads): expected ln X."""
        return self.base + (self.view @ self.mean).reshape(self.base.shape)

    def foreseen(self, rows: Floats, noise: Floats) -> Floats:
        """Return F: the cells' posterior mean moves by F u with u standard normal, (cells, m).

        Measured are m numbers that see the state by `rows` (m, state), with errors `noise` (m,).
        """
        gain = self.covariance @ rows.T
        total = rows @ gain + np.diag(noise**2)
        half = np.linalg.cholesky(total + 1e-12 * np.eye(len(total)))
        return np.asarray(self.view @ np.linalg.solve(half, gain.T).T)

    def cell_rows(self, setting: int, loads: Ints) -> Floats:
        """Return the rows of a sweep of one setting over loads."""
        cells = setting * self.base.shape[1] + loads
        return np.asarray(self.view[cells] + self.shared[cells])

    def regret(self, normal: Floats, weights: Floats) -> float:
        """Return the expected regret of choosing the best mean at every load, in ln X.

        `normal` (draws, state) are standard normal numbers; `weights` (loads,) add up to 1.
        """
        drawn = normal @ (self.view @ root(self.covariance)).T
        return float((_excess(self.cells, drawn) * weights).sum())


def belief(view: Outlook) -> Belief:
    """Return the belief that an outlook is, state at zero."""
    settings, loads = view.grid.shape
    cells, parameters = settings * loads, len(view.covariance)
    size = parameters + cells + loads
    covariance = np.zeros((size, size))
    covariance[:parameters, :parameters] = view.covariance
    covariance[parameters : parameters + cells, parameters : parameters + cells] = view.specific()
    covariance[parameters + cells :, parameters + cells :] = view.shared_sd**2 * view.alike_loads
    seen, shared = np.zeros((cells, size)), np.zeros((cells, size))
    seen[:, :parameters] = view.flat_jacobian
    seen[:, parameters : parameters + cells] = np.eye(cells)
    shared[:, parameters + cells :] = np.tile(np.eye(loads), (settings, 1))
    return Belief(view.mean, seen, shared, np.zeros(size), covariance, parameters)


def worth(now: Belief, rows: Floats, noise: Floats, normal: Floats, weights: Floats) -> float:
    """Return what a measurement is expected to gain (WORTH), in ln(throughput).

    Parameters
    ----------
    now
        What is believed.
    rows, noise
        The measurement, as :meth:`Belief.foreseen` takes it.
    normal
        (draws, at least m): standard normal numbers, the same for all measurements.
    weights
        (loads,): how much each load counts, adding up to 1.
    """
    moved = normal[:, : len(rows)] @ now.foreseen(rows, noise).T
    return float((_excess(now.cells, moved) * weights).sum())


def _excess(mean: Floats, moves: Floats) -> Floats:
    """Return E[max(m + move) - (m + move) of today's best] per load, moves (draws, cells).

    The second term has mean zero beyond max(m): it only takes out noise.
    """
    after = mean + moves.reshape(-1, *mean.shape)
    today = np.take_along_axis(after, mean.argmax(axis=0)[None, None, :], axis=1)[:, 0, :]
    return np.asarray((after.max(axis=1) - today).mean(axis=0))
