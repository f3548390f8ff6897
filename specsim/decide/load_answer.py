"""What simulating ways to run a server under a changing load gave, and how it is compared.

What one way brings over another is a mean over repeats of ratios within a repeat, in which both
saw the same random numbers:

    gain = mean_r(score_r / score'_r) - 1,   se = sd_r / sqrt(R)                   (PAIRED-GAIN)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np

from specsim.decide import HIDDEN, Planned
from specsim.decide.schedule import Step
from specsim.engine import RunPlan
from specsim.question import Target
from specsim.setting import Algorithm
from specsim.simulate import Policy

SCHEMA = "specsim.schedule/1"

Role = Literal["none", "fixed", "table", "given", "default", "idle"]
"""No speculation, a fixed setting, the best table, the user's, the engine's default table, or
``idle``: the drafter loaded, nothing drafted."""

Score = Literal["goodput", "throughput", "request_time"]


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to run the server."""

    role: Role
    name: str  # for people
    plan: RunPlan  # what it is launched with
    policy: Policy | None = None  # None for a fixed setting


@dataclass(frozen=True, slots=True)
class Run:
    """What one simulated run says; seconds, tokens and requests per second."""

    score: float
    output_tps: float
    tpot_s: float
    tpot_p99_s: float
    ttft_s: float
    ttft_p99_s: float
    request_time_s: float
    goodput_rps: float
    good_share: float
    batch_size: float
    accept_length: float
    switches: int
    requests: int
    time_share: dict[int, float]  # of the decoding, by draft steps


@dataclass(frozen=True, slots=True)
class StepsShare:
    """Share of the decoding time that ran with so many draft steps."""

    num_steps: int
    time_share: float


@dataclass(frozen=True, slots=True)
class Outcome(Planned):
    """One way to run the server under the load: means over its runs, one for each repeat.

    The setting is what it is launched with: of a table its deepest. `gain` is by score against the
    best of the settings without a table, `gain_se` its standard error over the repeats.
    """

    role: Role
    name: str  # for people
    output_tps: float
    output_tps_se: float
    tpot_s: float
    tpot_p99_s: float
    ttft_s: float
    ttft_p99_s: float
    request_time_s: float
    goodput_rps: float
    good_share: float
    batch_size: float
    accept_length: float
    switches: float
    requests: float
    steps: tuple[StepsShare, ...]
    gain: float
    gain_se: float
    score: float = field(metadata=HIDDEN)
    policy: Policy | None = field(metadata=HIDDEN)  # None for a fixed setting
    runs: tuple[Run, ...] = field(metadata=HIDDEN)

    def __post_init__(self) -> None:
        Planned.__post_init__(self)
        if self.policy is not None:
            most = max(self.policy.steps)
            for name, value in (("topk", 1), ("num_steps", most), ("num_draft_tokens", most + 1)):
                object.__setattr__(self, name, value)

    def error(self, name: str) -> float:
        """Return the standard error of a mean; NaN for a single repeat."""
        return standard_error([getattr(run, name) for run in self.runs])


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """Ways to run a server under a changing load; fields as in ``specsim.schedule/1``."""

    profile: str
    seed: int
    repeats: int
    load: str  # in words
    score: Score  # what they are compared by
    targets: tuple[Target, ...]  # latency targets of the goodput
    engine: str
    engine_version: str
    algorithm: Algorithm
    table: tuple[Step, ...]  # the best one
    engine_config: str | None  # the table in the engine's syntax
    flags: tuple[str, ...]
    kv_pool_share_of_drafter: float
    worth_it: bool  # the table beats every setting without one, by more than noise and a percent
    best_static: str  # the best of no speculation and the fixed settings
    outcomes: tuple[Outcome, ...]  # by role, in the order that Role has; the best fixed one first
    notes: tuple[str, ...]  # what is assumed or missing
    config_lines: tuple[str, ...] = field(metadata=HIDDEN)  # the table, ready to paste

    def of(self, role: Role) -> Outcome | None:
        """Return the first outcome of that role."""
        return next((o for o in self.outcomes if o.role == role), None)

    @property
    def best_fixed(self) -> Outcome:
        """What the table is held against."""
        return next(o for o in self.outcomes if o.name == self.best_static)


def outcome_of(contender: Contender, runs: Sequence[Run], static: Sequence[Run]) -> Outcome:
    """Average the runs of one way, and compare them with those of the best fixed setting."""
    means = {
        f.name: float(np.mean([getattr(run, f.name) for run in runs]))
        for f in fields(Run)
        if f.name != "time_share"
    }
    depths = sorted({depth for run in runs for depth in run.time_share})
    shares = [float(np.mean([run.time_share.get(d, 0.0) for run in runs])) for d in depths]
    gain, error = paired_gain(runs, static)
    return Outcome(
        contender.plan,
        role=contender.role,
        name=contender.name,
        output_tps_se=standard_error([run.output_tps for run in runs]),
        steps=tuple(map(StepsShare, depths, shares)),
        gain=gain,
        gain_se=error,
        policy=contender.policy,
        runs=tuple(runs),
        **means,
    )


def paired_gain(runs: Sequence[Run], others: Sequence[Run]) -> tuple[float, float]:
    """Return by how much one way scores above another, and the standard error (PAIRED-GAIN)."""
    pairs = zip(runs, others, strict=True)
    ratios = [a.score / b.score - 1.0 if b.score > 0 else math.nan for a, b in pairs]
    return float(np.mean(ratios)), standard_error(ratios)


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of a mean; NaN for a single value."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
