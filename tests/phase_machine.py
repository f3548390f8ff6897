"""GPU, CPU and link of a server as SimPy resources, and the phases of a step as processes on them.

This is the reference that the stretches of :mod:`specsim.simulate.server` shorten: every phase of
every round takes its lane for its time, and what overlaps comes from who waits for whom.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from specsim.cost.rounds import OVERLAP, SCHEDULE_SHARE, SEQUENTIAL, RoundTime, prefill_s
from specsim.simulate.arrivals import Steps
from specsim.simulate.pricing import PrefillPricer
from specsim.simulate.server import Server


class PhaseServer(Server):
    """A server that plays every round phase by phase, and prices everything by the full formula."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.machine = Machine(self.env)
        self.prefill = ExactPrefill(self.prefill.cost, self.prefill.speculates)

    def _next_change(self) -> int:
        return self.round + 1

    def _pass_prefill(self, seconds: float) -> Steps:
        yield from self.machine.hold(self.machine.gpu, seconds)
        self.clock = self.env.now

    def _pass_rounds(
        self, last: int, mixed_s: float
    ) -> Generator[simpy.Event, Any, NDArray[np.float64]]:
        pricer = self.pricers[self.gear]
        kv_tokens = float(self.pool.used(self.round, last)[0])
        exact = pricer.exact(float(len(self.batch)), kv_tokens)
        yield from self.machine.round(exact, pricer.timeline, mixed_s)
        return np.array([self.env.now])


class ExactPrefill(PrefillPricer):
    def seconds(self, tokens: int, pairs: float, beside: int | None = None) -> float:
        context = pairs / tokens if tokens else 0.0
        return float(prefill_s(self.cost, tokens, context, self.speculates, beside))


class Machine:
    """The lanes; the GPUs of a server move in step, so they are one lane, and so is their link."""

    def __init__(self, env: simpy.Environment) -> None:
        self.env = env
        self.gpu = simpy.Resource(env)
        self.cpu = simpy.Resource(env)
        self.link = simpy.Resource(env)

    def hold(self, lane: simpy.Resource, seconds: float) -> Steps:
        """Take a lane for that long."""
        with lane.request() as turn:
            yield turn
            yield self.env.timeout(seconds)

    def front(self, time: RoundTime) -> Steps:
        """Draft, build the tree, verify it; the verification's all-reduces are on the link."""
        reduce_s = float(time.allreduce_s)
        yield from self.hold(self.gpu, float(time.draft_s))
        yield from self.hold(self.gpu, float(time.tree_s))
        yield from self.hold(self.gpu, float(time.target_s) - reduce_s)
        yield from self.hold(self.link, reduce_s)
        yield from self.hold(self.gpu, float(time.overhead_s))

    def round(self, time: RoundTime, timeline: int, prefill_s: float) -> Steps:
        """Run one round on the engine's timeline, with the prompt chunk that joins it."""
        extend_s, host_s = float(time.extend_s), float(time.host_s)
        if timeline == SEQUENTIAL:
            yield from self.front(time)
            yield from self.hold(self.gpu, extend_s)
            yield from self.hold(self.cpu, host_s)
        elif timeline == OVERLAP:  # results of the last round at once, schedule once verified
            results = self.env.process(self.hold(self.cpu, (1.0 - SCHEDULE_SHARE) * host_s))
            yield from self.front(time)
            schedule = self.env.process(self.hold(self.cpu, SCHEDULE_SHARE * host_s))
            yield from self.hold(self.gpu, extend_s)
            yield results & schedule
        else:  # the CPU is a round ahead
            host = self.env.process(self.hold(self.cpu, host_s))
            yield from self.front(time)
            yield from self.hold(self.gpu, extend_s)
            yield host
        if prefill_s:
            yield from self.hold(self.gpu, prefill_s)
