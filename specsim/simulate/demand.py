"""Requests as they are drawn: lengths, request quantiles and accepted tokens.

Each kind of number comes from a stream of its own, in blocks of a fixed size, so two settings that
are simulated under one seed see the same lengths and the same request quantiles, and two with the
same lengths the same accept draws. Lengths and quantiles are stratified: of each block of
requests every equally likely stratum gets one, in random order; but not in an open loop, whose
queue is made by many long answers that happen to come together. A request's accepted tokens are
drawn for its whole life at once, so it is known at admission in which round it will end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from specsim.acceptance import REQUESTS, AcceptTable
from specsim.simulate.arrivals import Trace
from specsim.workload import Lengths, Workload

if TYPE_CHECKING:
    from specsim.arrays import Floats, Ints

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
        self._ones = np.ones(0, dtype=np.int8)
        self.input_len: list[int] = []
        self.new_tokens: list[int] = []  # prompt tokens that the prefix cache does not hold
        self.output_len: list[int] = []
        # answer tokens before the first drawn round: 1, from the prefill; more for a request that
        # was in progress at the start
        self.given: list[int] = []
        self.rounds: list[int] = []  # until the answer is complete
        # of each of these rounds: tokens emitted, the last one's surplus included, and tokens in
        # the KV cache at its start
        self.tokens: list[NDArray[np.int8]] = []
        self.kv: list[Floats] = []
        self.gear: list[int] = []
        self._drawn: list[tuple[NDArray[np.int8], ...]] = []  # what each gear would emit

    def __len__(self) -> int:
        return len(self.rounds)

    def ensure(self, count: int) -> None:
        """Draw until at least `count` requests are known (a trace has no more than its rows)."""
        while len(self) < count:
            first = len(self)
            if self._trace is None:
                draw = drawn if self._independent else stratified
                inputs = draw(self._workload.input_len, self._streams.input_len, BLOCK)
                outputs = draw(self._workload.output_len, self._streams.output_len, BLOCK)
            else:
                rows = slice(first, first + BLOCK)
                inputs, outputs = self._trace.input_len[rows], self._trace.output_len[rows]
            quantile = self._quantiles(outputs) * len(self._tables[-1].survival) // REQUESTS
            self._append(inputs, outputs, np.ones_like(outputs), quantile)

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

    def in_progress(self, count: int) -> None:
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
        self._append(inputs, outputs, behind, quantile)

    def forget_after(self, count: int) -> None:
        """Keep only the first `count` of the requests in progress."""
        columns = (self.input_len, self.new_tokens, self.output_len, self.given, self.rounds)
        for column in (*columns, self.tokens, self.kv, self.gear, self._drawn):
            del column[count:]

    def _append(self, inputs: Ints, outputs: Ints, given: Ints, quantile: Ints) -> None:
        mean = self._workload.input_len.mean
        cached = np.rint(inputs * (self._workload.input_cached / mean if mean else 0.0))
        new = np.maximum(inputs - cached.astype(np.int64), 1)  # of a cached prompt, the last token
        need = outputs - given
        longest = int(need.max(initial=0))
        self.input_len += inputs.tolist()
        self.new_tokens += new.tolist()
        self.output_len += outputs.tolist()
        self.given += given.tolist()
        self.gear += [len(self._tables) - 1] * len(given)
        start = inputs + given
        if self._tables[-1].survival.shape[1] == 1:  # a token per round: all are views of two rows
            self.rounds += need.tolist()
            counting = int((start + need).max(initial=0))
            if counting > len(self._counting):
                self._counting = np.arange(2.0 * counting)
            if longest > len(self._ones):
                self._ones = np.ones(2 * longest, dtype=np.int8)
            self.tokens += [self._ones] * len(need)
            self.kv += [self._counting[first:] for first in start.tolist()]
            return
        uniform = self._streams.accept.random((len(quantile), longest))
        tokens = self._tables[-1].emitted(quantile, uniform)
        total = np.cumsum(tokens, axis=1)
        rounds = (total < need[:, None]).sum(axis=1) + (need > 0)
        keep = int(rounds.max(initial=0))
        total -= tokens
        self.rounds += rounds.tolist()
        self.tokens += list(tokens[:, :keep].astype(np.int8))
        self.kv += list((total[:, :keep] + start[:, None]).astype(np.float64))
        if len(self._tables) > 1:  # from the same numbers
            drawn = [table.emitted(quantile, uniform).astype(np.int8) for table in self._tables]
            self._drawn += list(zip(*drawn, strict=True))

    def change_gear(self, request: int, gear: int, done: int, need: int) -> int:
        """From its round `done` on, let a request emit what another gear gives.

        Returns the rounds until it has the `need` tokens that it still needs.
        """
        row = self._drawn[request][gear][done : done + need]
        total = np.cumsum(row, dtype=np.int64)
        left = int(np.searchsorted(total, need)) + 1 if need > 0 else 0
        row = row[:left]
        before = self.tokens[request][:done]
        start = self.input_len[request] + self.given[request] + int(before.sum())
        course = (total[:left] - row + start).astype(np.float64)
        self.tokens[request] = np.concatenate([before, row])
        self.kv[request] = np.concatenate([self.kv[request][:done], course])
        self.gear[request] = gear
        return left


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
