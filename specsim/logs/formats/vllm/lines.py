"""Grammar of vLLM's periodic lines: engine throughput and speculative-decoding metrics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from specsim.logs.unread import CONTRADICTION, DAMAGED, TRUNCATED, TWO_IN_ONE, Unread, check

ENGINE_MARK = b"Avg generation throughput: "
SPEC_MARK = b"SpecDecoding metrics: "
OLD_SPEC_MARK = b"Speculative metrics: "
_PROMPT_MARK = b"Avg prompt throughput: "

ENGINE = ("prompt", "tps", "running", "waiting", "usage")
"""Columns of a throughput line; `usage` is in percent."""
DRAFTING = ("length", "speed", "accepted", "drafted", "positions", "rate")
"""Columns of a drafting line: `speed` is accepted tokens/s, `positions` are the per-position rates,
`rate` is in percent."""

Values = tuple[bytes, ...]
"""As printed, empty where a line does not say: columns are converted many at a time."""

NO_DRAFTS = "nothing was drafted"
RATE_TOLERANCE = 0.0006
"""Printed fractions may be off by half of their last digit."""

_END = rb"(?:, |\.(?=\s|\Z))?(?:\s|`|\\n\"|\|END)*(?:\"[^\n]*)?\s*\Z"
"""What a copy of a line may carry after it."""
_RATE = rb"Draft acceptance rate: (?P<rate>\d{1,3}\.\d)%"
_LENGTH = rb"Mean acceptance length: (?P<length>\d{1,3}\.\d\d)"
_COUNTS = rb"Accepted: (?P<accepted>\d{1,12}) tokens, Drafted: (?P<drafted>\d{1,12}) tokens"
_SPEEDS = (
    rb"Accepted throughput: (?P<speed>\d{1,9}\.\d\d) tokens/s, "
    rb"Drafted throughput: \d{1,9}\.\d\d tokens/s"
)
_POSITIONS = rb"Per-position acceptance rate: (?P<positions>[01]\.\d{3}(?:, [01]\.\d{3}){0,63})"


@dataclass(frozen=True, slots=True)
class Generation:
    """Drafting lines of some versions; the named groups are the columns."""

    versions: str
    pattern: re.Pattern[bytes]


def _line(versions: str, pattern: bytes) -> Generation:
    absent = [name.encode() for name in DRAFTING if b"?P<%s>" % name.encode() not in pattern]
    groups = b"".join(b"(?P<%s>)" % name for name in absent)
    return Generation(versions, re.compile(pattern + groups + _END))


GENERATIONS = (
    _line(
        "0.10.2-0.33.0",
        rb"%s(?:, %s)?, %s(?:, %s)?(?:, Avg %s)?"
        % (SPEC_MARK + _LENGTH, _SPEEDS, _COUNTS, _POSITIONS, _RATE),
    ),
    _line(
        "0.8.5-0.9.2",  # the positions tell whether the length has the bonus token in it
        rb"%s(?:%s, )?(?:%s, )?(?:%s, )?%s, %s"
        % (SPEC_MARK, _RATE, _LENGTH, _SPEEDS, _COUNTS, _POSITIONS),
    ),
    _line(
        "before 0.8.5",  # a length without positions may be either
        rb"%s(?:%s, )?(?:Mean acceptance length: [\d.]{4,6}, )?(?:%s, )?%s"
        % (SPEC_MARK, _RATE, _SPEEDS, _COUNTS),
    ),
    _line(
        "before 0.8.5",  # here the rate is a fraction: see `parse_spec_line`
        OLD_SPEC_MARK + rb"Draft acceptance rate: (?P<rate>\d\.\d{3}), "
        rb"Number of accepted tokens: (?P<accepted>\d{1,12}), "
        rb"Number of draft tokens: (?P<drafted>\d{1,12}),? ?",
    ),
)
"""The first that fits is it."""

_THROUGHPUT = (
    rb"Avg prompt throughput: (?P<prompt>\d{1,9}\.\d) tokens/s, "
    rb"Avg generation throughput: (?P<tps>\d{1,9}\.\d) tokens/s, "
    rb"Running: (?P<running>\d{1,7}) reqs, "
)
_SOURCE_LINE = rb" \[[^\]\n]{1,40}\] "

_REGULAR = re.compile(
    rb"(?m:^)([^\[\n]{0,120})%sEngine (\d{1,4}): " % _SOURCE_LINE
    + _THROUGHPUT
    + rb"Waiting: (\d{1,7}) reqs, GPU KV cache usage: (\d{1,2}\.\d|100\.0)%, "
    rb"Prefix cache hit rate: \d{1,3}\.\d%\r?\n"
    + rb"(?:\1%s%s%s, %s, %s, %s, Avg %s\r?\n)?"
    % (_SOURCE_LINE, SPEC_MARK, _LENGTH, _SPEEDS, _COUNTS, _POSITIONS, _RATE)
)
"""A throughput line, and the drafting line under it, as the present versions print them."""


def parse_regular(lines: Sequence[bytes]) -> list[Values] | None:
    """Read throughput and drafting lines at once; None if any is not as now usual.

    Returns
    -------
    list of tuple
        For each interval what stands before its lines, the name of the engine, and the values in
        the order of `ENGINE` and `DRAFTING`.
    """
    found = _REGULAR.findall(b"".join(lines))
    drafting = sum(values[-1] != b"" for values in found)
    return found if len(found) + drafting == len(lines) else None


_V0 = re.compile(
    OLD_SPEC_MARK + rb"Draft acceptance rate: (\d\.\d{3}), System efficiency: (\d\.\d{3}), "
    rb"Number of speculative tokens: (\d{1,3}), Number of accepted tokens: (\d{1,12}), "
    rb"Number of draft tokens: (\d{1,12}), Number of emitted tokens: (\d{1,12})\.\s*\Z"
)
_ENGINE = re.compile(
    _THROUGHPUT + rb"(?:Swapped: \d{1,7} reqs, )?"
    rb"(?:Waiting|Pending): (?P<waiting>\d{1,7}) reqs"
    rb"(?P<tail>(?:, [A-Z][A-Za-z ()/-]{2,48}: "
    rb"(?:nan|\d{1,9}(?:\.\d{1,3})?)(?:%| reqs| tokens/s| ms| s)?)*)" + _END
)
_USAGE = re.compile(rb", (?!CPU)[A-Z]+ KV cache usage: (\d{1,3}\.\d)%")
_PREEMPTIONS = re.compile(rb", Preemptions: (\d{1,9})")
_ELSEWHERE = re.compile(rb", External prefix cache hit rate: (\d{1,3}\.\d)%")
"""Share of prompt tokens that another node computed."""
_NAME = re.compile(rb"(?:Engine (\d{1,4})|(\d{1,4}) Engines Aggregated): \Z")
_STAMP = re.compile(rb"(?<!\d)(?:(\d{4})-)?(\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?!\d)")
_PID = re.compile(rb"pid=(\d{1,9})\)")


@dataclass(frozen=True, slots=True)
class EngineLine:
    """Throughput of one interval."""

    name: bytes  # number of the engine, empty if the line has none
    engines: int  # over 1 on an aggregated line
    values: Values  # in the order of `ENGINE`
    preemptions: int


@dataclass(frozen=True, slots=True)
class V0Line:
    """Counters since the start of a V0 engine."""

    num_steps: int
    accepted: int
    drafted: int
    emitted: int
    rate: float

    @property
    def rounds(self) -> float:
        """Request-rounds: each drafts `num_steps` tokens."""
        return self.drafted / self.num_steps

    @property
    def accept_length(self) -> float:
        """Tokens per request and round, bonus included."""
        return self.emitted / self.rounds


def parse_engine_line(line: bytes) -> EngineLine:
    """Read an ``Avg generation throughput`` line."""
    start = max(line.find(_PROMPT_MARK), 0)
    found = _ENGINE.match(line, start)
    if found is None:
        raise _unread(line)
    check(line.count(ENGINE_MARK) == 1, TWO_IN_ONE)
    prompt, *values, tail = found.group("prompt", "tps", "running", "waiting", "tail")
    if elsewhere := _ELSEWHERE.search(tail):
        prompt = b"%.3f" % (float(prompt) * max(1 - float(elsewhere[1]) / 100, 0))
    usage, preemptions = _USAGE.search(tail), _PREEMPTIONS.search(tail)
    check(not usage or float(usage[1]) <= 100, "cache usage above 100 %")
    name, engines = _engine_name(line[max(start - 24, 0) : start])
    return EngineLine(
        name,
        engines,
        (prompt, *values, usage[1] if usage else b""),
        int(preemptions[1]) if preemptions else 0,
    )


@lru_cache(1024)
def _engine_name(before: bytes) -> tuple[bytes, int]:
    """Return (number of the engine, engines aggregated) from the text before a line."""
    found = _NAME.search(before)
    if found is None:
        return b"", 1
    return (found[1], 1) if found[1] else (b"", int(found[2]))


def _unread(line: bytes) -> Unread:
    return Unread(DAMAGED if line.endswith((b"\n", b"\r")) else TRUNCATED)


def parse_spec_line(line: bytes) -> Values | V0Line:
    """Read a drafting line of any version.

    Returns
    -------
    tuple or V0Line
        Values in the order of `DRAFTING`; whether they agree, and whether the length has the bonus
        token in it, is decided for many lines at once
        (:func:`specsim.logs.formats.vllm.drafting.judge`).
    """
    new = SPEC_MARK in line
    mark = SPEC_MARK if new else OLD_SPEC_MARK
    check(line.count(mark) == 1, TWO_IN_ONE)
    check(not new or line.endswith((b"\n", b"\r", b"%")), TRUNCATED)
    start = line.find(mark)
    for generation in GENERATIONS:
        found = generation.pattern.match(line, start)
        if found:
            *values, rate = (value or b"" for value in found.group(*DRAFTING))
            return (*values, rate if new else b"%.1f" % (100 * float(rate)))
    v0 = _V0.match(line, start)
    if v0 is None:
        raise _unread(line)
    counters = V0Line(int(v0[3]), int(v0[4]), int(v0[5]), int(v0[6]), float(v0[1]))
    check(counters.num_steps and counters.drafted, NO_DRAFTS)
    efficiency = counters.accept_length / (counters.num_steps + 1)
    check(abs(efficiency - float(v0[2])) <= RATE_TOLERANCE, CONTRADICTION)
    rate = counters.accepted / counters.drafted
    check(abs(rate - counters.rate) <= RATE_TOLERANCE, CONTRADICTION)
    return counters


def parse_prefix(prefix: bytes) -> tuple[bytes, bytes]:
    """Return (time stamp with a year, process id); either may be empty.

    >>> parse_prefix(b"(APIServer pid=7) INFO 04-10 11:27:20")
    (b'2000-04-10 11:27:20', b'7')
    """
    stamp, pid = _STAMP.search(prefix), _PID.search(prefix)
    text = b"%s-%s %s" % (stamp[1] or b"2000", stamp[2], stamp[3]) if stamp else b""
    return text, pid[1] if pid else b""
