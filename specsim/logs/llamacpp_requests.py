"""llama-server's slots: which requests they served, when, and what each request was given."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

_TIMING = re.compile(
    rb"(?P<what>(?:\A|[\s:|])prompt eval| {4,}eval) time = +(?P<ms>\d{1,12}\.\d\d) ms / +"
    rb"(?P<n>\d{1,9}) tokens +\( *(?P<each>\d{1,9}\.\d\d) ms per token, +"
    rb"(?P<tps>\d{1,9}\.\d\d|inf) tokens per second\)\s*\Z"
)
_ACCEPTANCE = re.compile(
    rb"draft acceptance(?: rate)? = +([01]\.\d{3,8}) "
    rb"\( *(\d{1,9}) accepted / +(\d{1,9}) generated\)"
    rb"(?:, mean len = +(\d{1,4}\.\d\d)\s*\Z)?"
)
_POSITIONS = re.compile(rb"acc per pos = \(([01]\.\d{3}(?:, [01]\.\d{3}){0,63})\)\s*\Z")
_WHO = re.compile(rb"\bid +(\d{1,4}) \| task +(-?\d{1,9}) \|")
_PROMPT = re.compile(rb"new prompt, .*\b(?:task\.n_tokens|n_prompt_tokens) = (\d{1,9})\s*\Z")
_TIME = re.compile(rb"(?:\A|[\s\]:])(\d{1,5})\.([0-5]\d)\.(\d{3})\.(\d{3}) [A-Z] ")

CONTRADICTION = "numbers contradict each other"
_BACKWARDS_S = 1.0
"""Lines of several threads are out of order by less; more, and it is another server's clock."""


@dataclass(slots=True)
class Request:
    """One request; durations in s, times in s since the server began.

    Attributes
    ----------
    slot, task
        Of the server; empty where the log does not say.
    launched_s, begun_s, closed_s
        When its slot took it, began with its prompt and let it go.
    end_s
        When its timings were printed, which is right after its last token.
    context_tokens
        Length of the prompt, what was cached included.
    prompt_tokens, prompt_s, tokens, eval_s
        As printed; ``tokens`` counts the first one, which the prefill gives.
    accepted, drafted, positions
        Drafts, and P(at least d accepted) over the rounds that drafted.
    listed
        Whether it is among the requests of its server; lines of an idle slot name none.
    """

    slot: bytes = b""
    task: bytes = b""
    launched_s: float | None = None
    begun_s: float | None = None
    closed_s: float | None = None
    end_s: float | None = None
    context_tokens: int | None = None
    prompt_tokens: int = 0
    prompt_s: float | None = None
    tokens: int | None = None
    eval_s: float = 0.0
    accepted: int | None = None
    drafted: int = 0
    positions: tuple[float, ...] = ()
    listed: bool = False

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
    """Collects the requests of one server, line by line.

    Attributes
    ----------
    requests
        In the order in which the log first names them.
    timed_slots
        Slots that printed timings.
    unread
        Reason -> lines that look like measurements and could not be read.
    now_s
        The latest time stamp.
    in_order
        Whether time never went back: else the log is of more than one server.
    prompts
        Tokens, seconds and count of all prefills, those of lost requests too.
    """

    requests: list[Request] = field(default_factory=list)
    timed_slots: set[bytes] = field(default_factory=set)
    unread: Counter[str] = field(default_factory=Counter)
    now_s: float | None = None
    in_order: bool = True
    prompts: tuple[int, float, int] = (0, 0.0, 0)
    _by_slot: dict[bytes, Request] = field(default_factory=dict)
    _last: Request | None = None
    _line_s: float | None = None
    _only_n: int = 0
    _only_steps: int = 0
    _conventions: list[tuple[Request, bool, bool]] = field(default_factory=list)

    def read(self, line: bytes) -> None:
        """Take in a line of a slot, or one of timings."""
        who = _WHO.search(line)
        if who and b"timing" in line:
            self.timed_slots.add(who[1])
        request = self._request(who) if who else self._last
        time_s = self._line_s = line_time(line) if who else self._line_s
        if who and time_s is not None:
            self.in_order &= self.now_s is None or time_s > self.now_s - _BACKWARDS_S
            self.now_s = max(time_s, self.now_s or 0.0)
        timing = _TIMING.search(line)
        if timing:
            self._timing(timing, request, who, time_s)
        elif b"eval time =" in line and b" runs " not in line:
            self.unread["damaged field"] += 1
        elif b"draft acceptance" in line:
            self._acceptance(_ACCEPTANCE.search(line), request)
        elif request is not None and who:
            _event(line, request, time_s)

    def finish(self) -> None:
        """Drop timings that do not keep to the convention of the others."""
        steps = self.counts_steps
        for request, by_n, by_steps in self._conventions:
            if not (by_steps if steps else by_n):
                self.unread[CONTRADICTION] += 1
                request.tokens = None
        self._conventions = []

    @property
    def counts_steps(self) -> bool:
        """Whether times per token are of n - 1 tokens, as since build 11 thousand or so."""
        return self._only_steps > self._only_n

    def _request(self, who: re.Match[bytes]) -> Request:
        """Return the request that a line is about, and make it the last one."""
        slot, task = who[1], who[2]
        request = self._by_slot.get(slot)
        again = request is not None and request.known and b"| processing task" in who.string
        if request is None or request.task != task or again:
            request = self._new(slot, task, task != b"-1")
        self._last = request
        return request

    def _new(self, slot: bytes, task: bytes, listed: bool) -> Request:
        request = Request(slot, task, listed=listed)
        if listed:
            self.requests.append(request)
            self._by_slot[slot] = request
        return request

    def _timing(
        self,
        found: re.Match[bytes],
        request: Request | None,
        who: re.Match[bytes] | None,
        time_s: float | None,
    ) -> None:
        n, seconds = int(found["n"]), float(found["ms"]) / 1e3
        prompt = b"prompt" in found["what"]
        by_n = _agrees(found, n)
        by_steps = not prompt and n > 0 and _agrees(found, n - 1)
        if not by_n and not by_steps:
            self.unread[CONTRADICTION] += 1
            return
        if request is None or not _takes(request, prompt):
            slot, task = (who[1], who[2]) if who else (b"", b"")
            request = self._last = self._new(slot, task, True)
        if prompt:
            request.prompt_tokens, request.prompt_s = n, seconds
            tokens, total_s, count = self.prompts
            self.prompts = tokens + n, total_s + seconds, count + 1
            request.end_s = time_s
            return
        request.tokens, request.eval_s = n, seconds
        request.end_s = time_s if request.end_s is None else request.end_s
        self._only_n += by_n and not by_steps
        self._only_steps += by_steps and not by_n
        self._conventions.append((request, by_n, by_steps))

    def _acceptance(self, found: re.Match[bytes] | None, request: Request | None) -> None:
        reason = "damaged field"
        if found:
            reason = _wrong_acceptance(found, request) or ""
            if not reason and request is not None:
                request.accepted, request.drafted = int(found[2]), int(found[3])
        if reason:
            self.unread[reason] += 1


def line_time(line: bytes) -> float | None:
    """Return the time of a line, s since the server began; None where it has none.

    llama.cpp's ``common/log.cpp`` prints minutes, seconds, milli- and microseconds.

    >>> line_time(b"1.06.794.351 I slot ")
    66.794351
    """
    found = _TIME.search(line[:200])
    if not found:
        return None
    minutes, seconds, milli, micro = (int(group) for group in found.groups())
    return minutes * 60 + seconds + (milli * 1000 + micro) / 1e6


def _takes(request: Request, prompt: bool) -> bool:
    """Whether a timing can be of a request that a line named last."""
    return request.listed and not request.known and not (prompt and request.prompt_s is not None)


def _agrees(found: re.Match[bytes], tokens: int) -> bool:
    """Whether the printed time per token and its inverse are of so many tokens."""
    ms, each, tps = float(found["ms"]), float(found["each"]), found["tps"]
    if tokens and abs(ms / tokens - each) > 0.006 + 1e-4 * each:
        return False
    if not tokens and each:
        return int(found["n"]) == 0
    if not ms or tps == b"inf":
        return True
    speed = 1e3 * tokens / ms
    return abs(speed - float(tps)) <= 0.006 + 1e-3 * speed


def _wrong_acceptance(found: re.Match[bytes], request: Request | None) -> str | None:
    rate, accepted, drafted = float(found[1]), int(found[2]), int(found[3])
    if not drafted or accepted > drafted or abs(accepted / drafted - rate) > 0.001:
        return CONTRADICTION
    free = request is not None and request.accepted is None
    tokens = request.tokens if request is not None and free else None
    if tokens is None or accepted >= tokens:
        return "more drafts accepted than tokens emitted"
    if found[4] and accepted:
        mean = float(found[4])  # 1 + accepted / rounds that drafted, of which each gives a token
        if mean <= 1.0 or accepted / (mean - 1.0 + 0.006) > tokens:
            return CONTRADICTION
    return None


def _event(line: bytes, request: Request, time_s: float | None) -> None:
    """Take in what is no timing: begin, prompt, end, rates by position."""
    if b"| processing task" in line:
        request.launched_s = time_s
    elif b"| stop processing" in line:
        request.closed_s = time_s
    elif b"new prompt, " in line:
        found, request.begun_s = _PROMPT.search(line), time_s
        request.context_tokens = int(found[1]) if found else request.context_tokens
    elif b"acc per pos" in line:
        found = _POSITIONS.search(line)
        rates = tuple(float(p) for p in found[1].split(b", ")) if found else ()
        if all(b <= a for a, b in pairwise((1.0, *rates))):
            request.positions = rates
