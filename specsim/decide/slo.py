"""Latency targets: what they say, and which settings meet them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from specsim.acceptance import accept_table
from specsim.case import Case
from specsim.decide.outlook import Cells, Grid
from specsim.errors import InputError, UnknownNameError
from specsim.profile import Profile
from specsim.simulate import SimulationResult, simulate

Metric = Literal["tpot", "ttft"]
Statistic = Literal["mean", "p50", "p99"]

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}

TRIES = 6
"""Fastest settings of a load that are simulated when a target is on a percentile."""


@dataclass(frozen=True, slots=True)
class Target:
    """One latency target: `statistic` of `metric` at most `seconds`."""

    metric: Metric
    seconds: float
    statistic: Statistic = "mean"

    @property
    def label(self) -> str:
        """As a person writes it."""
        tail = "" if self.statistic == "mean" else f"@{self.statistic}"
        return f"{self.metric} <= {1e3 * self.seconds:g} ms{tail}"


def parse_slo(text: str) -> tuple[Target, ...]:
    """Read ``tpot=20ms,ttft=2s@p99``.

    Raises
    ------
    InputError, UnknownNameError
        Names the part that cannot be read.

    Examples
    --------
    >>> [t.label for t in parse_slo("tpot=20ms,ttft=2s@p99")]
    ['tpot <= 20 ms', 'ttft <= 2000 ms@p99']
    """
    return tuple(_target(part.strip()) for part in text.split(",") if part.strip())


def _target(text: str) -> Target:
    match = re.fullmatch(
        r"([a-z]+)\s*(?:=|<=)\s*([0-9.]+(?:e-?[0-9]+)?)\s*([a-z]+)(?:@(\w+))?", text
    )
    if match is None:
        raise InputError(f"target {text!r}", "cannot be read", "write e.g. tpot=20ms,ttft=2s@p99")
    metric, number, unit, statistic = match.groups()
    metrics: tuple[Metric, ...] = get_args(Metric)
    statistics: tuple[Statistic, ...] = get_args(Statistic)
    if metric not in metrics:
        raise UnknownNameError("latency metric", metric, metrics)
    if unit not in UNITS:
        raise UnknownNameError(f"unit of {text}", unit, UNITS)
    if statistic is not None and statistic not in statistics:
        raise UnknownNameError(f"statistic of {text}", statistic, statistics)
    try:
        seconds = float(number) * UNITS[unit]
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InputError(f"target {text!r}", "must be a positive time", "write e.g. tpot=20ms")
    return Target(
        metrics[metrics.index(metric)],
        seconds,
        "mean" if statistic is None else statistics[statistics.index(statistic)],
    )


@dataclass(frozen=True, slots=True)
class Latencies:
    """How far cells are from their targets.

    Parameters
    ----------
    excess
        (settings, loads): largest of value / target; at most 1 where all are met; NaN where it
        was not looked at.
    simulated
        Whether percentiles were needed, and so a simulation.
    """

    excess: NDArray[np.float64]
    simulated: bool

    @property
    def met(self) -> NDArray[np.bool_]:
        """(settings, loads): known to meet every target."""
        return np.nan_to_num(self.excess, nan=np.inf) <= 1.0


def latencies(
    profile: Profile,
    grid: Grid,
    cells: Cells,
    targets: Sequence[Target],
    always: Sequence[int] = (),
    seed: int = 0,
) -> Latencies:
    """Compare every cell with the targets.

    Means come from the closed form. For percentiles the fastest settings of each load whose means
    pass are simulated, one after another until one meets every target, and those in `always`.

    Parameters
    ----------
    profile, grid, cells
        The server, the cells and their closed-form solution.
    targets
        All must be met.
    always
        Settings that are looked at in any case.
    seed
        Of the simulation.
    """
    excess = np.zeros(grid.shape)
    for target in targets:
        mean = cells.tpot_s if target.metric == "tpot" else cells.ttft_s
        excess = np.maximum(excess, mean / target.seconds)
    percentiles = [t for t in targets if t.statistic != "mean"]
    if not percentiles:
        return Latencies(excess, False)
    looked_at = np.full(grid.shape, np.nan)
    for j in range(grid.shape[1]):
        order = np.argsort(-cells.output_tps[:, j], kind="stable")
        fast = [int(i) for i in order if excess[i, j] <= 1.0 and i not in always][:TRIES]
        for i in [*always, *fast]:
            result = _simulated(profile, grid, i, j, seed)
            over = [getattr(result, f"{t.metric}_{t.statistic}_s") / t.seconds for t in percentiles]
            looked_at[i, j] = max(excess[i, j], *over)
            if i not in always and looked_at[i, j] <= 1.0:
                break
    return Latencies(looked_at, True)


def _simulated(profile: Profile, grid: Grid, i: int, j: int, seed: int) -> SimulationResult:
    system = profile.system()
    table = accept_table(profile.acceptance(grid.dataset, grid.temperature), grid.plans[i].setting)
    case = Case.of(system, grid.plans[i], table, grid.workload, grid.loads[j])
    return simulate(system.cost, case, rng=np.random.default_rng(seed), record_rounds=False)
