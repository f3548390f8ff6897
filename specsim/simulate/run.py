"""The simulator's front door."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import repeat

import numpy as np
import simpy

from specsim.case import Case
from specsim.cost.model import CostModel
from specsim.errors import InputError
from specsim.metrics import Records
from specsim.simulate.adaptation import Adaptation, Gear, GearChoice
from specsim.simulate.arrivals import Trace, client, poisson, replay, visitor
from specsim.simulate.demand import Demand, Streams, stratified
from specsim.simulate.pricing import PrefillPricer, RoundPricer
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

    A closed loop without a number of requests is measured in its steady state: it starts with a
    batch in progress and a queue, as they are met in a long run (requests of that queue arrived
    before time 0), and counts after `warmup` completions. With `load.num_requests` (or a trace) all
    start from nothing, and ramp and drain count. An open loop starts from nothing too; beyond the
    capacity it has no steady state (`analytic.solve` says where), and latencies are of the window.

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

    Returns
    -------
    Records and summary.

    Raises
    ------
    InputError
        If `requests` or `warmup` is out of range, or a policy is asked about a held batch.
    """
    for name, value, least in (("requests", requests, 1), ("warmup", warmup, 0)):
        if value is not None and value < least:
            raise InputError(f"{name} {value}", f"must be at least {least}", "leave it out")
    run = _Run(cost, case, Streams.of(rng), adaptation)
    load = case.load
    if varying is not None and varying.unit == "clients":
        until = partial(_until, varying.duration_s)
        return _measure(case, run.visits(varying), until, record_rounds)
    if varying is not None:
        trace = run.arrivals(varying)
    if trace is not None:
        return _measure(case, run.replay(trace), _whole_run, record_rounds)
    if load.kind == "steady_decode":
        if adaptation is not None:
            raise InputError(
                "a policy", "has nothing to choose at a held batch", "simulate its setting there"
            )
        pricer = RoundPricer.of(
            cost,
            case.plan,
            case.table.accept_length,
            held_batch(case),
            case.workload.shared_prefix_len,
        )
        return steady_decode(case, run.streams, pricer, requests, record_rounds)
    if load.kind == "open_loop" and load.num_requests is None:
        count = OPEN_REQUESTS if requests is None else requests
        first = count // 10 if warmup is None else warmup
        server = run.open_loop(first + count)
        return _measure(case, server, partial(_arrivals, first, count), record_rounds)
    if load.num_requests is not None:
        arrives = load.kind == "open_loop"
        server = (run.open_loop if arrives else run.closed_run)(load.num_requests)
        return _measure(case, server, _whole_run, record_rounds)
    batch = held_batch(case)
    first = batch // 4 if warmup is None else warmup
    count = max(0, batch - first) + LEAST_REQUESTS if requests is None else requests
    server = run.closed_loop(first + count)
    return _measure(case, server, partial(_completions, first, server), record_rounds)


@dataclass(frozen=True, slots=True)
class _Run:
    """What all loads share; each method runs one kind of load to its end."""

    cost: CostModel
    case: Case
    streams: Streams
    adaptation: Adaptation | None = None

    def closed_loop(self, completions: int) -> Server:
        """Clients whose first requests are in progress."""
        clients = self.case.load.concurrency
        server = self._server(clients, completions)
        first = server.begin_with(min(clients, self.case.decoding))
        forever = repeat(None)
        for answer in [*first, *[None] * (clients - len(first))]:
            server.env.process(client(server.env, server.submit, forever, answer))
        return _run_to_goal(server)

    def closed_run(self, requests: int) -> Server:
        """Clients that start together and share a number of requests."""
        clients = min(self.case.load.concurrency, requests)
        server = self._server(clients, requests)
        budget = iter(range(requests))
        for _ in range(clients):
            server.env.process(client(server.env, server.submit, budget))
        return _run_to_goal(server)

    def open_loop(self, requests: int) -> Server:
        """Arrivals that go on until the first `requests` of them are answered.

        More than can run beside the last of these are not needed, however dense they are.
        """
        load, cap = self.case.load, self.case.plan.running_cap
        assert load.request_rate is not None
        server = self._server(cap, requests, requests)
        most = 2 * requests + FOLLOWERS * cap if load.num_requests is None else requests
        arrivals = poisson(server.env, server.submit, load.request_rate, most, self.streams.arrival)
        server.env.process(arrivals)
        return _run_to_goal(server)

    def replay(self, trace: Trace) -> Server:
        """Replay a trace until its last request is answered."""
        count = len(trace.arrival_s)
        server = self._server(count, count, trace=trace)
        server.env.process(replay(server.env, server.submit, trace))
        return _run_to_goal(server)

    def visits(self, load: VaryingLoad) -> Server:
        """Let clients come and go until the last one is answered."""
        most = int(max(load.level))
        server = self._server(most, FOREVER)
        env = server.env
        visits = [env.process(visitor(env, server.submit, load, n)) for n in range(most)]
        server.start()
        env.run(until=env.all_of(visits))
        return server

    def arrivals(self, load: VaryingLoad) -> Trace:
        """Draw the requests of a load whose rate changes."""
        workload, streams = self.case.workload, self.streams
        times = load.arrivals(streams.arrival)
        if not len(times):
            raise InputError(load.label, "brought no request", "give a longer or denser one")
        inputs = stratified(workload.input_len, streams.input_len, len(times))
        outputs = stratified(workload.output_len, streams.output_len, len(times))
        return Trace(times, inputs, outputs)

    def _server(
        self, most: int, goal: int, among_first: float = math.inf, trace: Trace | None = None
    ) -> Server:
        """Build an idle server on which at most `most` requests are at once."""
        adaptation, plan = self.adaptation, self.case.plan
        own = Gear(plan, self.case.table)
        gears = (own,) if adaptation is None else adaptation.gears
        most = min(most, plan.running_cap)
        shared = self.case.workload.shared_prefix_len
        return Server(
            simpy.Environment(),
            self.case,
            Demand(
                self.case.workload,
                tuple(g.table for g in gears),
                self.streams,
                trace,
                independent=self.case.load.kind == "open_loop",
            ),
            tuple(
                RoundPricer.of(self.cost, g.plan, g.table.accept_length, most, shared)
                for g in gears
            ),
            None if adaptation is None else GearChoice(adaptation),
            PrefillPricer(self.cost, plan.setting.speculates),
            goal,
            among_first,
        )


def _run_to_goal(server: Server) -> Server:
    server.env.run(until=server.start())
    return server


def _measure(
    case: Case, server: Server, choose: Callable[[Records], Window], record_rounds: bool
) -> SimulationResult:
    tables, mean_output = server.tables(), case.workload.output_len.mean
    window = choose(tables.requests)
    return summarise(tables, window, mean_output, server.pricers, server.switches, record_rounds)


def _whole_run(requests: Records) -> Window:
    """From the first arrival until the last request is answered."""
    start, end = float(requests["arrival_s"].min()), float(requests["finished_s"].max())
    return Window(start, end, np.ones(len(requests), dtype=np.bool_), "whole")


def _until(end: float, requests: Records) -> Window:
    """From time 0 until nothing more is sent, but the latencies of all requests."""
    return Window(0.0, end, np.ones(len(requests), dtype=np.bool_), "whole")


def _completions(first: int, server: Server, requests: Records) -> Window:
    """From the `first`-th completion on to the last; those in progress left out.

    Those in the queue at the start are taken to have come one by one, at the pace of completions.
    """
    finished, completions = requests["finished_s"], server.log.completions
    begin = float(finished[completions[first - 1]]) if first else 0.0
    end = float(finished[completions[-1]])
    in_progress = np.array([life.in_progress for life in server.lives])
    queued = ~in_progress & (requests["arrival_s"] == 0)
    ahead = np.arange(queued.sum(), 0, -1) - 0.5
    requests["arrival_s"][queued] = -ahead / (len(completions) / end)
    measured = (finished > begin) & (finished <= end) & ~in_progress
    return Window(begin, end, measured, "balanced")


def _arrivals(first: int, count: int, requests: Records) -> Window:
    """From one admission to another, and the requests that arrived between."""
    admitted = requests["admitted_s"]
    measured = (requests["request"] >= first) & (requests["request"] < first + count)
    bounds = float(admitted[first]), float(admitted[first + count - 1])
    return Window(*bounds, measured, "sampled")
