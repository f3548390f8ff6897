"""Timelines: the phases of simulated rounds as spans on lanes, in whole nanoseconds.

Bounds of rounds and prefill steps are the simulator's, rounded to a nanosecond; the phases within
a round tile it exactly: the one that ends last ends where the round does. So the time that spans
cover is the time that the records cover, to the nanosecond.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.arrays import Floats, Ints
from specsim.cost.rounds import OVERLAP, SCHEDULE_SHARE, SEQUENTIAL
from specsim.engine import RunPlan, engine_named
from specsim.errors import EngineRefusal, InputError
from specsim.metrics import Records
from specsim.predict import Grid
from specsim.profile import Profile
from specsim.setting import SpecSetting
from specsim.simulate.pricing import RoundPricer, extend_tokens
from specsim.workload import Load, Workload

if TYPE_CHECKING:
    from specsim.simulate import SimulationResult

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

WHOLE = ("round", "start_ns", "end_ns", "batch", "accepted")
SPAN_DTYPE = np.dtype(
    [("phase", "U9"), ("lane", "U7"), ("tokens", "f8"), *((name, "i8") for name in WHOLE)]
)
"""A row per span: phase, lane, round (-1: none), bounds, requests, tokens that go in, drafts
accepted in its round. On lane ``clients`` the batch is the number that wait; on lane ``step``
stands each round and each prefill step as a whole."""

MOST_ROUNDS = 100_000
ENOUGH_TRIES = 6


@dataclass(frozen=True, slots=True)
class Timeline:
    """Rounds of one setting under one scheduler."""

    title: str  # setting, scheduler, engine, load
    spans: Records  # rows of `SPAN_DTYPE`; time 0 is the start of the first round

    def lane(self, name: str) -> Records:
        """Return the spans of one lane."""
        spans: Records = self.spans[self.spans["lane"] == name]
        return spans

    @property
    def rounds(self) -> Records:
        """The spans of whole rounds."""
        steps = self.lane("step")
        rounds: Records = steps[steps["round"] >= 0]
        return rounds

    @property
    def duration_ns(self) -> int:
        """From the first round's start to the last step's end."""
        return int(self.lane("step")["end_ns"].max())

    def mean_ms(self) -> dict[str, float]:
        """Milliseconds per round of each phase, in the order of `PHASES`."""
        busy = self.spans[~np.isin(self.spans["lane"], ("step", "clients"))]
        times = {}
        for name in PHASES:
            chosen = busy[busy["phase"] == name]
            if len(chosen):
                times[name] = (
                    float((chosen["end_ns"] - chosen["start_ns"]).sum()) / 1e6 / len(self.rounds)
                )
        return times


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

    So many clients are in flight, and so many rounds are shown, with the fewest prompts in them.
    A workload is taken instead of the profile's; both timelines see the same random numbers.

    Raises
    ------
    InputError
        If `rounds` is out of range.
    """
    if not 1 <= rounds <= MOST_ROUNDS:
        raise InputError(f"rounds {rounds}", f"must lie in 1..{MOST_ROUNDS}", "give a number")
    work = workload or profile.setup.workload
    made = []
    for plan in scheduled_plans(profile, setting):
        result = _simulated(profile, plan, Load("closed_loop", concurrency), work, rounds, seed)
        made.append(timeline_of(result, _title(plan, concurrency), rounds))
    return tuple(made)


def scheduled_plans(profile: Profile, setting: SpecSetting) -> tuple[RunPlan, ...]:
    """Return the plan of a setting under its scheduler; sequential and overlap for ``auto``.

    What the engine's version refuses is planned on the first version that runs it, if there is
    one, and else against the engine's will.
    """
    if setting.scheduler != "auto":
        return (_planned(profile, setting),)
    both = setting.with_scheduler("sequential"), setting.with_scheduler("overlap")
    return tuple(_planned(profile, one) for one in both)


def _planned(profile: Profile, setting: SpecSetting) -> RunPlan:
    system = profile.system()
    for version in (None, engine_named(system.engine.name).trees_overlap_from):
        try:
            return system.plan(setting, engine_version=version)
        except EngineRefusal:
            continue
    return system.plan(setting, what_if=True)


def _title(plan: RunPlan, concurrency: int) -> str:
    setting = plan.setting
    worker = dict(engine_named(plan.engine).worker_names).get(setting.scheduler)
    generation = f" ({worker})" if worker and setting.speculates else ""
    words = [setting.title, f"{setting.scheduler}{generation}", f"{plan.engine} {plan.version}"]
    words.append(f"{concurrency} client{'s' * (concurrency > 1)}")
    return ", ".join([*words, "what-if"] if plan.what_if else words)


def _simulated(
    profile: Profile, plan: RunPlan, load: Load, workload: Workload, rounds: int, seed: int
) -> SimulationResult:
    from specsim.simulate import simulate

    cost, (case,) = Grid((plan,), (load,), workload).cases(profile)
    lasting = max(1.0, case.table.mean_rounds(workload.output_len.mean - 1.0))
    batch = min(load.concurrency, plan.max_running_requests)
    requests = batch + 8 + math.ceil(1.2 * rounds * batch / lasting)
    for _ in range(ENOUGH_TRIES):
        rng = np.random.default_rng(np.random.SeedSequence([seed, load.concurrency]))
        result = simulate(cost, case, rng=rng, requests=requests)
        if len(result.rounds) >= rounds:
            return result
        requests *= 2
    why = f"only {len(result.rounds)} happened: answers of {workload.output_len.mean:g} tokens"
    remedy = "ask for fewer rounds, or for longer answers with --output-len"
    raise InputError(f"rounds {rounds}", why, remedy)


def timeline_of(result: SimulationResult, title: str, rounds: int | None = None) -> Timeline:
    """Return the spans of a simulation.

    All its rounds, or so many in a row with the fewest prompts in them.

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
    shown, prefills = result.rounds[first:last], result.prefills
    inside = prefills["end_s"] > shown["start_s"][0]
    if rounds is not None:
        prefills = prefills[inside & (prefills["start_s"] < shown["end_s"][-1])]
    phases = _phases(result.pricers, shown, prefills, first)
    steps = _steps(result, phases, shown, first)
    table = np.concatenate([phases, steps, _waiting(result, steps)])
    origin = int(_ns(shown["start_s"][0]))
    table["start_ns"] -= origin
    table["end_ns"] -= origin
    return Timeline(title, table[np.argsort(table["start_ns"], kind="stable")])


def _first_shown(result: SimulationResult, rounds: int) -> int:
    """Return the first round of a steady window: the earliest with the fewest prompts in it.

    So the schedulers that are compared show the same work; what prompts take, means over many
    rounds say.
    """
    table = result.rounds
    begin = int(np.searchsorted(table["start_s"], result.window_s[0]))
    last = max(0, len(table) - rounds)
    firsts = np.arange(min(begin, last), last + 1)
    prompts = np.sort(result.prefills["start_s"])
    until = table["end_s"][np.minimum(firsts + rounds, len(table)) - 1]
    inside = np.searchsorted(prompts, until) - np.searchsorted(prompts, table["start_s"][firsts])
    return int(firsts[np.argmin(inside)])


def _ns(seconds: Floats) -> Ints:
    return np.rint(seconds * 1e9).astype(np.int64)


def _spans(start_ns: Ints, end_ns: Ints, **columns: object) -> Records:
    """Rows of `SPAN_DTYPE`; a column is an array, or one value for all; what is not said is 0."""
    table = np.zeros(len(start_ns), dtype=SPAN_DTYPE)
    table["start_ns"], table["end_ns"] = start_ns, end_ns
    for name, values in columns.items():
        table[name] = values
    return table


def _phases(
    pricers: Sequence[RoundPricer], rounds: Records, prefills: Records, first: int
) -> Records:
    """Phases of rounds, the first of which has number `first`, and of prefill steps among them.

    What a phase takes is priced, so that all of a round may miss its recorded length by rounding:
    the one that ends last ends where the round does.
    """
    within = first + np.searchsorted(rounds["end_s"], prefills["end_s"])
    parts = [
        _spans(
            _ns(prefills["start_s"]),
            _ns(prefills["end_s"]),
            phase="prefill",
            lane="gpu",
            round=np.where(prefills["mixed"], within, -1),
            batch=prefills["prompts"],
            tokens=prefills["tokens"],
        )
    ]
    for gear, pricer in enumerate(pricers):
        where = np.flatnonzero(rounds["gear"] == gear)
        if len(where):
            parts += _of_rounds(rounds[where], first + where, pricer)
    table = np.concatenate(parts)
    table = table[table["end_ns"] > table["start_ns"]]
    inside = np.flatnonzero(table["round"] >= 0)
    own = table["round"][inside] - first
    table["accepted"][inside] = rounds["accepted"][own]
    prefill = table["phase"][inside] == "prefill"
    by_end = np.lexsort((table["end_ns"][inside], prefill, own))
    last = inside[by_end][np.flatnonzero(np.diff(own[by_end], append=-1))]
    round_ends = _ns(rounds["end_s"])
    table["end_ns"][inside] = np.minimum(table["end_ns"][inside], round_ends[own])
    table["end_ns"][last] = round_ends[table["round"][last] - first]
    # a prompt chunk begins where the round's own phases end
    done = np.zeros(len(rounds), dtype=np.int64)
    np.maximum.at(done, own[~prefill], table["end_ns"][inside[~prefill]])
    chunks = last[table["phase"][last] == "prefill"]
    table["start_ns"][chunks] = done[table["round"][chunks] - first]
    return table


def _of_rounds(rounds: Records, numbers: Ints, pricer: RoundPricer) -> Iterator[Records]:
    """Yield the phases of rounds of one setting, one after the other, and the CPU's.

    The target's all-reduces are spread over its layers; they are drawn as one share at its end.
    """
    batch, plan = rounds["batch"], pricer.plan
    time = pricer.exact(batch, rounds["kv_tokens"])
    verified = batch * plan.verified_per_request

    def spans(phase: str, lane: str, start_s: Floats, seconds: Floats, tokens: Floats) -> Records:
        end_s = start_s + seconds
        about = {"phase": phase, "lane": lane, "round": numbers, "batch": batch, "tokens": tokens}
        return _spans(_ns(start_s), _ns(end_s), **about)

    at = rounds["start_s"]
    for name, lane, seconds, tokens in (
        ("draft", "gpu", time.draft_s, batch * plan.setting.topk * plan.draft_forwards),
        ("tree", "gpu", time.tree_s, verified),
        ("target", "gpu", time.target_s - time.allreduce_s, verified),
        ("allreduce", "link", time.allreduce_s, verified),
        ("overhead", "gpu", time.overhead_s, verified),
    ):
        yield spans(name, lane, at, seconds, tokens)
        at = at + seconds
    extended = extend_tokens(plan, pricer.accept_length, batch)
    yield spans("extend", "gpu", at, time.extend_s, extended)
    begun, emitted, host_s = rounds["start_s"], rounds["accepted"] + rounds["active"], time.host_s
    if pricer.timeline == SEQUENTIAL:
        yield spans("host", "cpu", at + time.extend_s, host_s, emitted)
    elif pricer.timeline == OVERLAP:
        # the last round's results are processed at once, the next one is scheduled when the
        # verification is done
        results_s = (1.0 - SCHEDULE_SHARE) * host_s
        yield spans("results", "cpu", begun, results_s, emitted)
        free = np.maximum(at, begun + results_s)
        yield spans("host", "cpu", free, SCHEDULE_SHARE * host_s, emitted)
    else:
        yield spans("host", "cpu", begun, host_s, emitted)


def _steps(result: SimulationResult, phases: Records, rounds: Records, first: int) -> Records:
    """Whole rounds, and the prefill steps between them."""
    between = phases[(phases["phase"] == "prefill") & (phases["round"] < 0)].copy()
    between["lane"] = "step"
    whole = _spans(
        _ns(rounds["start_s"]),
        _ns(rounds["end_s"]),
        phase="round",
        lane="step",
        round=first + np.arange(len(rounds)),
        batch=rounds["batch"],
        tokens=rounds["batch"] * result.pricers[0].plan.setting.num_draft_tokens,
        accepted=rounds["accepted"],
    )
    return np.concatenate([whole, between])


def _waiting(result: SimulationResult, steps: Records) -> Records:
    """Spans of a constant, positive number of requests between arrival and admission."""
    bounds = steps["start_ns"].min(), steps["end_ns"].max()
    moments = (result.requests["arrival_s"], result.requests["admitted_s"])
    come, gone = (np.sort(_ns(at[~np.isnan(at)])) for at in moments)
    edges = np.unique(np.concatenate([come.clip(*bounds), gone.clip(*bounds), bounds]))
    here = edges[:-1]
    waiting = np.searchsorted(come, here, "right") - np.searchsorted(gone, here, "right")
    who = {"phase": "waiting", "lane": "clients", "round": -1, "batch": waiting}
    table = _spans(here, edges[1:], **who)
    waits: Records = table[waiting > 0]
    return waits
