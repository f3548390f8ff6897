"""SimPy solver: clients, admission queue, scheduler, and a record of everything that happens.

The closed-form sibling is :mod:`specsim.analytic`; both take the same case, and in steady state
they agree.
"""

from specsim.simulate.asked_load import parse_load, read_trace
from specsim.simulate.demand import Trace
from specsim.simulate.engine_policies import sglang_default, sglang_table, vllm_ranges
from specsim.simulate.gears import Adaptation
from specsim.simulate.policy import Follow, Policy, Tier, by_batch, fixed, on_off
from specsim.simulate.result import SimulationResult
from specsim.simulate.run import simulate

__all__ = [
    "Adaptation",
    "Follow",
    "Policy",
    "SimulationResult",
    "Tier",
    "Trace",
    "by_batch",
    "fixed",
    "on_off",
    "parse_load",
    "read_trace",
    "sglang_default",
    "sglang_table",
    "simulate",
    "vllm_ranges",
]
