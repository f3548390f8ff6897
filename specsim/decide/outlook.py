"""Which settings a server can run, and what is known of them all: a joint Gaussian of ln X.

    ln X ~ N(m, J C J' + e^2/2 (1 1') + e^2/2 K)                                     (OUTLOOK)

m is the closed-form solution, J its derivative by the profile's parameters, C their covariance, e
the profile's model error. How much of e two settings share is not known; assumed is one half of
its variance. The other half belongs to a setting at a load, and neighbours share it:

    K = exp(-d^2 / 2),  d^2 = (dlog2 n)^2 + (dlog2 topk)^2 + (dlog2(S+1))^2 + (dlog2 C / 2)^2
                              + 1/4 under another scheduler                              (SPECIFIC)

and K = 0 between drafting and not drafting.

For no speculation against a setting that drafts this is equation (DELTA) of
`specsim.uncertainty`, but for one more term. What a drafting round pays beyond the derived times
is one number of the model, whatever the depth. Measured at one depth only, a share psi of it may
as well grow with the depth; so psi joins the parameters, as a normal around zero:

    overhead(S) = overhead (1 + psi (S / S_measured - 1))                                (DEPTH)

In published sweeps of the depth about half of it grows: vLLM issue 20780 (10.2 ms at S = 2, 15.2
at 7, 7.1 plain), pull request 16035 (10.8 at 2, 12.6 at 4, 7.8 plain), issue 47277 (35 + 26 S ms).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from specsim.engine import RunPlan, engine_named, parse_version
from specsim.errors import EngineRefusal
from specsim.predict import Cells, Grid
from specsim.profile import Profile
from specsim.question import Question
from specsim.setting import FAMILY_OF, Algorithm, SpecSetting
from specsim.tree import tree_capacity
from specsim.uncertainty import Spread, normal_lattice
from specsim.workload import Load

if TYPE_CHECKING:
    from specsim.arrays import Floats

TREE_STEPS = 6
TREE_TOPK = (2, 3, 4, 8)
TREE_TOKENS = (4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Budgets that are tried for a tree, with its capacity; verification time is flat between them."""

SPECIFIC_SHARE = 0.5
"""Assumed: share of the model error's variance that belongs to one setting."""

LOAD_LENGTH = 2.0
"""Assumed: octaves of load over which that part stays alike."""

DEPTH_SD = 0.25
"""Of psi (DEPTH): the published half lies at two of it. Where the profile's data tell what a draft
step costs, psi is zero."""

POINTS, GENERATOR = 1021, 76
"""Of the lattice that stands for the joint Gaussian: for the shipped profiles its probabilities are
within 1.5 % and its regrets within 0.07 % of a million draws', where 4000 draws' are within 1.9 %
and 0.4 % (a test has 40,000)."""


RUNS_AS = attrgetter(*(f.name for f in fields(RunPlan) if f.name not in ("version", "notes")))
"""What a plan does, whatever the release that does it says."""


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
    plans: dict[tuple[object, ...], RunPlan] = {}
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
                        plans.setdefault(RUNS_AS(plan), plan)
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
        if plan.version == wanted.version and RUNS_AS(plan) == RUNS_AS(wanted):
            return tuple(plans), i
    return (*plans, wanted), len(plans)


def _schedulers(setting: SpecSetting, own: bool) -> Iterator[SpecSetting]:
    """Yield the default first; chains of the own version also under the other scheduler."""
    yield setting
    if setting.speculates and setting.scheduler == "auto" and own and setting.topk == 1:
        yield setting.with_scheduler("overlap")
        yield setting.with_scheduler("sequential")


@dataclass(frozen=True, slots=True)
class Outlook:
    """The joint Gaussian (OUTLOOK); cells are numbered setting by setting."""

    grid: Grid
    cells: Cells  # the closed-form solution at the profile's values
    jacobian: Floats  # (settings, loads, parameters): J; the last parameter is psi (DEPTH)
    covariance: Floats  # C
    alike_settings: Floats  # K of (SPECIFIC) is the Kronecker product of these two
    alike_loads: Floats
    accept_sd: Floats  # of ln(accept length), setting by setting
    specific_sd: float  # of the two parts of the model error
    shared_sd: float

    @property
    def mean(self) -> Floats:
        """(settings, loads): m."""
        return self.cells.log_tps

    @property
    def flat_jacobian(self) -> Floats:
        """(cells, parameters)."""
        return self.jacobian.reshape(-1, self.jacobian.shape[-1])

    def specific(self) -> Floats:
        """Return the covariance of the cells' own part of the model error, (cells, cells)."""
        return np.asarray(self.specific_sd**2 * np.kron(self.alike_settings, self.alike_loads))

    def together(self, *loads: int) -> Floats:
        """Return the covariance of the cells at some loads, without the shared part."""
        j = self.jacobian[:, loads].reshape(-1, self.jacobian.shape[-1])
        own = np.kron(self.alike_settings, self.alike_loads[np.ix_(loads, loads)])
        return np.asarray(j @ self.covariance @ j.T + self.specific_sd**2 * own)

    def ratio_sd(self, load: int) -> Floats:
        """Return the standard deviation of ln(X_i / X_k) at a load, (settings, settings)."""
        return ratio_sd(self.together(load))

    def sd(self) -> Floats:
        """Return the standard deviation of ln X, the shared part included, (settings, loads)."""
        own = self.specific_sd**2 + self.shared_sd**2
        variance = (self.jacobian @ self.covariance * self.jacobian).sum(axis=2)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0) + own))

    def points(self, *loads: int) -> Floats:
        """Return ln X at points that stand for the Gaussian at some loads, (points, cells).

        What all cells have in common is left out: it decides nothing.
        """
        covariance = self.together(*loads)
        covariance = covariance - covariance.mean(axis=0)
        covariance -= covariance.mean(axis=1, keepdims=True)
        steps = root(covariance)[:, ::-1]  # the widest first
        normals = normal_lattice(POINTS, GENERATOR, 0, len(steps))
        return np.asarray(normals.T @ steps.T + self.mean[:, loads].ravel())


def outlook(profile: Profile, grid: Grid, measured: Sequence[SpecSetting] = ()) -> Outlook:
    """Return the joint Gaussian of all cells under a profile.

    `measured` are settings that the profile was fitted to, besides what runs today.
    """
    errors = profile.spread(partial(grid.logs, profile))
    jacobian, of_lengths = errors.jacobian.reshape(2, *grid.shape, -1)
    lengths = Spread(of_lengths[:, 0], errors.covariance, model_error=0.0)
    size = len(errors.covariance)
    covariance = np.zeros((size + 1, size + 1))
    covariance[:size, :size] = errors.covariance
    covariance[size, size] = depth_sd(profile, measured) ** 2
    variance = profile.fit.model_error**2
    return Outlook(
        grid,
        grid.solve(profile, with_limit=True),
        np.concatenate([jacobian, _depth_column(profile, grid, jacobian)], axis=2),
        covariance,
        setting_likeness(grid.plans),
        load_likeness(grid.loads),
        lengths.sd,
        (SPECIFIC_SHARE * variance) ** 0.5,
        ((1 - SPECIFIC_SHARE) * variance) ** 0.5,
    )


def depth_sd(profile: Profile, measured: Sequence[SpecSetting] = ()) -> float:
    """Return the error of psi (DEPTH); none where nothing or more than one depth was measured.

    Without measurements the overhead is the prior's, whose factor of three either way says it.
    """
    current = profile.setup.current
    depths = {s.num_steps for s in (*measured, *([current] if current else [])) if s.speculates}
    told = any(p.name == "draft" and p.driven == "data" for p in profile.parameters)
    known = told or len(depths) > 1
    return 0.0 if known or not profile.fit.observations else DEPTH_SD


def _depth_column(profile: Profile, grid: Grid, jacobian: Floats) -> Floats:
    """Return d ln X / d psi from d ln X / d ln(overhead), (settings, loads, 1)."""
    steps = np.array([plan.setting.num_steps for plan in grid.plans], dtype=np.float64)
    current = profile.setup.current
    measured = current.num_steps if current is not None and current.speculates else 0
    for k, parameter in enumerate(profile.parameters):
        if parameter.name == "round_overhead" and measured:
            by_log = jacobian[:, :, k] / parameter.prior_sd
            return (by_log * (steps / measured - 1.0)[:, None])[:, :, None]
    return np.zeros((*grid.shape, 1))


def load_likeness(loads: Sequence[Load]) -> Floats:
    """Return the part of (SPECIFIC) that belongs to the loads, (loads, loads)."""
    octaves = np.log2([load.request_rate or load.concurrency for load in loads])
    return np.exp(-0.5 * np.square(np.subtract.outer(octaves, octaves) / LOAD_LENGTH))


def setting_likeness(plans: Sequence[RunPlan]) -> Floats:
    """Return the part of (SPECIFIC) that belongs to the settings, (settings, settings)."""
    settings = [plan.setting for plan in plans]
    numbers = [(s.num_draft_tokens, s.topk, s.num_steps + 1) for s in settings]
    overlaps = [0.5 * (s.scheduler == "overlap") for s in settings]
    place = np.column_stack([np.log2(numbers), overlaps])
    distance = np.square(place[:, None] - place).sum(axis=2)
    drafts = np.array([s.speculates for s in settings])
    return np.where(drafts[:, None] == drafts, np.exp(-0.5 * distance), 0.0)


def ratio_sd(covariance: Floats) -> Floats:
    """Return the standard deviations of all differences of normals with that covariance."""
    variance = np.diag(covariance)
    return np.sqrt(np.maximum(variance[:, None] + variance[None, :] - 2 * covariance, 0.0))


def root(covariance: Floats) -> Floats:
    """Return A with A A' = covariance, for one that is semi-definite up to rounding."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
