"""Measuring: windows, throughput with its standard error, latencies.

In a finite window more or fewer prompts than usual may come per token, which moves the throughput
where prefill is dear; the long-run ratio is known: one prompt per mean answer. So the window of a
steady state is put between two moments with the same balance

    D(t) = tokens delivered - mean answer * requests whose first token is out        (BALANCE)

and, among those, nearly as many requests between first token and end; the standard error is that
of batch means after regression on their imbalance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from specsim.acceptance import REQUESTS
from specsim.metrics import Records, Spread, itl_s, tpot_s, ttft_s
from specsim.simulate.phases import phase_records
from specsim.simulate.pricing import RoundPricer
from specsim.simulate.records import Deliveries, Tables

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats, Ints

BATCHES = 20
"""Most batches of the standard error by batch means."""

HELD = 0.25
"""Tokens per held slot in the balance: tells a batch with finished requests from one without."""

MARGIN = 0.25
"""Share of the steps at either end among which a balanced window is looked for."""


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
    ttft_s: float
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

    def phases(self, first: int = 0, last: int | None = None) -> Records:
        """Expand rounds `first` .. `last` and the prefill steps among them into phases.

        Returns
        -------
        Rows of `phases.PHASE_DTYPE`, in order of their start.
        """
        chosen, prefills = self.rounds[first:last], self.prefills
        if len(chosen) and (first or last is not None):
            inside = prefills["end_s"] > chosen["start_s"][0]
            prefills = prefills[inside & (prefills["start_s"] < chosen["end_s"][-1])]
        return phase_records(chosen, prefills, self.pricers, first)

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


@dataclass(frozen=True, slots=True)
class Course:
    """Delivery over time: at each step's end, what has been delivered so far."""

    time_s: Floats  # ends of rounds and prefill steps, rising
    tokens: Floats  # delivered by then
    begun: Ints  # requests whose first token is out
    balance: Floats  # D (BALANCE)

    @classmethod
    def of(cls, tables: Tables, mean_output: float) -> Course:
        """Add up the tables."""
        rounds, prefills = tables.rounds, tables.prefills
        times = np.concatenate([[0.0], rounds["end_s"], prefills["end_s"]])
        tokens = np.concatenate([[0], rounds["tokens"], prefills["prompts"]])
        order = np.argsort(times, kind="stable")
        time_s, total = times[order], np.cumsum(tokens[order]).astype(np.float64)
        first = np.sort(tables.requests["first_token_s"])
        finished = np.sort(tables.requests["finished_s"])
        begun = np.searchsorted(first, time_s, side="right")
        held = begun - np.searchsorted(finished, time_s, side="right")
        return cls(time_s, total, begun, total - mean_output * begun - HELD * held)

    def at(self, time_s: float) -> int:
        """Return the index of the last step that has ended by then."""
        return int(np.searchsorted(self.time_s, time_s, side="right")) - 1

    def balanced(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Return the bounds of the longest window of equal balance, near those of another one."""
        first, last = self.at(start_s), self.at(end_s)
        margin = max(1, int((last - first) * MARGIN))
        starts = np.arange(first, first + margin)
        starts = starts[np.argsort(self.balance[starts], kind="stable")]
        ends = np.arange(last, last - margin, -1)
        level, wanted = self.balance[starts], self.balance[ends]
        right = np.searchsorted(level, wanted).clip(0, margin - 1)
        pair = np.stack([np.maximum(right - 1, 0), right])
        gaps = np.abs(level[pair] - wanted)
        nearest, column = np.argmin(gaps, axis=0), np.arange(margin)
        start, gap = starts[pair[nearest, column]], gaps[nearest, column]
        step = (self.tokens[last] - self.tokens[first]) / max(1, last - first)
        length = np.where(gap <= 0.03 * step, ends - start, -1)
        best = int(np.argmax(length) if length.max() >= 0 else np.argmin(gap))
        return float(self.time_s[start[best]]), float(self.time_s[ends[best]])

    def rate(self, start_s: float, end_s: float) -> float:
        """Tokens per second between two moments."""
        tokens = self.tokens[self.at(end_s)] - self.tokens[self.at(start_s)]
        return float(tokens / (end_s - start_s)) if end_s > start_s else math.nan

    def rate_error(self, start_s: float, end_s: float, controlled: bool) -> float:
        """Estimate the standard error of :meth:`rate` by batch means; NaN for too few requests.

        Batches hold equal numbers of requests: eight, which are one of each quantile, or more.
        `controlled` is for windows of equal balance: imbalance of batches is no error of the sum.
        """
        first, last = self.at(start_s), self.at(end_s)
        requests = int(self.begun[last] - self.begun[first])
        batches = min(BATCHES, requests // REQUESTS)
        if batches < 3:
            return math.nan
        counts = self.begun[first] + np.linspace(0, requests, batches + 1)
        edges = np.searchsorted(self.begun, counts.round(), side="right") - 1
        edges[0], edges[-1] = first, last
        spans = np.diff(self.time_s[edges])
        residual = np.diff(self.tokens[edges]) - self.rate(start_s, end_s) * spans
        if controlled:
            control = np.diff(self.balance[edges])
            control = control - control.mean()
            if (power := float(control @ control)) > 0:
                residual = residual - float(residual @ control) / power * control
        variance = float(residual @ residual) * batches / (batches - 1 - controlled)
        return math.sqrt(variance) / float(spans.sum())


def summarise(
    tables: Tables,
    window: Window,
    mean_output: float,
    pricers: tuple[RoundPricer, ...],
    switches: int,
    record_rounds: bool,
) -> SimulationResult:
    """Measure a run over a window; without `record_rounds` its rounds and prefills are left out."""
    course = Course.of(tables, mean_output)
    start_s, end_s = window.start_s, window.end_s
    if window.kind == "balanced":
        start_s, end_s = course.balanced(start_s, end_s)
    requests, rounds, prefills = tables.requests, tables.rounds, tables.prefills
    requests["measured"] = window.measured
    error = math.nan
    if window.kind != "whole":
        error = course.rate_error(start_s, end_s, window.kind == "balanced")
    seen = rounds[(rounds["end_s"] > start_s) & (rounds["end_s"] <= end_s)]
    decode_s = seen["end_s"] - seen["start_s"] - seen["prefill_s"]
    active = int(seen["active"].sum())
    alone = prefills[~prefills["mixed"]]
    slots = sum(_slot_seconds(steps, start_s, end_s) for steps in (rounds, alone))
    ttft = Spread.of(ttft_s(requests)[window.measured])
    tpot = Spread.of(tpot_s(requests)[window.measured])
    keep = slice(None) if record_rounds else slice(0)
    return SimulationResult(
        requests=requests,
        rounds=rounds[keep],
        prefills=prefills[keep],
        retractions=tables.retractions,
        window_s=(start_s, end_s),
        output_tps=course.rate(start_s, end_s),
        output_tps_se=error,
        batch_size=slots / (end_s - start_s) if end_s > start_s else math.nan,
        round_s=float(decode_s.mean()) if len(seen) else math.nan,
        accept_length=float(seen["accepted"].sum() / active + 1) if active else math.nan,
        tpot_s=tpot.mean,
        tpot_p50_s=tpot.p50,
        tpot_p99_s=tpot.p99,
        ttft_s=ttft.mean,
        ttft_p50_s=ttft.p50,
        ttft_p99_s=ttft.p99,
        pricers=pricers,
        deliveries=tables.deliveries if record_rounds else Deliveries.none(),
        switches=switches,
    )


def _slot_seconds(steps: Records, start_s: float, end_s: float) -> float:
    start = np.maximum(steps["start_s"], start_s)
    end = np.minimum(steps["end_s"], end_s)
    return float((np.maximum(end - start, 0.0) * steps["running"]).sum())
