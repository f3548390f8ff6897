"""What clients ask of the server: lengths, and how the load is applied."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specsim.errors import InputError
from specsim.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of token counts.

    Parameters
    ----------
    mean
        Mean, tokens; at least 1 for outputs, 0 allowed for inputs.
    cv
        Coefficient of variation; 0 gives fixed lengths, otherwise lognormal.
    """

    mean: float
    cv: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and self.mean >= 0):
            raise InputError(f"length {self.mean}", "must be finite and >= 0", "give tokens")
        if not (math.isfinite(self.cv) and 0 <= self.cv <= 10):
            raise InputError(f"length cv {self.cv}", "must lie in 0..10", "0 is a fixed length")

    def sample(self, rng: np.random.Generator, size: int, minimum: int = 1) -> NDArray[np.int64]:
        """Draw `size` whole lengths of at least `minimum` tokens."""
        if self.cv == 0 or self.mean == 0:
            return np.full(size, max(minimum, round(self.mean)), dtype=np.int64)
        sigma2 = math.log1p(self.cv**2)
        draws = rng.lognormal(math.log(self.mean) - sigma2 / 2, math.sqrt(sigma2), size)
        return np.maximum(minimum, np.rint(draws)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests: prompt and answer lengths, prefix-cache hits, and what they are about.

    Parameters
    ----------
    input_len, output_len
        Tokens per prompt and per answer.
    input_cached
        Mean prompt tokens served from the prefix cache.
    dataset, temperature
        Acceptance belongs to them.
    evidence
        What the lengths rest on.
    """

    input_len: Lengths
    output_len: Lengths
    input_cached: float = 0.0
    dataset: str = ""
    temperature: float = 0.0
    evidence: Evidence = "assumed"

    def __post_init__(self) -> None:
        if self.output_len.mean < 1:
            raise InputError(
                f"output length {self.output_len.mean}", "must be at least 1", "give tokens"
            )
        if not 0 <= self.input_cached <= self.input_len.mean:
            raise InputError(
                f"cached input {self.input_cached}",
                f"must lie in 0..{self.input_len.mean}, the input length",
                "give the mean number of prompt tokens found in the prefix cache",
            )


LoadKind = Literal["closed_loop", "open_loop", "steady_decode"]


@dataclass(frozen=True, slots=True)
class Load:
    """One load level.

    Parameters
    ----------
    kind
        ``closed_loop``: `concurrency` clients, each sends its next request when the last one is
        answered; ``open_loop``: Poisson arrivals at `request_rate`; ``steady_decode``: a batch
        of `concurrency` held at `context_len`, no prefill inside the window.
    concurrency
        Clients in flight (closed loop) or held batch (steady decode).
    request_rate
        Requests per second (open loop).
    num_requests
        Requests of the run; None is the steady state.
    context_len
        KV tokens per request at the start of the window (steady decode).
    window_s
        Length of the measuring window (steady decode); the KV grows within it.
    """

    kind: LoadKind = "closed_loop"
    concurrency: int = 1
    request_rate: float | None = None
    num_requests: int | None = None
    context_len: float | None = None
    window_s: float | None = None

    def __post_init__(self) -> None:
        if self.kind == "open_loop":
            if self.request_rate is None or not (
                math.isfinite(self.request_rate) and self.request_rate > 0
            ):
                raise InputError(
                    f"request rate {self.request_rate}", "must be positive", "give requests/s"
                )
        elif self.concurrency < 1:
            raise InputError(
                f"concurrency {self.concurrency}", "must be at least 1", "give clients in flight"
            )
