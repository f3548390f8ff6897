"""What a recommendation says: per load, per band of loads, for a mix, with launch flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specsim.decide.slo import Target
from specsim.engine import RunPlan

AdviceKind = Literal[
    "do-not-speculate", "raise-max-running-requests", "measure-first", "target-missed", "tie"
]


def plan_name(plan: RunPlan) -> str:
    """Name a plan in a sentence; what goes without saying is left out."""
    setting = plan.setting
    if not setting.speculates:
        return "no speculation"
    tokens = "" if setting.topk == 1 else f" tokens={setting.num_draft_tokens}"
    return f"topk={setting.topk} steps={setting.num_steps}{tokens}, {setting.scheduler}"


@dataclass(frozen=True, slots=True)
class Range:
    """A value with its central 90 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Option:
    """One setting at one load.

    Parameters
    ----------
    plan
        How the engine runs it.
    measured
        Whether the profile was fitted to measurements of it, as far as is known: no speculation
        and what runs today.
    output_tps
        Tokens per second.
    gain
        Against no speculation at the same load, as a fraction.
    against_current
        The same against what runs today; None if nothing is known to.
    probability
        That it is the fastest of all that were looked at.
    regret
        Expected fraction of the throughput that is lost against the fastest.
    accept_length, batch_size, tpot_s, ttft_s, limit
        As the closed form has them.
    """

    plan: RunPlan
    measured: bool
    output_tps: Range
    gain: Range
    against_current: Range | None
    probability: float
    regret: float
    accept_length: float
    batch_size: float
    tpot_s: float
    ttft_s: float
    limit: str

    @property
    def regret_if_wrong(self) -> float:
        """Expected loss if another setting is the fastest."""
        missing = 1.0 - self.probability
        return self.regret / missing if missing > 0 else 0.0

    @property
    def label(self) -> str:
        """Name of the setting, for people."""
        return plan_name(self.plan)


@dataclass(frozen=True, slots=True)
class LoadChoice:
    """The choice at one load.

    Parameters
    ----------
    concurrency
        Clients in flight.
    choice
        The simplest setting that no other one beats surely enough.
    best
        The highest expected throughput.
    tied
        The others that are not surely beaten, best first.
    baseline, current
        No speculation, and what runs today.
    meets_targets
        Whether the choice meets the latency targets; None without any.
    """

    concurrency: int
    choice: Option
    best: Option
    tied: tuple[Option, ...]
    baseline: Option
    current: Option | None
    meets_targets: bool | None = None


@dataclass(frozen=True, slots=True)
class Band:
    """Neighbouring loads with the same choice."""

    choices: tuple[LoadChoice, ...]

    @property
    def first(self) -> int:
        """Smallest load, clients."""
        return self.choices[0].concurrency

    @property
    def last(self) -> int:
        """Largest load, clients."""
        return self.choices[-1].concurrency

    @property
    def plan(self) -> RunPlan:
        """What to run."""
        return self.choices[0].choice.plan


@dataclass(frozen=True, slots=True)
class Launch:
    """What to type for one plan; `flags` is empty where a file sets the engine."""

    plan: RunPlan
    flags: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Advice:
    """Something better than, or besides, a setting."""

    kind: AdviceKind
    text: str


@dataclass(frozen=True, slots=True)
class MixChoice:
    """The one setting for a mix of loads.

    Parameters
    ----------
    weights
        Share of the time by load.
    plan
        Setting with the most tokens per time over the mix, or a simpler one that is not surely
        beaten.
    output_tps
        Tokens per second over the mix.
    gain
        Against no speculation.
    probability, regret
        As in :class:`Option`, among single settings.
    """

    weights: tuple[tuple[int, float], ...]
    plan: RunPlan
    output_tps: float
    gain: Range
    probability: float
    regret: float


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The answer of `recommend`.

    Parameters
    ----------
    profile
        Name.
    gpus
        GPUs of the server.
    gpu_hour_price
        Money per GPU and hour, if given.
    targets
        Latency targets.
    loads, bands
        The choice at each load, and joined.
    mix
        One setting for all, where a mix was given.
    launch
        Flags of every recommended plan.
    advice, notes
        In sentences.
    considered
        Settings that were looked at, and those among them that were compared in detail.
    seed
        Of the Monte Carlo.
    """

    profile: str
    gpus: int
    gpu_hour_price: float | None
    targets: tuple[Target, ...]
    loads: tuple[LoadChoice, ...]
    bands: tuple[Band, ...]
    mix: MixChoice | None
    launch: tuple[Launch, ...]
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]
    considered: tuple[int, int]
    seed: int = 0

    def tps_per_gpu(self, option: Option) -> float:
        """Tokens per second and GPU."""
        return option.output_tps.value / self.gpus

    def tokens_per_money(self, option: Option) -> float | None:
        """Tokens per unit of money; None without a price."""
        if self.gpu_hour_price is None:
            return None
        return option.output_tps.value * 3600.0 / (self.gpu_hour_price * self.gpus)

    def at(self, concurrency: int) -> LoadChoice:
        """Return the choice at one of the loads."""
        return next(c for c in self.loads if c.concurrency == concurrency)

    def to_json(self) -> str:
        """Write the document ``specsim.recommendation/1``; equal ones give equal bytes."""
        from specsim.decide.document import recommendation_document
        from specsim.documents import to_json

        return to_json(recommendation_document(self))
