"""Which settings an engine could be launched with, as plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from specsim.engine import RunPlan, engine_named, parse_version
from specsim.errors import EngineRefusal, InputError
from specsim.profile import Profile
from specsim.question import Question
from specsim.setting import Algorithm, SpecSetting, parse_algorithm
from specsim.tree import tree_capacity

CHAIN_STEPS = 8
TREE_STEPS = 6
TREE_TOPK = (2, 3, 4, 8)
TREE_TOKENS = (4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Budgets that are tried for a tree, with its capacity; verification time is flat between them."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How far the candidates go."""

    max_draft_tokens: int = 64  # most verified per request, root included
    max_steps: int = CHAIN_STEPS  # deepest draft
    max_topk: int = TREE_TOPK[-1]  # widest tree

    def __post_init__(self) -> None:
        if self.max_draft_tokens < 2:
            raise InputError(
                f"max draft tokens {self.max_draft_tokens}", "must be at least 2", "the root counts"
            )
        for name, value in (("max steps", self.max_steps), ("max topk", self.max_topk)):
            if value < 1:
                raise InputError(f"{name} {value}", "must be at least 1", "leave it out")


def algorithm_of(profile: Profile) -> Algorithm | None:
    """Return how this server drafts: as it does today, else by its drafter; None without one."""
    current = profile.setup.current
    if current is not None and current.speculates:
        return current.algorithm
    draft = profile.system().cost.draft
    return None if draft is None else parse_algorithm(draft.kind)


def candidate_settings(algorithm: Algorithm, limits: Limits) -> Iterator[SpecSetting]:
    """Yield chains, then trees, each from small to large.

    >>> [s.label for s in candidate_settings("EAGLE3", Limits(4, 2, 2))]
    ['topk=1 steps=1 tokens=2', 'topk=1 steps=2 tokens=3', 'topk=2 steps=2 tokens=4']
    """
    for steps in range(1, limits.max_steps + 1):
        if steps + 1 <= limits.max_draft_tokens:
            yield SpecSetting(algorithm, 1, steps, steps + 1)
    for topk in TREE_TOPK:
        for steps in range(2, min(limits.max_steps, TREE_STEPS) + 1):
            if topk > limits.max_topk:
                return
            most = min(limits.max_draft_tokens, tree_capacity(topk, steps))
            budgets = {n for n in (*TREE_TOKENS, tree_capacity(topk, steps)) if steps < n <= most}
            for tokens in sorted(budgets):
                yield SpecSetting(algorithm, topk, steps, tokens)


def candidate_plans(
    profile: Profile,
    settings: Sequence[SpecSetting],
    asked: Question | None = None,
    *,
    any_engine: bool = False,
) -> tuple[RunPlan, ...]:
    """Plan no speculation and the settings under every scheduler that the engine has for them.

    What an engine refuses is left out; of equal plans the first is kept, which needs the fewest
    flags. Trees are tried under the scheduler that the version gives them.

    Parameters
    ----------
    profile
        The server.
    settings
        Candidates; chains whose scheduler is ``auto`` are tried under both.
    asked
        Its release and cap, if it names any, stand instead of the setup's.
    any_engine
        Whether later releases of the engine count too.
    """
    asked, system = asked or Question(), profile.system()
    own = asked.engine_version or system.engine.version
    versions = [own]
    if any_engine:
        later = engine_named(system.engine.name).other_rules
        versions += [v for v in later if parse_version(own).before(v)]
    plans: dict[RunPlan, RunPlan] = {}
    for version in versions:
        for setting in (SpecSetting.none(), *settings):
            for scheduled in _schedulers(setting, version == own):
                with suppress(EngineRefusal):
                    plan = system.plan(
                        scheduled,
                        engine_version=version,
                        max_running_requests=asked.max_running_requests,
                    )
                    if plan.setting.key == setting.key:  # else the engine runs another in its place
                        plans.setdefault(replace(plan, version="", notes=()), plan)
    return tuple(plans.values())


def with_current(
    profile: Profile, plans: Sequence[RunPlan], max_running_requests: int | None = None
) -> tuple[tuple[RunPlan, ...], int | None]:
    """Return the plans with what runs today among them, and its index.

    None if that is not known, or does not draft.
    """
    current = profile.setup.current
    if current is None or not current.speculates:
        return tuple(plans), None
    today = profile.system().plan(current, max_running_requests=max_running_requests, what_if=True)
    for i, plan in enumerate(plans):
        if replace(plan, notes=()) == replace(today, notes=()):
            return tuple(plans), i
    return (*plans, today), len(plans)


def _schedulers(setting: SpecSetting, own: bool) -> Iterator[SpecSetting]:
    """Yield the default first; chains of the own version also under the other scheduler."""
    yield setting
    if setting.speculates and setting.scheduler == "auto" and own and setting.topk == 1:
        yield setting.with_scheduler("overlap")
        yield setting.with_scheduler("sequential")
