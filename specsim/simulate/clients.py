"""Who sends requests, as SimPy processes: closed loop, Poisson arrivals, a trace."""

from __future__ import annotations

import math

import numpy as np
import simpy

from specsim.simulate.demand import Trace
from specsim.simulate.machine import Steps
from specsim.simulate.server import Server
from specsim.workload import VaryingLoad

ARRIVALS = 256
"""Interarrival times drawn together."""


class Budget:
    """Requests that the clients of a closed loop may still send."""

    def __init__(self, requests: float = math.inf) -> None:
        self.left = requests

    def take(self) -> bool:
        """Whether one more may be sent; if so, it is counted."""
        self.left -= 1
        return self.left >= 0


def client(
    env: simpy.Environment, server: Server, budget: Budget, in_progress: int | None = None
) -> Steps:
    """Send the next request when the last one is answered, without a pause.

    Parameters
    ----------
    env, server
        Where.
    budget
        Shared by all clients.
    in_progress
        A request of the server's start that this client waits for first.
    """
    if in_progress is not None:
        answered = env.event()
        server.lives[in_progress].answered = answered
        yield answered
    while budget.take():
        answered = env.event()
        server.submit(answered)
        yield answered


def poisson(
    env: simpy.Environment, server: Server, request_rate: float, rng: np.random.Generator
) -> Steps:
    """Send requests at random moments, whether or not others are answered; never stops."""
    while True:
        for gap in rng.exponential(1.0 / request_rate, ARRIVALS).tolist():
            yield env.timeout(gap)
            server.submit()


def visitor(env: simpy.Environment, server: Server, load: VaryingLoad, number: int) -> Steps:
    """Send the next request when the last one is answered, while more than `number` clients are in.

    Parameters
    ----------
    env, server
        Where.
    load
        Clients over time; after its end nothing is sent.
    number
        Of this client, from 0.
    """
    while True:
        at = load.reaches(number + 1.0, env.now)
        if at >= load.duration_s:
            return
        if at > env.now:
            yield env.timeout(at - env.now)
        answered = env.event()
        server.submit(answered)
        yield answered


def replay(env: simpy.Environment, server: Server, trace: Trace) -> Steps:
    """Send requests when the trace says so; those of one moment arrive together."""
    for arrival in trace.arrival_s.tolist():
        if arrival > env.now:
            yield env.timeout(arrival - env.now)
        server.submit()
