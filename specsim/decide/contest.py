"""Settings against each other at one load: who wins, how surely, what is lost otherwise.

Every setting that the engine takes is solved in closed form; those that could be the fastest
somewhere are compared in a joint Gaussian (`specsim.decide.outlook`). A setting is dropped if
another one beats it with a probability of at least 75 %. Of those that stay the simplest is chosen,
and among equally simple ones the fastest. Simplicity: no speculation, what runs today, other
chains, trees; whatever needs another release of the engine comes after all that does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from specsim.decide import FreeFlag, FreeKind, LoadChoice, MixChoice, Option, Verdict
from specsim.decide.outlook import (
    Outlook,
    candidate_plans,
    outlook,
    ratio_sd,
    with_current,
    with_plan,
)
from specsim.engine import EngineSpec, RunPlan, engine_named, parse_version
from specsim.errors import EngineRefusal
from specsim.predict import Grid, lanes_of
from specsim.profile import Profile
from specsim.question import Question
from specsim.setting import SpecSetting
from specsim.uncertainty import EVEN_GAIN, SURE, Interval, beats

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats, Ints

SCHEMA = "specsim.curve/2, verdict"
"""Where a decision stands in a document."""

ASKED = ("asked", "alternative")
"""Roles of a curve's lines that a question brings in."""

KEEP = 40
"""Settings that are compared in detail."""

MARGIN = 0.3
"""In ln(throughput): what is further from the best at every load is not compared in detail."""

FREE_GAIN = 0.03
"""What a free flag must bring to be pointed out."""


@dataclass(frozen=True, slots=True)
class Contest:
    """Settings to choose from."""

    profile: Profile
    question: Question
    outlook: Outlook  # the joint Gaussian; its first setting is no speculation
    current: int | None  # index of what runs today, if that is known
    shown: tuple[int, ...]  # indices of the settings that are asked about, allowed or not
    considered: int  # settings that were looked at
    allowed: Flags  # (settings, loads): the engine runs it, and it meets the latency targets

    @property
    def plans(self) -> tuple[RunPlan, ...]:
        """Settings as the engine runs them."""
        return self.outlook.grid.plans

    def measured(self, i: int) -> bool:
        """Whether the profile rests on measurements of a setting, as far as is known."""
        named = self.plans[i].setting.key in {s.key for s in self.question.measured}
        return self.profile.fit.observations > 0 and (named or i in (0, self.current))

    def rank(self, i: int) -> tuple[int, int]:
        """Return how simple a setting is: smaller is simpler."""
        plan, own = self.plans[i], self.profile.setup.engine.version
        if not plan.setting.speculates:
            kind = 0
        elif i == self.current:
            kind = 1
        else:
            kind = 2 if plan.setting.topk == 1 else 3
        return (int(plan.version != (self.question.engine_version or own)), kind)

    def choose(self, j: int) -> LoadChoice:
        """Choose at load j; among all settings if none meets the targets."""
        view, allowed = self.outlook, self.allowed[:, j]
        mean, sd, total = view.mean[:, j], view.ratio_sd(j), view.sd()[:, j]
        probability, regret = wins(view.points(j), allowed)
        gpus, price = self.profile.setup.hardware.gpu_count, self.question.gpu_hour_price

        def gain(i: int, base: int) -> Interval:
            return Interval.of_change(float(mean[i] - mean[base]), float(sd[i, base]))

        def faster(i: int, base: int) -> float:
            return beats(float(mean[i] - mean[base]), float(sd[i, base]))

        def option(i: int) -> Option:
            tps = Interval.of_log(float(view.cells.output_tps[i, j]), float(total[i]))
            wins_with, loses = float(probability[i]), float(regret[i])
            length, most = float(view.cells.accept_length[i, j]), self.plans[i].setting
            accept = Interval.of_log(length, float(view.accept_sd[i]))
            return Option(
                plan=self.plans[i],
                measured=self.measured(i),
                output_tps=tps,
                output_tps_per_gpu=tps.value / gpus,
                tokens_per_money=None if price is None else tps.value * 3600.0 / (price * gpus),
                money_per_million=(
                    None if price is None else 1e6 * price * gpus / (3600.0 * tps.value)
                ),
                gain=gain(i, 0),
                probability_faster=faster(i, 0),
                gain_against_current=None if self.current is None else gain(i, self.current),
                probability_faster_than_current=(
                    None if self.current is None else faster(i, self.current)
                ),
                probability_fastest=wins_with,
                regret=loses,
                regret_if_not_fastest=loses / (1.0 - wins_with) if wins_with < 1.0 else 0.0,
                accept_length=length,
                accept_length_low=max(accept.low, 1.0),
                accept_length_high=min(accept.high, most.most_accepted),
                batch_size=float(view.cells.batch_size[i, j]),
                tpot_s=float(view.cells.tpot_s[i, j]),
                ttft_s=float(view.cells.ttft_s[i, j]),
                limit=view.cells.limit(i, j),
            )

        pool = _pool(allowed)
        chosen, *tied = self.standing(pool, mean, sd)
        return LoadChoice(
            concurrency=view.grid.loads[j].concurrency,
            choice=option(chosen),
            fastest=option(int(pool[np.argmax(mean[pool])])),
            tied=tuple(option(i) for i in sorted(tied, key=lambda i: -float(mean[i]))),
            baseline=option(0),
            current=None if self.current is None else option(self.current),
            asked=tuple(map(option, self.shown)),
            meets_targets=bool(allowed.any()) if self.question.targets else None,
        )

    def standing(self, pool: Ints, mean: Floats, sd: Floats) -> list[int]:
        """Return the settings that no other one surely beats, simplest first."""
        return unbeaten(pool.tolist(), mean, sd, self.rank)

    def mixed(self, shares: dict[int, float]) -> MixChoice:
        """Choose one setting for a mix of loads: shares of the time by concurrency.

        The throughput over the mix is the weighted mean over the loads.
        """
        levels = [load.concurrency for load in self.outlook.grid.loads]
        used = np.array([j for j, level in enumerate(levels) if level in shares])
        share = np.array([shares[levels[j]] for j in used])
        share = share / np.sum(share)
        points = self.outlook.points(*used.tolist())
        points = np.log(np.exp(points.reshape(len(points), -1, len(used))) @ share)
        mean, sd = points.mean(axis=0), ratio_sd(np.atleast_2d(np.cov(points.T)))
        allowed = np.all(self.allowed[:, used], axis=1)
        i = self.standing(_pool(allowed), mean, sd)[0]
        probability, regret = wins(points, allowed)
        return MixChoice(
            self.plans[i],
            weights={levels[j]: float(part) for j, part in zip(used, share, strict=True)},
            output_tps=float(np.exp(self.outlook.mean[i, used]) @ share),
            gain=Interval.of_change(float(mean[i] - mean[0]), float(sd[i, 0])),
            probability_fastest=float(probability[i]),
            regret=float(regret[i]),
        )


def contest_of(
    profile: Profile,
    question: Question,
    asked: Sequence[RunPlan] = (),
    most: int = KEEP,
    refused_too: bool = True,
) -> Contest:
    """Compare the settings that could win at the loads of a question, at most so many.

    What runs today is among them, unless the engine refuses it and `refused_too` is false; and so
    is what is asked about, refused or not.
    """
    possible = candidate_plans(profile, question)
    plans, today = with_current(profile, possible, question.max_running_requests)
    if today is not None and not (refused_too or plans[today].allowed):
        plans, today = plans[:today], None
    places = []
    for plan in asked:
        plans, place = with_plan(plans, plan)
        places.append(place)
    whole = Grid.of(profile, question, plans)
    log_tps = whole.solve(profile).log_tps[: len(possible)]
    shown = places if today is None else [today, *places]
    kept = sorted({*promising(log_tps, most), *shown})  # who else is asked about changes none
    view = outlook(profile, whole.only(kept), question.measured)
    current, grid = None if today is None else kept.index(today), view.grid
    allowed = np.ones(grid.shape, dtype=np.bool_)
    if question.targets:
        from specsim.decide.slo import meeting  # simulates

        always = [0] if current is None else [0, current]
        allowed = meeting(profile, grid, view.cells, question.targets, always, question.seed)
    # what runs today and what is asked about are shown even if they cannot be chosen
    versions = {plan.version for plan in possible}
    allowed &= np.array([[p.allowed and p.version in versions] for p in grid.plans])
    return Contest(
        profile,
        question,
        view,
        current,
        tuple(kept.index(place) for place in places),
        len(plans),
        allowed,
    )


def promising(log_tps: Floats, most: int = KEEP) -> list[int]:
    """Return the first setting and those that could win somewhere: the nearest to the best."""
    gap = (log_tps.max(axis=0) - log_tps).min(axis=1)
    near = [i for i in gap.argsort(kind="stable").tolist() if gap[i] < MARGIN]
    return sorted({0, *near[: most - 1]})


def choices_of(contest: Contest) -> tuple[LoadChoice, ...]:
    """Choose at every load.

    A single load that interrupts a band joins it if the band's choice is tied there.
    """
    result = [contest.choose(j) for j in range(contest.outlook.grid.shape[1])]
    for i in range(1, len(result) - 1):
        around, here = result[i - 1].choice.plan, result[i]
        if result[i + 1].choice.plan != around or here.choice.plan == around:
            continue
        same = next((option for option in here.tied if option.plan == around), None)
        if same is not None:
            others = (here.choice, *(o for o in here.tied if o is not same))
            result[i] = replace(here, choice=same, tied=others)
    return tuple(result)


def free_flags(contest: Contest, choices: Sequence[LoadChoice]) -> tuple[FreeFlag, ...]:
    """Return launch flags that make an asked setting, today's or a good one clearly faster."""
    asked = [contest.plans[i] for i in contest.shown]
    shown = [(c.choice, c.fastest, *([c.current] if c.current else [])) for c in choices]
    own = contest.question.engine_version or contest.profile.setup.engine.version
    plans = dict.fromkeys([*asked, *(option.plan for options in shown for option in options)])
    found: list[FreeFlag] = []
    for plan in plans:
        if plan.setting.speculates and plan.allowed and plan.version == own:
            found += _freed(contest, contest.plans.index(plan), plan in asked)
    found.sort(key=lambda f: (not f.asked, -f.output_tps_with / (1.0 + f.gain)))
    best: dict[tuple[bool, FreeKind], FreeFlag] = {}
    for flag in found:
        best.setdefault((flag.asked, flag.kind), flag)
    return tuple(best.values())


def _freed(contest: Contest, i: int, asked: bool) -> Iterator[FreeFlag]:
    """Yield the flags that make the i-th setting faster by `FREE_GAIN` at some load."""
    grid, cells, plan = contest.outlook.grid, contest.outlook.cells, contest.plans[i]
    for kind, flag, profile, changed in _variants(contest, i):
        solved = replace(grid, plans=(changed,)).solve(profile, with_limit=True)
        brings = np.expm1(solved.log_tps[0] - cells.log_tps[i])
        ahead = solved.log_tps[0] - cells.log_tps[0] >= EVEN_GAIN
        pays = np.flatnonzero((brings >= FREE_GAIN) & ahead)
        if not pays.size:
            continue
        j = int(pays[np.argmax(brings[pays])])
        cost, cases = replace(grid, plans=(changed,)).cases(profile)
        drafter = 0.0 if cost.draft is None else cost.draft.kv_bytes_per_token
        room = cases[j].request_kv_tokens * (cost.target.kv_bytes_per_token + drafter)
        more = float(solved.batch_size[0, j] - cells.batch_size[i, j])
        against = cells.log_tps[0, j]
        yield FreeFlag(
            plan,
            kind=kind,
            flag=flag,
            asked=asked,
            from_concurrency=grid.loads[int(pays[0])].concurrency,
            concurrency=grid.loads[j].concurrency,
            gain=float(np.expm1(cells.log_tps[i, j] - against)),
            gain_with=float(np.expm1(solved.log_tps[0, j] - against)),
            output_tps_with=float(solved.output_tps[0, j]),
            batch_size_with=float(solved.batch_size[0, j]),
            memory_bytes=max(more, 0.0) * room,
            limit_with=solved.limit(0, j),
        )


def _variants(contest: Contest, i: int) -> Iterator[tuple[FreeKind, str, Profile, RunPlan]]:
    """Yield ways to launch a setting that cost nothing: what, flag, server, plan."""
    profile, plan, view = contest.profile, contest.plans[i], contest.outlook
    engine, own = engine_named(plan.engine), profile.setup.engine

    def planned(spec: EngineSpec, setting: SpecSetting) -> tuple[Profile, RunPlan]:
        changed = replace(profile, setup=replace(profile.setup, engine=spec))
        return changed, changed.system().plan(setting, engine_version=spec.version)

    spec = replace(own, version=plan.version)
    if contest.question.max_running_requests is not None:
        spec = replace(spec, max_running_requests=contest.question.max_running_requests)
    loads = [load.concurrency for load in view.grid.loads]
    capped = [c for j, c in enumerate(loads) if view.cells.limit(i, j) == "cap"]
    if capped:
        from specsim.engine.flags import flags_for  # predictions do without

        cap = 2 ** math.ceil(math.log2(max(capped)))
        raised = replace(spec, max_running_requests=cap)
        planned_cap = planned(raised, plan.setting)[1]
        said: dict[str, object] = {"max_running_requests": cap}
        captured = planned_cap.graph_batch_sizes
        if planned_cap.graph_unit == "requests" and captured and captured[-1] < cap:
            raised = replace(raised, cuda_graph_max_bs=cap)
            said["cuda_graph_max_bs"] = cap
        flag = " ".join(flags_for(plan.engine, plan.version, said))
        yield "raise-cap", flag or f"up to {cap} requests", *planned(raised, plan.setting)
    if plan.setting.scheduler == "sequential":
        with suppress(EngineRefusal):
            overlapped = planned(spec, plan.setting.with_scheduler("overlap"))
            if overlapped[1].setting.key == plan.setting.key:
                yield "overlap", "the overlap scheduler", *overlapped
    for version in engine.other_rules[-1:]:
        if parse_version(plan.version).before(version) and not contest.question.any_engine:
            with suppress(EngineRefusal):
                newer = planned(replace(spec, version=version), plan.setting.with_scheduler("auto"))
                if newer[1].setting.key == plan.setting.key:
                    yield "release", f"{plan.engine} {version}", *newer


def verdict(profile: Profile, question: Question) -> Verdict:
    """Decide a question: the choice at every load, and what the asked settings are beside it.

    Candidates, baseline and threshold are those of :func:`specsim.decide.recommend.recommend`; the
    asked settings follow each other as the lines of a predicted curve do.
    """
    asked = [plan for role, plan in lanes_of(profile, question) if role in ASKED]
    contest = contest_of(profile, question, asked)
    choices = choices_of(contest)
    return Verdict(SURE, contest.considered, choices, free_flags(contest, choices))


def unbeaten(
    pool: Sequence[int], mean: Floats, sd: Floats, rank: Callable[[int], tuple[int, ...]]
) -> list[int]:
    """Return the settings of a pool of indices that no other one beats surely, the simplest first.

    `mean` and `sd` are of ln(throughput), (settings,), and of its differences, (settings,
    settings); `rank` is smaller where a setting is simpler.

    >>> unbeaten([0, 1, 2], np.array([0.0, 0.1, 0.11]), np.full((3, 3), 0.05), lambda i: (i,))
    [1, 2]
    """
    stand = [
        i
        for i in pool
        if not any(beats(float(mean[k] - mean[i]), float(sd[k, i])) >= SURE for k in pool if k != i)
    ]
    return sorted(stand, key=lambda i: (*rank(i), -float(mean[i])))


def wins(points: Floats, allowed: Flags) -> tuple[Floats, Floats]:
    """Return the probability to be the fastest, and the expected loss, of each setting.

    By points of ln(throughput), (points, settings); the regret is E[1 - X / max X], a fraction.
    What is not allowed has probability 0, and the regret that it would have; if nothing is, all
    count.

    >>> both = np.array([True, True])
    >>> wins(np.log(np.array([[1.0, 2.0], [1.0, 0.5]])), both)
    (array([0.5, 0.5]), array([0.25, 0.25]))
    """
    pool = _pool(allowed)
    counted = points if len(pool) == len(allowed) else points[:, pool]
    best = counted.argmax(axis=1)
    top = np.take_along_axis(counted, best[:, None], axis=1)
    probability = np.bincount(pool[best], minlength=points.shape[1]) / len(points)
    regret = np.maximum(1.0 - np.exp(points - top), 0.0).mean(axis=0)
    return probability, regret


def _pool(allowed: Flags) -> Ints:
    """Return the settings that count: the allowed ones, or all if there is none."""
    return np.flatnonzero(allowed if allowed.any() else np.ones_like(allowed))
