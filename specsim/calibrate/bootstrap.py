"""Bootstrap of a fit: the scatter of the data beside the stated errors.

Runs (rows of one source) are drawn with replacement, rows where there are too few runs; each draw
is fitted from the mode with the same free parameters. What the data say then scatters as they do.
A posterior adds what the prior says to that, so its errors may be larger, and for what is driven
by the prior they are, but they must not be smaller by much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.calibrate.fit import FitResult, fit_profile, refit
from specsim.errors import InputError
from specsim.observations import Observation
from specsim.parameters import KNOT
from specsim.server import Setup

if TYPE_CHECKING:
    from specsim.arrays import Floats

LEAST_RUNS = 6
"""With fewer runs than this single rows are drawn: draws of runs would hardly differ."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Scatter of the fitted parameters over draws, beside their stated errors."""

    names: tuple[str, ...]  # fitted parameters, the correction left out
    sd: Floats  # over the draws, on each parameter's own scale
    posterior_sd: Floats  # as the profile states it
    draws: int  # that could be fitted
    by_run: bool  # whether whole runs were drawn

    @property
    def ratio(self) -> Floats:
        """Bootstrap over posterior error; well above 1: the stated error is too small."""
        return np.asarray(self.sd / self.posterior_sd)


def bootstrap(
    setup: Setup,
    observations: Sequence[Observation],
    n: int,
    rng: np.random.Generator,
    result: FitResult | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Bootstrap:
    """Fit `n` draws of the observations.

    Parameters
    ----------
    setup, observations
        As :func:`specsim.calibrate.fit.fit_profile` takes them.
    n
        Draws, at least 2.
    rng
        Source of randomness.
    result
        The fit to all observations; None to make it here.
    progress
        Called with (draws done, draws in all).

    Raises
    ------
    InputError
        If `n` is below 2.
    CalibrationError
        If there is nothing to fit.
    """
    if n < 2:
        raise InputError(f"bootstrap of {n} draws", "has no scatter", "ask for 2 or more, e.g. 50")
    result = result or fit_profile(setup, observations)
    groups = runs_of(observations)
    by_run = len(groups) >= LEAST_RUNS
    if not by_run:  # few runs: rows instead
        groups = [[i] for i in range(len(observations))]
    profile, parameters = result.profile, result.profile.parameters
    names = [p.name for p in parameters if p.fitted and not p.name.startswith(KNOT)]
    kept = [i for i, p in enumerate(parameters) if p.name in names]
    modes = []
    for draw in range(n):
        chosen = rng.integers(len(groups), size=len(groups))
        rows = [observations[i] for group in chosen for i in groups[group]]
        mode = refit(profile, rows)
        if mode is not None:
            modes.append(mode[kept])
        if progress is not None:
            progress(draw + 1, n)
    scale = np.array([parameters[i].prior_sd for i in kept])
    sd = np.std(modes, axis=0, ddof=1) * scale if len(modes) > 1 else np.full(len(kept), np.nan)
    return Bootstrap(
        tuple(names),
        sd,
        np.array([parameters[i].sd for i in kept]),
        len(modes),
        by_run,
    )


def runs_of(observations: Sequence[Observation]) -> list[list[int]]:
    """Rows of each run: those with one source and setting; a row without a source is a run."""
    groups: dict[object, list[int]] = {}
    for i, row in enumerate(observations):
        groups.setdefault((row.source, row.setting) if row.source else i, []).append(i)
    return list(groups.values())
