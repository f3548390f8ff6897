"""What is asked of a server: settings, loads, requests, targets, and how far the choice goes."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from specsim.errors import InputError
from specsim.setting import SpecSetting
from specsim.workload import Lengths, Load, Workload

CONCURRENCY = (1, 2, 5, 10, 20, 30, 50, 70, 100, 150, 200, 250)
"""Loads that are shown if none are asked for."""

MOST_CLIENTS = 1_000_000

Metric = Literal["tpot", "ttft"]
Statistic = Literal["mean", "p50", "p99"]


@dataclass(frozen=True, slots=True)
class Target:
    """One latency target: `statistic` of `metric` at most `seconds`."""

    metric: Metric
    statistic: Statistic
    seconds: float

    @property
    def label(self) -> str:
        """As a person writes it."""
        tail = "" if self.statistic == "mean" else f"@{self.statistic}"
        return f"{self.metric} <= {1e3 * self.seconds:g} ms{tail}"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a server; None leaves it to the profile."""

    settings: tuple[SpecSetting, ...] = ()  # what is asked about
    concurrency: tuple[int, ...] = CONCURRENCY  # clients in flight
    request_rate: float | None = None  # Poisson arrivals per second instead of a closed loop
    input_len: float | None = None  # tokens
    output_len: float | None = None
    context_len: float | None = None  # steady decode at this many KV tokens per request
    engine_version: str | None = None
    max_running_requests: int | None = None
    dataset: str | None = None  # whose acceptance
    temperature: float | None = None
    what_if: bool = False  # model what the engine refuses
    max_draft_tokens: int = 64  # most that a candidate verifies per request, root included
    max_steps: int = 8  # its deepest draft
    max_topk: int = 8  # its widest tree
    targets: tuple[Target, ...] = ()  # latencies
    any_engine: bool = False  # later releases of the engine too
    mix: tuple[tuple[int, float], ...] = ()  # share of the time by load, for one setting for all
    measured: tuple[SpecSetting, ...] = ()  # what the profile was fitted to besides today's setting
    gpu_hour_price: float | None = None  # money per GPU and hour
    model_path: str | None = None  # of the model and
    draft_model: str | None = None  # of the drafter, for the launch line
    seed: int = 0  # of the Monte Carlo, and of simulations

    def __post_init__(self) -> None:
        if not self.concurrency:
            raise InputError("concurrency", "is empty", "give at least one load, e.g. 1,10,100")
        for c in self.concurrency:
            if not 1 <= c <= MOST_CLIENTS:
                why = f"must lie in 1..{MOST_CLIENTS}"
                raise InputError(f"concurrency {c}", why, "give clients in flight")
        numbers = {"request rate": self.request_rate, "context length": self.context_len}
        numbers |= {"input length": self.input_len, "output length": self.output_len}
        for name, value in numbers.items():
            if value is not None and not (math.isfinite(value) and 0 <= value <= 1e8):
                raise InputError(f"{name} {value}", "must be finite and >= 0", "give a number")
        limits = {"max draft tokens": (self.max_draft_tokens, 2, "the root counts")}
        limits["max steps"] = (self.max_steps, 1, "leave it out")
        limits["max topk"] = (self.max_topk, 1, "leave it out")
        for name, (most, least, remedy) in limits.items():
            if most < least:
                raise InputError(f"{name} {most}", f"must be at least {least}", remedy)
        for c, share in self.mix:
            if not 1 <= c <= MOST_CLIENTS or not share > 0:
                why = "needs a load of at least 1 and a positive share"
                raise InputError(f"mix {c}:{share}", why, "write e.g. 1:0.5,30:0.5")
        price = self.gpu_hour_price
        if price is not None and not price > 0:
            raise InputError(f"GPU hour price {price}", "must be positive", "or leave it out")

    @property
    def loads(self) -> tuple[Load, ...]:
        """The loads: arrivals, steady decode, or so many clients."""
        if self.request_rate is not None:
            return (Load("open_loop", 1, request_rate=self.request_rate),)
        if self.context_len is not None:
            return tuple(
                Load("steady_decode", c, context_len=self.context_len) for c in self.concurrency
            )
        return tuple(Load("closed_loop", c) for c in self.concurrency)

    def workload(self, base: Workload) -> Workload:
        """Return the requests of a profile with the lengths that are asked for.

        Lengths that are part of the question are not assumed; a prompt of another length finds
        nothing in the prefix cache.
        """
        work = base
        if self.input_len is not None and self.input_len != base.input_len.mean:
            lengths = replace(base.input_len, mean=self.input_len)
            shared = min(work.shared_prefix_len, self.input_len)
            work = replace(work, input_len=lengths, input_cached=0.0, shared_prefix_len=shared)
        if self.output_len is not None:
            work = replace(work, output_len=Lengths(self.output_len, base.output_len.cv))
        steady = self.context_len is not None and self.request_rate is None
        if steady or (self.input_len is not None and self.output_len is not None):
            work = replace(work, evidence="measured")
        return work
