"""SimPy solver: clients, admission queue, scheduler, and a record of everything that happens.

The closed-form sibling is :mod:`specsim.analytic`; both take the same case, and in steady state
they agree.
"""

from specsim.simulate.demand import Trace
from specsim.simulate.result import SimulationResult
from specsim.simulate.run import simulate

__all__ = ["SimulationResult", "Trace", "simulate"]
