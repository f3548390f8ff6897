"""Requests as they are drawn: lengths, request quantiles and accepted tokens.

Each kind of number comes from a stream of its own, in blocks of a fixed size, so two settings that
are simulated under one seed see the same lengths and the same request quantiles, and two with the
same lengths the same accept draws. Lengths and quantiles are stratified: of each block of
requests every equally likely stratum gets one, in random order; but not in an open loop, whose
queue is made by many long answers that happen to come together. A request's accepted tokens are
drawn for its whole life at once, so it is known at admission in which round it will end.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.acceptance import REQUESTS, AcceptTable
from specsim.arrays import Floats, Ints
from specsim.simulate.arrivals import Answered, Trace
from specsim.workload import Lengths, Workload

BLOCK = 8 * REQUESTS
"""Requests drawn together."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Independent sources of randomness, one for each kind of number."""

    input_len: np.random.Generator
    output_len: np.random.Generator
    quantile: np.random.Generator
    accept: np.random.Generator
    arrival: np.random.Generator
    start: np.random.Generator

    @classmethod
    def of(cls, rng: np.random.Generator) -> Streams:
        """Spawn them; the caller's generator draws nothing."""
        return cls(*rng.spawn(6))


@dataclass(slots=True, eq=False)
class Request:
    """A request: what was drawn for it, and what has become of it (NaN: has not happened)."""

    input_len: int
    output_len: int
    new_tokens: int  # prompt tokens that the prefix cache does not hold
    given: int  # answer tokens before the current run of rounds
    rounds: int  # of the current run: until the answer is complete
    # of each drawn round: tokens emitted, the last one's surplus included, and tokens in the KV
    # cache at its start and, after the last, at the end
    emitted: NDArray[np.int16]
    kv: Floats
    gear: int
    drawn: tuple[NDArray[np.int16], ...] = ()  # what each gear would emit, where there are several
    request: int = -1  # its number
    behind: int = 0  # answer tokens that it had when the simulation began
    offset: int = 0  # drawn rounds before the current run
    first_round: int = -1  # of the current run
    done: int = 0  # prompt tokens in the cache while it is in prefill,
    left: int = 0  # and those still to compute
    retractions: int = 0
    arrival_s: float = math.nan
    admitted_s: float = math.nan
    first_token_s: float = math.nan
    last_token_s: float = math.nan
    finished_s: float = math.nan
    answered: Answered | None = None  # who waits for it

    @property
    def end(self) -> int:
        """Round after the last of its run."""
        return self.first_round + self.rounds

    @property
    def need(self) -> int:
        """Answer tokens that the current run has to bring."""
        return self.output_len - self.given

    @property
    def tokens(self) -> int:
        """Answer tokens delivered before the current run."""
        return self.given - self.behind

    def run(self, first: int, rounds: int) -> NDArray[np.int16]:
        """Tokens that it emits in so many rounds from round `first` on."""
        at = self.offset + first - self.first_round
        return self.emitted[at : at + rounds]

    def course(self, first: int, lag: int) -> Floats:
        """KV tokens in the rounds from `first` on, and in the one, if any, in which it lags.

        A prefill after a retraction gives a token more than was drawn.
        """
        at = self.offset + first - self.first_round
        course = self.kv[at : at + self.end - first + lag]
        if self.retractions:
            return np.minimum(course + self.retractions, self.input_len + self.output_len)
        return course

    def cut(self, now: int) -> NDArray[np.int16]:
        """End the run before round `now`, which begins another; returns what the old one gave."""
        ran = min(self.rounds, now - self.first_round)
        emitted = self.run(self.first_round, ran)
        self.given = self.output_len if ran == self.rounds else self.given + int(emitted.sum())
        self.offset += ran
        self.rounds -= ran
        self.first_round += ran
        return emitted

    def rejoin(self, now: int) -> None:
        """Begin another run in round `now`, with the draws that are left."""
        self.first_round = now
        if self.retractions:
            self.rounds = _rounds_of(self.emitted[self.offset :], self.need)

    def change_gear(self, gear: int, at: int) -> None:
        """From its drawn round `at` on, emit what another gear gives."""
        before = self.emitted[:at]
        need = self.need - int(before[self.offset :].sum())
        row = self.drawn[gear][at : at + max(need, 0)]
        left = _rounds_of(row, need)
        row = row[:left]
        total = np.zeros(left + 1)
        total[1:] = np.minimum(np.cumsum(row, dtype=np.int64), need)
        start = self.input_len + self.output_len - need - self.retractions
        self.emitted = np.concatenate([before, row])
        self.kv = np.concatenate([self.kv[:at], total + start])
        self.gear = gear
        self.rounds = at - self.offset + left


def _rounds_of(emitted: NDArray[np.int16], need: int) -> int:
    """Count the rounds until so many tokens are there."""
    if need <= 0:
        return 0
    return int(np.searchsorted(np.cumsum(emitted, dtype=np.int64), need)) + 1


class Demand:
    """Requests in the order in which they are issued, drawn as far as they are asked for.

    Each setting that a policy may choose among, a gear, has its accept table; without a policy
    there is one. A request has the tokens of the last gear until its gear is changed. Nothing is
    stratified where requests are `independent`.
    """

    def __init__(
        self,
        workload: Workload,
        tables: tuple[AcceptTable, ...],
        streams: Streams,
        trace: Trace | None = None,
        independent: bool = False,
    ) -> None:
        self._workload, self._tables, self._streams, self._trace = workload, tables, streams, trace
        self._independent = independent
        self._counting = np.arange(0.0)
        self._ones = np.ones(0, dtype=np.int16)
        self._ready: deque[Request] = deque()
        self._drawn = 0  # rows of the trace

    def next(self) -> Request:
        """Return the next request; a trace has no more than its rows."""
        if not self._ready:
            if self._trace is None:
                draw = drawn if self._independent else stratified
                inputs = draw(self._workload.input_len, self._streams.input_len, BLOCK)
                outputs = draw(self._workload.output_len, self._streams.output_len, BLOCK)
            else:
                rows = slice(self._drawn, self._drawn + BLOCK)
                inputs, outputs = self._trace.input_len[rows], self._trace.output_len[rows]
                self._drawn += BLOCK
            quantile = self._quantiles(outputs) * len(self._tables[-1].survival) // REQUESTS
            self._ready.extend(self._requests(inputs, outputs, np.ones_like(outputs), quantile))
        return self._ready.popleft()

    def _quantiles(self, outputs: Ints) -> Ints:
        """Give each `REQUESTS` neighbours in length one of each quantile, in random order."""
        count = len(outputs)
        if self._independent:
            return self._streams.quantile.integers(REQUESTS, size=count)
        strata = np.tile(np.arange(REQUESTS), (-(-count // REQUESTS), 1))
        quantile = np.empty(count, dtype=np.int64)
        by_length = np.argsort(outputs, kind="stable")
        quantile[by_length] = self._streams.quantile.permuted(strata, axis=1).ravel()[:count]
        return quantile

    def in_progress(self, count: int) -> list[Request]:
        """Draw `count` requests as they are met in a long run; call it before any other.

        A running request is met with a chance that grows with its length and with its rounds per
        token (renewal theory), and has a uniform share of its answer behind it.
        """
        output = self._workload.output_len
        met = Lengths(output.mean * (1.0 + output.spread**2), output.spread)
        start = self._streams.start
        inputs = stratified(self._workload.input_len, start, count)
        outputs = stratified(met, start, count, least=2.0)
        quantile = running_quantiles(self._tables[-1], start, count)
        behind = 1 + np.floor(start.random(count) * (outputs - 1)).astype(np.int64)
        requests = self._requests(inputs, outputs, behind, quantile)
        for request, tokens in zip(requests, behind.tolist(), strict=True):
            request.behind = tokens
        return requests

    def _requests(self, inputs: Ints, outputs: Ints, given: Ints, quantile: Ints) -> list[Request]:
        """Draw the rounds of requests that have so many answer tokens as they begin to decode."""
        mean = self._workload.input_len.mean
        cached = np.rint(inputs * (self._workload.input_cached / mean if mean else 0.0))
        new = np.maximum(inputs - cached.astype(np.int64), 1)  # of a cached prompt, the last token
        rounds, rows = self._rounds(inputs + given, outputs - given, quantile)
        columns = (inputs.tolist(), outputs.tolist(), new.tolist(), rounds.tolist(), rows)
        last = len(self._tables) - 1
        return [
            Request(input_len, output_len, new_tokens, 0, count, emitted, kv, last, every)
            for input_len, output_len, new_tokens, count, (emitted, kv, every) in zip(
                *columns, strict=True
            )
        ]

    def _rounds(self, start: Ints, need: Ints, quantile: Ints) -> tuple[Ints, list[Any]]:
        """Draw until so many tokens are there, with so many in the KV cache at the start.

        Returns the rounds, and for each request what it emits, what the KV cache holds, and what
        each gear would emit.
        """
        longest = int(need.max(initial=0))
        if self._tables[-1].survival.shape[1] == 1:  # a token per round: all are views of two rows
            most = int((start + need).max(initial=0)) + 1
            if most > len(self._counting):
                self._counting = np.arange(2.0 * most)
            if longest > len(self._ones):
                self._ones = np.ones(2 * longest, dtype=np.int16)
            return need, [(self._ones, self._counting[first:], ()) for first in start.tolist()]
        uniform = self._streams.accept.random((len(quantile), longest))
        slowest = float(self._tables[-1].per_request.min())
        likely = min(longest, math.ceil(1.1 * longest / slowest) + 8)
        for looked in (likely, longest):  # more is rarely needed
            tokens = self._tables[-1].emitted(quantile, uniform[:, :looked])
            total = np.cumsum(tokens, axis=1, dtype=np.int32)
            if looked and (total[:, -1] >= need).all():
                break
        rounds = (total < need[:, None]).sum(axis=1) + (need > 0)
        most = int(rounds.max(initial=0))
        kv = np.zeros((len(need), most + 1))
        np.minimum(total[:, :most], need[:, None], out=kv[:, 1:])
        kv += start[:, None]
        emitted = tokens[:, :most].copy()
        every: list[tuple[NDArray[np.int16], ...]] = [()] * len(need)
        if len(self._tables) > 1:  # from the same numbers
            gears = [table.emitted(quantile, uniform) for table in self._tables]
            every = list(zip(*gears, strict=True))
        return rounds, list(zip(emitted, kv, every, strict=True))


def stratified(lengths: Lengths, rng: np.random.Generator, count: int, least: float = 1.0) -> Ints:
    """Draw `count` whole lengths, one from each of as many equally likely strata, in random order.

    Each is distributed as `lengths` has it; their mean hardly varies.
    """
    share = (rng.permutation(count) + rng.random(count)) / count if lengths.cv else np.zeros(count)
    return _whole(lengths.at(share, least), rng)


def drawn(lengths: Lengths, rng: np.random.Generator, count: int) -> Ints:
    """Draw `count` whole lengths, each for itself."""
    return _whole(lengths.at(rng.random(count)), rng)


def _whole(lengths: Floats, rng: np.random.Generator) -> Ints:
    """Round up or down at random, so that the mean stays."""
    part = rng.random(len(lengths)) if (lengths % 1).any() else 0.0
    return np.floor(lengths + part).astype(np.int64)


def running_quantiles(table: AcceptTable, rng: np.random.Generator, count: int) -> Ints:
    """Draw the request quantiles of `count` requests that are running at some moment.

    Slow requests run longer, so they are met more often, in proportion to rounds per token; the
    mean of their tokens per round is then `table.accept_length`.
    """
    weight = 1.0 / table.per_request
    bounds = np.cumsum(weight) / weight.sum()
    strata = (rng.permutation(count) + rng.random(count)) / count
    return np.minimum(np.searchsorted(bounds, strata, side="right"), len(weight) - 1)
