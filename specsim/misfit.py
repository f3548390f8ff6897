"""A measured cell that a profile does not honour: what is said of it, now and near it later."""

from __future__ import annotations

from dataclasses import dataclass

from specsim.setting import SpecSetting
from specsim.workload import Load

NEAR = 2.0
"""Loads within this factor of a misfit cell's are near it."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A cell whose model value lies outside the noise of its measurement."""

    cell: str  # its name
    setting: str  # label of its setting
    load: float  # clients, or requests per second in an open loop
    error: float  # model / measured - 1
    suspicion: str  # what may be behind it, and what to do

    @property
    def sentence(self) -> str:
        """What the output says of it.

        >>> Misfit("none C=8", "none", 8, -0.3, "an outlier: measure it again").sentence
        'none C=8: the model is -30 % off the measurement; an outlier: measure it again'
        """
        off = f"{100 * self.error:+.0f} % off the measurement"
        return f"{self.cell}: the model is {off}; {self.suspicion}"

    def is_near(self, setting: SpecSetting, load: Load) -> bool:
        """Whether a point is of the same setting at about that load."""
        at = load.request_rate if load.kind == "open_loop" else load.concurrency
        return setting.label == self.setting and 1 / NEAR <= (at or 0.0) / self.load <= NEAR
