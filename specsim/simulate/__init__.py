"""SimPy solver: clients, admission queue, scheduler, and a record of everything that happens.

The closed-form sibling is :mod:`specsim.analytic`; both take the same case, and in steady state
they agree.
"""

from specsim.simulate.adaptation import Adaptation as Adaptation
from specsim.simulate.adaptation import idle_plan as idle_plan
from specsim.simulate.arrivals import Trace as Trace
from specsim.simulate.arrivals import parse_load as parse_load
from specsim.simulate.arrivals import read_trace as read_trace
from specsim.simulate.policy import Follow as Follow
from specsim.simulate.policy import Policy as Policy
from specsim.simulate.policy import Tier as Tier
from specsim.simulate.policy import by_batch as by_batch
from specsim.simulate.policy import fixed as fixed
from specsim.simulate.policy import on_off as on_off
from specsim.simulate.policy import parse_table as parse_table
from specsim.simulate.policy import sglang_default as sglang_default
from specsim.simulate.policy import sglang_table as sglang_table
from specsim.simulate.policy import vllm_ranges as vllm_ranges
from specsim.simulate.run import simulate as simulate
from specsim.simulate.summary import SimulationResult as SimulationResult
