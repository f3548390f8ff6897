"""SimPy solver: clients, admission queue, scheduler, and a record of everything that happens.

The closed-form sibling is :mod:`specsim.analytic`; both take the same case, and in steady state
they agree.
"""

from specsim.simulate.adaptation import Adaptation, idle_plan
from specsim.simulate.arrivals import Trace, parse_load, read_trace
from specsim.simulate.policy import (
    Follow,
    Policy,
    Tier,
    by_batch,
    fixed,
    on_off,
    parse_table,
    sglang_default,
    sglang_table,
    vllm_ranges,
)
from specsim.simulate.run import simulate
from specsim.simulate.summary import SimulationResult

__all__ = [
    "Adaptation",
    "Follow",
    "Policy",
    "SimulationResult",
    "Tier",
    "Trace",
    "by_batch",
    "fixed",
    "idle_plan",
    "on_off",
    "parse_load",
    "parse_table",
    "read_trace",
    "sglang_default",
    "sglang_table",
    "simulate",
    "vllm_ranges",
]
