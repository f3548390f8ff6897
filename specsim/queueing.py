"""Poisson arrivals at one server: who waits how long, in closed form.

Prompts come in gates: an interval is a round without prompts or a step that computes k of them,
and those that arrive meanwhile are the next one's,

    k' ~ Poisson(rate I(k))                                                            (GATED)

a Markov chain that is solved as it stands: how long a round lasts with all that comes between two
rounds, how long a prompt waits, how long the prompts behind it keep it from decoding. Decoding is
processor sharing whose speed depends on the batch m, with L(m) that length of a round,

    pi(m) m / (R L(m)) = rate pi(m - 1)                                          (BIRTH-DEATH)

whatever the distribution of R, the rounds of a request [@cohen1979]. Beyond the cap requests queue
and leave at the capacity; as lengths are not exponential, the wait of this chain is multiplied by
(1 + cv^2) / 2 [@lee1959].

Valid where the load is below the capacity. Approximated: the two chains know each other by their
means, slots that prompts take do not hold prompts up.
"""

from dataclasses import dataclass, replace
from math import ceil, lgamma
from typing import Self

import numpy as np

from specsim.arrays import Floats

PROMPTS = 64  # most prompts of one interval that are told apart

LEAST_PROMPTS = 32
"""And at least so many, where few come in a round."""

NODES = 6  # lengths of a round at which the chain of prompts is solved; linear between them


@dataclass(frozen=True, slots=True)
class Station:
    """What requests meet at one server; times in seconds."""

    rate: float  # arrivals per second, below `capacity`
    capacity: float  # requests per second with a queue that never empties
    rounds: float  # of a request
    lag: float  # rounds that a finished request stays
    input_cv: float
    output_cv: float
    round_s: Floats  # of 1, 2, .. decoding requests, up to the cap
    prefill_s: Floats  # of 1 .. `PROMPTS` prompts together, nobody decoding
    joined_s: Floats | None  # what so many add to a round; None where prefill comes first
    steps: Floats  # that so many take, fractional beyond the first


@dataclass(frozen=True, slots=True)
class Stay:
    """Means over requests, and of the running requests over time."""

    batch: float
    first_s: float  # from arrival to the first token
    decode_s: float  # from the first token to the last


def stay(station: Station) -> Stay:
    """Follow a request through the station (GATED, BIRTH-DEATH)."""
    s = _shortened(station)
    some = np.linspace(s.round_s.min(), s.round_s.max(), NODES)
    lengths = np.array([_Gate.of(s, float(t)).round_s for t in some])
    sizes = np.arange(1.0, len(s.round_s) + 1.0)
    alone = s.round_s
    with_prompts = np.interp(alone, some, lengths)
    if s.joined_s is None:  # those that a run of prefill steps brings decode side by side
        mates = ((with_prompts / alone) ** 2 - 1.0) / (1.0 + s.output_cv**2)
        alone = np.interp(sizes + mates, sizes, alone)
        with_prompts = np.interp(alone, some, lengths)
    after = with_prompts - alone if s.joined_s is None else 0.0 * alone  # no part of the last round
    held = np.maximum((s.rounds + s.lag) * with_prompts - after, 1e-12)
    first = float(s.prefill_s[0])
    if s.joined_s is None:  # and of the prompts that come meanwhile
        value = _Gate.of(s, float(s.round_s[0])).value()
        first = float(value[1] - value[0])
    decoding, idle, queue = _birth_death(s, sizes, held, s.rate * first)
    mean = float(decoding @ sizes)
    gate = _Gate.of(s, float(np.interp(mean / max(decoding.sum(), 1e-12), sizes, s.round_s)))
    wait, own, stall = gate.of_one(s, idle)
    seen = decoding * sizes / max(mean, 1e-300)
    share = float(seen @ np.clip((s.rounds * with_prompts - after) / held, 0.0, 1.0))
    decode_s = mean / s.rate * share + stall if s.rounds > 0 else 0.0
    queue_s = queue / s.rate * (1.0 + s.output_cv**2) / 2.0
    return Stay(mean + s.rate * (own + stall), queue_s + wait + own, decode_s)


def _shortened(s: Station) -> Station:
    """Leave out gates of more prompts than come: three times those that can end in a round."""
    most = 8 + 3 * len(s.round_s) / max(s.rounds + s.lag, 1.0)
    kept = slice(min(PROMPTS, max(LEAST_PROMPTS, ceil(most))))
    joined = None if s.joined_s is None else s.joined_s[kept]
    return replace(s, prefill_s=s.prefill_s[kept], joined_s=joined, steps=s.steps[kept])


def _birth_death(
    s: Station, sizes: Floats, held: Floats, first: float
) -> tuple[Floats, float, float]:
    """Return P(m decode) for m = 1, 2, .., P(idle) and the mean queue.

    After an idle time nobody decodes until the first prompts are computed: `first` arrivals.
    """
    births = np.full(len(sizes), s.rate)
    births[0] *= 1.0 + first
    log = np.concatenate([[0.0], np.cumsum(np.log(births * held / sizes))])
    p = np.exp(log - log.max())
    load = s.rate / s.capacity
    queued = p[-1] * load / (1.0 - load)
    total = p.sum() + queued + p[0] * first
    decoding = p[1:] / total
    decoding[-1] += queued / total
    return decoding, float(p[0] / total), float(queued / (1.0 - load) / total)


@dataclass(frozen=True, slots=True)
class _Gate:
    """The chain of prompts at one length of a round, arrays over k = 0, 1, .. prompts."""

    length_s: Floats  # I(k), mean over the lengths of prompts
    sd_s: Floats  # and their standard deviation
    next_k: Floats  # (k, k') probabilities
    share: Floats  # of the intervals
    rounds: Floats  # that decoding requests get in an interval
    round_s: float  # mean time per round, prompts included

    @classmethod
    def of(cls, s: Station, round_s: float) -> Self:
        first, most = s.joined_s is None, len(s.steps)
        rounds = np.append(1.0, np.zeros(most) if first else s.steps)
        prompts_s = s.prefill_s if s.joined_s is None else s.joined_s
        length = np.append(round_s, prompts_s + (0.0 if first else rounds[1:] * round_s))
        each = (prompts_s[-1] - prompts_s[0]) / (most - 1.0)
        sd = s.input_cv * each * np.sqrt(np.arange(most + 1.0))
        next_k = _poisson(s.rate * length)
        if s.input_cv > 0:  # three points with the first five moments of a normal
            spread = 3.0**0.5 * sd
            shorter, longer = (_poisson(s.rate * (length + x).clip(0.0)) for x in (-spread, spread))
            next_k = (4.0 * next_k + shorter + longer) / 6.0
        balance = next_k.T - np.eye(most + 1)
        balance[-1] = 1.0
        share: Floats = np.linalg.solve(balance, np.append(np.zeros(most), 1.0)).clip(0.0)
        mean = float(share @ length / max(share @ rounds, 1e-12))
        return cls(length, sd, next_k, share, rounds, mean)

    def value(self) -> Floats:
        """Time beyond `round_s` per round of all intervals from k on (Poisson's equation)."""
        chain = np.eye(len(self.share)) - self.next_k + self.share
        return np.asarray(np.linalg.solve(chain, self.length_s - self.round_s * self.rounds))

    def of_one(self, s: Station, idle: float) -> tuple[float, float, float]:
        """Mean wait for one's own step, time until it gives the first token, and stall after it.

        The stall is what decoding takes beyond `round_s` per round, for the intervals that
        follow one's own are longer than the mean.
        """
        met = self.length_s[1:] * (1.0 + 1.0 / s.steps) / 2.0
        value = self.value()
        behind = value[1:] + self.round_s * self.rounds[1:] - met
        behind -= value[0] if s.joined_s is None else 0.0
        at = self.share * self.length_s
        at /= at.sum()
        if s.joined_s is None:  # prefill takes its share of the time, idle or not
            at[0] = max(0.0, at[0] - idle)
        else:
            at *= 1.0 - idle
        idle = 1.0 - float(at.sum())
        own = at @ self.next_k[:, :-1]  # of others, one's own added
        wait = float(at @ (self.length_s + self.sd_s**2 / self.length_s)) / 2.0
        if s.joined_s is None:
            own[0] += idle
            return wait, float(own @ met), float(own @ behind)
        return wait, float(own @ met) + idle * float(s.prefill_s[0]), float(own @ behind)


_LOG_FACTORIAL = np.array([lgamma(k + 1.0) for k in range(PROMPTS + 1)])


def _poisson(mean: Floats) -> Floats:
    """P(k) for k = 0, 1, .. in each of as many rows, the last with all beyond."""
    k = np.arange(len(mean))
    log = k * np.log(np.maximum(mean, 1e-300))[:, None] - mean[:, None] - _LOG_FACTORIAL[k]
    p: Floats = np.exp(log)
    p[:, -1] += np.maximum(1.0 - p.sum(axis=1), 0.0)
    return p
