"""One number of a profile: its value, its prior, its error, and what it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

from specsim.errors import InputError, UnknownNameError
from specsim.evidence import Evidence
from specsim.uncertainty import Z90

Scale = Literal["log", "linear"]
Group = Literal["cost", "acceptance"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number with a normal prior on its scale.

    Parameters
    ----------
    name
        Field of CostParameters, ``correction_K``, or of Acceptance; ``accept_level[NAME]`` is the
        level of one named acceptance.
    scale
        ``log``: the coordinate is ln(value); ``linear``: the value itself.
    prior_median, prior_sd
        Prior: median of the value, standard deviation of the coordinate.
    value, sd
        Posterior: its mode, and the standard deviation about it on the scale. With the profile's
        correlation that is what predictions carry.
    interval
        Central 90 % of the posterior of this number alone, as values. Its middle is not the value
        where the posterior is lopsided. None: what `sd` says.
    fitted
        Whether the fit moved it; otherwise it stands at its prior median and keeps its error.
    low, high
        Physical bounds of the value.
    source
        What the prior rests on.
    """

    name: str
    scale: Scale
    prior_median: float
    prior_sd: float
    value: float
    sd: float
    fitted: bool = False
    low: float = -math.inf
    high: float = math.inf
    source: str = ""
    interval: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.scale not in get_args(Scale):
            raise UnknownNameError(f"parameter {self.name}: scale", self.scale, get_args(Scale))
        numbers = (self.prior_median, self.prior_sd, self.value, self.sd)
        if not all(math.isfinite(x) for x in numbers) or self.prior_sd <= 0 or self.sd < 0:
            raise InputError(
                f"parameter {self.name}",
                "has a value or an error that is not finite, or a negative error",
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
        return replace(
            self,
            value=self.at(coordinate),
            sd=sd * self.prior_sd,
            fitted=fitted,
            interval=interval,
        )
