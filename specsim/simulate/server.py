"""The server: admission queue and scheduler, as one SimPy process.

Between two events that change the batch nothing is random any more, for the accepted tokens of a
request are drawn for its whole life. So the scheduler takes all rounds up to the next such event
as one stretch: KV tokens per round come from a sum to which each admission adds its own course,
and the lengths of the rounds from one evaluation. An arrival that could be admitted cuts the
stretch at the end of the round it falls into; so does a KV pool that would overflow.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from specsim.case import Case
from specsim.server.system import ADMITTED_OUTPUT_SHARE
from specsim.simulate.adaptation import GearChoice
from specsim.simulate.arrivals import Steps
from specsim.simulate.demand import Demand
from specsim.simulate.pool import KvPool
from specsim.simulate.pricing import PrefillPricer, RoundPricer
from specsim.simulate.records import Life, Log, Prompt, Segment, Stretch, Tables

if TYPE_CHECKING:
    from specsim.arrays import Floats


Pieces = list[tuple[Prompt, int]]
"""What a step computes: so many tokens of each prompt."""


class Server:
    """Queue, batch and clock of one server.

    Without a policy there is one gear and no `choice`. It serves until `goal` requests of those
    numbered below `among_first` are answered.
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
        among_first: float = math.inf,
    ) -> None:
        self.env, self.demand, self.pricers, self.prefill = env, demand, pricers, prefill
        self.plan = case.plan
        self.pool = KvPool(
            case.pool_tokens,
            case.plan.reserved_tokens_per_request,
            case.workload.shared_prefix_len,
        )
        self.left, self.among_first = goal, among_first
        self.choice = choice
        self.gear = choice.gear if choice else 0
        self.switches = 0
        self.log = Log()
        self.lives: list[Life] = []
        self.queue: deque[int] = deque()
        self.prompts: deque[Prompt] = deque()
        self.batch: dict[int, None] = {}  # in order of admission
        self.ends: list[tuple[int, int]] = []  # heap of (round after its last, request)
        self.round = 0
        self.clock = 0.0
        self.idle: simpy.Event | None = None
        self.interruptible = False
        self.process: simpy.Process | None = None

    def start(self) -> simpy.Process:
        """Start serving; the process ends when the goal is reached."""
        self.process = self.env.process(self._serve())
        return self.process

    def tables(self) -> Tables:
        """Return the records of a run that has ended."""
        for request in self.batch:
            life = self.lives[request]
            run = min(life.rounds, self.round - life.first_round)
            self.log.segments.append(Segment(request, life.first_round, run, life.offset))
        waiting = [*self.queue, *(prompt.request for prompt in self.prompts)]
        kv = self.pool.used[: self.round]
        return Tables.of(self.log, self.lives, self.demand, kv, waiting)

    # --- the clients' side

    def submit(self, answered: simpy.Event | None = None) -> int:
        """Take the next request of the demand at this moment, and return its number."""
        request = self._issue(self.env.now, answered)
        self.queue.append(request)
        if self.idle is not None:
            self.idle.succeed()
            self.idle = None
        elif self.interruptible and self.queue[0] == request and self._fits(request):
            assert self.process is not None
            self.interruptible = False
            self.process.interrupt()
        return request

    def begin_with(self, count: int) -> list[simpy.Event]:
        """Start with up to `count` requests in progress, as many as fit; returns their answers."""
        answers: list[simpy.Event] = []
        self.demand.in_progress(count)
        for request in range(count):
            if not self._fits(request):
                self.demand.forget_after(request)
                break
            answers.append(self.env.event())
            self._issue(0.0, answers[-1])
            life = self.lives[request]
            life.admitted_s = life.first_token_s = 0.0
            life.in_progress = True
            life.given = self.demand.given[request]
            self.pool.reserved += self._need(request)
            self._join(request)
        return answers

    def _issue(self, arrival_s: float, answered: simpy.Event | None) -> int:
        request = len(self.lives)
        self.demand.ensure(request + 1)
        self.lives.append(Life(arrival_s, answered=answered))
        return request

    # --- admission

    def _need(self, request: int) -> float:
        """Tokens of the pool that admission reserves (System.kv_tokens_per_request)."""
        demand = self.demand
        output = ADMITTED_OUTPUT_SHARE * demand.output_len[request]
        return demand.input_len[request] + output + self.pool.held

    def _slots(self) -> int:
        return len(self.batch) + len(self.prompts)

    def _fits(self, request: int) -> bool:
        """Whether a slot is free, and the pool has room."""
        slots = self._slots()
        if slots == 0:
            return True
        if slots >= self.plan.running_cap:
            return False
        given = self.lives[request].given if request < len(self.lives) else 0
        text = self.demand.input_len[request] + given
        return self.pool.admits(self._need(request), text, slots, self.round)

    def _take_prompts(self) -> Pieces:
        """Fill a step with prompt tokens: chunked prompts first, then the queue in order."""
        room = self.plan.chunked_prefill_size
        if self.plan.prefill == "mixed":  # the tokens of those that decode come first
            room = max(room - int(len(self.batch) * self.plan.verified_per_request), 0)
        pieces: Pieces = []
        for prompt in self.prompts:
            if room > 0:
                pieces.append((prompt, min(prompt.left, room)))
                room -= min(prompt.left, room)
        while room > 0 and self.queue and self._fits(self.queue[0]):
            prompt = self._admit(self.queue.popleft())
            pieces.append((prompt, min(prompt.left, room)))
            room -= min(prompt.left, room)
        return pieces

    def _admit(self, request: int) -> Prompt:
        life = self.lives[request]
        if math.isnan(life.admitted_s):
            life.admitted_s = self.clock
        self.pool.reserved += self._need(request)
        new = self.demand.new_tokens[request] + life.given
        whole = self.demand.input_len[request] + life.given
        self.pool.prompts += whole
        prompt = Prompt(request, whole - new, new)
        self.prompts.append(prompt)
        return prompt

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

    def _prefill_step(self, pieces: Pieces) -> Steps:
        start = self.clock
        seconds, tokens, pairs = self._prefill_s(pieces, mixed=False)
        yield from self._pass_prefill(seconds)
        running = self._slots()
        ready = self._advance(pieces)
        step = (start, self.clock, running, len(ready), tokens, pairs, False)
        self.log.prefills.append(step)
        yield from self._settle(ready)

    def _decode(self, pieces: Pieces) -> Steps:
        if self._overflows():
            self._make_room()
        batch = len(self.batch)
        swap_s = self._choose_gear()
        mixed_s, tokens, pairs = self._prefill_s(pieces, mixed=True) if pieces else (0.0, 0, 0.0)
        last = self.round + 1 if pieces else self._next_change()
        bounds = yield from self._pass_rounds(last, swap_s, mixed_s)
        self.clock = float(bounds[-1])
        self.round += len(bounds) - 1
        running = batch + len(self.prompts)
        self.log.stretches.append(Stretch(bounds, batch, running, mixed_s, self.gear))
        if self.choice is not None and self.choice.follows:
            self.choice.observe(self._accepted(len(bounds) - 1))
        ready = self._advance(pieces)
        if pieces:
            step = (self.clock - mixed_s, self.clock, running, len(ready), tokens, pairs, True)
            self.log.prefills.append(step)
        yield from self._settle(ready)

    def _pass_prefill(self, seconds: float) -> Steps:
        """Let a prefill step pass."""
        self.clock += seconds
        yield self.env.timeout(max(0.0, self.clock - self.env.now))

    def _pass_rounds(
        self, last: int, swap_s: float, mixed_s: float
    ) -> Generator[simpy.Event, Any, Floats]:
        """Let the rounds before `last` pass; returns the bounds of those that were run.

        The first of them takes longer by a change of the gear and by the prompts that join it.
        """
        kv = self.pool.used[self.round : last]
        bounds = np.empty(len(kv) + 1)
        bounds[0] = self.clock
        bounds[1:] = self.pricers[self.gear].round_s(len(self.batch), kv)
        bounds[1] += mixed_s + swap_s
        bounds = bounds.cumsum()
        self.interruptible = len(bounds) > 2
        try:
            yield self.env.timeout(max(0.0, float(bounds[-1]) - self.env.now))
        except simpy.Interrupt:
            arrival = self.lives[self.queue[0]].arrival_s
            bounds = bounds[: 2 + int(np.searchsorted(bounds[1:], arrival))]
            yield self.env.timeout(max(0.0, float(bounds[-1]) - self.env.now))
        self.interruptible = False
        return bounds

    def _next_change(self) -> int:
        """Round before which nothing changes: a request ends, the gear may, the pool overflows."""
        last = self.ends[0][0]
        if self.choice is not None:
            last = min(last, self.round + self.choice.horizon)
        room, used = self.pool.room(self._slots()), self.pool.used
        if used[last - 1] > room and len(self.batch) > 1:
            fits = int(np.searchsorted(used[self.round : last], room, side="right"))
            return self.round + fits if fits else last
        return last

    def _overflows(self) -> bool:
        return bool(self.pool.used[self.round] > self.pool.room(self._slots()))

    def _make_room(self) -> None:
        """Throw requests out of a pool that overflows, from the back; the last one stays."""
        while len(self.batch) > 1 and self._overflows():
            victim = next((r for r in reversed(self.batch) if self.round < self.lives[r].end), None)
            if victim is None:
                return
            self._retract(victim)

    def _retract(self, request: int) -> None:
        life, demand = self.lives[request], self.demand
        done = self.round - life.first_round
        self._add_course(request, self.round, -1)
        self.log.segments.append(Segment(request, life.first_round, done, life.offset))
        tokens = demand.tokens[request][life.offset : life.offset + done]
        life.given += int(tokens.sum())
        life.offset += done
        life.retractions += 1
        whole = demand.input_len[request] + life.given
        self.log.retractions.append((self.clock, request, whole))
        self.pool.reserved -= self._need(request)
        del self.batch[request]
        self.ends = [e for e in self.ends if e[1] != request]
        heapq.heapify(self.ends)
        self.queue.appendleft(request)

    def _prefill_s(self, pieces: Pieces, mixed: bool) -> tuple[float, int, float]:
        """Seconds, tokens and pairs of a step."""
        tokens = sum(take for _, take in pieces)
        pairs = sum(take * (prompt.done + take / 2) for prompt, take in pieces)
        return self.prefill.seconds(tokens, pairs, mixed), tokens, pairs

    def _advance(self, pieces: Pieces) -> list[int]:
        """Book what a step computed; returns the requests whose prompts are complete."""
        for prompt, take in pieces:
            prompt.done += take
            prompt.left -= take
        ready = []
        while self.prompts and self.prompts[0].left == 0:
            prompt = self.prompts.popleft()
            self.pool.prompts -= prompt.done
            ready.append(prompt.request)
        return ready

    def _settle(self, ready: list[int]) -> Steps:
        """End of a step: requests end, others join the batch, clients answer at once."""
        before = len(self.log.completions)
        while self.ends and self.ends[0][0] == self.round:
            self._finish(heapq.heappop(self.ends)[1])
        for request in ready:
            life = self.lives[request]
            if math.isnan(life.first_token_s):
                life.first_token_s = self.clock
            life.given += 1
            self._join(request)
        if len(self.log.completions) > before:
            yield self.env.timeout(0.0)

    def _join(self, request: int) -> None:
        """Let a request whose prompt is complete decode from the next round on."""
        life, demand = self.lives[request], self.demand
        if demand.gear[request] != self.gear:
            need = demand.output_len[request] - life.given
            left = demand.change_gear(request, self.gear, life.offset, need)
            demand.rounds[request] = life.offset + left
        life.first_round = self.round
        life.last_token_s = self.clock
        life.rounds = self._rounds_left(request) if life.retractions else demand.rounds[request]
        lag = self.plan.finish_lag_rounds
        self._add_course(request, self.round, 1)
        self.batch[request] = None
        if life.rounds + lag == 0:
            self._finish(request)
        else:
            heapq.heappush(self.ends, (life.end + lag, request))

    def _rounds_left(self, request: int) -> int:
        """Count the rounds still needed after a retraction, from the same draws."""
        life, demand = self.lives[request], self.demand
        need = demand.output_len[request] - life.given
        emitted = np.cumsum(demand.tokens[request][life.offset :], dtype=np.int64)
        return int(np.searchsorted(emitted, need)) + 1 if need > 0 else 0

    def _add_course(self, request: int, first: int, sign: int) -> None:
        """Add (or take away) a request's KV tokens from round `first` on, and while it lags."""
        life, demand = self.lives[request], self.demand
        at = life.offset + first - life.first_round
        course = demand.kv[request][at : at + life.end - first]
        if life.retractions and life.end > first:  # its course starts at what it has now
            start = demand.input_len[request] + life.given
            course = course + (start - demand.kv[request][life.offset])
        self.pool.add(first, course, sign)
        whole = demand.input_len[request] + demand.output_len[request]
        self.pool.add(life.end, np.full(self.plan.finish_lag_rounds, float(whole)), sign)

    def _choose_gear(self) -> float:
        """Let the policy choose the gear of the next round; returns what changing takes, s."""
        if self.choice is None:
            return 0.0
        self.choice.look(len(self.batch), self.round)
        if self.choice.gear == self.gear:
            return 0.0
        self.gear = self.choice.gear
        self.ends = [(self._shift(request), request) for request in self.batch]
        heapq.heapify(self.ends)
        if self.round == 0:
            return 0.0
        self.switches += 1
        return self.choice.policy.switch_s

    def _shift(self, request: int) -> int:
        """Let a running request emit in the new gear from now on; returns when it leaves."""
        life, demand, now = self.lives[request], self.demand, self.round
        if now < life.end:
            self._add_course(request, now, -1)
            done = now - life.first_round
            at = life.offset + done
            emitted = int(demand.tokens[request][life.offset : at].sum())
            need = demand.output_len[request] - life.given - emitted
            life.rounds = done + demand.change_gear(request, self.gear, at, need)
            self._add_course(request, now, 1)
        return life.end + self.plan.finish_lag_rounds

    def _accepted(self, rounds: int) -> list[float]:
        """Drafts accepted per request, of each of the last rounds."""
        first = self.round - rounds
        total, requests = np.zeros(rounds), np.zeros(rounds)
        for request in self.batch:
            life = self.lives[request]
            active = min(self.round, life.end) - first  # not while it lags
            if active > 0:
                at = life.offset + first - life.first_round
                total[:active] += self.demand.tokens[request][at : at + active]
                requests[:active] += 1
        accepted: list[float] = (total / np.maximum(requests, 1.0) - 1.0).clip(0.0).tolist()
        return accepted

    def _finish(self, request: int) -> None:
        life = self.lives[request]
        life.finished_s = self.clock
        del self.batch[request]
        self.pool.reserved -= self._need(request)
        self.log.segments.append(Segment(request, life.first_round, life.rounds, life.offset))
        self.log.completions.append(request)
        self.left -= request < self.among_first
        if life.answered is not None:
            life.answered.succeed()
