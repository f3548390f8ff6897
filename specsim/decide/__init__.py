"""Decisions: which setting at which load, how surely, and what else would help.

Here is what they are made of: a setting as an engine runs it, what is said of it at a load, the
choice, and the verdict that all commands share.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeVar

from specsim.engine import RunPlan
from specsim.setting import Algorithm, Scheduler
from specsim.uncertainty import Interval

HIDDEN = {"json": False}  # metadata of a field that documents leave out

Label = TypeVar("Label")


def whole_percent(fraction: float) -> str:
    """Write a gain or a loss in whole per cent.

    >>> whole_percent(0.031), whole_percent(-0.248), whole_percent(-0.001)
    ('+3 %', '-25 %', '0 %')
    """
    whole = round(100 * fraction)
    return f"{whole:+d} %" if whole else "0 %"


def bands(labels: Sequence[Label]) -> list[tuple[Label, int, int]]:
    """Join equal neighbours: label, first index, last index.

    >>> bands(["kv", "kv", "cap"])
    [('kv', 0, 1), ('cap', 2, 2)]
    """
    starts = [i for i, label in enumerate(labels) if i == 0 or label != labels[i - 1]]
    return [(labels[i], i, after - 1) for i, after in pairwise([*starts, len(labels)])]


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
    money_per_million: float | None  # of output tokens
    gain: Interval  # against no speculation at the same load, as a fraction
    probability_faster: float  # that the gain is above zero
    gain_against_current: Interval | None  # None if nothing is known to run today
    probability_faster_than_current: float | None
    probability_fastest: float  # of all that were looked at
    regret: float  # expected fraction of the throughput that is lost against the fastest
    regret_if_not_fastest: float
    accept_length: float
    accept_length_low: float  # its central 90 %
    accept_length_high: float
    batch_size: float
    tpot_s: float
    ttft_s: float
    limit: str


@dataclass(frozen=True, slots=True)
class Latency:
    """What requests see at one load, simulated."""

    tpot_p50_s: float
    tpot_p99_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    goodput_rps: float  # requests per second that stay within every target
    good_share: float


@dataclass(frozen=True, slots=True)
class LoadChoice:
    """The choice at one load."""

    concurrency: int
    choice: Option  # the simplest setting that no other one beats surely enough
    fastest: Option  # the highest expected throughput
    tied: tuple[Option, ...]  # the others that are not surely beaten, best first
    baseline: Option  # no speculation
    current: Option | None  # what runs today
    asked: tuple[Option, ...]  # what is asked about, whether or not it could be chosen
    meets_targets: bool | None  # whether the choice does; None without latency targets
    latency: Latency | None = None  # of the choice, where there are latency targets

    @property
    def keeps_today(self) -> bool:
        """Whether the choice is what runs today."""
        return self.current is not None and self.current.plan == self.choice.plan


FreeKind = Literal["raise-cap", "overlap", "release"]


@dataclass(frozen=True, slots=True)
class FreeFlag(Planned):
    """A launch flag that costs nothing and makes a setting faster; gains against no speculation."""

    kind: FreeKind
    flag: str  # as it is typed
    asked: bool  # whether the setting was asked about
    from_concurrency: int  # the smallest load at which it counts
    concurrency: int  # where it brings most
    gain: float  # there, as launched now
    gain_with: float  # and with the flag
    output_tps_with: float
    batch_size_with: float
    memory_bytes: float  # of one GPU, for the KV cache of the requests that run besides
    limit_with: str  # what binds then

    @property
    def text(self) -> str:
        """What it brings, for people."""
        where = f"{self.concurrency} client{'s' * (self.concurrency > 1)}"
        needs = f", which takes {self.memory_bytes / 1e9:.1f} GB more KV cache per GPU"
        how = {"raise-cap": "launch with ", "overlap": "under ", "release": "on "}[self.kind]
        return (
            f"{how}{self.flag}: {self.plan.setting.brief} then gives "
            f"{whole_percent(self.gain_with)} instead of {whole_percent(self.gain)} against no "
            f"speculation at {where}{needs if self.kind == 'raise-cap' else ''}"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What all commands say of a question: one decision, by one threshold."""

    sure: float  # probability from which one setting beats another
    settings_considered: int
    loads: tuple[LoadChoice, ...]
    free: tuple[FreeFlag, ...]  # what else would help, the best first


@dataclass(frozen=True, slots=True)
class MixChoice(Planned):
    """The one setting for a mix of loads: the simplest that no other one surely beats."""

    weights: dict[int, float]  # share of the time by load
    output_tps: float  # over the mix
    gain: Interval
    probability_fastest: float  # among single settings, as is the regret
    regret: float
