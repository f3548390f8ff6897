"""What a simulation says: records of a run, and their summary over a measuring window."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from specsim.arrays import Flags, Floats
from specsim.metrics import Records, Spread, itl_s, tpot_s, ttft_s
from specsim.simulate.course import Course
from specsim.simulate.pricing import RoundPricer
from specsim.simulate.records import Deliveries, Tables


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Records of a run and their summary over the measuring window; times in seconds."""

    requests: Records  # rows of `metrics.REQUEST_DTYPE`, all that were issued
    # rows of `records.ROUND_DTYPE`, `PREFILL_DTYPE`, `RETRACTION_DTYPE`; empty if not recorded
    rounds: Records
    prefills: Records
    retractions: Records
    window_s: tuple[float, float]  # start and end of the measuring window
    output_tps: float  # tokens delivered in the window per second
    # Its standard error by batch means; NaN for a run with ramp and drain, which is one sample.
    # Without speculation, requests of exactly one length that meet once stay together, and how
    # they met at the start is not in it: 0.1 % of the output at 1024 + 512 tokens, up to 1 % at
    # 128 + 128.
    output_tps_se: float
    batch_size: float  # slots taken, averaged over the window
    round_s: float  # mean length of a round, prefill left out
    accept_length: float  # tokens emitted per request and round
    # over the requests that are marked as measured
    tpot_s: float
    tpot_p50_s: float
    tpot_p99_s: float
    ttft_s: float  # as the next two, NaN where nothing is prefilled
    ttft_p50_s: float
    ttft_p99_s: float
    pricers: tuple[RoundPricer, ...]  # what rounds were priced with, by their gear
    deliveries: Deliveries
    switches: int = 0  # how often a policy changed the setting, ramp and drain included

    @property
    def measured(self) -> Records:
        """The requests that the summary is over."""
        measured: Records = self.requests[self.requests["measured"]]
        return measured

    def itl_s(self, per_chunk: bool = False) -> Floats:
        """Gaps between tokens over all measured requests, seconds (ITL); needs the rounds."""
        d, end_s = self.deliveries, self.rounds["end_s"]
        gaps = []
        last = self.requests["first_token_s"].copy()
        bounds = zip(d.request, d.first_round, d.rounds, d.starts, strict=True)
        for request, first, rounds, start in bounds:
            if self.requests["measured"][request]:
                ends = end_s[first : first + rounds]
                tokens = d.tokens[start : start + rounds]
                gaps.append(itl_s(float(last[request]), ends, tokens, per_chunk))
                last[request] = ends[-1]
        return np.concatenate(gaps) if gaps else np.zeros(0)


@dataclass(frozen=True, slots=True)
class Window:
    """When to measure throughput, and which requests to measure latencies on."""

    start_s: float
    end_s: float
    measured: Flags  # per request
    # balanced: measured between the nearest bounds of one balance; sampled: as it is; whole: ramp
    # and drain, a single sample without a standard error
    kind: Literal["balanced", "sampled", "whole"]


def summarise(
    course: Course,
    requests: Records,
    tables: Tables,
    window: Window,
    pricers: tuple[RoundPricer, ...],
) -> SimulationResult:
    """Measure a run over a window."""
    start_s, end_s = window.start_s, window.end_s
    if window.kind == "balanced":
        start_s, end_s = course.balanced(start_s, end_s)
    requests["measured"] = window.measured
    error = math.nan
    if window.kind != "whole":
        error = course.rate_error(start_s, end_s, window.kind == "balanced")

    def mean(name: str, count: str) -> float:
        counted = course.between(count, start_s, end_s)
        return course.between(name, start_s, end_s) / counted if counted else math.nan

    slot_s = course.slot_s(end_s) - course.slot_s(start_s)
    ttft = Spread.of(ttft_s(requests)[window.measured])
    tpot = Spread.of(tpot_s(requests)[window.measured])
    return SimulationResult(
        requests=requests,
        rounds=tables.rounds,
        prefills=tables.prefills,
        retractions=tables.retractions,
        window_s=(start_s, end_s),
        output_tps=course.rate(start_s, end_s),
        output_tps_se=error,
        batch_size=slot_s / (end_s - start_s) if end_s > start_s else math.nan,
        round_s=mean("decode_s", "rounds"),
        accept_length=mean("accepted", "active") + 1,
        tpot_s=tpot.mean,
        tpot_p50_s=tpot.p50,
        tpot_p99_s=tpot.p99,
        ttft_s=ttft.mean,
        ttft_p50_s=ttft.p50,
        ttft_p99_s=ttft.p99,
        pricers=pricers,
        deliveries=tables.deliveries,
    )
