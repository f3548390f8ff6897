"""Throughput of the closed-form solver with acceptance already tabulated.

python benchmarks/bench_analytic.py      prints points per second
"""

from __future__ import annotations

import time

from specsim.acceptance import accept_table
from specsim.analytic import solve
from specsim.case import Case
from specsim.profile import load_profile
from specsim.setting import SpecSetting
from specsim.workload import Load

SETTINGS, LOADS = 50, 200


def points_per_second() -> float:
    """Solve 50 settings at 200 loads, cases built in the measured time; best of five."""
    profile = load_profile()
    system, acceptance = profile.system(), profile.acceptance()
    plans = [
        system.plan(SpecSetting.of(1, 1 + i % 8, scheduler="overlap")) for i in range(SETTINGS)
    ]
    tables = [accept_table(acceptance, plan.setting) for plan in plans]
    loads = [Load(concurrency=c) for c in range(1, LOADS + 1)]
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        cases = [
            Case.of(system, plan, table, system.setup.workload, loads[0])
            for plan, table in zip(plans, tables, strict=True)
        ]
        solve(system.cost, cases, with_limit=False, loads=loads)
        best = min(best, time.perf_counter() - began)
    return SETTINGS * LOADS / best


if __name__ == "__main__":
    print(f"analytic: {points_per_second():,.0f} (setting, concurrency) points/s")
