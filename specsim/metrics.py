"""What clients measure, defined once, from one row per request.

    TTFT = first_token - arrival                                                        (TTFT)
    TPOT = (last_token - first_token) / (tokens - 1), undefined for a single token      (TPOT)
    E2E  = finished - arrival                                                           (E2E)
    ITL  = gap between two deliveries; a round that brings m tokens counts as m gaps of
           gap / m each, or as one gap, as the client's library has it                  (ITL)
    goodput = requests per second that meet every target they were given                (GOODPUT)

SGLang's own client spreads a gap over its tokens, OpenAI-style clients and vLLM's record one gap
per chunk: with speculation the two differ by the accept length, TPOT does not. `finished` is when
the server lets go of the request; under an overlap scheduler that is a round after `last_token`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.arrays import Floats
from specsim.errors import InputError

Records = NDArray[np.void]

REQUEST_DTYPE = np.dtype(
    [
        # when things happened to it; NaN: not yet
        ("arrival_s", np.float64),
        ("admitted_s", np.float64),
        ("first_token_s", np.float64),
        ("last_token_s", np.float64),
        ("finished_s", np.float64),
        ("input_len", np.int32),
        ("output_len", np.int32),
        ("tokens", np.int32),  # delivered
        ("rounds", np.int32),  # that delivered them
        ("retractions", np.int32),  # how often it was thrown out and recomputed
        ("measured", np.bool_),  # whether it counts in the summary
    ]
)
"""A row per request, by its number."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of a time, seconds; NaN where nothing was measured."""

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: ArrayLike) -> Self:
        """Summarise, leaving NaN out.

        >>> Spread.of([1.0, 2.0, 3.0, float("nan")])
        Spread(mean=2.0, p50=2.0, p90=2.8, p99=2.98)
        """
        known = np.asarray(values, dtype=np.float64).ravel()
        known = known[~np.isnan(known)]
        if known.size == 0:
            return cls(math.nan, math.nan, math.nan, math.nan)
        mean = float(known.mean())
        p50, p90, p99 = np.percentile(known, (50, 90, 99), overwrite_input=True).tolist()
        return cls(mean, p50, p90, p99)


@dataclass(frozen=True, slots=True)
class Goodput:
    """Good requests per second, and their share."""

    requests_per_s: float
    share: float


def ttft_s(requests: Records) -> Floats:
    """Time to first token of each request, seconds (TTFT)."""
    return _between(requests, "arrival_s", "first_token_s")


def tpot_s(requests: Records) -> Floats:
    """Time per output token after the first, seconds; NaN for a single token (TPOT)."""
    gaps: Floats = requests["tokens"] - 1.0
    gaps[gaps <= 0] = math.nan
    seconds = _between(requests, "first_token_s", "last_token_s")
    seconds /= gaps
    return seconds


def e2e_s(requests: Records) -> Floats:
    """Time from arrival until the server lets go of each request, seconds (E2E)."""
    return _between(requests, "arrival_s", "finished_s")


def _between(requests: Records, first: str, last: str) -> Floats:
    seconds: Floats = requests[last] - requests[first]
    return seconds


def itl_s(
    first_token_s: float, delivered_s: ArrayLike, tokens: ArrayLike, per_chunk: bool = False
) -> Floats:
    """Gaps between the tokens of one request, seconds (ITL).

    Parameters
    ----------
    first_token_s
        When the first token came.
    delivered_s, tokens
        When each later chunk came, rising, and its tokens.
    per_chunk
        Whether a chunk counts as one gap instead of one per token.

    Examples
    --------
    >>> itl_s(1.0, [1.3, 1.4], [3, 1]).round(3).tolist()
    [0.1, 0.1, 0.1, 0.1]
    >>> itl_s(1.0, [1.3, 1.4], [3, 1], per_chunk=True).round(3).tolist()
    [0.3, 0.1]
    """
    times = np.asarray(delivered_s, dtype=np.float64)
    gaps = np.diff(times, prepend=first_token_s)
    if per_chunk:
        return gaps
    counts = np.asarray(tokens, dtype=np.int64)
    return np.repeat(gaps / np.maximum(counts, 1), counts)


TIMES = {"ttft": ttft_s, "tpot": tpot_s, "e2e": e2e_s}
"""What a target may be on."""


def goodput(requests: Records, limits_s: Mapping[str, float], duration_s: float) -> Goodput:
    """Count the requests that meet the targets (GOODPUT), within the time in which they finished.

    Parameters
    ----------
    requests
        Rows of `REQUEST_DTYPE`; those that have not finished are not good.
    limits_s
        What each of `TIMES` must not exceed, seconds; a request with a single token has no TPOT
        and meets any target on it.
    duration_s
        In which they finished.

    Raises
    ------
    InputError
        If the duration is not positive.
    """
    if not duration_s > 0:
        raise InputError(f"duration {duration_s}", "must be positive", "give seconds")
    good = ~np.isnan(requests["finished_s"])
    for name, limit_s in limits_s.items():
        good &= ~(TIMES[name](requests) > limit_s)
    share = float(good.mean()) if good.size else math.nan
    return Goodput(float(good.sum()) / duration_s, share)
