"""Many points simulated, on several cores: what a curve needs of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from specsim.case import Case
from specsim.cost.model import CostModel
from specsim.processes import mapping
from specsim.simulate import simulate
from specsim.workload import Load

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats

SIMULATED = (
    *("output_tps", "batch_size", "round_s", "accept_length"),
    *(f"{metric}_{part}" for metric in ("tpot", "ttft") for part in ("s", "p50_s", "p99_s")),
)
"""Numbers of a closed-form solution that a simulation gives as well."""


def simulate_points(
    cost: CostModel,
    cases: Sequence[Case],
    saturated: Flags,
    seed: int,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Floats]:
    """Simulate every case; all of one load see the same lengths and request quantiles.

    Parameters
    ----------
    cost
        What rounds cost.
    cases
        The points.
    saturated
        Of each, whether more arrives than is served: it has clients instead that never leave the
        queue empty.
    seed
        Of the random numbers, with the load's clients: the same bytes whatever the `jobs`.
    jobs
        Processes.
    progress
        Told how many points of how many are done.

    Returns
    -------
    dict
        `SIMULATED` by name, arrays over the cases; seconds, tokens per second, requests and tokens.
        NaN where a run has no such number.
    """
    tasks = []
    for case, full in zip(cases, saturated.tolist(), strict=True):
        served = case.at(Load("closed_loop", 2 * case.fitting + 1)) if full else case
        tasks.append((seed, case.load.concurrency, served))
    runs: list[list[float]] = []
    with mapping(min(jobs, len(tasks))) as run:
        for numbers in run(partial(_simulated_one, cost), tasks):
            runs.append(numbers)
            if progress is not None:
                progress(len(runs), len(cases))
    return dict(zip(SIMULATED, np.array(runs).T, strict=True))


def _simulated_one(cost: CostModel, task: tuple[int, int, Case]) -> list[float]:
    *seeds, case = task
    rng = np.random.default_rng(np.random.SeedSequence(seeds))
    result = simulate(cost, case, rng=rng, record_rounds=False)
    return [getattr(result, name) for name in SIMULATED]
