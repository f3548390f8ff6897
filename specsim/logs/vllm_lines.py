"""Grammar of vLLM's periodic lines: engine throughput and speculative-decoding metrics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

ENGINE_MARK = b"Avg generation throughput: "
SPEC_MARK = b"SpecDecoding metrics: "
OLD_SPEC_MARK = b"Speculative metrics: "

PROMPT_MARK = b"Avg prompt throughput: "

_ENGINE = re.compile(
    rb"Avg prompt throughput: (\d{1,9}\.\d) tokens/s, "
    rb"Avg generation throughput: (\d{1,9}\.\d) tokens/s, "
    rb"Running: (\d{1,7}) reqs, (?:Swapped: \d{1,7} reqs, )?(?:Waiting|Pending): (\d{1,7}) reqs"
    rb"(?:, GPU KV cache usage: (\d{1,3}\.\d)%, Prefix cache hit rate: \d{1,3}\.\d%\s*(\n)|"
    rb"(?=,|\s|\.|\"|\Z))"
)
_NAME = re.compile(rb"(?:Engine (\d{1,4})|(\d{1,4}) Engines Aggregated): \Z")
_TAIL_PART = re.compile(
    rb", (?:([A-Z]+ KV cache usage): (\d{1,3}\.\d)%|(Preemptions): (\d{1,9})"
    rb"|([A-Z][A-Za-z ()/-]{2,48}): (?:nan|\d{1,9}(?:\.\d{1,3})?)(?:%| reqs| tokens/s| ms| s)?)"
    rb"(?=, |\.?\s|\.?\Z)"
)
_END = re.compile(rb"[.,]?(?:\s|`|\\n\"|\|END)*(?:\"[^\n]*)?\s*\Z")

_SPEC = (
    rb"SpecDecoding metrics: Mean acceptance length: (\d{1,3}\.\d\d), "
    rb"Accepted throughput: \d{1,9}\.\d\d tokens/s, Drafted throughput: \d{1,9}\.\d\d tokens/s, "
    rb"Accepted: (\d{1,12}) tokens, Drafted: (\d{1,12}) tokens, "
    rb"Per-position acceptance rate: ([01]\.\d{3}(?:, [01]\.\d{3}){0,63}), "
    rb"Avg Draft acceptance rate: (\d{1,3}\.\d)%\s*[\r\n]"
)
_FAST = re.compile(_SPEC)
_PLAIN = (
    rb"([^\[\n]{0,120}) \[[^\]\n]{1,40}\] Engine (\d{1,4}): "
    rb"Avg prompt throughput: (\d{1,9}\.\d) tokens/s, "
    rb"Avg generation throughput: (\d{1,9}\.\d) tokens/s, "
    rb"Running: (\d{1,7}) reqs, Waiting: (\d{1,7}) reqs, "
    rb"GPU KV cache usage: (\d{1,2}\.\d|100\.0)%, Prefix cache hit rate: \d{1,3}\.\d%\r?\n"
)
_PLAIN_LINE = re.compile(_PLAIN)
_PLAIN_PAIR = re.compile(_PLAIN + rb"\1 \[[^\]\n]{1,40}\] " + _SPEC)
"""A throughput line, and the drafting line under it, as the present versions print them."""
_PART = re.compile(
    rb", (?:([A-Z]+ KV cache usage): (\d{1,3}\.\d)%|(Preemptions): (\d{1,9})"
    rb"|([A-Z][A-Za-z ()/-]{2,48}): (?:nan|\d{1,9}(?:\.\d{1,3})?)(?:%| reqs| tokens/s| ms| s)?)"
    rb"(?=, |\.?\s|\.?\Z)"
)
_END = re.compile(rb"[.,]?(?:\s|`|\\n\"|\|END)*(?:\"[^\n]*)?\s*\Z")

_SPEC = (
    rb"SpecDecoding metrics: Mean acceptance length: (\d{1,3}\.\d\d), "
    rb"Accepted throughput: \d{1,9}\.\d\d tokens/s, Drafted throughput: \d{1,9}\.\d\d tokens/s, "
    rb"Accepted: (\d{1,12}) tokens, Drafted: (\d{1,12}) tokens, "
    rb"Per-position acceptance rate: ([01]\.\d{3}(?:, [01]\.\d{3}){0,63}), "
    rb"Avg Draft acceptance rate: (\d{1,3}\.\d)%\s*[\r\n]"
)
_FAST = re.compile(_SPEC)
_PAIR = re.compile(
    rb"([^\[\n]{0,120}) \[[^\]\n]{1,40}\] Engine (\d{1,4}): "
    rb"Avg prompt throughput: (\d{1,9}\.\d) tokens/s, "
    rb"Avg generation throughput: (\d{1,9}\.\d) tokens/s, "
    rb"Running: (\d{1,7}) reqs, Waiting: (\d{1,7}) reqs, "
    rb"GPU KV cache usage: (\d{1,2}\.\d|100\.0)%, Prefix cache hit rate: \d{1,3}\.\d%\r?\n"
    rb"\1 \[[^\]\n]{1,40}\] " + _SPEC
)
"""A throughput line and the drafting line under it, as the present versions print them."""
_PART = re.compile(
    rb", (?:([A-Z]+ KV cache usage): (\d{1,3}\.\d)%|(Preemptions): (\d{1,9})"
    rb"|([A-Z][A-Za-z ()/-]{2,48}): (?:nan|\d{1,9}(?:\.\d{1,3})?)(?:%| reqs| tokens/s| ms| s)?)"
    rb"(?=, |\.?\s|\.?\Z)"
)
_END = re.compile(rb"[.,]?(?:\s|`|\\n\"|\|END)*(?:\"[^\n]*)?\s*\Z")

_FAST = re.compile(
    rb"SpecDecoding metrics: Mean acceptance length: (\d{1,3}\.\d\d), "
    rb"Accepted throughput: \d{1,9}\.\d\d tokens/s, Drafted throughput: \d{1,9}\.\d\d tokens/s, "
    rb"Accepted: (\d{1,12}) tokens, Drafted: (\d{1,12}) tokens, "
    rb"Per-position acceptance rate: ([01]\.\d{3}(?:, [01]\.\d{3}){0,63}), "
    rb"Avg Draft acceptance rate: (\d{1,3}\.\d)%\s*[\r\n]"
)
_PART = re.compile(
    rb"(?:(?P<length>Mean acceptance length): (?P<length_v>\d{1,3}\.\d\d)"
    rb"|(?:Accepted|Drafted) throughput: \d{1,9}\.\d\d tokens/s"
    rb"|(?P<accepted>Accepted): (?P<accepted_v>\d{1,12}) tokens"
    rb"|(?P<drafted>Drafted): (?P<drafted_v>\d{1,12}) tokens"
    rb"|(?P<positions>Per-position acceptance rate): "
    rb"(?P<positions_v>[01]\.\d{3}(?:, [01]\.\d{3}){0,63})"
    rb"|(?P<rate>(?:Avg )?Draft acceptance rate): (?P<rate_v>\d{1,3}\.\d)%)(?=, |\s|\"|`|\Z)"
)
_FIRST_V1 = re.compile(
    rb"Speculative metrics: Draft acceptance rate: (\d\.\d{3}), "
    rb"Number of accepted tokens: (\d{1,12}), Number of draft tokens: (\d{1,12}),? ?\s*\Z"
)
_V0 = re.compile(
    rb"Speculative metrics: Draft acceptance rate: (\d\.\d{3}), System efficiency: (\d\.\d{3}), "
    rb"Number of speculative tokens: (\d{1,3}), Number of accepted tokens: (\d{1,12}), "
    rb"Number of draft tokens: (\d{1,12}), Number of emitted tokens: (\d{1,12})\.\s*\Z"
)
_STAMP = re.compile(rb"(?<!\d)(?:(\d{4})-)?(\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?!\d)")
_PID = re.compile(rb"pid=(\d{1,9})\)")

CONTRADICTION = "numbers contradict each other"
RATE_TOLERANCE = 0.0006
"""Printed fractions may be off by half of their last digit."""


NAN = float("nan")

Number = float | bytes
"""As printed, or converted: columns are converted many at a time."""


class EngineLine(NamedTuple):
    """Throughput of one interval; `engines` is over 1 on an aggregated line.

    `name` is the number of the engine, empty if the line has none; `usage` is in percent. What a
    line does not say is NaN.
    """

    name: bytes
    prompt_tps: Number
    output_tps: Number
    running: Number
    waiting: Number
    usage: Number
    engines: int
    preemptions: int


class SpecLine(NamedTuple):
    """Drafting of one interval, as printed: `survival` as text, `rate` in percent.

    Whether the numbers agree, and whether the length has the bonus token in it, is decided for
    many lines at once: see :func:`specsim.logs.vllm_acceptance.judge`.
    """

    length: Number
    accepted: Number
    drafted: Number
    survival: bytes
    rate: Number


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


def parse_plain(lines: bytes) -> tuple[bytes, ...] | None:
    """Read a throughput line, or one with the drafting line under it; None if not plain.

    Returns
    -------
    tuple
        What stands before the lines, then the fields of `EngineLine` up to the usage, and those
        of `SpecLine` if there is a drafting line.
    """
    pattern = _PLAIN_PAIR if SPEC_MARK in lines else _PLAIN_LINE
    found = pattern.fullmatch(lines)
    return None if found is None else found.groups()


def parse_engine_line(line: bytes) -> EngineLine | str:
    """Read an ``Avg generation throughput`` line, or say why not."""
    start = line.find(PROMPT_MARK)
    found = _ENGINE.match(line, max(start, 0))
    if found is None:
        return "damaged field" if line.endswith((b"\n", b"\r")) else "truncated"
    usage, preemptions = float(found[5] or NAN), 0
    if not found[6]:
        tail = _tail(line, found.end())
        if isinstance(tail, str):
            return tail
        usage, preemptions = tail
    if line.count(ENGINE_MARK) != 1:
        return "two lines written into one"
    if usage > 100:
        return "cache usage above 100 %"
    name, engines = _engine_name(line[max(start - 24, 0) : start])
    prompt, tps, running, waiting = found.group(1, 2, 3, 4)
    return EngineLine(name, prompt, tps, running, waiting, usage, engines, preemptions)


@lru_cache(1024)
def _engine_name(before: bytes) -> tuple[bytes, int]:
    """Return (number of the engine, engines aggregated) from the text before a line."""
    found = _NAME.search(before)
    if found is None:
        return b"", 1
    return (found[1], 1) if found[1] else (b"", int(found[2]))


def _tail(line: bytes, at: int) -> tuple[float, int] | str:
    """Read the optional fields: percentage of the KV cache in use, and preemptions."""
    usage, preemptions = NAN, 0
    while part := _TAIL_PART.match(line, at):
        if part[1] and part[1] != b"CPU KV cache usage":
            usage = float(part[2])
        elif part[3]:
            preemptions = int(part[4])
        at = part.end()
    if not _END.match(line, at):
        return "damaged field" if line.endswith((b"\n", b"\r")) else "truncated"
    return usage, preemptions


def parse_spec_line(line: bytes) -> SpecLine | str:
    """Read a ``SpecDecoding metrics`` line of any version, or say why not."""
    start = line.find(SPEC_MARK)
    fast = _FAST.fullmatch(line, start)
    if fast:
        return SpecLine(*fast.groups())
    if line.count(SPEC_MARK) != 1:
        return "two lines written into one"
    fields: dict[str, bytes] = {}
    at = start + len(SPEC_MARK)
    while part := _PART.match(line, at):
        for name in ("length", "accepted", "drafted", "positions", "rate"):
            if part[name]:
                if name in fields:
                    return "two lines written into one"
                fields[name] = part[name + "_v"]
        at = part.end()
        if line[at : at + 2] != b", ":
            break
        at += 2
    ended = line.endswith((b"\n", b"\r"))
    if not ended and not line.endswith(b"%"):
        return "truncated"
    if not _END.match(line, at) or "accepted" not in fields or "drafted" not in fields:
        return "damaged field" if ended else "truncated"
    # Without positions only the newer order of fields tells that the bonus is in the length.
    sure = "positions" in fields or line.startswith(b"Mean", start + len(SPEC_MARK))
    return SpecLine(
        length=fields["length"] if "length" in fields and sure else NAN,
        accepted=fields["accepted"],
        drafted=fields["drafted"],
        rate=fields.get("rate", NAN),
        survival=fields.get("positions", b""),
    )


def parse_old_spec_line(line: bytes) -> SpecLine | V0Line | str:
    """Read a ``Speculative metrics`` line of V0 or of the first V1, or say why not."""
    text = line[line.find(OLD_SPEC_MARK) :]
    first = _FIRST_V1.match(text)
    if first:
        return SpecLine(NAN, first[2], first[3], b"", 100 * float(first[1]))
    v0 = _V0.match(text)
    if v0 is None:
        return "damaged field" if line.endswith((b"\n", b"\r")) else "truncated"
    counters = V0Line(int(v0[3]), int(v0[4]), int(v0[5]), int(v0[6]), float(v0[1]))
    if not counters.num_steps or not counters.drafted:
        return "nothing was drafted"
    efficiency = counters.emitted / (counters.rounds * (counters.num_steps + 1))
    if (
        abs(efficiency - float(v0[2])) > RATE_TOLERANCE
        or abs(counters.accepted / counters.drafted - counters.rate) > RATE_TOLERANCE
    ):
        return CONTRADICTION
    return counters


def parse_prefix(prefix: bytes) -> tuple[bytes, bytes]:
    """Return (time stamp with a year, process id); either may be empty.

    >>> parse_prefix(b"(APIServer pid=7) INFO 04-10 11:27:20")
    (b'2000-04-10 11:27:20', b'7')
    """
    clock = prefix[-14:]
    if clock[2:3] == b"-" and clock[8:9] == b":" and prefix[-15:-14] == b" ":
        return b"2000-" + clock, _pid(prefix[:-14])
    stamp = _STAMP.search(prefix)
    text = b"%s-%s %s" % (stamp[1] or b"2000", stamp[2], stamp[3]) if stamp else b""
    return text, _pid(prefix)


@lru_cache(1024)
def _pid(text: bytes) -> bytes:
    found = _PID.search(text)
    return found[1] if found else b""
