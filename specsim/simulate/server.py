"""The server: admission queue and scheduler, as one SimPy process.

Between two events that change the batch nothing is random any more, for the accepted tokens of a
request are drawn for its whole life. So the scheduler takes all rounds up to the next such event
as one stretch: KV tokens per round come from a sum to which each admission adds its own course,
and the lengths of the rounds from one evaluation. An arrival that could be admitted cuts the
stretch at the end of the round it falls into; so does a KV pool that would overflow.
"""

import heapq
import math
from collections import deque
from collections.abc import Generator
from typing import Any

import numpy as np
import simpy

from specsim.arrays import Floats
from specsim.case import Case
from specsim.metrics import REQUEST_DTYPE, Records
from specsim.server.system import ADMITTED_OUTPUT_SHARE
from specsim.simulate.adaptation import GearChoice
from specsim.simulate.arrivals import Answered, Steps
from specsim.simulate.course import Course
from specsim.simulate.demand import Demand, Request
from specsim.simulate.pool import KvPool
from specsim.simulate.pricing import PrefillPricer, RoundPricer
from specsim.simulate.records import Log, Segment, Stretch, Tables, enter

CHAPTER = 2048
"""Rounds or answers that are written down before they are summed up, if they are not to be kept."""

Pieces = list[tuple[Request, int]]
"""What a prefill step computes: so many tokens of each request's prompt."""


class Server:
    """Queue, batch and clock of one server.

    Without a policy there is one gear and no `choice`. It serves until `goal` requests of those
    numbered below `among_first` are answered. Without `record_rounds`, memory does not grow with
    the rounds.
    """

    def __init__(
        self,
        env: simpy.Environment,
        case: Case,
        demand: Demand,
        pricers: tuple[RoundPricer, ...],
        choice: GearChoice | None,
        prefill: PrefillPricer,
        goal: int,
        among_first: float,
        record_rounds: bool = True,
    ) -> None:
        self.env, self.demand, self.pricers, self.prefill = env, demand, pricers, prefill
        self.plan, self.lag = case.plan, case.plan.finish_lag_rounds
        self.pool = KvPool(
            case.pool_tokens,
            case.plan.reserved_tokens_per_request,
            case.workload.shared_prefix_len,
        )
        self.left, self.among_first = goal, among_first
        self.choice = choice
        self.gear = choice.gear if choice else 0
        self.switches = 0
        self.log, self.course = Log(), Course()
        self.record_rounds = record_rounds
        self.requests: Records = np.zeros(0, dtype=REQUEST_DTYPE)  # that have finished
        self.issued = self.in_progress = 0
        self.queue: deque[Request] = deque()
        self.prompts: deque[Request] = deque()
        self.batch: dict[Request, None] = {}  # in order of admission
        self.ends: list[tuple[int, int, Request]] = []  # heap of (round after its last, number, it)
        self.round = 0
        self.clock = 0.0
        self.ended_s = (0.0, 0.0)  # when the last two rounds ended
        self.idle: simpy.Event | None = None
        self.interruptible = False
        self.process: simpy.Process | None = None

    def start(self) -> simpy.Process:
        """Start serving; the process ends when the goal is reached."""
        self.process = self.env.process(self._serve())
        return self.process

    def tables(self) -> Tables:
        """Return the records of a run that has ended, and complete those of its requests."""
        tables = self._close_chapter()
        table = enter(self.requests, [*self.batch, *self.prompts, *self.queue])
        self.requests = table[: self.issued]
        return tables

    def _close_chapter(self) -> Tables:
        """Sum up what was written down; returns it as tables."""
        for request in self.batch:
            self._cut(request)
        log, self.log = self.log, Log(self.round)
        tables = Tables.of(log, self.pool.used(log.first_round, self.round))
        self.course.add(tables, log.begun_s, [r.finished_s for r in log.finished])
        self.requests = enter(self.requests, log.finished)
        return tables

    # --- the clients' side

    def submit(self, answered: Answered | None = None) -> None:
        """Take the next request of the demand at this moment."""
        request = self.demand.next()
        self._issue(request, self.env.now, answered)
        self.queue.append(request)
        if self.idle is not None:
            self.idle.succeed()
            self.idle = None
        elif self.interruptible and self.queue[0] is request and self._fits(request):
            assert self.process is not None
            self.interruptible = False
            self.process.interrupt()

    def begin_with(self, count: int, answered: Answered) -> None:
        """Start with up to `count` requests in progress, as many as fit."""
        for request in self.demand.in_progress(count):
            if not self._fits(request):
                break
            self._issue(request, 0.0, answered)
            request.admitted_s = request.first_token_s = 0.0
            request.given = request.behind
            self.pool.reserved += _reserve(request, self.pool.held)
            self._join(request)
        self.in_progress = self.issued
        self.course = Course(self.in_progress)

    def _issue(self, request: Request, arrival_s: float, answered: Answered | None) -> None:
        request.request, request.arrival_s, request.answered = self.issued, arrival_s, answered
        self.issued += 1

    # --- admission

    def _slots(self) -> int:
        return len(self.batch) + len(self.prompts)

    def _fits(self, request: Request) -> bool:
        """Whether a slot is free, and the pool has room."""
        slots = self._slots()
        if slots == 0:
            return True
        if slots >= self.plan.running_cap:
            return False
        reserve, text = _reserve(request, self.pool.held), request.input_len + request.given
        return self.pool.admits(reserve, text, slots, self.round)

    def _take_prompts(self) -> Pieces:
        """Fill a step with prompt tokens: chunked prompts first, then the queue in order."""
        room = self.plan.chunked_prefill_size
        if self.plan.prefill == "mixed":  # the tokens of those that decode come first
            room = max(room - self._decoding(), 0)
        pieces: Pieces = []
        for request in self.prompts:
            if room > 0:
                pieces.append((request, min(request.left, room)))
                room -= pieces[-1][1]
        while room > 0 and self.queue and self._fits(self.queue[0]):
            request = self.queue.popleft()
            self._admit(request)
            pieces.append((request, min(request.left, room)))
            room -= pieces[-1][1]
        return pieces

    def _admit(self, request: Request) -> None:
        if math.isnan(request.admitted_s):
            request.admitted_s = self.clock
        self.pool.reserved += _reserve(request, self.pool.held)
        whole = request.input_len + request.given
        request.left = request.new_tokens + request.given
        request.done = whole - request.left
        self.pool.prompts += whole
        self.prompts.append(request)

    # --- scheduler

    def _serve(self) -> Steps:
        while self.left > 0:
            if not (self.batch or self.prompts or self.queue):
                self.idle = self.env.event()
                yield self.idle
                self.clock = self.env.now
            pieces = self._take_prompts() if self.prompts or self.queue else []
            if pieces and (self.plan.prefill == "first" or not self.batch):
                yield from self._prefill_step(pieces)
            else:
                yield from self._decode(pieces)
            written = max(self.round - self.log.first_round, len(self.log.finished))
            if written >= CHAPTER and not self.record_rounds:
                self._close_chapter()
                self.pool.forget_before(self.round)

    def _prefill_step(self, pieces: Pieces) -> Steps:
        start = self.clock
        seconds, tokens, pairs = self._prefill_s(pieces)
        yield from self._pass_prefill(seconds)
        running = self._slots()
        ready = self._advance(pieces)
        step = (start, self.clock, running, len(ready), tokens, pairs, False)
        self.log.prefills.append(step)
        self._settle(ready)

    def _decode(self, pieces: Pieces) -> Steps:
        if self.pool.overflows(self.round, self._slots()):
            self._make_room()
        start, batch = self.clock, len(self.batch)
        self._choose_gear()
        mixed_s, tokens, pairs = (
            self._prefill_s(pieces, self._decoding()) if pieces else (0.0, 0, 0.0)
        )
        last = self.round + 1 if pieces else self._next_change()
        ends = yield from self._pass_rounds(last, mixed_s)
        self.clock = float(ends[-1])
        self.ended_s = (float(ends[-2]) if len(ends) > 1 else self.ended_s[1], self.clock)
        self.round += len(ends)
        running = batch + len(self.prompts)
        self.log.stretches.append(Stretch(start, ends, batch, running, mixed_s, self.gear))
        if self.choice is not None and self.choice.follows:
            self.choice.observe(self._accepted(len(ends)))
        ready = self._advance(pieces)
        if pieces:
            step = (self.clock - mixed_s, self.clock, running, len(ready), tokens, pairs, True)
            self.log.prefills.append(step)
        self._settle(ready)

    def _pass_prefill(self, seconds: float) -> Steps:
        """Let a prefill step pass."""
        self.clock += seconds
        yield self.env.timeout(max(0.0, self.clock - self.env.now))

    def _pass_rounds(self, last: int, mixed_s: float) -> Generator[simpy.Event, Any, Floats]:
        """Let the rounds before `last` pass; returns the ends of those that were run.

        The first of them takes longer by the prompts that join it.
        """
        kv = self.pool.used(self.round, last)
        ends = self.pricers[self.gear].round_s(len(self.batch), kv)
        ends[0] += mixed_s
        ends[0] += self.clock
        ends = ends.cumsum()
        self.interruptible = len(ends) > 1
        try:
            yield self.env.timeout(max(0.0, float(ends[-1]) - self.env.now))
        except simpy.Interrupt:
            ends = ends[: 1 + int(np.searchsorted(ends, self.queue[0].arrival_s))]
            yield self.env.timeout(max(0.0, float(ends[-1]) - self.env.now))
        self.interruptible = False
        return ends

    def _next_change(self) -> int:
        """Round before which nothing changes: a request ends, the gear may, the pool overflows."""
        last = self.ends[0][0]
        if self.choice is not None:
            last = min(last, self.round + self.choice.horizon)
        if len(self.batch) == 1:
            return last
        return self.pool.fills(self.round, last, self._slots()) or last

    def _make_room(self) -> None:
        """Throw requests out of a pool that overflows, from the back; the last one stays."""
        while len(self.batch) > 1 and self.pool.overflows(self.round, self._slots()):
            victim = next((r for r in reversed(self.batch) if self.round < r.end), None)
            if victim is None:
                return
            self._retract(victim)

    def _retract(self, request: Request) -> None:
        self.pool.take_away(self.round, request.course(self.round, self.lag))
        self._cut(request)
        request.retractions += 1
        whole = request.input_len + request.given
        self.log.retractions.append((self.clock, request.request, whole))
        self.pool.reserved -= _reserve(request, self.pool.held)
        del self.batch[request]
        self.ends = [e for e in self.ends if e[2] is not request]
        heapq.heapify(self.ends)
        self.queue.appendleft(request)

    def _decoding(self) -> int:
        """Tokens that the batch decodes or verifies in a round."""
        return int(len(self.batch) * self.plan.verified_per_request)

    def _prefill_s(self, pieces: Pieces, beside: int | None = None) -> tuple[float, int, float]:
        """Seconds, tokens and pairs of a step."""
        tokens, pairs = 0, 0.0
        for request, take in pieces:
            tokens += take
            pairs += take * (request.done + take / 2)
        return self.prefill.seconds(tokens, pairs, beside), tokens, pairs

    def _advance(self, pieces: Pieces) -> list[Request]:
        """Book what a step computed; returns the requests whose prompts are complete."""
        for request, take in pieces:
            request.done += take
            request.left -= take
        ready = []
        while self.prompts and self.prompts[0].left == 0:
            ready.append(self.prompts.popleft())
            self.pool.prompts -= ready[-1].done
        return ready

    def _settle(self, ready: list[Request]) -> None:
        """End a step: requests end (and their clients send others), and others join the batch."""
        while self.ends and self.ends[0][0] == self.round:
            self._finish(heapq.heappop(self.ends)[2])
        for request in ready:
            if math.isnan(request.first_token_s):
                request.first_token_s = self.clock
                self.log.begun_s.append(self.clock)
            request.given += 1
            self._join(request)

    def _join(self, request: Request) -> None:
        """Let a request whose prompt is complete decode from the next round on."""
        if request.gear != self.gear:
            request.change_gear(self.gear, request.offset)
        request.rejoin(self.round)
        request.last_token_s = self.clock
        self.pool.add(self.round, request.course(self.round, self.lag))
        self.batch[request] = None
        leaves = request.end + self.lag
        if leaves == self.round:
            self._finish(request)
        else:
            heapq.heappush(self.ends, (leaves, request.request, request))

    def _choose_gear(self) -> None:
        """Let the policy choose the gear of the next round."""
        if self.choice is None:
            return
        self.choice.look(len(self.batch))
        if self.choice.gear == self.gear:
            return
        self.gear = self.choice.gear
        self.switches += self.round > 0
        for request in self.batch:
            if self.round < request.end:
                self.pool.take_away(self.round, request.course(self.round, self.lag))
                ran = self.round - request.first_round
                request.change_gear(self.gear, request.offset + ran)
                self.pool.add(self.round, request.course(self.round, self.lag))
        self.ends = [(r.end + self.lag, r.request, r) for r in self.batch]
        heapq.heapify(self.ends)

    def _accepted(self, rounds: int) -> list[float]:
        """Drafts accepted per request, of each of the last rounds."""
        first = self.round - rounds
        total, requests = np.zeros(rounds), np.zeros(rounds)
        for request in self.batch:
            active = min(self.round, request.end) - first  # not while it lags
            if active > 0:
                total[:active] += request.run(first, active)
                requests[:active] += 1
        accepted: list[float] = (total / np.maximum(requests, 1.0) - 1.0).clip(0.0).tolist()
        return accepted

    def _cut(self, request: Request) -> None:
        """Write down the rounds that a request ran on end; from here on another run begins."""
        first, need = request.first_round, request.need
        emitted = request.cut(self.round)
        if len(emitted):
            self.log.segments.append(Segment(request.request, first, emitted, need))
            request.last_token_s = self.ended_s[1 - (self.round - request.first_round)]

    def _finish(self, request: Request) -> None:
        request.finished_s = self.clock
        del self.batch[request]
        self.pool.reserved -= _reserve(request, self.pool.held)
        self._cut(request)
        self.log.finished.append(request)
        self.left -= request.request < self.among_first
        if request.answered is not None:
            request.answered()


def _reserve(request: Request, held: float) -> float:
    """Tokens of the pool that admission reserves (System.kv_tokens_per_request)."""
    return request.input_len + ADMITTED_OUTPUT_SHARE * request.output_len + held
