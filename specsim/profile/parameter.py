"""One number of a profile: its value, its prior, its error, and what it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

from specsim.errors import InputError, UnknownNameError
from specsim.evidence import Evidence

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
        Posterior: value, and standard deviation of the coordinate.
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
        if not self.low <= self.value <= self.high:
            raise InputError(
                f"parameter {self.name} {self.value}",
                f"must lie in {self.low}..{self.high}",
                "check the profile",
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
    def driven(self) -> Literal["data", "prior"]:
        """``data`` if the observations at least halved the prior's variance."""
        return "data" if self.sd < 0.71 * self.prior_sd else "prior"

    @property
    def evidence(self) -> Evidence:
        """``fitted`` if data-driven, else ``assumed``."""
        return "fitted" if self.driven == "data" else "assumed"

    def moved(self, coordinate: float, sd: float, fitted: bool) -> Parameter:
        """Return the same parameter after a fit; `sd` in prior standard deviations."""
        return replace(self, value=self.at(coordinate), sd=sd * self.prior_sd, fitted=fitted)
