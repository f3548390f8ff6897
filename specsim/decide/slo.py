"""Latency targets: what they say, and which settings meet them."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

from specsim.arrays import Flags
from specsim.decide import Latency
from specsim.errors import InputError, UnknownNameError
from specsim.metrics import goodput
from specsim.predict import Cells, Grid
from specsim.profile import Profile
from specsim.question import Metric, Statistic, Target
from specsim.workload import Load

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
TRIES = 6  # fastest settings of a load that are simulated when a target is on a percentile


def parse_slo(text: str) -> tuple[Target, ...]:
    """Read ``tpot=20ms,ttft=2s@p99``; an error names the part that cannot be read.

    >>> [t.label for t in parse_slo("tpot=20ms,ttft=2s@p99")]
    ['tpot <= 20 ms', 'ttft <= 2000 ms@p99']
    """
    return tuple(_target(part.strip()) for part in text.split(",") if part.strip())


def _target(text: str) -> Target:
    number = r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e-?[0-9]+)?)"
    match = re.fullmatch(rf"([a-z]+)\s*<?=\s*{number}\s*([a-z]+)(?:@(\w+))?", text)
    if match is None:
        raise InputError(f"target {text!r}", "cannot be read", "write e.g. tpot=20ms,ttft=2s@p99")
    metric, amount, unit, statistic = match.groups("mean")
    metrics: tuple[Metric, ...] = get_args(Metric)
    statistics: tuple[Statistic, ...] = get_args(Statistic)
    for what, word, known in (
        ("latency metric", metric, metrics),
        (f"unit of {text}", unit, UNITS),
        (f"statistic of {text}", statistic, statistics),
    ):
        if word not in known:
            raise UnknownNameError(what, word, known)
    seconds = float(amount) * UNITS[unit]
    if not 0 < seconds < math.inf:
        raise InputError(f"target {text!r}", "must be a positive time", "write e.g. tpot=20ms")
    return Target(metrics[metrics.index(metric)], statistics[statistics.index(statistic)], seconds)


def meeting(
    profile: Profile,
    grid: Grid,
    cells: Cells,
    targets: Sequence[Target],
    always: Sequence[int] = (),
    seed: int = 0,
) -> Flags:
    """Return which cells are known to meet every target, (settings, loads).

    Means come from the closed form, `cells`. For percentiles the fastest settings of each load
    whose means pass are simulated, one after another until one meets every target, and in any case
    those in `always`.
    """
    met = np.ones(grid.shape, dtype=np.bool_)
    for target in targets:
        mean = cells.tpot_s if target.metric == "tpot" else cells.ttft_s
        met &= np.nan_to_num(mean, nan=np.inf) <= target.seconds
    percentiles = [t for t in targets if t.statistic != "mean"]
    if not percentiles:
        return met
    in_tail = np.zeros(grid.shape, dtype=np.bool_)
    for j in range(grid.shape[1]):
        order = np.argsort(-cells.output_tps[:, j], kind="stable")
        fast = [int(i) for i in order if met[i, j] and i not in always][:TRIES]
        tried = [*always, *fast]
        for i, run in zip(
            tried, grid.simulate(profile, seed, [(i, j) for i in tried]), strict=False
        ):
            in_tail[i, j] = all(
                getattr(run, f"{t.metric}_{t.statistic}_s") <= t.seconds for t in percentiles
            )
            if i not in always and in_tail[i, j]:
                break
    return met & in_tail


def latency(
    profile: Profile, grid: Grid, targets: Sequence[Target], seed: int = 0
) -> list[Latency]:
    """Simulate every cell of a grid, setting by setting, for its percentiles and its goodput.

    The goodput counts a request as good if it stays within every target itself, whatever statistic
    the target is on.
    """
    result = []
    for run in grid.simulate(profile, seed):
        counted = run.requests[run.requests["measured"]]
        share = goodput(counted, limits_of(targets), 1.0).share
        rate = share * run.output_tps / grid.workload.output_len.mean
        tails = (run.tpot_p50_s, run.tpot_p99_s, run.ttft_p50_s, run.ttft_p99_s)
        result.append(Latency(*tails, rate, share))
    return result


def limits_of(targets: Sequence[Target]) -> dict[str, float]:
    """Return the seconds that a request must stay within, whatever statistic a target is on."""
    limits: dict[str, float] = {}
    for target in targets:
        limits[target.metric] = min(target.seconds, limits.get(target.metric, math.inf))
    return limits


def largest_load(
    profile: Profile, grid: Grid, targets: Sequence[Target], between: tuple[int, int], seed: int = 0
) -> int:
    """Return the most clients, within 2 %, `between` a load that meets every target and one not."""
    low, high = between
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        one = replace(grid, loads=(Load("closed_loop", middle),))
        met = meeting(profile, one, one.solve(profile), targets, seed=seed)
        low, high = (middle, high) if met.any() else (low, middle)
    return low
