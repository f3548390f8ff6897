"""What the page's sliders move over: throughput in closed form by accept length and load.

``sliders.js`` interpolates the grid bilinearly in logarithms, where a throughput that saturates and
one that grows with the accept length are both nearly straight.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from specsim.arrays import Floats
from specsim.curve import Curve
from specsim.decide.breakeven import gain_map
from specsim.engine import RunPlan
from specsim.predict import Grid
from specsim.profile import Profile
from specsim.question import Question
from specsim.report import series_labels
from specsim.workload import Load, Workload

ROWS = 9  # drafters from useless to perfect
EVERY = 256  # clients up to which each load is solved: captured sizes make stairs of it
BEYOND = 128  # loads further up, evenly in logarithm


def plans_of(profile: Profile, curve: Curve) -> list[RunPlan]:
    """Return how the engine runs each series."""
    system = profile.system()
    heads = [series.points[0] for series in curve.series]
    return [system.plan(p.setting, engine_version=p.engine_version, what_if=True) for p in heads]


def slider_data(profile: Profile, curve: Curve, requests: Workload) -> dict[str, Any]:
    """Return the grids of a curve's settings in tokens/s, from one client to its largest load."""
    clients = _nodes(curve.series[0].points[-1].concurrency)
    middle = curve.series[0].points[len(curve.series[0].points) // 2].concurrency
    roles = [series.role for series in curve.series[1:]]
    served = replace(profile, setup=replace(profile.setup, workload=requests))
    question = Question(concurrency=tuple(clients))
    plain, *plans = plans_of(profile, curve)
    loads = tuple(Load("closed_loop", c) for c in clients)
    base = Grid((plain,), loads, requests).solve(served).output_tps
    maps = [gain_map(served, plan, question, ROWS) for plan in plans]
    # a drafter that is perfect already has no more rows
    rows = [np.unique(one.accept_length.round(4), return_index=True)[1] for one in maps]
    return {
        "gpus": profile.setup.hardware.gpu_count,
        "clients": clients,
        "start": {"setting": roles.index("asked") if "asked" in roles else 0, "clients": middle},
        "plain": {"accept_length": [1.0], "output_tps": _short(base)},
        "settings": [
            {
                "name": name,
                "expected": one.expected,
                "accept_length": one.accept_length[kept].tolist(),
                "output_tps": _short(one.output_tps[kept]),
            }
            for name, one, kept in zip(series_labels(curve)[1:], maps, rows, strict=True)
        ],
    }


def _nodes(most: int) -> list[int]:
    """Return the loads that are solved, two at least."""
    each = np.arange(1, min(max(most, 2), EVERY) + 1)
    further = np.geomspace(each[-1], max(most, 2), BEYOND)
    return sorted({int(load) for load in np.append(each, further.round())})


def _short(values: Floats) -> list[list[float]]:
    """Round to five digits."""
    return [[float(f"{value:.5g}") for value in row] for row in values]
