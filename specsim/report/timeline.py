"""Timelines: the phases of simulated rounds as spans on lanes, in whole nanoseconds.

Bounds of rounds and prefill steps are the simulator's, rounded to a nanosecond; the phases within
a round tile it exactly: the one that ends last ends where the round does. So the time that spans
cover is the time that the records cover, to the nanosecond.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from specsim.acceptance import accept_table
from specsim.case import Case
from specsim.engine import RunPlan, engine_named
from specsim.errors import EngineRefusal, InputError
from specsim.metrics import Records
from specsim.profile import Profile
from specsim.setting import SpecSetting
from specsim.workload import Load, Workload

if TYPE_CHECKING:
    from specsim.arrays import Ints
    from specsim.simulate.result import SimulationResult

LANES = {
    "clients": "waiting clients",
    "step": "engine steps",
    "cpu": "CPU scheduler",
    "gpu": "GPU",
    "link": "link: all-reduce",
}
"""Lanes from top to bottom, and what they are called."""

PHASES = {
    "draft": ("d", "draft"),
    "tree": ("t", "build tree"),
    "target": ("V", "target forward (verify)"),
    "allreduce": ("A", "all-reduce of the target"),
    "overhead": ("o", "sync, small kernels"),
    "extend": ("x", "draft extend"),
    "results": ("R", "results of the last round"),
    "host": ("H", "schedule (sequential: with results)"),
    "prefill": ("P", "prefill"),
}
"""Phases in the order of a round: letter of the sketch, and what they are called."""

SPAN_DTYPE = np.dtype(
    [
        ("phase", "U9"),
        ("lane", "U7"),
        ("round", np.int64),
        ("start_ns", np.int64),
        ("end_ns", np.int64),
        ("batch", np.int64),
        ("tokens", np.float64),
        ("accepted", np.int64),
    ]
)
"""A row per span: phase, lane, round (-1: none), bounds, requests, tokens that go in, drafts
accepted in its round. On lane ``clients`` the batch is the number that wait; on lane ``step``
stands each round and each prefill step as a whole."""

MOST_ROUNDS = 100_000
ENOUGH_TRIES = 6


@dataclass(frozen=True, slots=True)
class Timeline:
    """Rounds of one setting under one scheduler.

    Parameters
    ----------
    title
        Setting, scheduler, engine, load.
    timeline
        ``sequential``, ``overlap`` or ``run_ahead``.
    spans
        Rows of `SPAN_DTYPE`; time 0 is the start of the first round.
    output_tps
        Of the whole simulation, tokens/s.
    """

    title: str
    timeline: str
    spans: Records
    output_tps: float

    def lane(self, name: str) -> Records:
        """Return the spans of one lane."""
        return np.asarray(self.spans[self.spans["lane"] == name])

    @property
    def rounds(self) -> Records:
        """The spans of whole rounds."""
        steps = self.lane("step")
        return np.asarray(steps[steps["round"] >= 0])

    @property
    def duration_ns(self) -> int:
        """From the first round's start to the last step's end."""
        return int(self.lane("step")["end_ns"].max())

    def covered_ns(self) -> int:
        """Time during which a phase runs on any of CPU, GPU and link."""
        busy = self.spans[np.isin(self.spans["lane"], ("cpu", "gpu", "link"))]
        return union_ns(busy["start_ns"], busy["end_ns"])

    def mean_ms(self) -> dict[str, float]:
        """Milliseconds per round of each phase, in the order of `PHASES`."""
        rounds = len(self.rounds)
        spans = self.spans[~np.isin(self.spans["lane"], ("step", "clients"))]
        times = {}
        for name in PHASES:
            chosen = spans[spans["phase"] == name]
            if len(chosen):
                times[name] = float((chosen["end_ns"] - chosen["start_ns"]).sum()) / 1e6 / rounds
        return times


def union_ns(start: Ints, end: Ints) -> int:
    """Length of a union of intervals.

    >>> union_ns(np.array([0, 5, 20]), np.array([10, 12, 21]))
    13
    """
    order = np.argsort(start, kind="stable")
    ends = np.maximum.accumulate(end[order])
    begins = np.maximum(start[order][1:], ends[:-1])
    first = int(ends[0] - start[order][0]) if len(ends) else 0
    return first + int((ends[1:] - begins).clip(0).sum())


def timelines(
    profile: Profile,
    setting: SpecSetting,
    concurrency: int,
    *,
    rounds: int = 3,
    workload: Workload | None = None,
    seed: int = 0,
) -> tuple[Timeline, ...]:
    """Simulate a setting under its scheduler, or under both if it says ``auto``.

    Parameters
    ----------
    profile
        The server.
    setting
        What runs; with scheduler ``auto`` the sequential and the overlap timeline are returned.
    concurrency
        Clients in flight.
    rounds
        Rounds that are shown, from one that a prefill follows.
    workload
        Instead of the profile's.
    seed
        Of the simulation; both timelines see the same random numbers.

    Raises
    ------
    InputError
        If `rounds` is out of range.
    """
    if not 1 <= rounds <= MOST_ROUNDS:
        raise InputError(f"rounds {rounds}", f"must lie in 1..{MOST_ROUNDS}", "give a number")
    work = workload or profile.setup.workload.workload
    made = []
    for plan in scheduled_plans(profile, setting):
        result = _simulated(profile, plan, Load("closed_loop", concurrency), work, rounds, seed)
        made.append(timeline_of(result, plan_title(plan, concurrency), rounds))
    return tuple(made)


def scheduled_plans(profile: Profile, setting: SpecSetting) -> tuple[RunPlan, ...]:
    """Return the plan of a setting under its scheduler; sequential and overlap for ``auto``.

    What the engine's version refuses is planned on the first version that runs it, if there is
    one, and else against the engine's will.
    """
    system = profile.system()
    schedulers: tuple[SpecSetting, ...] = (setting,)
    if setting.scheduler == "auto":
        schedulers = (setting.with_scheduler("sequential"), setting.with_scheduler("overlap"))
    plans = []
    for one in schedulers:
        try:
            plans.append(system.plan(one))
        except EngineRefusal:
            later = engine_named(system.engine.name).trees_overlap_from
            try:
                plans.append(system.plan(one, engine_version=later))
            except EngineRefusal:
                plans.append(system.plan(one, what_if=True))
    return tuple(plans)


def plan_title(plan: RunPlan, concurrency: int) -> str:
    """Name a plan and its load."""
    setting = plan.setting
    name = "no speculation" if not setting.speculates else setting.label
    worker = dict(engine_named(plan.engine).worker_names).get(setting.scheduler)
    generation = f" ({worker})" if worker and setting.speculates else ""
    clients = f"{concurrency} client{'s' * (concurrency > 1)}"
    words = [name, f"{setting.scheduler}{generation}", f"{plan.engine} {plan.version}", clients]
    if plan.what_if:
        words.append("what-if")
    return ", ".join(words)


def _simulated(
    profile: Profile, plan: RunPlan, load: Load, workload: Workload, rounds: int, seed: int
) -> SimulationResult:
    """Simulate until there are enough rounds."""
    from specsim.simulate import simulate

    system = profile.system()
    table = accept_table(profile.acceptance(), plan.setting)
    case = Case.of(system, plan, table, workload, load)
    lasting = max(1.0, table.mean_rounds(workload.output_len.mean - 1.0))
    batch = min(load.concurrency, plan.max_running_requests)
    requests = batch + 8 + math.ceil(1.2 * rounds * batch / lasting)
    for _ in range(ENOUGH_TRIES):
        rng = np.random.default_rng(np.random.SeedSequence([seed, load.concurrency]))
        result = simulate(system.cost, case, rng=rng, requests=requests)
        if len(result.rounds) >= rounds:
            return result
        requests *= 2
    raise InputError(
        f"rounds {rounds}",
        f"only {len(result.rounds)} happened: answers of {workload.output_len.mean:g} tokens",
        "ask for fewer rounds, or for longer answers with --output-len",
    )


def timeline_of(result: SimulationResult, title: str, rounds: int | None = None) -> Timeline:
    """Return the spans of a simulation.

    Parameters
    ----------
    result
        With its rounds recorded.
    title
        What it is of.
    rounds
        So many, from one that a prefill follows if there is one; None for all.

    Raises
    ------
    InputError
        If no rounds were recorded.
    """
    count = len(result.rounds)
    if not count:
        raise InputError(title, "has no recorded rounds", "simulate with record_rounds=True")
    first = 0 if rounds is None else _first_shown(result, rounds)
    last = count if rounds is None else min(count, first + rounds)
    phases = result.phases(first, last)
    shown = result.rounds[first:last]
    origin = _ns(shown["start_s"][:1])[0]
    steps = _steps(result, phases, shown, first)
    spans = [_phase_spans(phases, shown, first), steps]
    spans.append(_waiting(result, int(steps["start_ns"].min()), int(steps["end_ns"].max())))
    table = np.concatenate(spans)
    table["start_ns"] -= origin
    table["end_ns"] -= origin
    table = table[np.argsort(table["start_ns"], kind="stable")]
    return Timeline(title, result.pricer.plan.timeline, np.asarray(table), result.output_tps)


def _first_shown(result: SimulationResult, rounds: int) -> int:
    """Return the first round of the window after which a prefill comes; one with room behind."""
    starts = result.rounds["start_s"]
    begin = int(np.searchsorted(starts, result.window_s[0]))
    latest = max(0, len(starts) - rounds)
    late = result.prefills[result.prefills["start_s"] > starts[min(begin, len(starts) - 1)]]
    if rounds >= 2 and len(late):
        begin = int(np.searchsorted(starts, late["start_s"][0], side="left")) - 1
    return max(0, min(begin, latest))


def _ns(seconds: NDArray[np.float64]) -> Ints:
    return np.rint(seconds * 1e9).astype(np.int64)


def _phase_spans(phases: Records, rounds: Records, first: int) -> Records:
    """Phases in nanoseconds; those of a round end where it does."""
    table = np.zeros(len(phases), dtype=SPAN_DTYPE)
    for name in ("phase", "lane", "round", "batch", "tokens"):
        table[name] = phases[name]
    table["start_ns"], table["end_ns"] = _ns(phases["start_s"]), _ns(phases["end_s"])
    inside = np.flatnonzero(table["round"] >= 0)
    index = table["round"][inside] - first
    table["accepted"][inside] = rounds["accepted"][index]
    limit = _ns(rounds["end_s"])
    order = np.lexsort((table["end_ns"][inside], phases["phase"][inside] == "prefill", index))
    last = inside[order][np.flatnonzero(np.diff(index[order], append=-1))]
    ends = np.minimum(table["end_ns"][inside], limit[index])
    table["end_ns"][inside] = ends
    table["end_ns"][last] = limit[table["round"][last] - first]
    mixed = last[table["phase"][last] == "prefill"]
    if len(mixed):  # a prompt chunk begins where the round's own phases end
        own = inside[phases["phase"][inside] != "prefill"]
        done = np.zeros(len(rounds), dtype=np.int64)
        np.maximum.at(done, table["round"][own] - first, table["end_ns"][own])
        table["start_ns"][mixed] = done[table["round"][mixed] - first]
    return table


def _steps(result: SimulationResult, phases: Records, rounds: Records, first: int) -> Records:
    """Whole rounds, and the prefill steps between them."""
    table = np.zeros(len(rounds), dtype=SPAN_DTYPE)
    table["phase"], table["lane"] = "round", "step"
    table["round"] = first + np.arange(len(rounds))
    table["start_ns"], table["end_ns"] = _ns(rounds["start_s"]), _ns(rounds["end_s"])
    table["batch"], table["accepted"] = rounds["batch"], rounds["accepted"]
    width = result.pricer.plan.setting.num_draft_tokens
    table["tokens"] = rounds["batch"] * width
    alone = phases[(phases["phase"] == "prefill") & (phases["round"] < 0)]
    prefill = np.zeros(len(alone), dtype=SPAN_DTYPE)
    for name in ("phase", "round", "batch", "tokens"):
        prefill[name] = alone[name]
    prefill["lane"] = "step"
    prefill["start_ns"], prefill["end_ns"] = _ns(alone["start_s"]), _ns(alone["end_s"])
    return np.concatenate([table, prefill])


def _waiting(result: SimulationResult, start_ns: int, end_ns: int) -> Records:
    """Spans of a constant, positive number of requests between arrival and admission."""
    arrival, admitted = result.requests["arrival_s"], result.requests["admitted_s"]
    come = _ns(arrival[~np.isnan(arrival)])
    gone = _ns(admitted[~np.isnan(admitted)])
    edges = np.unique(np.concatenate([come, gone]).clip(start_ns, end_ns))
    edges = np.unique(np.concatenate([[start_ns], edges, [end_ns]]))
    waiting = np.searchsorted(np.sort(come), edges[:-1], side="right")
    waiting = waiting - np.searchsorted(np.sort(gone), edges[:-1], side="right")
    table = np.zeros(len(waiting), dtype=SPAN_DTYPE)
    table["phase"], table["lane"], table["round"] = "waiting", "clients", -1
    table["start_ns"], table["end_ns"] = edges[:-1], edges[1:]
    table["batch"] = waiting
    return np.asarray(table[(waiting > 0) & (edges[1:] > edges[:-1])])
