"""What a simulation writes down while it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import simpy

if TYPE_CHECKING:
    from specsim.arrays import Floats


class Stretch(NamedTuple):
    """Rounds of one batch: their bounds, the batch, slots taken, the prefill in them, the gear."""

    bounds: Floats
    batch: int
    running: int
    prefill_s: float
    gear: int = 0


class PrefillStep(NamedTuple):
    """A prefill step: when, slots taken, prompts completed, tokens, pairs, whether mixed."""

    start_s: float
    end_s: float
    running: int
    prompts: int
    tokens: int
    pairs: float
    mixed: bool


class Segment(NamedTuple):
    """Rounds that a request ran without being thrown out."""

    request: int
    first_round: int
    rounds: int
    offset: int


class Retraction(NamedTuple):
    """A request thrown out of a full pool, and the tokens that will be computed again."""

    time_s: float
    request: int
    kv_tokens: int


@dataclass(slots=True)
class Prompt:
    """A prompt in prefill: how much is in the cache, and how much is still to do."""

    request: int
    done: int
    left: int


@dataclass(slots=True)
class Life:
    """What happens to a request; NaN for what has not yet."""

    arrival_s: float
    admitted_s: float = math.nan
    first_token_s: float = math.nan
    last_token_s: float = math.nan  # so far as no round has brought it
    finished_s: float = math.nan
    retractions: int = 0
    given: int = 0  # answer tokens before the current segment
    offset: int = 0  # drawn rounds before it
    first_round: int = -1
    rounds: int = 0  # of the current segment
    in_progress: bool = False
    answered: simpy.Event | None = None


@dataclass(slots=True)
class Log:
    """All that is recorded while it runs; lists of rows."""

    stretches: list[Stretch] = field(default_factory=list)
    prefills: list[PrefillStep] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    retractions: list[Retraction] = field(default_factory=list)
    completions: list[int] = field(default_factory=list)
