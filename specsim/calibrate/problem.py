"""What a fit minimises: measured numbers, their residuals, and the prior.

Coordinates z are prior standard deviations from the prior medians, on log scale for multipliers.
The posterior mode minimises

    sum_i (nu + 1) ln(1 + r_i^2 / nu) + z' P^-1 z                                    (MAP)

with r_i the residuals in log throughput over the noise (Student's t with nu = 4, so that one wild
cell does not bend the rest) and P the prior correlation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.calibrate.rows import Rows
from specsim.errors import CalibrationError
from specsim.observations import Observation
from specsim.parameters import Facts, prior_correlation
from specsim.profile import assembled
from specsim.uncertainty import Parameter

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats, Ints

STUDENT_NU = 4.0

STEP = 0.02
"""Of slopes, in coordinates: the contexts' lattice is rough."""

ACCEPT_SIGMA = {"cell": 0.05, "run": 0.02, "pooled": 0.015, None: 0.03}
"""Error of ln(accept length) by what it was averaged over; a short cell is mostly noise."""

TTFT_SIGMA, TTFT_SIGMA_ALONE = 0.3, 0.1
"""Error of ln(TTFT): queueing and arrival bursts are only roughly in the closed form; a single
client meets neither."""

USUAL_NOISE = 0.03
"""Error of ln(throughput) that cells have as a rule; what a server's have is fitted."""

DRAFT_SIGMA = 0.05
"""Error of ln(time of the drafter's steps): engines count a little more or less to them."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Residuals as a function of the coordinates; knows nothing of how a mode is found."""

    rows: Rows
    data: Measured
    parameters: tuple[Parameter, ...]
    prior: Floats  # correlation of the coordinates

    @classmethod
    def of(cls, rows: Rows, data: Measured, parameters: tuple[Parameter, ...]) -> Problem:
        """Put together; only the knots of one correction are correlated beforehand."""
        prior = np.array(prior_correlation([p.name for p in parameters]))
        return cls(rows, data, parameters, prior)

    @property
    def facts(self) -> Facts:
        """Of the server."""
        return assembled(self.rows.setup).facts

    def errors(self, coordinates: Floats) -> Floats:
        """ln(model / measured) of every number at each row of coordinates."""
        return self.data.errors(self.rows.predict(self.parameters, coordinates))

    def residuals(self, coordinates: Floats, noise: float) -> Floats:
        """Errors over what they are expected to be, at each row of coordinates, or at one."""
        result = self.errors(np.atleast_2d(coordinates)) / self.data.sigmas(noise)
        return result if coordinates.ndim == 2 else result[0]

    def place(self, at: Floats) -> Place:
        """Look around at some coordinates."""
        offsets = STEP * np.eye(len(at))
        return Place(at, self.errors(np.concatenate([at[None], at + offsets, at - offsets])))

    @property
    def root(self) -> Floats:
        """Cholesky factor of the prior correlation."""
        return np.asarray(np.linalg.cholesky(self.prior + 1e-9 * np.eye(len(self.prior))))

    def jacobian(self, coordinates: Floats, noise: float) -> Floats:
        """Differentiate the residuals by central differences."""
        return self.place(coordinates).slopes(lambda errors: errors / self.data.sigmas(noise))


@dataclass(frozen=True, slots=True)
class Place:
    """Coordinates, and the errors there and a step to either side of each of them."""

    at: Floats
    errors: Floats  # (1 + 2 coordinates, values): there, above, below

    def slopes(self, of: Callable[[Floats], Floats]) -> Floats:
        """Jacobian (values, coordinates) of a function of the errors, by central differences."""
        values, size = of(self.errors), len(self.at)
        return np.asarray(((values[1 : size + 1] - values[size + 1 :]) / (2 * STEP)).T)

    def scaled(self, scale: Floats) -> Place:
        """Return the same place where coordinates are in other units."""
        nearer = np.concatenate([[1.0], scale, scale])[:, None]
        return Place(self.at * scale, self.errors[0] + (self.errors - self.errors[0]) / nearer)


@dataclass(frozen=True, slots=True)
class Measured:
    """Comparable numbers: ln(measured), which field of the solution, which row, which error.

    `noise` is True where the error is the fitted noise of throughput.
    """

    log_value: Floats
    field: tuple[str, ...]
    row: Ints
    sigma: Floats
    noise: Flags

    def errors(self, solutions: dict[str, Floats]) -> Floats:
        """ln(model / measured) of every number, one row per coordinate vector."""
        model = [solutions[f][:, r] for f, r in zip(self.field, self.row, strict=True)]
        return np.asarray(np.log(np.stack(model, axis=1)) - self.log_value)

    def sigmas(self, noise: float) -> Floats:
        """Return the errors that are expected."""
        return np.where(self.noise, noise * self.sigma, self.sigma)


def _is_product(row: Observation) -> bool:
    """Whether throughput is accept length times batch over round time, which are both stated.

    Then it says nothing of its own, and has the errors of both in it.
    """
    return (
        row.kind == "steady_decode"
        and row.setting.speculates
        and row.round_time_s is not None
        and row.accept_length is not None
    )


def _waiting_error(row: Observation) -> float:
    """Error of ln(TPOT) beside a throughput, with the noise of a cell.

    Requests that are not decoding wait for their first token (Little's law), which the closed form
    knows to `TTFT_SIGMA` only: whether prompts come one by one or all at once moves time between
    TTFT and TPOT, and none of it out of the sum.
    """
    if row.output_tps is None or row.tpot_s is None or not row.concurrency or not row.output_len:
        return USUAL_NOISE
    decoding_s = max(row.output_len - 1.0, 1.0) * row.tpot_s
    waiting_s = row.concurrency * row.output_len / row.output_tps - decoding_s
    return math.hypot(USUAL_NOISE, TTFT_SIGMA * max(waiting_s, 0.0) / decoding_s)


def measured(observations: Sequence[Observation]) -> Measured:
    """Collect what the rows measure: throughput or a time, and the accept length.

    Raises
    ------
    CalibrationError
        If no row measures a throughput, a time or an accept length.
    """
    values: list[tuple[float, str, int, float, bool]] = []
    for i, row in enumerate(observations):
        spread = row.weight**-0.5
        # Throughput and TPOT of one run share its noise: together they count once, and their
        # ratio says what share of the time is prefill.
        vaguer = _waiting_error(row) / USUAL_NOISE
        both = row.output_tps is not None and row.tpot_s is not None
        shared = spread * math.hypot(1.0, 1.0 / vaguer) if both else spread
        if row.output_tps is not None and not _is_product(row):
            values.append((row.output_tps, "output_tps", i, shared, True))
        if row.tpot_s is not None:
            values.append((row.tpot_s, "tpot_s", i, vaguer * shared, True))
        if row.round_time_s is not None:
            values.append((row.round_time_s, "round_s", i, spread, True))
        elif row.itl_s is not None and row.output_tps is None and row.tpot_s is None:
            values.append((row.itl_s, "itl_s", i, spread, True))
        if row.ttft_s is not None and row.kind == "closed_loop":
            error = TTFT_SIGMA_ALONE if row.concurrency == 1 else TTFT_SIGMA
            values.append((row.ttft_s, "ttft_s", i, error * spread, False))
        if row.draft_time_s is not None and row.setting.speculates:
            values.append((row.draft_time_s, "draft_s", i, DRAFT_SIGMA * spread, False))
        if row.accept_length is not None and row.setting.speculates:
            error = ACCEPT_SIGMA[row.accept_length_scope]
            values.append((row.accept_length, "accept_length", i, error * spread, False))
    if not values:
        raise CalibrationError(
            f"{len(observations)} observations",
            "none measures output_tps, tpot_s, itl_s, round_time_s or accept_length",
            "add a column with the throughput, a time or the accept length of at least one cell",
        )
    number, field, index, sigma, noise = zip(*values, strict=True)
    return Measured(
        np.log(np.array(number)),
        tuple(field),
        np.array(index),
        np.array(sigma),
        np.array(noise),
    )
