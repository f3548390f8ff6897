"""Speed of sweeps: 1,000 settings x 12 loads in closed form, and simulated cells on two cores.

python benchmarks/bench_sweep.py            prints seconds; about half a minute
"""

from __future__ import annotations

import itertools
import time

from specsim.decide.recommend import recommend
from specsim.decide.sweep import Sweep, SweepRow, run_sweep
from specsim.profile import load_profile
from specsim.question import CONCURRENCY
from specsim.setting import SpecSetting
from specsim.tree import tree_capacity

SETTINGS = 1000


def thousand_settings() -> tuple[SpecSetting, ...]:
    """Chains of 1 to 8, then trees of every budget, spread evenly over topk 2, 3, 4 and 8."""
    chains = [SpecSetting.of(1, s) for s in range(1, 9)]
    trees = [
        SpecSetting.of(k, s, n)
        for k, s in itertools.product((2, 3, 4, 8), range(2, 9))
        for n in range(s + 1, min(tree_capacity(k, s), 64) + 1)
    ]
    step = len(trees) / (SETTINGS - len(chains))
    return (*chains, *(trees[int(i * step)] for i in range(SETTINGS - len(chains))))


def timed(sweep: Sweep, jobs: int | None) -> tuple[float, list[SweepRow]]:
    """Wall time and rows of a sweep."""
    began = time.perf_counter()
    rows = [row for chunk in run_sweep(sweep, jobs=jobs) for row in chunk]
    return time.perf_counter() - began, rows


def main() -> None:
    """Print every figure."""
    profile = load_profile()
    settings = thousand_settings()
    seconds, rows = timed(Sweep(profile, settings, CONCURRENCY), 1)
    assert len(rows) == len(settings) * len(CONCURRENCY)
    assert not any(row.error for row in rows)
    print(f"{len(settings)} settings x {len(CONCURRENCY)} loads, closed form: {seconds:.2f} s")
    began = time.perf_counter()
    recommend(profile)
    print(f"recommend, {len(CONCURRENCY)} loads: {time.perf_counter() - began:.2f} s")
    some = settings[::4]
    simulated = Sweep(profile, some, (10, 30, 100), solver="simulate")
    one, _ = timed(simulated, 1)
    two, _ = timed(simulated, 2)
    cells = len(some) * 3
    print(
        f"{cells} simulated cells: {one:.1f} s on one core, {two:.1f} s on two "
        f"({one / two:.2f} times faster, start of the processes included)"
    )


if __name__ == "__main__":
    main()
