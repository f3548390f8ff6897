"""How many rounds of decoding llama-server went through by when: all slots decode in one batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.logs.formats.llamacpp.requests import Request

if TYPE_CHECKING:
    from specsim.arrays import Floats, Ints

SWEEPS = 6
"""Of the iteration: more would follow the rounding of each request's rounds."""
AT_ONCE_S = 0.05
"""Slots that begin within this time of one another are in one batch."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A request with its times, s: launched, begun with the prompt, first token, end."""

    request: Request
    start_s: float
    begun_s: float
    first_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Rounds:
    """Rounds that a slot would have gone through by a time, had it decoded since the beginning."""

    times_s: Floats
    gone: Floats

    def between(self, begin_s: float, end_s: float) -> float:
        """Return the rounds between two times."""
        by = np.interp([begin_s, end_s], self.times_s, self.gone)
        return float(by[1] - by[0])


def with_times(
    requests: Iterable[Request], until_s: float
) -> tuple[tuple[Timed, ...], tuple[Timed, ...]]:
    """Return the requests of which the log counts the tokens, by end, and the others.

    Prompts that slots begin with at once are one batch. The first token of a request that the log
    does not count is taken to come after as much time per token of its batch as others took.
    """
    started = [(s, r) for r in requests if (s := r.start_s) is not None]
    batches: list[list[tuple[Request, float, float]]] = []
    latest_s = -np.inf
    for start_s, r in sorted(started, key=lambda pair: pair[0]):
        begun_s = start_s if r.begun_s is None else max(r.begun_s, start_s)
        if begun_s - latest_s > AT_ONCE_S:
            batches.append([])
        batches[-1].append((r, start_s, begun_s))
        latest_s = begun_s
    known, others = [], []
    filled = 0
    for batch in batches:
        tokens = sum(r.prompt_tokens or r.context_tokens or 1 for r, *_ in batch)
        for r, start_s, begun_s in batch:
            first_s = r.first_s
            if not r.known:
                others.append((r, start_s, begun_s, tokens))
            elif first_s is not None and r.end_s is not None:
                times_s = (min(start_s, first_s), min(begun_s, first_s), first_s, r.end_s)
                known.append(Timed(r, *times_s))
                filled += tokens
    each_s = sum(k.first_s - k.begun_s for k in known) / filled if filled else 0.0
    unknown = []
    for r, start_s, begun_s, tokens in others:
        end_s = max(until_s if r.closed_s is None else r.closed_s, start_s)
        begun_s = min(begun_s, end_s)
        first_s = min(begun_s + each_s * tokens, end_s)
        unknown.append(Timed(r, start_s, begun_s, first_s, end_s))
    return tuple(sorted(known, key=lambda k: k.end_s)), tuple(unknown)


def rounds_gone(known: Sequence[Timed], unknown: Sequence[Timed]) -> Rounds:
    """Find the rate of rounds that gives every request the rounds that it took.

    Before any request is looked at, a round lasts as long as a prefill while there is one, since
    both are one batch. Then the rate at each time is multiplied by the mean of (rounds taken /
    rounds by this rate) over the requests that decode at that time, a few times over: the
    expectation maximisation of Poisson counts (Vardi, Shepp and Kaufman 1985), stopped early.
    """
    decoding = [k for k in known if k.end_s > k.first_s and k.request.rounds]
    everyone = (*known, *unknown)
    times_s = np.unique([t for k in everyone for t in (k.begun_s, k.first_s, k.end_s)])
    if not decoding or len(times_s) < 2:
        return Rounds(np.zeros(1), np.zeros(1))
    lasting = np.diff(times_s)
    taken = np.array([k.request.rounds for k in decoding], dtype=np.float64)
    first = np.searchsorted(times_s, [k.first_s for k in decoding])
    last = np.searchsorted(times_s, [k.end_s for k in decoding])
    covering = np.maximum(_spread(np.ones(len(decoding)), first, last, len(times_s)), 1e-9)
    rate = _first_rate(everyone, times_s, float(taken.sum() / (lasting * covering).sum()))
    for _ in range(SWEEPS):
        gone = np.concatenate([[0.0], np.cumsum(rate * lasting)])
        factor = taken / np.maximum(gone[last] - gone[first], 1e-12)
        mean = _spread(factor, first, last, len(times_s)) / covering
        rate = rate * np.where(covering > 0.5, mean, 1.0)
    return Rounds(times_s, np.concatenate([[0.0], np.cumsum(rate * lasting)]))


def _first_rate(everyone: Sequence[Timed], times_s: Floats, rate: float) -> Floats:
    """One round per prefill while there is one; else the mean rate."""
    filling = [t for t in everyone if t.first_s > t.begun_s]
    begin = np.searchsorted(times_s, [t.begun_s for t in filling])
    end = np.searchsorted(times_s, [t.first_s for t in filling])
    wait_s = np.array([t.first_s - t.begun_s for t in filling])
    count = _spread(np.ones(len(filling)), begin, end, len(times_s))
    total_s = _spread(wait_s, begin, end, len(times_s))
    slow = np.full(len(count), rate)
    np.divide(count, total_s, out=slow, where=count > 0.5)
    return slow.clip(max=rate)


def _spread(value: Floats, begin: Ints, end: Ints, ticks: int) -> Floats:
    """Sum of the values whose interval covers each step between ticks."""
    step = np.zeros(ticks)
    np.add.at(step, begin, value)
    np.subtract.at(step, end, value)
    np.cumsum(step, out=step)
    return step[:-1]
