"""llama-server's slots: which requests they served, when, and what each request was given."""

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from specsim.logs.formats import patterns
from specsim.logs.unread import CONTRADICTION, DAMAGED, Unread, check

_LINE = patterns("llama.cpp")
INDENT = b"    "  # before ``eval``: without it, it may be the rest of a torn ``prompt eval``
_DIGITS = re.compile(rb"\d+")
_BACKWARDS_S = 1.0  # lines of threads are out of order by less; more is another server's clock


@dataclass(slots=True)
class Request:
    """One request; durations in s, times in s since the server began."""

    slot: bytes = b""  # empty where the log does not say
    task: bytes = b""
    listed: bool = True  # among the requests of its server; lines of an idle slot name none
    launched_s: float | None = None  # when its slot took it,
    begun_s: float | None = None  # began with its prompt
    closed_s: float | None = None  # and let it go
    end_s: float | None = None  # when its timings were printed, right after its last token
    context_tokens: int | None = None  # of the prompt, what was cached included
    prompt_tokens: int = 0
    prompt_s: float | None = None
    progress: tuple[int, float] | None = None  # tokens that it had got, and in which time
    tokens: int | None = None  # the first one, which the prefill gives, included
    eval_s: float = 0.0
    accepted: int | None = None  # drafted tokens
    drafted: int = 0
    positions: tuple[float, ...] = ()  # P(at least d accepted) over the rounds that drafted

    @property
    def known(self) -> bool:
        """Whether the log says how many tokens it got."""
        return self.tokens is not None

    @property
    def decoded(self) -> int:
        """Tokens that rounds of decoding gave."""
        return max((self.tokens or 0) - 1, 0)

    @property
    def drafting_rounds(self) -> int:
        """Rounds that verified a draft, from the rates by position."""
        mean = sum(self.positions)
        return round((self.accepted or 0) / mean) if mean > 0 else 0

    @property
    def rounds(self) -> int:
        """Rounds of decoding: each gives one token beside the drafts that it accepts.

        An end of text within accepted drafts cuts tokens off, not rounds.
        """
        least = min(self.drafting_rounds, self.decoded)
        return max(self.decoded - (self.accepted or 0), least)

    @property
    def first_s(self) -> float | None:
        """When its first token was out."""
        return None if self.end_s is None else self.end_s - self.eval_s

    @property
    def start_s(self) -> float | None:
        """When its slot began with it."""
        if self.launched_s is not None or self.first_s is None:
            return self.launched_s
        return self.first_s - (self.prompt_s or 0.0)


@dataclass(slots=True)
class Slots:
    """Collects the requests of one server, line by line."""

    requests: list[Request] = field(default_factory=list)  # as the log first names them
    timed_slots: set[bytes] = field(default_factory=set)  # that printed timings
    unread: Counter[str] = field(default_factory=Counter)
    now_s: float | None = None  # the latest time stamp
    unfinished: bool = False  # no request ended: what is known is how far they were
    in_order: bool = True  # time never went back: else the log is of more than one server
    prefills_s: list[float] = field(default_factory=list)  # of all, those of lost requests too
    _by_slot: dict[bytes, Request] = field(default_factory=dict)
    _last: Request | None = None
    _line_s: float | None = None
    _above: bytes | None = None  # how the last line begins, if it is a prompt's timing
    _under: bytes | None = None  # the same of the line before
    _prompts: bool = False  # a line spoke of prompts, whole or torn
    # Requests with timings; whether these are of n tokens, and of n - 1.
    _timed: list[tuple[Request, bool, bool]] = field(default_factory=list)

    def read(self, line: bytes) -> None:
        """Take in a line of a slot, or one of timings; raise :class:`Unread` if it is damaged."""
        if who := _LINE["who"].search(line):
            self._named(line, slot=who[1], task=who[2])
        if (timing := _LINE["timing"].match(line)) and timing["of"] == b"tokens":
            check(self._is_whole(timing), DAMAGED)
            self._timing(timing, who)
        elif b"eval time =" in line and b" runs " not in line:
            raise Unread(DAMAGED)
        elif progress := _LINE["progress"].search(line):
            self._progress(int(progress[1]), float(progress[2]))
        elif b"draft acceptance" in line:
            _accept(_LINE["acceptance"].search(line), self._last)
        elif who and self._last is not None:
            _event(line, self._last, self._line_s)

    def see(self, line: bytes) -> None:
        """Look at any line, before it is read: it may be a piece of one."""
        self._prompts |= b"prompt" in line
        self._under, self._above = self._above, None

    def finish(self) -> None:
        """Drop timings that do not keep to the convention of the others.

        Where no request ended, each is taken as far as it was.
        """
        steps = self.counts_steps
        for request, by_n, by_steps in self._timed:
            if not (by_steps if steps else by_n):
                self.unread[CONTRADICTION] += 1
                request.tokens = None
        self.unfinished = not any(request.known for request in self.requests)
        for request in self.requests if self.unfinished else ():
            if request.progress:
                request.tokens, request.eval_s = request.progress

    @property
    def counts_steps(self) -> bool:
        """Whether times per token are of n - 1 tokens, as since build 11 thousand or so."""
        return sum(by_steps - by_n for _, by_n, by_steps in self._timed) > 0

    def _is_whole(self, timing: re.Match[bytes]) -> bool:
        """Whether a timing is no rest of a torn one.

        A paste that lost its indents has it right under the prompt's line, and both begin alike; or
        it lost all that is said of prompts.
        """
        before = _DIGITS.sub(b"", timing["before"]).rstrip(b" ")
        if timing["prompt"]:
            self._above = before
        if timing["prompt"] or timing["before"].endswith(INDENT):
            return True
        alone = not self._prompts and _LINE["no_indent"].fullmatch(timing["before"]) is not None
        return alone or before == self._under

    def _named(self, line: bytes, slot: bytes, task: bytes) -> None:
        """Find the request and the time of a line that names its slot."""
        request = self._by_slot.get(slot)
        again = request is not None and request.known and b"| processing task" in line
        if request is None or request.task != task or again:
            request = self._new(Request(slot, task, listed=task != b"-1"))
        self._last, self._line_s = request, line_time(line)
        if self._line_s is not None:
            self.in_order &= self.now_s is None or self._line_s > self.now_s - _BACKWARDS_S
            self.now_s = max(self._line_s, self.now_s or 0.0)
        if b"timing" in line:
            self.timed_slots.add(slot)

    def _new(self, request: Request) -> Request:
        if request.listed:
            self.requests.append(request)
            self._by_slot[request.slot] = request
        return request

    def _progress(self, tokens: int, tps: float) -> None:
        request = self._last
        if request is None or not request.listed or request.known:
            request = self._last = self._new(Request())
        if tps > 0:
            request.progress, request.end_s = (tokens, tokens / tps), self._line_s

    def _timing(self, found: re.Match[bytes], who: re.Match[bytes] | None) -> None:
        n, seconds = int(found["n"]), float(found["ms"]) / 1e3
        prompt = found["prompt"] is not None
        by_n = _agrees(found, n)
        by_steps = not prompt and n > 0 and _agrees(found, n - 1)
        check(by_n or by_steps, CONTRADICTION)
        request = self._last
        again = request is not None and prompt and request.prompt_s is not None
        if request is None or not request.listed or request.known or again:
            request = self._last = self._new(Request(who[1], who[2]) if who else Request())
        if prompt:
            request.prompt_tokens, request.prompt_s = n, seconds
            request.end_s = self._line_s
            self.prefills_s.append(seconds)
            return
        request.tokens, request.eval_s = n, seconds
        request.end_s = self._line_s if request.prompt_s is None else request.end_s
        self._timed.append((request, by_n, by_steps))


def line_time(line: bytes) -> float | None:
    """Return the time of a line, s since the server began; None where it has none.

    llama.cpp's ``common/log.cpp`` prints minutes, seconds, milli- and microseconds.

    >>> line_time(b"1.06.794.351 I slot ")
    66.794351
    """
    found = _LINE["time"].search(line[:200])
    if not found:
        return None
    minutes, seconds, milli, micro = map(int, found.groups())
    return minutes * 60 + seconds + (milli * 1000 + micro) / 1e6


def _agrees(found: re.Match[bytes], tokens: int) -> bool:
    """Whether the printed time per token and its inverse are of so many tokens."""
    ms, each, tps = (float(found[name]) for name in ("ms", "each", "tps"))
    if tokens and abs(ms / tokens - each) > 0.006 + 1e-4 * each:
        return False
    if not tokens and each:
        return int(found["n"]) == 0
    if not ms or tps == math.inf:
        return True
    speed = 1e3 * tokens / ms
    return abs(speed - tps) <= 0.006 + 1e-3 * speed


def _accept(found: re.Match[bytes] | None, request: Request | None) -> None:
    if not found:
        raise Unread(DAMAGED)
    rate, accepted, drafted = float(found[1]), int(found[2]), int(found[3])
    agree = drafted and accepted <= drafted and abs(accepted / drafted - rate) <= 0.001
    check(agree, CONTRADICTION)
    tokens = (request.tokens or 0) if request is not None and request.accepted is None else 0
    if request is None or accepted >= tokens:
        raise Unread("more drafts accepted than tokens emitted")
    if found[4] and accepted:
        mean = float(found[4])  # 1 + accepted / rounds that drafted, of which each gives a token
        check(mean > 1.0 and accepted / (mean - 1.0 + 0.006) <= tokens, CONTRADICTION)
    request.accepted, request.drafted = accepted, drafted


def _event(line: bytes, request: Request, time_s: float | None) -> None:
    """Take in what is no timing: begin, prompt, end, rates by position."""
    if b"| processing task" in line:
        request.launched_s = time_s
    elif b"| stop processing" in line:
        request.closed_s = time_s
    elif b"new prompt, " in line:
        request.begun_s = time_s
        if found := _LINE["prompt"].search(line):
            request.context_tokens = int(found[1])
    elif found := _LINE["positions"].search(line):
        rates = tuple(map(float, found[1].split(b", ")))
        if all(b <= a for a, b in pairwise((1.0, *rates))):
            request.positions = rates
