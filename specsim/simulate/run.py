"""The simulator's front door.

A closed loop without a number of requests is measured in its steady state: it starts with a batch
in progress and a queue, as they are met in a long run (requests of that queue arrived before time
0), and counts after `warmup` completions. With `load.num_requests` (or a trace) all start from
nothing, and ramp and drain count. An open loop starts from nothing too; beyond the capacity it has
no steady state (`analytic.solve` says where), and latencies are of the window.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat

import numpy as np
import simpy

from specsim.case import Case
from specsim.cost.model import CostModel
from specsim.errors import InputError
from specsim.simulate.adaptation import Adaptation, Gear, GearChoice
from specsim.simulate.arrivals import Trace, clients, poisson, replay, visit
from specsim.simulate.demand import Demand, Streams, stratified
from specsim.simulate.pricing import PrefillPricer, RoundPricer
from specsim.simulate.records import Tables
from specsim.simulate.server import Server
from specsim.simulate.steady import held_batch, steady_decode
from specsim.simulate.summary import SimulationResult, Window, summarise
from specsim.workload import VaryingLoad

LEAST_REQUESTS = 96
"""Requests measured by default beyond those in progress at the start."""

OPEN_REQUESTS = 1000
"""The same for open loops, whose arrivals are the larger noise."""

FOLLOWERS = 4
"""Arrivals per slot after those that are measured, which keep the server as busy."""

FOREVER = 2**62
"""A goal that is never reached: the clients decide when a run ends."""


def simulate(
    cost: CostModel,
    case: Case,
    *,
    rng: np.random.Generator,
    requests: int | None = None,
    warmup: int | None = None,
    record_rounds: bool = True,
    trace: Trace | None = None,
    varying: VaryingLoad | None = None,
    adaptation: Adaptation | None = None,
) -> SimulationResult:
    """Simulate one case.

    Parameters
    ----------
    cost
        Prices rounds and prefill steps.
    case
        Plan, acceptance, workload and load; the same that `analytic.solve` takes.
    rng
        Source of randomness; give each compared setting a generator of the same seed, and they
        see the same lengths and request quantiles.
    requests
        Completions to measure; by default as many that `LEAST_REQUESTS` come after those in
        progress at the start: a standard error of the throughput below 0.5 % at answers of 512
        tokens (`output_tps_se` says what it is).
    warmup
        Completions (open loop: arrivals) before the window; by default a quarter of the batch
        (open loop: a tenth of `requests`), for the start is already met in a long run.
    record_rounds
        Whether the result keeps the tables of rounds and prefill steps.
    trace
        Requests to replay instead of `case.load` and the workload's lengths.
    varying
        A load that changes instead of `case.load`; starts from nothing. Of clients, the
        throughput is that until nothing more is sent; of arrivals, until the last answer.
    adaptation
        A policy that chooses the setting of each round; `case.plan` is its head.

    Raises
    ------
    InputError
        If `requests` or `warmup` is out of range, or a policy is asked about a held batch.
    """
    for name, value, least in (("requests", requests, 1), ("warmup", warmup, 0)):
        if value is not None and value < least:
            raise InputError(f"{name} {value}", f"must be at least {least}", "leave it out")
    run = _Run(cost, case, Streams.of(rng), record_rounds, adaptation)
    if varying is not None and varying.unit == "clients":
        return run.visits(varying)
    if varying is not None:
        trace = run.arrivals(varying)
    if trace is not None:
        return run.replay(trace)
    if case.load.kind == "steady_decode":
        return run.held(requests)
    if case.load.num_requests is not None:
        return run.whole(case.load.num_requests)
    steady = run.open_loop if case.load.kind == "open_loop" else run.closed_loop
    return steady(requests, warmup)


@dataclass(frozen=True, slots=True)
class _Run:
    """What all loads share; each method runs one kind of load to its end, and measures it."""

    cost: CostModel
    case: Case
    streams: Streams
    record_rounds: bool
    adaptation: Adaptation | None

    def closed_loop(self, requests: int | None, warmup: int | None) -> SimulationResult:
        """Clients whose first requests are in progress."""
        batch = held_batch(self.case)
        first = batch // 4 if warmup is None else warmup
        count = max(0, batch - first) + LEAST_REQUESTS if requests is None else requests
        number = self.case.load.concurrency
        server = self._server(number, first + count)
        ask = clients(server.submit, repeat(None))
        server.begin_with(min(number, self.case.decoding), ask)
        for _ in range(number - server.in_progress):
            ask()
        return self._measured(server, partial(_completions, first))

    def open_loop(self, requests: int | None, warmup: int | None) -> SimulationResult:
        """Arrivals that go on until those measured are answered.

        More than can run beside the last of these are not needed, however dense they are.
        """
        count = OPEN_REQUESTS if requests is None else requests
        first = count // 10 if warmup is None else warmup
        most = 2 * (first + count) + FOLLOWERS * self.case.plan.running_cap
        server = self._arriving(first + count, most)
        return self._measured(server, partial(_arrivals, first, count))

    def whole(self, requests: int) -> SimulationResult:
        """So many requests from the first to the last: ramp and drain count."""
        if self.case.load.kind == "open_loop":
            return self._measured(self._arriving(requests, requests), _whole_run)
        number = min(self.case.load.concurrency, requests)
        server = self._server(number, requests)
        ask = clients(server.submit, iter(range(requests)))
        for _ in range(number):
            ask()
        return self._measured(server, _whole_run)

    def held(self, requests: int | None) -> SimulationResult:
        """Hold a batch that neither grows nor shrinks."""
        case = self.case
        if self.adaptation is not None:
            raise InputError(
                "a policy", "has nothing to choose at a held batch", "simulate its setting there"
            )
        (pricer,) = self._pricers((Gear(case.plan, case.table),), held_batch(case))
        return steady_decode(case, self.streams, pricer, requests, self.record_rounds)

    def replay(self, trace: Trace) -> SimulationResult:
        """Replay a trace until its last request is answered."""
        count = len(trace.arrival_s)
        server = self._server(count, count, trace=trace)
        server.env.process(replay(server.env, server.submit, trace))
        return self._measured(server, _whole_run)

    def visits(self, load: VaryingLoad) -> SimulationResult:
        """Let clients come and go until the last one is answered."""
        most = int(max(load.level))
        server = self._server(most, FOREVER)
        inside, empty = iter(range(most - 1)), server.env.event()

        def leave() -> None:
            if next(inside, None) is None:
                empty.succeed()

        for number in range(most):
            visit(server.env, server.submit, load, number, leave)
        server.start()
        server.env.run(until=empty)
        return self._summary(server, partial(_until, load.duration_s))

    def arrivals(self, load: VaryingLoad) -> Trace:
        """Draw the requests of a load whose rate changes."""
        workload, streams = self.case.workload, self.streams
        times = load.arrivals(streams.arrival)
        if not len(times):
            raise InputError(load.label, "brought no request", "give a longer or denser one")
        inputs = stratified(workload.input_len, streams.input_len, len(times))
        outputs = stratified(workload.output_len, streams.output_len, len(times))
        return Trace(times, inputs, outputs)

    def _arriving(self, goal: int, most: int) -> Server:
        """Build a server to which requests come by themselves."""
        rate = self.case.load.request_rate
        assert rate is not None
        server = self._server(self.case.plan.running_cap, goal, among_first=goal)
        arrivals = poisson(server.env, server.submit, rate, most, self.streams.arrival)
        server.env.process(arrivals)
        return server

    def _server(
        self, most: int, goal: int, trace: Trace | None = None, among_first: float = math.inf
    ) -> Server:
        """Build an idle server on which at most `most` requests are at once."""
        adaptation, plan = self.adaptation, self.case.plan
        own = Gear(plan, self.case.table)
        gears = (own,) if adaptation is None else adaptation.gears
        independent = self.case.load.kind == "open_loop"
        tables = tuple(g.table for g in gears)
        return Server(
            simpy.Environment(),
            self.case,
            Demand(self.case.workload, tables, self.streams, trace, independent),
            self._pricers(gears, min(most, plan.running_cap)),
            None if adaptation is None else GearChoice(adaptation),
            PrefillPricer(self.cost, plan.setting.speculates),
            goal,
            among_first,
            self.record_rounds,
        )

    def _pricers(self, gears: tuple[Gear, ...], most: int) -> tuple[RoundPricer, ...]:
        shared = self.case.workload.shared_prefix_len
        return tuple(
            RoundPricer.of(self.cost, g.plan, g.table.accept_length, most, shared) for g in gears
        )

    def _measured(self, server: Server, choose: Callable[[Server], Window]) -> SimulationResult:
        """Serve until the goal is reached, and measure."""
        server.env.run(until=server.start())
        return self._summary(server, choose)

    def _summary(self, server: Server, choose: Callable[[Server], Window]) -> SimulationResult:
        tables = server.tables()
        server.course.close(self.case.workload.output_len.mean)
        if not self.record_rounds:
            tables = Tables.none()
        window = choose(server)
        result = summarise(server.course, server.requests, tables, window, server.pricers)
        return replace(result, switches=server.switches)


def _whole_run(server: Server) -> Window:
    """From the first arrival until the last request is answered."""
    requests = server.requests
    start, end = float(requests["arrival_s"].min()), float(requests["finished_s"].max())
    return Window(start, end, np.ones(len(requests), dtype=np.bool_), "whole")


def _until(end_s: float, server: Server) -> Window:
    """From time 0 until nothing more is sent, but the latencies of all requests."""
    return replace(_whole_run(server), start_s=0.0, end_s=end_s)


def _completions(first: int, server: Server) -> Window:
    """From the `first`-th completion on to the last; those in progress left out.

    Those in the queue at the start are taken to have come one by one, at the pace of completions.
    """
    requests = server.requests
    finished = requests["finished_s"]
    ends = np.sort(finished[~np.isnan(finished)])
    begin, end = float(ends[first - 1]) if first else 0.0, float(ends[-1])
    issued = np.arange(len(requests)) >= server.in_progress
    queued = issued & (requests["arrival_s"] == 0)
    ahead = np.arange(queued.sum(), 0, -1) - 0.5
    requests["arrival_s"][queued] = -ahead / (len(ends) / end)
    measured = (finished > begin) & (finished <= end) & issued
    return Window(begin, end, measured, "balanced")


def _arrivals(first: int, count: int, server: Server) -> Window:
    """From one admission to another, and the requests that arrived between."""
    admitted = server.requests["admitted_s"]
    measured = np.zeros(len(admitted), dtype=np.bool_)
    measured[first : first + count] = True
    bounds = float(admitted[first]), float(admitted[first + count - 1])
    return Window(*bounds, measured, "sampled")
