"""What a recommendation says; fields as in ``specsim.recommendation/1``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from specsim.decide.slo import Target
from specsim.engine import RunPlan
from specsim.setting import Algorithm, Scheduler
from specsim.uncertainty import Interval

SCHEMA = "specsim.recommendation/1"

AdviceKind = Literal[
    "do-not-speculate", "raise-max-running-requests", "measure-first", "target-missed", "tie"
]

HIDDEN = {"json": False}
"""Metadata of a field that documents leave out."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A setting as an engine runs it, and the fields that name it in documents."""

    plan: RunPlan = field(metadata=HIDDEN)
    algorithm: Algorithm = field(init=False)
    topk: int = field(init=False)
    num_steps: int = field(init=False)
    num_draft_tokens: int = field(init=False)
    scheduler: Scheduler = field(init=False)
    engine: str = field(init=False)
    engine_version: str = field(init=False)

    def __post_init__(self) -> None:
        setting = self.plan.setting
        for name in ("algorithm", "topk", "num_steps", "num_draft_tokens", "scheduler"):
            object.__setattr__(self, name, getattr(setting, name))
        object.__setattr__(self, "engine", self.plan.engine)
        object.__setattr__(self, "engine_version", self.plan.version)

    @property
    def label(self) -> str:
        """Name of the setting, for people."""
        return self.plan.setting.name


@dataclass(frozen=True, slots=True)
class Option(Planned):
    """One setting at one load; times, batch and limit as the closed form has them."""

    measured: bool  # whether the profile rests on measurements of it, as far as is known
    output_tps: Interval
    output_tps_per_gpu: float
    tokens_per_money: float | None  # None without a price
    gain: Interval  # against no speculation at the same load, as a fraction
    gain_against_current: Interval | None  # None if nothing is known to run today
    probability_fastest: float  # of all that were looked at
    regret: float  # expected fraction of the throughput that is lost against the fastest
    regret_if_not_fastest: float
    accept_length: float
    batch_size: float
    tpot_s: float
    ttft_s: float
    limit: str


@dataclass(frozen=True, slots=True)
class LoadChoice:
    """The choice at one load."""

    concurrency: int
    choice: Option  # the simplest setting that no other one beats surely enough
    fastest: Option  # the highest expected throughput
    tied: tuple[Option, ...]  # the others that are not surely beaten, best first
    baseline: Option  # no speculation
    current: Option | None  # what runs today
    meets_targets: bool | None  # whether the choice does; None without latency targets


@dataclass(frozen=True, slots=True)
class Band(Planned):
    """Neighbouring loads with the same choice."""

    from_concurrency: int
    to_concurrency: int
    tied: bool  # whether another setting is as good at some of them
    choices: tuple[LoadChoice, ...] = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class MixChoice(Planned):
    """The one setting for a mix of loads: the simplest that no other one surely beats."""

    weights: dict[int, float]  # share of the time by load
    output_tps: float  # over the mix
    gain: Interval
    probability_fastest: float  # among single settings, as is the regret
    regret: float


@dataclass(frozen=True, slots=True)
class Launch(Planned):
    """What to type for one plan; `flags` is empty where a file sets the engine."""

    flags: tuple[str, ...]
    env: dict[str, str]


@dataclass(frozen=True, slots=True)
class Advice:
    """Something better than, or besides, a setting."""

    kind: AdviceKind
    text: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The answer of `recommend`."""

    profile: str
    seed: int  # of the Monte Carlo
    gpus: int
    gpu_hour_price: float | None  # money per GPU and hour, if given
    targets: tuple[Target, ...]
    settings_considered: int
    settings_compared: int  # those among them that were compared in detail
    loads: tuple[LoadChoice, ...]
    bands: tuple[Band, ...]
    mix: MixChoice | None  # where a mix was given
    launch: tuple[Launch, ...]  # every recommended plan, once
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]
