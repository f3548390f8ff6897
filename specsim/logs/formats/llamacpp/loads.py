"""How many of llama-server's slots were busy when, and the throughput while a load was held."""

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from specsim.arrays import Floats, Ints
from specsim.logs.formats.llamacpp.requests import Request

Interval = tuple[float, float]

GAP = 0.1  # a slot that is idle for less than this share of a request's time waits for its client
LEAST_FINISHED = 2  # requests that must end under a load before its throughput is taken
MANY_PER_SLOT = 4
"""From so many per slot on, a window that begins when the first one ends holds prefills as often as
they recur; of few, they crowd in it."""
MOST_WINDOWS = 50  # the longest ones of a level count
EDGE_VARIANCE = 1.0 / 12.0  # of where, within a round, an edge of the window falls
STALL_VARIANCE = 0.25  # of the number of prefills in a window, per prefill: ends are rather regular
USUAL_SPREAD = 0.1  # relative, of requests' time per token, counted as two requests' worth
SWEEPS = 6  # of the iteration: more would follow the rounding of each request's rounds
AT_ONCE_S = 0.05  # slots that begin within this time of one another are in one batch


@dataclass(frozen=True, slots=True)
class Timed:
    """A request with its times, s: launched, begun with the prompt, first token, end."""

    request: Request
    start_s: float
    begun_s: float
    first_s: float
    end_s: float


Rounds = tuple[Floats, Floats]
"""Times, and the rounds that a slot had gone through by then, had it decoded from the start."""


@dataclass(frozen=True, slots=True)
class Held:
    """A load that was held."""

    level: int  # busy slots
    seconds: float  # length of the windows
    tokens: float  # that came out within
    error: float  # standard error of the tokens
    busy: float  # mean of busy slots: less than the level by the time that they wait for clients
    requests: tuple[Request, ...]  # that ended under this load and decoded mostly under it
    begun: tuple[Request, ...]  # that were launched under it, and ended
    output_len: float | None  # tokens per prefill: it weighs requests as the throughput does


@dataclass(frozen=True, slots=True)
class Timeline:
    """Requests in time, and the rounds that the server went through.

    All slots decode in one batch: each request's tokens are spread evenly over the rounds that the
    server went through, and a request that the log does not count (its client left, or the server
    was stopped) went through as many as those beside it.
    """

    known: tuple[Timed, ...]  # by end
    unknown: tuple[Timed, ...]
    gap_s: float  # how long a slot may wait for its client
    accept: float  # tokens per round
    accept_of_others: float  # of the unknown ones
    rounds: Rounds
    known_until_s: float  # until when all that ran is known

    @classmethod
    def of(
        cls, requests: Iterable[Request], until_s: float, others: tuple[int, int | None] | None
    ) -> Self:
        """Return the timeline of requests with times, of a log that ends at `until_s`.

        `others` are the tokens of drafts that requests which the log does not count accepted, and
        the rounds in which they did (None: those that the server went through).
        """
        known, unknown = with_times(requests, until_s)
        lasting_s = statistics.median([k.end_s - k.start_s for k in known] or [0.0])
        rounds = sum(k.request.rounds for k in known)
        accept = sum(k.request.decoded for k in known) / rounds if rounds else 1.0
        gone = rounds_gone(known, unknown)
        timeline = cls(known, unknown, GAP * lasting_s, accept, 1.0, gone, _known_until(known))
        if others is None or not known:
            return replace(timeline, accept_of_others=accept)
        last_s = known[-1].end_s
        theirs = sum(timeline._by(u, last_s) - 1.0 for u in unknown if u.first_s < last_s)
        accepted, rounds_of_others = others
        per_round = (accepted + (rounds_of_others or theirs)) / theirs if theirs >= 1 else accept
        return replace(timeline, accept_of_others=min(max(per_round, accept / 2), accept * 2))

    def held(self) -> Iterator[Held]:
        """Yield the loads that were held for some requests' time, by level.

        A window begins and ends when a request ends, so that it holds prefills and decoding in the
        proportion in which they recur; the beginning, when all prefill at once, and the end, when
        slots fall idle, are left out.
        """
        for level, spans in self.spans():
            pairs = [pair for span in spans if (pair := self._window(level, span))]
            pairs.sort(key=lambda pair: pair[0][0] - pair[0][1])
            if pairs:
                yield self._held(level, *zip(*pairs[:MOST_WINDOWS], strict=True))

    def main_level(self) -> int | None:
        """Return the number of busy slots at which most of the busy time was spent, if any."""
        spent = [(sum(end - begin for begin, end in s), level) for level, s in self.spans()]
        longest_s, level = max(spent, default=(0.0, 0))
        return level if longest_s > 0.5 * sum(s for s, _ in spent) else None

    def spans(self) -> list[tuple[int, list[Interval]]]:
        """Return when each number of slots was busy, by increasing number."""
        busy = [(t.start_s, t.end_s) for t in (*self.known, *self.unknown) if t.end_s > t.start_s]
        events = sorted([(s, 1) for s, _ in busy] + [(e, -1) for _, e in busy])
        counts, count = [], 0
        for time_s, step in events:
            count += step
            counts.append((time_s, count))
        levels: list[tuple[int, list[Interval]]] = []
        above: list[Interval] = []
        for level in range(max((count for _, count in counts), default=0), 0, -1):
            reached = _at_least(level, counts, self.gap_s)
            levels.append((level, _without(reached, above)))
            above = reached
        return levels[::-1]

    def _window(self, level: int, span: Interval) -> tuple[Interval, Interval] | None:
        """Return the part of a span that holds whole cycles of requests; None if there is none.

        And the part in which all slots had begun to decode.
        """
        begin, end = span[0], min(span[1], self.known_until_s)
        first, last = (bisect_right(self.known, t, key=lambda k: k.end_s) for t in (begin, end))
        ending = self.known[first:last]
        ends = [k.end_s for k in ending]
        if level == 1:
            starts = [k.start_s for k in ending if begin <= k.start_s]
            if not starts:
                return None
            cycles = (ends[0] if len(ends) >= LEAST_FINISHED else min(starts)), ends[-1]
            return cycles, cycles
        many = MANY_PER_SLOT * level
        least = LEAST_FINISHED if math.isinf(self.known_until_s) else many
        if len(ends) < least:
            return None
        running = (t for t in (*self.known, *self.unknown) if t.end_s > begin)
        firsts_s = (t.first_s for t in running if t.start_s <= begin + self.gap_s)
        decoding_s = max(firsts_s, default=begin)
        ends = [e for e in ends if e >= decoding_s]
        if len(ends) < least:
            return None
        first_s = ends[0] if len(ends) >= many else decoding_s
        return ((first_s, ends[-1]), (decoding_s, ends[-1])) if ends[-1] > first_s else None

    def _held(self, level: int, windows: Sequence[Interval], settled: Sequence[Interval]) -> Held:
        everyone = (*self.known, *self.unknown)
        seconds = sum(end - begin for begin, end in windows)
        guesses = [[self._guess(u, w) for w in windows] for u in self.unknown]
        guessed = sum(map(sum, guesses))
        tokens = sum(self._tokens(k, w) for w in windows for k in self.known) + guessed
        busy_s = sum(_overlap((t.start_s, t.end_s), w) for w in windows for t in everyone)
        stalls = [
            t.first_s - t.begun_s
            for t in everyone
            if any(begin < t.first_s <= end for begin, end in windows)
        ]
        used = [k for k in self.known if any(_mostly((k.first_s, k.end_s), s) for s in settled)]
        requests = tuple(k.request for k in used)
        variance = 2 * len(windows) * level * EDGE_VARIANCE * self.accept**2
        variance += (tokens * _speed_error(requests)) ** 2
        variance += (guessed * _accept_spread(requests)) ** 2 / max(sum(map(any, guesses)), 1)
        if level > 1:  # one slot goes through whole cycles
            variance += STALL_VARIANCE * sum(s**2 for s in stalls) * (tokens / seconds) ** 2
        return Held(
            level,
            seconds,
            tokens,
            error=math.sqrt(variance),
            busy=busy_s / seconds,
            requests=requests,
            begun=tuple(
                k.request
                for k in self.known
                if any(begin <= k.start_s and k.end_s <= end for begin, end in settled)
            ),
            output_len=tokens / len(stalls) if stalls else None,
        )

    def _tokens(self, t: Timed, window: Interval) -> float:
        """Tokens of a request that the log counts, within a window."""
        begin, end = window
        first = 1.0 if t.request.tokens and begin < t.first_s <= end else 0.0
        if t.end_s <= t.first_s:
            return first + (t.request.decoded if begin < t.end_s <= end else 0)
        begin, end = max(begin, t.first_s), min(end, t.end_s)
        whole = self._rounds(t.first_s, t.end_s)
        if end <= begin or whole <= 0:
            return first
        return first + t.request.decoded * (self._rounds(begin, end) / whole)

    def _rounds(self, begin_s: float, end_s: float) -> float:
        by = np.interp([begin_s, end_s], *self.rounds)
        return float(by[1] - by[0])

    def _guess(self, t: Timed, window: Interval) -> float:
        """Tokens of a request that the log does not count, within a window."""
        begin, end = max(window[0], t.start_s), min(window[1], t.end_s)
        return self._by(t, end) - self._by(t, begin) if end > begin else 0.0

    def _by(self, t: Timed, time_s: float) -> float:
        """Tokens that such a request had got by a time."""
        if time_s < t.first_s:
            return 0.0
        return 1.0 + self.accept_of_others * self._rounds(t.first_s, min(time_s, t.end_s))


def _known_until(known: Sequence[Timed]) -> float:
    """Where no launch is told, all that ran is known until the first slot's last end."""
    if any(k.request.launched_s is not None for k in known):
        return math.inf
    last = {k.request.slot: k.end_s for k in known}
    return min(last.values(), default=math.inf)


def _at_least(level: int, counts: Sequence[tuple[float, int]], gap_s: float) -> list[Interval]:
    """Return when at least so many slots were busy, short breaks and short bursts left out."""
    found: list[Interval] = []
    begin: float | None = None
    for time_s, count in counts:
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
        inner = [hole for hole in holes if hole[1] > begin and hole[0] < end]
        edges = [begin, *(edge for hole in inner for edge in hole), end]
        left += [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
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
    if not n:
        return USUAL_SPREAD
    mean = seconds / tokens
    squares = n * sum((s - t * mean) ** 2 for t, s in pairs) / seconds**2 * n
    return math.sqrt((squares + 2 * USUAL_SPREAD**2) / (n + 1) / n)


def _accept_spread(requests: Sequence[Request]) -> float:
    lengths = [r.decoded / r.rounds for r in requests if r.rounds]
    return statistics.stdev(lengths) / statistics.fmean(lengths) if len(lengths) > 1 else 0.1


def with_times(
    requests: Iterable[Request], until_s: float
) -> tuple[tuple[Timed, ...], tuple[Timed, ...]]:
    """Return the requests of which the log counts the tokens, by end, and the others.

    Prompts that slots begin with at once are one batch. The first token of a request that the log
    does not count is taken to come after as much time per token of its batch as others took.
    """
    started = [(s, r) for r in requests if (s := r.start_s) is not None]
    batches: list[list[tuple[Request, float, float]]] = []
    latest_s = -np.inf
    for start_s, r in sorted(started, key=lambda pair: pair[0]):
        begun_s = start_s if r.begun_s is None else max(r.begun_s, start_s)
        if begun_s - latest_s > AT_ONCE_S:
            batches.append([])
        batches[-1].append((r, start_s, begun_s))
        latest_s = begun_s
    known, others = [], []
    filled = 0
    for batch in batches:
        tokens = sum(r.prompt_tokens or r.context_tokens or 1 for r, *_ in batch)
        for r, start_s, begun_s in batch:
            first_s = r.first_s
            if not r.known:
                others.append((r, start_s, begun_s, tokens))
            elif first_s is not None and r.end_s is not None:
                times_s = (min(start_s, first_s), min(begun_s, first_s), first_s, r.end_s)
                known.append(Timed(r, *times_s))
                filled += tokens
    each_s = sum(k.first_s - k.begun_s for k in known) / filled if filled else 0.0
    unknown = []
    for r, start_s, begun_s, tokens in others:
        end_s = max(until_s if r.closed_s is None else r.closed_s, start_s)
        begun_s = min(begun_s, end_s)
        first_s = min(begun_s + each_s * tokens, end_s)
        unknown.append(Timed(r, start_s, begun_s, first_s, end_s))
    return tuple(sorted(known, key=lambda k: k.end_s)), tuple(unknown)


def rounds_gone(known: Sequence[Timed], unknown: Sequence[Timed]) -> Rounds:
    """Find the rate of rounds that gives every request the rounds that it took.

    Before any request is looked at, a round lasts as long as a prefill while there is one, since
    both are one batch. Then the rate at each time is multiplied by the mean of (rounds taken /
    rounds by this rate) over the requests that decode at that time, a few times over: the
    expectation maximisation of Poisson counts [@vardi1985], stopped early.
    """
    decoding = [k for k in known if k.end_s > k.first_s and k.request.rounds]
    everyone = (*known, *unknown)
    times_s = np.unique([t for k in everyone for t in (k.begun_s, k.first_s, k.end_s)])
    if not decoding or len(times_s) < 2:
        return np.zeros(1), np.zeros(1)
    lasting = np.diff(times_s)
    taken = np.array([k.request.rounds for k in decoding], dtype=np.float64)
    first = np.searchsorted(times_s, [k.first_s for k in decoding])
    last = np.searchsorted(times_s, [k.end_s for k in decoding])
    covering = np.maximum(_spread(np.ones(len(decoding)), first, last, len(times_s)), 1e-9)
    rate = _first_rate(everyone, times_s, float(taken.sum() / (lasting * covering).sum()))
    for _ in range(SWEEPS):
        gone = np.concatenate([[0.0], np.cumsum(rate * lasting)])
        factor = taken / np.maximum(gone[last] - gone[first], 1e-12)
        mean = _spread(factor, first, last, len(times_s)) / covering
        rate = rate * np.where(covering > 0.5, mean, 1.0)
    return times_s, np.concatenate([[0.0], np.cumsum(rate * lasting)])


def _first_rate(everyone: Sequence[Timed], times_s: Floats, rate: float) -> Floats:
    """One round per prefill while there is one; else the mean rate."""
    filling = [t for t in everyone if t.first_s > t.begun_s]
    begin = np.searchsorted(times_s, [t.begun_s for t in filling])
    end = np.searchsorted(times_s, [t.first_s for t in filling])
    wait_s = np.array([t.first_s - t.begun_s for t in filling])
    count = _spread(np.ones(len(filling)), begin, end, len(times_s))
    total_s = _spread(wait_s, begin, end, len(times_s))
    slow = np.full(len(count), rate)
    np.divide(count, total_s, out=slow, where=count > 0.5)
    return slow.clip(max=rate)


def _spread(value: Floats, begin: Ints, end: Ints, ticks: int) -> Floats:
    """Sum of the values whose interval covers each step between ticks."""
    step = np.zeros(ticks)
    np.add.at(step, begin, value)
    np.subtract.at(step, end, value)
    np.cumsum(step, out=step)
    return step[:-1]
