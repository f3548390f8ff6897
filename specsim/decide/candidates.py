"""The settings that an engine takes: what a decision chooses among."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from specsim.engine import RunPlan, engine_named, parse_version
from specsim.errors import EngineRefusal
from specsim.profile import Profile
from specsim.question import Question
from specsim.setting import FAMILY_OF, Algorithm, SpecSetting
from specsim.tree import tree_capacity

TREE_STEPS = 6
TREE_TOPK = (2, 3, 4, 8)
TREE_TOKENS = (4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Budgets that are tried for a tree, with its capacity; verification time is flat between them."""


def algorithm_of(profile: Profile) -> Algorithm | None:
    """Return how this server drafts; None if nothing is known to."""
    current = profile.setup.current
    drafts = profile.setup.draft is not None or (current is not None and current.speculates)
    return profile.default_algorithm if drafts else None


def candidate_settings(algorithm: Algorithm, question: Question) -> Iterator[SpecSetting]:
    """Yield chains, then trees, each from small to large, within the limits of a question.

    >>> small = Question(max_draft_tokens=4, max_steps=2, max_topk=2)
    >>> [s.label for s in candidate_settings("EAGLE3", small)]
    ['topk=1 steps=1 tokens=2', 'topk=1 steps=2 tokens=3', 'topk=2 steps=2 tokens=4']
    """
    for steps in range(1, question.max_steps + 1):
        if steps + 1 <= question.max_draft_tokens:
            yield SpecSetting(algorithm, 1, steps, steps + 1)
    for topk in TREE_TOPK if FAMILY_OF[algorithm] != "block" else ():
        for steps in range(2, min(question.max_steps, TREE_STEPS) + 1):
            if topk > question.max_topk:
                return
            whole = tree_capacity(topk, steps)
            most = min(question.max_draft_tokens, whole)
            for tokens in sorted({n for n in (*TREE_TOKENS, whole) if steps < n <= most}):
                yield SpecSetting(algorithm, topk, steps, tokens)


def candidate_plans(
    profile: Profile, question: Question, settings: Sequence[SpecSetting] | None = None
) -> tuple[RunPlan, ...]:
    """Plan no speculation and the settings under every scheduler that the engine has for them.

    What an engine refuses is left out; of equal plans the first is kept, which needs the fewest
    flags. Trees are tried under the scheduler that the version gives them.

    Parameters
    ----------
    profile
        The server.
    question
        Its release and cap, if it names any, stand instead of the setup's; its limits hold.
    settings
        Instead of all candidates; chains whose scheduler is ``auto`` are tried under both.
    """
    if settings is None:
        algorithm = algorithm_of(profile)
        settings = () if algorithm is None else tuple(candidate_settings(algorithm, question))
    system = profile.system()
    own = question.engine_version or system.engine.version
    later = engine_named(system.engine.name).other_rules if question.any_engine else ()
    plans: dict[RunPlan, RunPlan] = {}
    for version in (own, *(v for v in later if parse_version(own).before(v))):
        for setting in (SpecSetting.none(), *settings):
            for scheduled in _schedulers(setting, version == own):
                with suppress(EngineRefusal):
                    plan = system.plan(
                        scheduled,
                        engine_version=version,
                        max_running_requests=question.max_running_requests,
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
    return with_plan(plans, today)


def with_plan(plans: Sequence[RunPlan], wanted: RunPlan) -> tuple[tuple[RunPlan, ...], int]:
    """Return the plans with another among them, whatever its notes, and its index."""
    for i, plan in enumerate(plans):
        if replace(plan, notes=()) == replace(wanted, notes=()):
            return tuple(plans), i
    return (*plans, wanted), len(plans)


def _schedulers(setting: SpecSetting, own: bool) -> Iterator[SpecSetting]:
    """Yield the default first; chains of the own version also under the other scheduler."""
    yield setting
    if setting.speculates and setting.scheduler == "auto" and own and setting.topk == 1:
        yield setting.with_scheduler("overlap")
        yield setting.with_scheduler("sequential")
