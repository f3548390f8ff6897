"""Measured values that no such server gives: by what factor, and in which unit they may be."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from specsim.calibrate.fit import problem_of
from specsim.errors import SpecsimError
from specsim.observations import Observation, cell_name, first_of
from specsim.server import Setup

FAR = {"output_tps": 10.0, "tpot_s": 10.0, "round_s": 10.0, "itl_s": 10.0, "ttft_s": 50.0}
"""Factor from the expectation before any fit, by quantity: of 25 public sets the worst cells are 5
times off in throughput, 2 in times between tokens, and 14 in a first token that was queued for."""

COLUMNS = {"round_s": "round_time_s"}


def doubts(setup: Setup, observations: Sequence[Observation]) -> tuple[str, ...]:
    """Return a line for each kind of doubt: the first cell, its value, and what may be meant."""
    try:
        problem = problem_of(setup, observations)
    except SpecsimError:  # nothing to compare with
        return ()
    prior = np.array([[p.coordinate for p in problem.parameters]])
    expected, data = problem.rows.predict(problem.parameters, prior), problem.data
    kinds: dict[tuple[str, str], list[str]] = {}
    for value, name, at in zip(np.exp(data.log_value), data.field, data.row, strict=True):
        model = float(expected[name][0, at])
        if name in FAR and abs(math.log(value / model)) > math.log(FAR[name]):
            row, column = observations[at], COLUMNS.get(name, name)
            said = f"{cell_name(row)}: {column} = {value:.4g} where about {model:.3g} is expected"
            meant = _meant(name, float(value) / model, row.concurrency or 1)
            kinds.setdefault((name, meant), []).append(said)
    return tuple(f"{first_of(cells)}{meant}" for (_, meant), cells in kinds.items())


def _meant(name: str, ratio: float, clients: int) -> str:
    """Return the mistake that explains a ratio best."""
    known = {1e3: ": milliseconds? give seconds", 1e6: ": microseconds? give seconds"}
    if name == "output_tps":
        known = {f: f": {f:g} times too much?" for f in (100.0, 1000.0)}
        known |= {1 / f: f": {f:g} times too little?" for f in (100.0, 1000.0)}
        if clients > 1:
            known[1 / clients] = ": tokens/s of one client? give those of all"
    best = min(known, key=lambda factor: abs(math.log(ratio / factor)))
    close = abs(math.log(ratio / best)) < math.log(FAR[name])
    return known[best] if close else ": check value, unit and setup"
