"""Delivery over time, from which throughput, its error and a balanced window are read.

In a finite window more or fewer prompts than usual may come per token, which moves the throughput
where prefill is dear; the long-run ratio is known: one prompt per mean answer. So the window of a
steady state is put between two moments with the same balance

    D(t) = tokens delivered - mean answer * requests whose first token is out        (BALANCE)

and, among those, nearly as many requests between first token and end; the standard error is that
of batch means after regression on their imbalance.
"""

import math
from collections.abc import Sequence

import numpy as np

from specsim.acceptance import REQUESTS
from specsim.arrays import Floats
from specsim.metrics import Records
from specsim.simulate.records import Tables

BATCHES = 20
"""Most batches of the standard error by batch means."""

HELD = 0.25
"""Tokens per held slot in the balance: tells a batch with finished requests from one without."""

MARGIN = 0.25
"""Share of the steps at either end among which a balanced window is looked for."""

MOST_STEPS = 2**17
"""Steps that are kept apart: those of a longer run are joined, two by two, until so many are left,
so that memory does not grow with it; its window is then whole pairs (or fours, ...) of steps."""

SUMS = ("tokens", "begun", "held", "rounds", "decode_s", "active", "accepted", "slot_s")
STEP_DTYPE = np.dtype([(name, np.float64) for name in ("start_s", "time_s", *SUMS)])
"""A row per round or prefill step, in order of their ends: start, end, and, all so far together:
tokens delivered, requests whose first token is out, those of them that are not finished, rounds,
their length (prefill left out), requests and drafts accepted in them, slots taken times time."""


class Course:
    """Delivery over time, from `in_progress` requests at time 0 on."""

    def __init__(self, in_progress: int = 0) -> None:
        start = np.zeros(1, dtype=STEP_DTYPE)
        start["begun"] = start["held"] = in_progress
        self._parts, self._every = [start], 1
        self._balance: Floats = np.zeros(0)

    def add(self, tables: Tables, begun_s: Sequence[float], finished_s: Sequence[float]) -> None:
        """Go on with steps; of requests, when first tokens came and when they finished, rising."""
        rounds, prefills = tables.rounds, tables.prefills
        if not len(rounds) + len(prefills):
            return
        length = rounds["end_s"] - rounds["start_s"]
        alone = np.where(prefills["mixed"], 0.0, prefills["end_s"] - prefills["start_s"])
        ends = np.concatenate([rounds["end_s"], prefills["end_s"]])
        order = np.argsort(ends, kind="stable")
        before, steps = self._parts[-1][-1], np.zeros(len(ends), dtype=STEP_DTYPE)
        steps["time_s"] = ends[order]
        steps["start_s"] = np.concatenate([rounds["start_s"], prefills["start_s"]])[order]
        none = np.zeros(len(prefills))
        for name, of_rounds, of_prefills in (
            ("tokens", rounds["tokens"], prefills["prompts"]),
            ("rounds", np.ones(len(rounds)), none),
            ("decode_s", length - rounds["prefill_s"], none),
            ("active", rounds["active"], none),
            ("accepted", rounds["accepted"], none),
            ("slot_s", length * rounds["running"], alone * prefills["running"]),
        ):
            steps[name] = before[name] + np.cumsum(np.concatenate([of_rounds, of_prefills])[order])
        begun = np.searchsorted(begun_s, steps["time_s"], side="right")
        finished = np.searchsorted(finished_s, steps["time_s"], side="right")
        steps["begun"] = before["begun"] + begun
        steps["held"] = before["held"] + begun - finished
        self._parts.append(_joined(steps, self._every))
        while sum(map(len, self._parts)) > MOST_STEPS:
            self._every *= 2
            start, *later = self._parts
            self._parts = [start, _joined(np.concatenate(later), 2)]

    def close(self, mean_output: float) -> None:
        """Take stock when the run has ended."""
        self._parts = [np.concatenate(self._parts)]
        steps = self.steps
        self._balance = steps["tokens"] - mean_output * steps["begun"] - HELD * steps["held"]

    @property
    def steps(self) -> Records:
        """Rows of STEP_DTYPE."""
        return self._parts[0]

    def at(self, time_s: float) -> int:
        """Return the index of the last step that has ended by then."""
        return int(np.searchsorted(self.steps["time_s"], time_s, side="right")) - 1

    def between(self, name: str, start_s: float, end_s: float) -> float:
        """Return a sum over the steps that end between two moments."""
        column = self.steps[name]
        return float(column[self.at(end_s)] - column[self.at(start_s)])

    def slot_s(self, time_s: float) -> float:
        """Return the slots taken times time until a moment."""
        at, steps = self.at(time_s), self.steps
        done = float(steps["slot_s"][at])
        if at + 1 < len(steps) and time_s > (start := float(steps["start_s"][at + 1])):
            share = (time_s - start) / (float(steps["time_s"][at + 1]) - start)
            done += share * (float(steps["slot_s"][at + 1]) - done)
        return done

    def balanced(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Return the bounds of the longest window of equal balance, near those of another one."""
        time_s, tokens = self.steps["time_s"], self.steps["tokens"]
        first, last = self.at(start_s), self.at(end_s)
        margin = max(1, int((last - first) * MARGIN))
        starts = np.arange(first, first + margin)
        starts = starts[np.argsort(self._balance[starts], kind="stable")]
        ends = np.arange(last, last - margin, -1)
        level, wanted = self._balance[starts], self._balance[ends]
        right = np.searchsorted(level, wanted).clip(0, margin - 1)
        pair = np.stack([np.maximum(right - 1, 0), right])
        gaps = np.abs(level[pair] - wanted)
        nearest, column = np.argmin(gaps, axis=0), np.arange(margin)
        start, gap = starts[pair[nearest, column]], gaps[nearest, column]
        step = (tokens[last] - tokens[first]) / max(1, last - first)
        length = np.where(gap <= 0.03 * step, ends - start, -1)
        best = int(np.argmax(length) if length.max() >= 0 else np.argmin(gap))
        return float(time_s[start[best]]), float(time_s[ends[best]])

    def rate(self, start_s: float, end_s: float) -> float:
        """Tokens per second between two moments."""
        if end_s <= start_s:
            return math.nan
        return self.between("tokens", start_s, end_s) / (end_s - start_s)

    def rate_error(self, start_s: float, end_s: float, controlled: bool) -> float:
        """Estimate the standard error of :meth:`rate` by batch means; NaN for too few requests.

        Batches hold equal numbers of requests: eight, which are one of each quantile, or more.
        `controlled` is for windows of equal balance: imbalance of batches is no error of the sum.
        """
        steps, first, last = self.steps, self.at(start_s), self.at(end_s)
        requests = int(steps["begun"][last] - steps["begun"][first])
        batches = min(BATCHES, requests // REQUESTS)
        if batches < 3:
            return math.nan
        counts = steps["begun"][first] + np.linspace(0, requests, batches + 1)
        edges = np.searchsorted(steps["begun"], counts.round(), side="right") - 1
        edges[0], edges[-1] = first, last
        spans = np.diff(steps["time_s"][edges])
        residual = np.diff(steps["tokens"][edges]) - self.rate(start_s, end_s) * spans
        if controlled:
            control = np.diff(self._balance[edges])
            control = control - control.mean()
            if (power := float(control @ control)) > 0:
                residual = residual - float(residual @ control) / power * control
        variance = float(residual @ residual) * batches / (batches - 1 - controlled)
        return math.sqrt(variance) / float(spans.sum())


def _joined(steps: Records, many: int) -> Records:
    """Join steps by so many, so that the last one stays the last."""
    if many == 1:
        return steps
    kept = steps[::-many][::-1].copy()
    kept["start_s"][1:] = kept["time_s"][:-1]
    return kept
