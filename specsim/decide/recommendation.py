"""What a recommendation says; fields as in ``specsim.recommendation/1``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from specsim.decide import HIDDEN, FreeFlag, LoadChoice, MixChoice, Planned
from specsim.question import Target

SCHEMA = "specsim.recommendation/1"

AdviceKind = Literal[
    "do-not-speculate",
    "raise-max-running-requests",
    "overlap-scheduler",
    "newer-release",
    "measure-first",
    "target-missed",
    "tie",
]


@dataclass(frozen=True, slots=True)
class Band(Planned):
    """Neighbouring loads with the same choice."""

    from_concurrency: int
    to_concurrency: int
    tied: bool  # whether another setting is as good at some of them
    choices: tuple[LoadChoice, ...] = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class Launch(Planned):
    """What to type for one plan; `flags` is empty where a file sets the engine."""

    flags: tuple[str, ...]  # of the speculation, the scheduler and the caps alone
    env: dict[str, str]
    command: str  # all of it, for a shell
    files: dict[str, str]  # that the command names: name and content
    missing: tuple[str, ...]  # variables of the shell that stand for paths: MODEL, DRAFTER


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
    largest_load: int | None  # clients up to which a setting meets them; None if none does
    settings_considered: int
    settings_compared: int  # those among them that were compared in detail
    loads: tuple[LoadChoice, ...]
    bands: tuple[Band, ...]
    free: tuple[FreeFlag, ...]  # launch flags that make a setting faster
    mix: MixChoice | None  # where a mix was given
    launch: tuple[Launch, ...]  # every recommended plan, once
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]
