"""What a number rests on, how sure it is, and what that does to ln(throughput).

To first order ln X moves by J z with z the parameters' coordinates, so that

    var ln X_i = (J C J')_ii + e^2,  var ln(X_i / X_j) = (J_i - J_j) C (J_i - J_j)' + e^2  (DELTA)

with C the posterior covariance and e the model error estimated from residuals. Two settings of
one server share their parameters, so their ratio is surer than either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from specsim.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from specsim.arrays import Floats

Evidence = Literal["measured", "fitted", "published", "assumed"]
"""What a number rests on, from the strongest to the weakest."""

ORDER: tuple[Evidence, ...] = get_args(Evidence)

Scale = Literal["log", "linear"]

Z90 = 1.6448536269514722
"""Half-width of the central 90 % of a normal, in standard deviations."""

SURE = 0.75
"""Probability from which one setting beats another: three to one.

On 200 simulated systems whose parameters are known as well as a dozen cells tell them, 75 % loses
0.6 % of the throughput on average, as 70 % does and 80 % nearly (benchmarks/figures_decide.py)."""

EVEN_GAIN = 0.005
"""A gain that rounds to no per cent is none."""

STEP = 0.25
"""Of the central difference, in posterior standard deviations: secants see bends of caps."""

STRAYED = 3.0
"""Prior standard deviations from which a fitted value is far outside: by chance one in 370."""

LARGEST_ERROR = 20.0
"""Of a coordinate or a logarithm, a factor of half a billion: beyond it exponentials overflow."""


def weakest(evidence: Iterable[Evidence]) -> Evidence:
    """Return the weakest of several pieces of evidence (``measured`` for none).

    >>> weakest(["measured", "assumed", "fitted"])
    'assumed'
    """
    return ORDER[max((ORDER.index(e) for e in evidence), default=0)]


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
        return cls(*(math.expm1(log_ratio + z * sd) for z in (0.0, -Z90, Z90)))


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number with a normal prior on its scale.

    On the ``log`` scale its coordinate is ln(value), else the value itself; coordinates count in
    prior standard deviations from the prior median.
    """

    name: str  # of a row of specsim.parameters: ``host``, ``correction_3``, ``accept_level[NAME]``
    scale: Scale
    prior_median: float  # of the value
    prior_sd: float  # of the coordinate
    value: float  # mode of the posterior
    sd: float  # of the posterior about it; with the correlation what predictions carry
    fitted: bool = False  # whether the fit moved it; else it stands at its prior median
    low: float = -math.inf  # physical bounds of the value
    high: float = math.inf
    source: str = ""  # what the prior rests on
    interval: tuple[float, float] | None = None  # posterior 90 % of it alone; None: what sd says

    def __post_init__(self) -> None:
        if self.scale not in get_args(Scale):
            raise UnknownNameError(f"parameter {self.name}: scale", self.scale, get_args(Scale))
        numbers = (self.prior_median, self.prior_sd, self.value, self.sd)
        finite = all(math.isfinite(x) for x in numbers)
        if (
            not finite
            or not 0 < self.prior_sd <= LARGEST_ERROR
            or not 0 <= self.sd <= LARGEST_ERROR
        ):
            raise InputError(
                f"parameter {self.name}",
                f"has a value that is not finite, or an error outside 0..{LARGEST_ERROR:g}",
                "fit the profile again",
            )
        if self.scale == "log" and min(self.prior_median, self.value) <= 0:
            raise InputError(
                f"parameter {self.name} {self.value}",
                "must be positive on a log scale",
                "check the profile, or fit it again",
            )
        if self.interval is not None:
            self._check_interval(*self.interval)
        if not self.low <= self.value <= self.high:
            raise InputError(
                f"parameter {self.name} {self.value}",
                f"must lie in {self.low}..{self.high}",
                "check the profile",
            )

    def _check_interval(self, least: float, most: float) -> None:
        if not (math.isfinite(least) and math.isfinite(most) and least <= most) or (
            self.scale == "log" and least <= 0
        ):
            raise InputError(
                f"parameter {self.name}: interval {least}..{most}",
                "must be two finite numbers in order, positive on a log scale",
                "check the profile, or fit it again",
            )

    @property
    def coordinate(self) -> float:
        """Where the value stands, in prior standard deviations from the prior median."""
        return (self._place(self.value) - self._place(self.prior_median)) / self.prior_sd

    def at(self, coordinate: float) -> float:
        """Value at a coordinate, held within the bounds."""
        place = self._place(self.prior_median) + coordinate * self.prior_sd
        value = math.exp(min(place, 60.0)) if self.scale == "log" else place
        return min(max(value, self.low), self.high)

    def along(self, coordinates: Floats) -> Floats:
        """Values at many coordinates, see `at`."""
        place = self._place(self.prior_median) + coordinates * self.prior_sd
        value = np.exp(np.minimum(place, 60.0)) if self.scale == "log" else place
        return np.clip(value, self.low, self.high)

    def _place(self, value: float) -> float:
        return math.log(value) if self.scale == "log" else value

    @property
    def stated(self) -> tuple[float, float]:
        """Central 90 % of the posterior, as values."""
        if self.interval is not None:
            return self.interval
        return self._about(self.value, self.sd)

    @property
    def prior_interval(self) -> tuple[float, float]:
        """Central 90 % of the prior, as values."""
        return self._about(self.prior_median, self.prior_sd)

    def _about(self, middle: float, sd: float) -> tuple[float, float]:
        place = (self._place(middle) - self._place(self.prior_median)) / self.prior_sd
        half = Z90 * sd / self.prior_sd
        return self.at(place - half), self.at(place + half)

    @property
    def texts(self) -> tuple[str, str]:
        """The value and the prior's median, each with its central 90 %.

        >>> Parameter("host", "log", 1.0, 0.5, 0.9, 0.02).texts
        ('0.9 (0.871 to 0.93)', '1 (0.439 to 2.28)')
        """
        (least, most), (low, high) = self.stated, self.prior_interval
        return (
            f"{self.value:.3g} ({least:.3g} to {most:.3g})",
            f"{self.prior_median:.3g} ({low:.3g} to {high:.3g})",
        )

    @property
    def driven(self) -> Literal["data", "prior"]:
        """``data`` if the observations at least halved the prior's variance."""
        return "data" if self.sd < 0.71 * self.prior_sd else "prior"

    @property
    def evidence(self) -> Evidence:
        """``fitted`` if data-driven, else ``assumed``."""
        return "fitted" if self.driven == "data" else "assumed"

    def moved(
        self,
        coordinate: float,
        sd: float,
        fitted: bool,
        posterior: tuple[float, float] | None = None,
    ) -> Parameter:
        """Return the same parameter after a fit, all in prior standard deviations.

        Parameters
        ----------
        coordinate, sd
            Mode, and standard deviation about it.
        fitted
            Whether the fit moved it.
        posterior
            Mean and standard deviation of this coordinate alone, for the interval.
        """
        interval = None
        if posterior is not None:
            mean, alone = posterior
            interval = (self.at(mean - Z90 * alone), self.at(mean + Z90 * alone))
        value, sd = self.at(coordinate), sd * self.prior_sd
        return replace(self, value=value, sd=sd, fitted=fitted, interval=interval)


def strayed(parameters: Iterable[Parameter]) -> list[str]:
    """Return a line for each fitted value that its prior does not hold: it stands for more."""
    return [
        f"{p.name} {p.value:.3g} is far outside its prior, "
        f"{' to '.join(f'{bound:.2g}' for bound in p.prior_interval)}: measured values, unit, or a "
        "state that the setup does not tell (eager mode, a busy CPU, a throttled GPU)? predictions "
        "away from the measured cells carry it on"
        for p in parameters
        if p.fitted and abs(p.coordinate) >= STRAYED
    ]


@dataclass(frozen=True, slots=True)
class Spread:
    """Errors of ln(throughput) of several rows."""

    jacobian: Floats  # (rows, parameters): d ln X / d coordinate
    covariance: Floats  # of the coordinates
    model_error: float  # e of (DELTA)

    @property
    def sd(self) -> Floats:
        """Standard deviation of ln X per row."""
        variance: Floats = (self.jacobian @ self.covariance * self.jacobian).sum(axis=1)
        total: Floats = np.sqrt(np.maximum(variance, 0.0) + self.model_error**2)
        return total

    def ratio_sd(self, first: int, second: int) -> float:
        """Return the standard deviation of ln(X_first / X_second)."""
        d = self.jacobian[first] - self.jacobian[second]
        return math.sqrt(max(float(d @ self.covariance @ d), 0.0) + self.model_error**2)

    def shares(self, row: int) -> Floats:
        """Share of each parameter in the parameters' variance of a row (correlations split)."""
        parts = self.jacobian[row] * (self.covariance @ self.jacobian[row])
        total = float(parts.sum())
        return parts / total if total > 0 else np.zeros_like(parts)


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


@lru_cache(maxsize=8)
def normal_quantiles(points: int) -> Floats:
    """Midpoint quantiles of a standard normal, rescaled to variance 1."""
    normal = NormalDist()
    z = np.array([normal.inv_cdf((i + 0.5) / points) for i in range(points)])
    z /= z.std()
    z.setflags(write=False)
    return z


@lru_cache(maxsize=256)
def normal_lattice(points: int, generator: int, first: int, count: int) -> Floats:
    """Return coordinates of a lattice that stands for independent normals, (count, points).

    Korobov's of rank 1: coordinate k is the permutation i g^(k+1) mod `points`, a prime.
    """
    steps = np.array([pow(generator, k + 1, points) for k in range(first, first + count)])
    z = np.asarray(normal_quantiles(points)[np.arange(1, points + 1) * steps[:, None] % points])
    z.setflags(write=False)
    return z


def beats(difference: float, sd: float) -> float:
    """Return the probability that a normal of that mean is positive; 1/2 for twins."""
    if sd <= 1e-9:
        return 0.5 if abs(difference) < 1e-9 else float(difference > 0)
    return normal_cdf(difference / sd)


Outcome = Literal["faster", "slower", "even"]


def outcome(gain: float, probability: float) -> Outcome:
    """Say how a setting stands to another one: even where neither surely beats the other.

    `probability` is that of being faster; a gain of the other sign, or of nothing, is even.

    >>> outcome(0.05, 0.9), outcome(-0.05, 0.1), outcome(0.05, 0.7), outcome(0.001, 0.99)
    ('faster', 'slower', 'even', 'even')
    """
    if gain >= EVEN_GAIN and probability >= SURE:
        return "faster"
    return "slower" if gain <= -EVEN_GAIN and probability <= 1.0 - SURE else "even"
