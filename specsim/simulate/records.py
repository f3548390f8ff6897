"""What a simulation writes down while it runs, and the tables that are made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specsim.arrays import Floats, Ints
from specsim.metrics import REQUEST_DTYPE, Records
from specsim.simulate.demand import Request

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

    start_s: float
    ends_s: Floats
    batch: int
    running: int
    prefill_s: float
    gear: int


class Segment(NamedTuple):
    """Rounds that a request ran on end."""

    request: int
    first_round: int
    emitted: NDArray[np.int16]  # tokens of each round
    need: int  # tokens that were left to deliver: what is beyond them is surplus


@dataclass(slots=True)
class Log:
    """What is recorded while a server runs, from round `first_round` on."""

    first_round: int = 0
    stretches: list[Stretch] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)  # that have ended
    begun_s: list[float] = field(default_factory=list)  # when first tokens came
    finished: list[Request] = field(default_factory=list)
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
    """Records of steps."""

    rounds: Records
    prefills: Records
    retractions: Records
    deliveries: Deliveries

    @classmethod
    def none(cls) -> Tables:
        """Return no rows."""
        return cls.of(Log(), np.zeros(0))

    @classmethod
    def of(cls, log: Log, kv: Floats) -> Tables:
        """Return the records of a log whose segments hold all of its rounds.

        `kv` are the tokens in the KV cache at the start of each round.
        """
        rounds = np.zeros(len(kv), dtype=ROUND_DTYPE)
        if stretches := log.stretches:
            counts = np.array([len(s.ends_s) for s in stretches])
            ends = np.concatenate([s.ends_s for s in stretches])
            rounds["end_s"], rounds["start_s"][1:] = ends, ends[:-1]
            rounds["start_s"][np.cumsum(counts) - counts] = [s.start_s for s in stretches]
            for name in ("batch", "running", "prefill_s", "gear"):
                rounds[name] = np.repeat([getattr(s, name) for s in stretches], counts)
            rounds["kv_tokens"] = kv
        return cls(
            rounds,
            np.array(log.prefills, dtype=PREFILL_DTYPE),
            np.array(log.retractions, dtype=RETRACTION_DTYPE),
            _deliveries([s for s in log.segments if len(s.emitted)], log.first_round, rounds),
        )


def _deliveries(segments: Sequence[Segment], before: int, rounds: Records) -> Deliveries:
    """Lay the emitted tokens of segments over the rounds; fills the rounds' counts in."""
    if not segments:
        return Deliveries.none()
    total = len(rounds)
    request, first, need = np.array(
        [(s.request, s.first_round - before, s.need) for s in segments]
    ).T
    count = np.array([len(s.emitted) for s in segments])
    tokens = np.concatenate([s.emitted for s in segments])
    result = Deliveries(request, first, count, tokens.astype(np.int64))
    last, starts = result.last_round, result.starts
    surplus = np.maximum(np.add.reduceat(result.tokens, starts) - need, 0)
    started = np.bincount(first, minlength=total + 1) - np.bincount(last + 1, minlength=total + 1)
    active = np.cumsum(started[:total])
    all_tokens = active
    if tokens.max() > 1:  # somebody speculates
        weights = result.tokens
        all_tokens = np.bincount(result.round_of_each(), weights, total).astype(np.int64)
    rounds["active"] = active
    rounds["accepted"] = all_tokens - active
    rounds["tokens"] = all_tokens - np.bincount(last, surplus, total).astype(np.int64)
    result.tokens[starts + count - 1] -= surplus
    return result


def enter(table: Records, requests: Sequence[Request]) -> Records:
    """Write requests into the table that has a row for each of them, by its number."""
    if not requests:
        return table
    place = np.array([r.request for r in requests])
    short = int(place.max()) + 1 - len(table)
    if short > 0:  # in place: a copy would double the memory of a long run
        table.resize(len(table) + max(short, len(table) // 32), refcheck=False)
    for name in REQUEST_DTYPE.names or ():
        if name == "rounds":
            table[name][place] = [r.offset for r in requests]
        elif name != "measured":
            table[name][place] = [getattr(r, name) for r in requests]
    return table
