"""How many of llama-server's slots were busy when, and the throughput while a load was held."""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specsim.calibrate.readers.llamacpp_requests import Request

Floats = NDArray[np.float64]
Interval = tuple[float, float]

GAP = 0.1
"""A slot that is idle for less than this share of a request's duration waits for its client."""
LEAST_FINISHED = 3
"""Requests that must end under a load before its throughput is taken, where slots overlap."""
MOST_WINDOWS = 50
"""The longest ones of a level count."""
EDGE_VARIANCE = 1.0 / 12.0
"""Of where, within a round, an edge of the window falls."""


@dataclass(frozen=True, slots=True)
class Held:
    """A load that was held.

    Parameters
    ----------
    level
        Busy slots.
    windows
        Begins and ends, s, of what the throughput is of.
    tokens, error
        Tokens that came out within, and the standard error.
    busy
        Mean of busy slots: less than the level by the time that slots wait for clients.
    requests
        Those that ended under this load and decoded mostly under it.
    estimated
        Share of the tokens that are of requests which the log does not count.
    """

    level: int
    windows: tuple[Interval, ...]
    tokens: float
    error: float
    busy: float
    requests: tuple[Request, ...]
    estimated: float = 0.0

    @property
    def seconds(self) -> float:
        """Length of the windows."""
        return sum(end - begin for begin, end in self.windows)


def held_loads(requests: Sequence[Request], until_s: float, anchored: bool = True) -> list[Held]:
    """Return the loads that were held for some requests' time, by level.

    A window begins and ends when a request ends, so that it holds prefills and decoding in the
    proportion in which they recur; the beginning, when all prefill at once, and the end, when
    slots fall idle, are left out. Each request's tokens are spread evenly over its decoding. All
    slots decode in one batch, so a request that the log does not count (its client left, or the
    server was stopped) went through as many rounds per second as those beside it.

    Parameters
    ----------
    requests
        With times.
    until_s
        When the log ends.
    anchored
        Whether what was told of a request while it ran is complete.
    """
    timeline = _Timeline.of(requests, until_s, anchored)
    held = []
    for level, spans in timeline.spans():
        pairs = [pair for span in spans if (pair := timeline.window(level, span))]
        pairs = sorted(pairs, key=lambda pair: pair[0][0] - pair[0][1])[:MOST_WINDOWS]
        if pairs:
            windows, settled = zip(*pairs, strict=True)
            held.append(timeline.held(level, windows, settled))
    return held


def main_level(requests: Sequence[Request], until_s: float) -> int | None:
    """Return the number of busy slots at which most of the busy time was spent; None if none."""
    timeline = _Timeline.of(requests, until_s, anchored=False)
    spent = [(sum(end - begin for begin, end in s), level) for level, s in timeline.spans()]
    longest_s, level = max(spent, default=(0.0, 0))
    return level if longest_s > 0.5 * sum(s for s, _ in spent) else None


@dataclass(frozen=True, slots=True)
class _Timed:
    """A request with the times that the others imply."""

    request: Request
    start_s: float
    first_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class _Timeline:
    """Requests in time, and the rounds that the server went through.

    `known` is in the order of `by_end`; `gap_s` is how long a slot may wait for its client;
    `ticks_s` and `rounds` are times and the rounds that a slot which decoded all the time would
    have gone through by then.
    """

    known: tuple[_Timed, ...]
    by_end: tuple[float, ...]
    unknown: tuple[_Timed, ...]
    gap_s: float
    accept: float
    ticks_s: Floats
    rounds: Floats
    anchored: bool

    @classmethod
    def of(cls, requests: Iterable[Request], until_s: float, anchored: bool) -> _Timeline:
        known, others = [], []
        for r in requests:
            start_s, first_s, end_s = r.start_s, r.first_s, r.end_s
            if start_s is None:
                continue
            if r.known and first_s is not None and end_s is not None:
                known.append(_Timed(r, min(start_s, first_s), first_s, end_s))
            elif not r.known:
                others.append((r, start_s))
        known.sort(key=lambda k: k.end_s)
        prefill_s = statistics.fmean([k.first_s - k.start_s for k in known] or [0.0])
        unknown = []
        for r, start_s in others:
            end_s = max(until_s if r.closed_s is None else r.closed_s, start_s)
            unknown.append(_Timed(r, start_s, min(start_s + prefill_s, end_s), end_s))
        lasting = statistics.median([k.end_s - k.start_s for k in known] or [0.0])
        rounds = sum(k.request.rounds for k in known)
        decoded = sum(k.request.decoded for k in known)
        accept = decoded / rounds if rounds else 1.0
        ticks_s, gone = _rounds_gone(known)
        ends = tuple(k.end_s for k in known)
        gap_s = GAP * lasting
        return cls(tuple(known), ends, tuple(unknown), gap_s, accept, ticks_s, gone, anchored)

    def spans(self) -> list[tuple[int, list[Interval]]]:
        """Return when each number of slots was busy, by increasing number."""
        events = sorted(
            (time_s, step)
            for t in (*self.known, *self.unknown)
            if t.end_s > t.start_s
            for time_s, step in ((t.start_s, 1), (t.end_s, -1))
        )
        counts = list(itertools.accumulate(step for _, step in events))
        levels: list[tuple[int, list[Interval]]] = []
        above: list[Interval] = []
        for level in range(max(counts, default=0), 0, -1):
            reached = _at_least(level, events, counts, self.gap_s)
            levels.append((level, _without(reached, above)))
            above = reached
        return levels[::-1]

    def window(self, level: int, span: Interval) -> tuple[Interval, Interval] | None:
        """Return the part of a span that holds whole cycles of requests; None if there is none.

        And the part in which all slots had begun to decode.
        """
        begin, end = span
        ending = self.known[bisect_right(self.by_end, begin) : bisect_right(self.by_end, end)]
        ends = [k.end_s for k in ending]
        if level == 1:
            starts = [k.start_s for k in ending if begin <= k.start_s]
            cycles = (min(starts), ends[-1]) if starts else None
            return (cycles, cycles) if cycles else None
        if len(ends) < LEAST_FINISHED:
            return None
        decoding_s = max(
            (
                t.first_s
                for t in (*self.known, *self.unknown)
                if t.start_s <= begin + self.gap_s and t.end_s > begin
            ),
            default=begin,
        )
        ends = [e for e in ends if e >= decoding_s]
        if len(ends) < LEAST_FINISHED or ends[-1] <= ends[0]:
            return None
        return (ends[0], ends[-1]), (decoding_s, ends[-1])

    def held(
        self, level: int, windows: tuple[Interval, ...], settled: tuple[Interval, ...]
    ) -> Held:
        counted = sum(self._tokens(k, w) for w in windows for k in self.known)
        guessed = sum(self._guess(u, w) for w in windows for u in self.unknown)
        everything = (*self.known, *self.unknown)
        busy_s = sum(_overlap((t.start_s, t.end_s), w) for w in windows for t in everything)
        seconds = sum(end - begin for begin, end in windows)
        used = tuple(
            k.request
            for k in self.known
            if any(_mostly((k.first_s, k.end_s), span) for span in settled)
        )
        total = counted + guessed
        variance = 2 * len(windows) * level * EDGE_VARIANCE * self.accept**2
        variance += (total * _speed_error(used)) ** 2
        unknown = sum(1 for u in self.unknown if any(self._guess(u, w) for w in windows))
        variance += (guessed * _accept_spread(used)) ** 2 / max(unknown, 1)
        share = guessed / total if total else 0.0
        error = math.sqrt(variance)
        return Held(level, windows, total, error, busy_s / seconds, used, share)

    def _tokens(self, t: _Timed, window: Interval) -> float:
        """Tokens of a request that the log counts, within a window."""
        begin, end = window
        first = 1.0 if t.request.tokens and begin < t.first_s <= end else 0.0
        if t.end_s <= t.first_s:
            return first + (t.request.decoded if begin < t.end_s <= end else 0)
        share = _overlap((t.first_s, t.end_s), window) / (t.end_s - t.first_s)
        return first + t.request.decoded * share

    def _guess(self, t: _Timed, window: Interval) -> float:
        """Tokens of a request that the log does not count, within a window."""
        begin, end = max(window[0], t.start_s), min(window[1], t.end_s)
        return self._by(t, end) - self._by(t, begin) if end > begin else 0.0

    def _by(self, t: _Timed, time_s: float) -> float:
        """Tokens that such a request had got by a time."""
        anchor = t.request.anchor if self.anchored else None
        if anchor is not None and anchor[0] > t.first_s:
            since_s, tokens = anchor
            if time_s <= since_s:
                share = (time_s - t.first_s) / (since_s - t.first_s)
                return 1.0 + (tokens - 1) * share if share >= 0 else 0.0
        elif time_s < t.first_s:
            return 0.0
        else:
            since_s, tokens = t.first_s, 1
        gone = np.interp([since_s, time_s], self.ticks_s, self.rounds)
        return tokens + self.accept * float(gone[1] - gone[0])


def _rounds_gone(known: Sequence[_Timed]) -> tuple[Floats, Floats]:
    """Rounds of a slot that always decodes: by the mean rate of those that do, at each time."""
    events = sorted(
        (time_s, sign * k.request.rounds / (k.end_s - k.first_s), sign)
        for k in known
        if k.end_s > k.first_s
        for time_s, sign in ((k.first_s, 1), (k.end_s, -1))
    )
    if not events:
        return np.zeros(1), np.zeros(1)
    ticks, gone = [events[0][0]], [0.0]
    total = 0.0
    count = 0
    for time_s, rate, sign in events:
        mean = total / count if count else 0.0
        gone.append(gone[-1] + mean * (time_s - ticks[-1]))
        ticks.append(time_s)
        count += sign
        total = total + rate if count else 0.0  # no rounding error outlives an idle moment
    return np.array(ticks), np.array(gone)


def _at_least(
    level: int, events: Sequence[tuple[float, int]], counts: Sequence[int], gap_s: float
) -> list[Interval]:
    """Return when at least so many slots were busy, short breaks and short bursts left out."""
    found: list[Interval] = []
    begin: float | None = None
    for (time_s, _), count in zip(events, counts, strict=True):
        if count >= level and begin is None:
            begin = time_s
        elif count < level and begin is not None:
            if found and begin - found[-1][1] <= gap_s:
                begin = found.pop()[0]
            found.append((begin, time_s))
            begin = None
    return [(begin, end) for begin, end in found if end - begin > gap_s]


def _without(spans: Iterable[Interval], holes: Sequence[Interval]) -> list[Interval]:
    """Cut holes, which lie within the spans, out of spans."""
    left: list[Interval] = []
    for begin, end in spans:
        at = begin
        for hole_begin, hole_end in holes:
            if hole_end <= at or hole_begin >= end:
                continue
            if hole_begin > at:
                left.append((at, hole_begin))
            at = hole_end
        if at < end:
            left.append((at, end))
    return left


def _overlap(a: Interval, b: Interval) -> float:
    return max(min(a[1], b[1]) - max(a[0], b[0]), 0.0)


def _mostly(a: Interval, b: Interval) -> bool:
    """Whether at least half of `a` lies in `b`, its end included."""
    return b[0] < a[1] <= b[1] and _overlap(a, b) >= 0.5 * (a[1] - a[0])


def _speed_error(requests: Sequence[Request]) -> float:
    """Relative standard error of the mean time per token, from its spread over requests."""
    pairs = [(r.decoded, r.eval_s) for r in requests if r.decoded and r.eval_s > 0]
    n, tokens, seconds = len(pairs), sum(p[0] for p in pairs), sum(p[1] for p in pairs)
    if n < 2:
        return 0.1  # of one request nothing is known: as much as single requests usually differ
    mean = seconds / tokens
    spread = sum((s - t * mean) ** 2 for t, s in pairs) / seconds**2
    return math.sqrt(spread * n / (n - 1))


def _accept_spread(requests: Sequence[Request]) -> float:
    """Relative spread of single requests' accept length."""
    lengths = [r.decoded / r.rounds for r in requests if r.rounds]
    return statistics.stdev(lengths) / statistics.fmean(lengths) if len(lengths) > 1 else 0.1
