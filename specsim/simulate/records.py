"""What a simulation writes down while it runs, and the tables that are made of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specsim.metrics import REQUEST_DTYPE, Records
from specsim.simulate.demand import Demand

if TYPE_CHECKING:
    import simpy

    from specsim.arrays import Floats, Ints

ROUND_DTYPE = np.dtype(
    [
        ("start_s", np.float64),
        ("end_s", np.float64),
        ("batch", np.int64),  # requests that decode
        ("running", np.int64),  # slots taken, prompts in prefill included
        ("active", np.int64),  # requests of the batch that are not finished
        ("kv_tokens", np.int64),  # at the start
        ("tokens", np.int64),  # delivered
        ("accepted", np.int64),  # drafts, those beyond a request's end included
        ("prefill_s", np.float64),  # time that mixed prompt chunks added
        ("gear", np.int64),  # which of a policy's settings it ran with, 0 without a policy
    ]
)
"""A row per round."""

PREFILL_DTYPE = np.dtype(
    [
        ("start_s", np.float64),
        ("end_s", np.float64),
        ("running", np.int64),  # slots taken
        ("prompts", np.int64),  # completed; each delivers a token
        ("tokens", np.int64),  # computed
        ("pairs", np.float64),  # (prompt token, KV token) pairs attended
        ("mixed", np.bool_),  # whether it was part of a round
    ]
)
"""A row per prefill step."""

RETRACTION_DTYPE = np.dtype(
    [
        ("time_s", np.float64),
        ("request", np.int64),
        ("kv_tokens", np.int64),  # that were computed again
    ]
)
"""A row per request that was thrown out of a full pool."""


# --- while it runs


class Stretch(NamedTuple):
    """Rounds of one batch."""

    bounds: Floats  # start of the first, ends of all
    batch: int
    running: int
    prefill_s: float
    gear: int


class Segment(NamedTuple):
    """Rounds that a request ran without being thrown out."""

    request: int
    first_round: int
    rounds: int
    offset: int  # drawn rounds before it


@dataclass(slots=True)
class Prompt:
    """A prompt in prefill."""

    request: int
    done: int  # tokens in the cache
    left: int  # tokens still to compute


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
    in_progress: bool = False  # when the run began
    answered: simpy.Event | None = None

    @property
    def end(self) -> int:
        """Round after the last of its segment."""
        return self.first_round + self.rounds


@dataclass(slots=True)
class Log:
    """All that is recorded while a server runs."""

    stretches: list[Stretch] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)  # that have ended
    completions: list[int] = field(default_factory=list)
    # rows of PREFILL_DTYPE and of RETRACTION_DTYPE
    prefills: list[tuple[float, float, int, int, int, float, bool]] = field(default_factory=list)
    retractions: list[tuple[float, int, int]] = field(default_factory=list)


# --- when it has ended


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Which rounds brought a request how many tokens: a row per uninterrupted run of rounds."""

    request: Ints
    first_round: Ints
    rounds: Ints
    tokens: Ints  # delivered in each of these rounds, run after run

    @classmethod
    def none(cls) -> Deliveries:
        """Return no rows."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(nothing, nothing, nothing, nothing)

    @property
    def last_round(self) -> Ints:
        """Last round of each row."""
        return self.first_round + self.rounds - 1

    @property
    def starts(self) -> Ints:
        """Where each row begins in `tokens`."""
        starts: Ints = np.cumsum(self.rounds) - self.rounds
        return starts

    def round_of_each(self) -> Ints:
        """Return the round of each entry of `tokens`."""
        return np.arange(len(self.tokens)) + np.repeat(self.first_round - self.starts, self.rounds)


@dataclass(frozen=True, slots=True)
class Tables:
    """All records of a run."""

    requests: Records  # rows of `metrics.REQUEST_DTYPE`
    rounds: Records
    prefills: Records
    retractions: Records
    deliveries: Deliveries

    @classmethod
    def of(
        cls, log: Log, lives: Sequence[Life], demand: Demand, kv: Floats, waiting: Collection[int]
    ) -> Tables:
        """Return the records of a run that has ended; `log.segments` holds all rounds of it.

        `kv` are the tokens in the KV cache at the start of each round, `waiting` the requests
        whose prompt has yet to be computed, for the first time or again.
        """
        rounds = _round_bounds(log.stretches, kv)
        segments = [segment for segment in log.segments if segment.rounds > 0]
        deliveries = _deliveries(segments, lives, demand, rounds)
        return cls(
            _request_records(lives, demand, waiting, rounds, deliveries),
            rounds,
            np.array(log.prefills, dtype=PREFILL_DTYPE),
            np.array(log.retractions, dtype=RETRACTION_DTYPE),
            deliveries,
        )


def _round_bounds(stretches: Sequence[Stretch], kv: Floats) -> Records:
    rounds = np.zeros(len(kv), dtype=ROUND_DTYPE)
    if not stretches:
        return rounds
    counts = np.array([len(s.bounds) - 1 for s in stretches])
    rounds["start_s"] = np.concatenate([s.bounds[:-1] for s in stretches])
    rounds["end_s"] = np.concatenate([s.bounds[1:] for s in stretches])
    for name in ("batch", "running", "prefill_s", "gear"):
        rounds[name] = np.repeat([getattr(s, name) for s in stretches], counts)
    rounds["kv_tokens"] = kv
    return rounds


def _deliveries(
    segments: Sequence[Segment], lives: Sequence[Life], demand: Demand, rounds: Records
) -> Deliveries:
    """Lay the drawn tokens of all segments over the rounds; fills the rounds' counts in."""
    if not segments:
        return Deliveries.none()
    total = len(rounds)
    request, first, count, _ = np.array(segments).T
    drawn = demand.tokens
    tokens = np.concatenate([drawn[s.request][s.offset : s.offset + s.rounds] for s in segments])
    result = Deliveries(request, first, count, tokens.astype(np.int64))
    last, starts = result.last_round, result.starts
    emitted = np.add.reduceat(result.tokens, starts)
    surplus = _surplus(segments, lives, demand, emitted)
    started = np.bincount(first, minlength=total + 1) - np.bincount(last + 1, minlength=total + 1)
    active = np.cumsum(started[:total])
    all_tokens = active
    if emitted.sum() > len(tokens):  # somebody speculates
        weights = result.tokens
        all_tokens = np.bincount(result.round_of_each(), weights, total).astype(np.int64)
    rounds["active"] = active
    rounds["accepted"] = all_tokens - active
    rounds["tokens"] = all_tokens - np.bincount(last, surplus, total).astype(np.int64)
    result.tokens[starts + count - 1] -= surplus
    return result


def _surplus(
    segments: Sequence[Segment], lives: Sequence[Life], demand: Demand, emitted: Ints
) -> Ints:
    """Tokens that the last round of a finished request emits beyond its end, per segment."""
    own = [lives[s.request] for s in segments]
    ends = [
        s.first_round == life.first_round and s.rounds == life.rounds
        for s, life in zip(segments, own, strict=True)
    ]
    given = np.array([life.given for life in own])
    wanted = np.array([demand.output_len[s.request] for s in segments])
    return np.where(ends, given + emitted - wanted, 0)


def _request_records(
    lives: Sequence[Life],
    demand: Demand,
    waiting: Collection[int],
    rounds: Records,
    deliveries: Deliveries,
) -> Records:
    count = len(lives)
    table = np.zeros(count, dtype=REQUEST_DTYPE)
    table["request"] = np.arange(count)
    times = ("arrival_s", "admitted_s", "first_token_s", "last_token_s", "finished_s")
    for name in (*times, "retractions"):
        table[name] = [getattr(life, name) for life in lives]
    table["input_len"] = demand.input_len[:count]
    table["output_len"] = demand.output_len[:count]
    # a token from each prefill
    table["tokens"] = [life.retractions + (not life.in_progress) for life in lives]
    table["tokens"][list(waiting)] -= 1
    if len(deliveries.request):
        who = deliveries.request
        tokens = np.add.reduceat(deliveries.tokens, deliveries.starts)
        table["tokens"] += np.bincount(who, tokens, count).astype(np.int64)
        table["rounds"] = np.bincount(who, deliveries.rounds, count)
        np.fmax.at(table["last_token_s"], who, rounds["end_s"][deliveries.last_round])
    return table
