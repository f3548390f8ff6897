"""Requests as they are drawn: lengths, request quantiles and accepted tokens.

Each kind of number comes from a stream of its own, in blocks of a fixed size, so two settings that
are simulated under one seed see the same lengths and the same request quantiles, and two with the
same lengths the same accept draws. Lengths and quantiles are stratified: of each block of
requests every equally likely stratum gets one, in random order. A request's accepted tokens are
drawn for its whole life at once, so it is known at admission in which round it will end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.acceptance import REQUESTS, AcceptTable
from specsim.errors import InputError
from specsim.workload import Lengths, Workload

if TYPE_CHECKING:
    from specsim.arrays import Floats, Ints

BLOCK = 8 * REQUESTS
"""Requests drawn together."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests to replay; arrays of equal length, arrivals in rising order.

    Parameters
    ----------
    arrival_s
        When each request arrives, seconds >= 0.
    input_len, output_len
        Whole tokens, at least 0 and 1.

    Raises
    ------
    InputError
        If a value is out of range, or the arrays do not match.
    """

    arrival_s: Floats
    input_len: Ints
    output_len: Ints

    def __post_init__(self) -> None:
        shapes = {self.arrival_s.shape, self.input_len.shape, self.output_len.shape}
        if len(shapes) != 1 or self.arrival_s.ndim != 1 or self.arrival_s.size == 0:
            raise InputError(
                f"trace of {sorted(shapes)}",
                "needs columns of one length",
                "give a row per request",
            )
        if not np.isfinite(self.arrival_s).all() or (self.arrival_s < 0).any():
            raise InputError("trace arrivals", "must be finite and >= 0", "give seconds")
        if (np.diff(self.arrival_s) < 0).any():
            raise InputError("trace arrivals", "must be in rising order", "sort the rows")
        if (self.input_len < 0).any() or (self.output_len < 1).any():
            raise InputError(
                "trace lengths", "must be at least 0 in and 1 out", "give whole tokens"
            )

    @classmethod
    def of(cls, arrival_s: ArrayLike, input_len: ArrayLike, output_len: ArrayLike) -> Trace:
        """Build a trace from anything array-like."""
        return cls(
            np.asarray(arrival_s, dtype=np.float64),
            np.asarray(input_len, dtype=np.int64),
            np.asarray(output_len, dtype=np.int64),
        )


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

    Attributes
    ----------
    input_len, new_tokens, output_len
        Prompt, prompt tokens that the prefix cache does not hold, answer; tokens.
    given
        Answer tokens that precede the first drawn round: 1, from the prefill; more for a request
        that was in progress at the start.
    rounds
        Rounds until the answer is complete.
    tokens, kv
        For each of these rounds: tokens emitted (the last round's surplus included), and tokens
        in the KV cache at its start.
    gear, drawn
        With a policy (`gears`, the last of which is the table): the gear that each request's
        tokens are of, and what it would emit under each.
    """

    def __init__(
        self,
        workload: Workload,
        table: AcceptTable,
        streams: Streams,
        trace: Trace | None = None,
        gears: tuple[AcceptTable, ...] = (),
    ) -> None:
        self._workload, self._table, self._streams, self._trace = workload, table, streams, trace
        self._gears = gears
        self._counting = np.arange(0.0)
        self._ones = np.ones(0, dtype=np.int8)
        self.input_len: list[int] = []
        self.new_tokens: list[int] = []
        self.output_len: list[int] = []
        self.given: list[int] = []
        self.rounds: list[int] = []
        self.tokens: list[NDArray[np.int8]] = []
        self.kv: list[Floats] = []
        self.gear: list[int] = []
        self.drawn: list[tuple[NDArray[np.int8], ...]] = []

    def __len__(self) -> int:
        return len(self.rounds)

    @property
    def mean_output(self) -> float:
        """Mean answer in the long run, tokens; rounding to whole tokens moves it little."""
        lengths = self._workload.output_len
        return lengths.mean if lengths.cv else float(max(1, round(lengths.mean)))

    def ensure(self, count: int) -> None:
        """Draw until at least `count` requests are known (a trace has no more than its rows)."""
        while len(self) < count:
            first = len(self)
            if self._trace is None:
                inputs = self._inputs(self._streams.input_len, BLOCK)
                outputs = stratified(self._workload.output_len, self._streams.output_len, BLOCK)
            else:
                rows = slice(first, first + BLOCK)
                inputs, outputs = self._trace.input_len[rows], self._trace.output_len[rows]
            quantile = self._quantiles(outputs) * len(self._table.survival) // REQUESTS
            self._append(inputs, outputs, np.ones_like(outputs), quantile)

    def _quantiles(self, outputs: Ints) -> Ints:
        """Give each `REQUESTS` neighbours in length one of each quantile, in random order."""
        count = len(outputs)
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
        met = Lengths(output.mean * (1.0 + output.cv**2), output.cv)
        start = self._streams.start
        inputs, outputs = self._inputs(start, count), stratified(met, start, count, minimum=2)
        quantile = running_quantiles(self._table, start, count)
        behind = 1 + np.floor(start.random(count) * (outputs - 1)).astype(np.int64)
        self._append(inputs, outputs, behind, quantile)

    def forget_after(self, count: int) -> None:
        """Keep only the first `count` of the requests in progress."""
        for column in (
            self.input_len,
            self.new_tokens,
            self.output_len,
            self.given,
            self.rounds,
            self.tokens,
            self.kv,
            self.gear,
            self.drawn,
        ):
            del column[count:]

    def _inputs(self, rng: np.random.Generator, count: int) -> Ints:
        lengths = self._workload.input_len
        return stratified(lengths, rng, count, minimum=min(1, round(lengths.mean)))

    def _append(self, inputs: Ints, outputs: Ints, given: Ints, quantile: Ints) -> None:
        mean = self._workload.input_len.mean
        cached = np.rint(inputs * (self._workload.input_cached / mean if mean else 0.0))
        new = np.maximum(inputs - cached.astype(np.int64), np.minimum(inputs, 1))
        need = outputs - given
        longest = int(need.max(initial=0))
        self.input_len += inputs.tolist()
        self.new_tokens += new.tolist()
        self.output_len += outputs.tolist()
        self.given += given.tolist()
        self.gear += [len(self._gears) - 1] * len(given)
        start = inputs + given
        if self._table.survival.shape[1] == 1:  # a token per round: all rows are views of two
            self.rounds += need.tolist()
            self._lengthen(int((start + need).max(initial=0)), longest)
            self.tokens += [self._ones] * len(need)
            self.kv += [self._counting[first:] for first in start.tolist()]
            return
        if self._gears:
            tokens = self._draw_all(quantile, longest).astype(np.int64)
        else:
            tokens = self._table.emitted(
                quantile, self._streams.accept.random((len(quantile), longest))
            )
        total = np.cumsum(tokens, axis=1)
        rounds = (total < need[:, None]).sum(axis=1) + (need > 0)
        keep = int(rounds.max(initial=0))
        total -= tokens
        self.rounds += rounds.tolist()
        self.tokens += list(tokens[:, :keep].astype(np.int8))
        self.kv += list((total[:, :keep] + start[:, None]).astype(np.float64))

    def _draw_all(self, quantile: Ints, longest: int) -> NDArray[np.int8]:
        """Draw what requests emit under every gear, from the same numbers; returns the last."""
        uniform = self._streams.accept.random((len(quantile), longest))
        every = [table.emitted(quantile, uniform).astype(np.int8) for table in self._gears]
        self.drawn += list(zip(*every, strict=True))
        return every[-1]

    def change_gear(self, request: int, gear: int, done: int, need: int) -> int:
        """From its round `done` on, let a request emit what another gear gives.

        Parameters
        ----------
        request, gear
            Who, and the gear.
        done
            Drawn rounds that it has behind it.
        need
            Answer tokens that it still needs.

        Returns
        -------
        Rounds until it has them.
        """
        row = self.drawn[request][gear][done : done + need]
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

    def _lengthen(self, counting: int, ones: int) -> None:
        if counting > len(self._counting):
            self._counting = np.arange(2.0 * counting)
        if ones > len(self._ones):
            self._ones = np.ones(2 * ones, dtype=np.int8)


def stratified(lengths: Lengths, rng: np.random.Generator, count: int, minimum: int = 1) -> Ints:
    """Draw `count` lengths, one from each of as many equally likely strata, in random order.

    Each is distributed as :meth:`Lengths.sample` has it; their mean hardly varies.
    """
    if lengths.cv == 0 or lengths.mean == 0 or count == 0:
        return lengths.sample(rng, count, minimum)
    uniform = (rng.permutation(count) + rng.random(count)) / count
    normal = NormalDist()
    z = np.array([normal.inv_cdf(min(max(u, 1e-12), 1.0 - 1e-12)) for u in uniform.tolist()])
    variance = math.log1p(lengths.cv**2)
    drawn = lengths.mean * np.exp(math.sqrt(variance) * z - variance / 2)
    return np.maximum(minimum, np.rint(drawn)).astype(np.int64)


def running_quantiles(table: AcceptTable, rng: np.random.Generator, count: int) -> Ints:
    """Draw the request quantiles of `count` requests that are running at some moment.

    Slow requests run longer, so they are met more often, in proportion to rounds per token; the
    mean of their tokens per round is then `table.accept_length`.
    """
    weight = 1.0 / table.per_request
    bounds = np.cumsum(weight) / weight.sum()
    strata = (rng.permutation(count) + rng.random(count)) / count
    return np.minimum(np.searchsorted(bounds, strata, side="right"), len(weight) - 1)
