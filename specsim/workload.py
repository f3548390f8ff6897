"""What clients ask of the server: lengths, and how the load is applied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from specsim.errors import InputError
from specsim.uncertainty import Evidence


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of token counts."""

    mean: float  # tokens; at least 1 for outputs; an empty prompt is one token, where texts begin
    cv: float = 0.0  # coefficient of variation; 0 is one length, else a token and a lognormal rest

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and self.mean >= 0):
            raise InputError(f"length {self.mean}", "must be finite and >= 0", "give tokens")
        if not (math.isfinite(self.cv) and 0 <= self.cv <= 10):
            raise InputError(f"length cv {self.cv}", "must lie in 0..10", "0 is a fixed length")

    @property
    def spread(self) -> float:
        """Coefficient of variation: of a single token it is 0, whatever `cv` says."""
        return self.cv if self.mean > 1 else 0.0

    def at(self, share: NDArray[np.float64], least: float = 1.0) -> NDArray[np.float64]:
        """Return the lengths at shares 0..1 of the distribution: `least` tokens and a rest.

        >>> Lengths(3.0, 0.5).at(np.array([0.5])).round(3).tolist()  # 1 + 2 / sqrt(1 + 0.75^2)
        [2.6]
        """
        rest = self.mean - least
        if self.cv == 0 or rest <= 0:
            return np.full(len(share), max(least, self.mean))
        normal = NormalDist()
        z = np.array([normal.inv_cdf(min(max(u, 1e-12), 1.0 - 1e-12)) for u in share.tolist()])
        variance = math.log1p((self.cv * self.mean / rest) ** 2)
        return np.asarray(least + rest * np.exp(math.sqrt(variance) * z - variance / 2))

    def equally_likely(self, count: int) -> NDArray[np.float64]:
        """Return lengths that stand for the distribution; their mean is its mean."""
        return _equally_likely(self, count)


@lru_cache(maxsize=256)
def _equally_likely(lengths: Lengths, count: int) -> NDArray[np.float64]:
    if lengths.spread == 0:
        return lengths.at(np.zeros(1))
    values = lengths.at((np.arange(count) + 0.5) / count) - 1.0
    values *= (lengths.mean - 1.0) / values.mean()
    values += 1.0
    values.setflags(write=False)  # cached and shared
    return values


FIXED_LENGTH = ("random", "synthetic", "sonnet", "prefix", "generated", "decode")
"""In the names of datasets whose answers are cut at one length (`ignore_eos`)."""

NATURAL_CV = 0.5
"""Coefficient of variation of answers that the model ends itself, where none is stated.

Eighty answers to MT-Bench on four servers, 190 tokens long on average: with one length all requests
stay in step and no prompt stalls the others' decoding, so that what it costs is taken for growth of
a step (a correction of 24 %); with 0.2 to 0.7 that is gone, and speculating cells that were 18.6,
9.2, 8.0 and 6.8 % off are 9, 6, 4 and 5 % off [@public-servers]."""


def answer_cv(dataset: str, mean_len: float | None) -> float:
    """Return the coefficient of variation of answers where their dataset and mean are known.

    A mean that is a power of two is the limit that was set (`max_tokens`), and every answer was cut
    there: answers that end by themselves are not 256 tokens long on average.

    >>> answer_cv("mt-bench", 190), answer_cv("gsm8k", 256), answer_cv("random", 190)
    (0.5, 0.0, 0.0)
    """
    cut = mean_len is not None and mean_len >= 1 and math.log2(mean_len).is_integer()
    fixed = cut or not dataset or any(name in dataset.lower() for name in FIXED_LENGTH)
    return 0.0 if fixed else NATURAL_CV


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests: prompt and answer lengths, prefix-cache hits, and what they are about."""

    input_len: Lengths
    output_len: Lengths
    input_cached: float = 0.0  # mean prompt tokens served from the prefix cache
    dataset: str = ""  # acceptance belongs to it, and to the temperature
    temperature: float = 0.0
    evidence: Evidence = "assumed"  # what the lengths rest on
    shared_prefix_len: float = 0.0  # prompt tokens that all requests share: one copy in the pool

    def __post_init__(self) -> None:
        if self.output_len.mean < 1:
            why = "must be at least 1"
            raise InputError(f"output length {self.output_len.mean}", why, "give tokens")
        for what, tokens, remedy in (
            ("cached input", self.input_cached, "give the prompt tokens found in the prefix cache"),
            ("shared prefix", self.shared_prefix_len, "give the tokens that all requests share"),
        ):
            if not 0 <= tokens <= self.input_len.mean:
                why = f"must lie in 0..{self.input_len.mean}, the input length"
                raise InputError(f"{what} {tokens}", why, remedy)

    @property
    def assumed_lengths(self) -> str:
        """What to say of the lengths where they are assumed."""
        cv = self.output_len.cv
        return (
            f"prompt and answer lengths are assumed: {self.input_len.mean:g} "
            f"({self.input_cached:g} cached) and {self.output_len.mean:g} tokens"
            + (f", answers spread by {100 * cv:.0f} %" if cv else "")
        )


LoadKind = Literal["closed_loop", "open_loop", "steady_decode"]


@dataclass(frozen=True, slots=True)
class Load:
    """One load level.

    ``closed_loop``: `concurrency` clients, each sends its next request when the last one is
    answered; ``open_loop``: Poisson arrivals at `request_rate`; ``steady_decode``: a batch of
    `concurrency` held at `context_len`, no prefill inside the window.
    """

    kind: LoadKind = "closed_loop"
    concurrency: int = 1  # clients in flight, or the held batch
    request_rate: float | None = None  # requests per second (open loop)
    num_requests: int | None = None  # of the run, ramp and drain included; None: steady state
    context_len: float | None = None  # KV tokens per request as the window begins (steady decode)
    window_s: float | None = None  # length of the window (steady decode); the KV grows within it

    def __post_init__(self) -> None:
        for name, kind in (
            ("request_rate", "open_loop"),
            ("context_len", "steady_decode"),
            ("window_s", "steady_decode"),
        ):
            if getattr(self, name) is not None and self.kind != kind:
                what = f"{name} {getattr(self, name)} of a {self.kind}"
                raise InputError(what, "would be ignored", f'leave it out, or give kind="{kind}"')
        if self.kind == "open_loop":
            if self.request_rate is None or not (
                math.isfinite(self.request_rate) and self.request_rate > 0
            ):
                why = "must be positive"
                raise InputError(f"request rate {self.request_rate}", why, "give requests/s")
        elif self.concurrency < 1:
            why = "must be at least 1"
            raise InputError(f"concurrency {self.concurrency}", why, "give clients in flight")


MOST_SECONDS = 1e6
MOST_LEVEL = 1e5
MOST_PERIODS = 10_000
MOST_REQUESTS = 1_000_000  # of a varying load: beyond them it is surely a mistake

Unit = Literal["clients", "requests_per_s"]


@dataclass(frozen=True, slots=True)
class VaryingLoad:
    """A load that changes: clients in flight, or Poisson arrivals, along straight lines over time.

    >>> up_and_down = VaryingLoad.ramp((1, 64, 1), 600)
    >>> up_and_down.reaches(32.5, after_s=0.0)
    150.0
    """

    kind: Literal["ramp", "burst"]  # for people
    unit: Unit
    time_s: tuple[float, ...]  # corners of the course, from 0 on; two of one time are a jump
    level: tuple[float, ...]  # at the corners

    def __post_init__(self) -> None:
        times, levels = np.array(self.time_s, dtype=float), np.array(self.level, dtype=float)
        if len(times) != len(levels) or len(times) < 2 or not np.isfinite(times).all():
            raise InputError(f"{self.kind} of {len(times)} times", "has no course", "give corners")
        if times[0] != 0 or (np.diff(times) < 0).any() or not 0 < times[-1] <= MOST_SECONDS:
            why = f"must begin at 0, rise and last at most {MOST_SECONDS:g} s"
            remedy = "give a duration, e.g. @600s"
            raise InputError(f"{self.kind} from {times[0]:g} to {times[-1]:g} s", why, remedy)
        if not np.isfinite(levels).all() or (levels < 0).any() or levels.max() > MOST_LEVEL:
            what = f"{self.kind} of {levels.min():g}..{levels.max():g} {self.words}"
            why = f"must lie in 0..{MOST_LEVEL:g}"
            raise InputError(what, why, "give clients in flight or requests/s")
        least = 1.0 if self.unit == "clients" else 0.0
        if levels.max() < least or self.mean <= 0:
            why = "sends nothing"
            raise InputError(f"{self.kind} up to {levels.max():g} {self.words}", why, "give more")

    @classmethod
    def ramp(cls, levels: Sequence[float], duration_s: float, unit: Unit = "clients") -> Self:
        """Go from level to level, in equal times."""
        times = np.linspace(0.0, duration_s, max(2, len(levels))).tolist()
        return cls("ramp", unit, tuple(times), tuple(map(float, levels)))

    @classmethod
    def burst(
        cls,
        base: float,
        peak: float,
        burst_s: float,
        period_s: float,
        duration_s: float,
        unit: Unit = "requests_per_s",
    ) -> Self:
        """Stay at a base level, with a burst of `burst_s` at the end of every period."""
        if not 0 < burst_s < period_s <= duration_s <= MOST_PERIODS * period_s:
            what = f"bursts of {burst_s:g} s every {period_s:g} s in {duration_s:g} s"
            why = f"do not fit, or are more than {MOST_PERIODS}"
            raise InputError(what, why, "write e.g. burst:1..20/s,10s/60s@600s")
        times, levels = [0.0], [base]
        for end in np.arange(1, math.floor(duration_s / period_s) + 1) * period_s:
            begin = float(end) - burst_s
            times += [begin, begin, float(end), float(end)]
            levels += [base, peak, peak, base]
        times.append(duration_s)
        levels.append(base)
        return cls("burst", unit, tuple(times), tuple(map(float, levels)))

    @property
    def words(self) -> str:
        """The unit as people write it."""
        return "clients" if self.unit == "clients" else "requests/s"

    @property
    def duration_s(self) -> float:
        """When nothing more is sent."""
        return self.time_s[-1]

    @property
    def mean(self) -> float:
        """Mean level over the duration."""
        return float(np.trapezoid(self.level, self.time_s)) / self.time_s[-1]

    @property
    def label(self) -> str:
        """What it is, in a few words."""
        low, high = min(self.level), max(self.level)
        return f"{self.kind} of {low:g}..{high:g} {self.words} over {self.duration_s:g} s"

    def reaches(self, level: float, after_s: float) -> float:
        """Return the first time from `after_s` on at which a level is reached; inf for never."""
        corners = zip(self.time_s, self.level, self.time_s[1:], self.level[1:], strict=False)
        for t0, v0, t1, v1 in corners:
            if t1 < after_s or t1 <= t0 or max(v0, v1) < level:
                continue
            begin = max(t0, after_s)
            here = v0 + (v1 - v0) * (begin - t0) / (t1 - t0)
            if here >= level - 1e-9:
                return begin
            if v1 > v0:
                return t0 + (level - v0) / (v1 - v0) * (t1 - t0)
        return math.inf

    def arrivals(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw Poisson arrivals whose rate is the level, seconds, rising.

        The integral of the rate up to each arrival grows by exponential steps of mean 1.
        """
        times, rates = np.array(self.time_s), np.array(self.level)
        pieces = np.diff(times) * (rates[1:] + rates[:-1]) / 2
        total = np.concatenate([[0.0], np.cumsum(pieces)])
        if total[-1] > MOST_REQUESTS:
            why = f"is more than {MOST_REQUESTS} requests"
            raise InputError(f"{self.label}", why, "give a shorter one")
        steps = int(total[-1] + 8 * math.sqrt(total[-1]) + 16)
        due = np.cumsum(rng.exponential(1.0, steps))
        due = due[due < total[-1]]
        piece = np.searchsorted(total, due, side="right") - 1
        span, first, last = np.diff(times)[piece], rates[:-1][piece], rates[1:][piece]
        left, slope = due - total[piece], (last - first) / np.where(span > 0, span, 1.0)
        root = np.sqrt(np.maximum(first**2 + 2 * slope * left, 0.0))  # of first s + slope s^2 / 2
        return np.asarray(times[piece] + 2 * left / np.maximum(first + root, 1e-300))
