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
from specsim.metrics import Records, Spread, tpot_s, ttft_s
from specsim.simulate.pricing import RoundPricer
from specsim.simulate.result import Deliveries, SimulationResult
from specsim.simulate.tables import Tables

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats, Ints

BATCHES = 20
"""Most batches of the standard error by batch means."""

HELD = 0.25
"""Tokens per held slot in the balance: tells a batch with finished requests from one without."""

MARGIN = 0.25
"""Share of the steps at either end among which a balanced window is looked for."""


@dataclass(frozen=True, slots=True)
class Window:
    """When to measure throughput, and which requests to measure latencies on.

    Parameters
    ----------
    start_s, end_s
        Bounds.
    measured
        Per request.
    kind
        ``balanced``: bounds of one balance; ``sampled``: not so; ``whole``: ramp and drain, a
        single sample without a standard error.
    """

    start_s: float
    end_s: float
    measured: Flags
    kind: Literal["balanced", "sampled", "whole"]


@dataclass(frozen=True, slots=True)
class Course:
    """Delivery over time: at each step's end, what has been delivered so far.

    Parameters
    ----------
    time_s
        Ends of rounds and prefill steps, rising.
    tokens, begun
        Tokens delivered by then, and requests whose first token is out.
    balance
        D (BALANCE).
    """

    time_s: Floats
    tokens: Floats
    begun: Ints
    balance: Floats

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
    tables: Tables, window: Window, course: Course, pricer: RoundPricer, record_rounds: bool
) -> SimulationResult:
    """Measure a run.

    Parameters
    ----------
    tables
        Its records; `requests` is marked.
    window
        What to measure.
    course
        Of the tables.
    pricer
        What rounds were priced with.
    record_rounds
        Whether the result keeps the tables of rounds and prefill steps.
    """
    start_s, end_s = window.start_s, window.end_s
    requests, rounds, prefills = tables.requests, tables.rounds, tables.prefills
    requests["measured"] = window.measured
    error = math.nan
    if window.kind != "whole":
        error = course.rate_error(start_s, end_s, window.kind == "balanced")
    seen = rounds[(rounds["end_s"] > start_s) & (rounds["end_s"] <= end_s)]
    decode_s = seen["end_s"] - seen["start_s"] - seen["prefill_s"]
    active = int(seen["active"].sum())
    slots = _slot_seconds(rounds, window) + _slot_seconds(prefills[~prefills["mixed"]], window)
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
        pricer=pricer,
        deliveries=tables.deliveries if record_rounds else Deliveries.none(),
    )


def _slot_seconds(steps: Records, window: Window) -> float:
    start = np.maximum(steps["start_s"], window.start_s)
    end = np.minimum(steps["end_s"], window.end_s)
    return float((np.maximum(end - start, 0.0) * steps["running"]).sum())
