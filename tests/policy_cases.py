"""Policies and runs that the tests of policies share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from specsim.acceptance import Acceptance, accept_table
from specsim.case import Case
from specsim.engine import RunPlan
from specsim.profile import Profile
from specsim.server.system import System
from specsim.setting import SpecSetting
from specsim.simulate import Adaptation, Policy, SimulationResult, by_batch, simulate
from specsim.workload import Lengths, Load, VaryingLoad, Workload

MIXED = by_batch({1: 5, 4: 3, 8: 1, 10: 0})
RAMP = VaryingLoad.ramp((1, 24, 1), 12.0)
BURSTS = VaryingLoad.burst(2.0, 60.0, 2.0, 5.0, 15.0)


def adaptation(
    system: System,
    policy: Policy,
    scheduler: str = "overlap",
    cap: int | None = None,
    captured: tuple[int, ...] | None = None,
) -> Adaptation:
    def plan_of(steps: int) -> RunPlan:
        setting = SpecSetting.of(1, steps, scheduler=scheduler)  # type: ignore[arg-type]
        return system.plan(setting, max_running_requests=cap, what_if=True)

    return Adaptation.of(policy, plan_of, Acceptance(), captured)


def with_workload(profile: Profile, workload: Workload) -> Profile:
    """Return a server that gets other requests."""
    return replace(profile, setup=replace(profile.setup, workload=workload))


def run(
    system: System,
    adapted: Adaptation,
    load: Load | VaryingLoad,
    *,
    cv: float = 0.5,
    seed: int = 1,
    output_len: float = 64,
    **options: object,
) -> SimulationResult:
    """Simulate a policy on requests of 256 tokens, as `case_of` has them."""
    table = accept_table(Acceptance(), adapted.head.setting)
    workload = Workload(Lengths(256, cv / 2), Lengths(output_len, cv))
    held = load if isinstance(load, Load) else Load()
    return simulate(
        system.cost,
        Case.of(system, adapted.head, table, workload, held),
        rng=np.random.default_rng(seed),
        adaptation=adapted,
        varying=load if isinstance(load, VaryingLoad) else None,
        **options,  # type: ignore[arg-type]
    )
