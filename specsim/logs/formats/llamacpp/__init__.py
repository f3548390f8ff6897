"""llama.cpp: timings that llama-server prints per request, and llama-speculative's summary."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from specsim.logs.diagnose import partial_drafting, truncated
from specsim.logs.entry import LogEntry, LogRow, Timing, WindowCount
from specsim.logs.format import Format
from specsim.logs.formats.llamacpp.facts import Facts, begins_server
from specsim.logs.formats.llamacpp.requests import Slots
from specsim.logs.formats.llamacpp.server import server_entry
from specsim.logs.settings import chain_settings
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, DAMAGED, TRUNCATED, Unread, check

_RUNS = re.compile(
    rb"(?P<prompt>(?:\A|[\s:|])prompt eval)?(?(prompt)| {4,}eval) time = +"
    rb"(?P<ms>\d{1,12}\.\d\d) ms / +(?P<n>\d{1,9}) runs +"
    rb"\( *(?P<each>\d{1,9}\.\d\d) ms per token, +(?:\d{1,9}\.\d\d|inf) tokens per second\)\s*\Z"
)
_DECODED = re.compile(
    rb"decoded +(\d{1,9}) tokens in +(\d{1,9}\.\d{3}) seconds, speed: +(\d{1,9}\.\d{3}) t/s\s*\Z"
)
_COUNTER = re.compile(rb"\s*(n_draft|n_predict|n_drafted|n_accept) +=? ?= +(\d{1,9})\s*\Z")
_RATE = re.compile(rb"\s*accept += +(\d{1,3}\.\d{3})%\s*\Z")
_SECTION = re.compile(rb"\s*(draft|target):\s*\Z")
_COLOUR = re.compile(rb"\x1b\[[0-9;]{0,12}m")
_MARK = re.compile(rb"eval time =|draft acceptance|decoded |n_draft|n_accept|n_predict|accept  ")
"""What a line with a measurement holds."""
_OF_SLOT = re.compile(rb"\| task |eval time =|draft acceptance")
_CUT = re.compile(rb"llama_perf_\w{1,32}: +[a-z ]{0,20}\Z")


@dataclass(slots=True)
class _Run:
    """What has been read of one server, or of one run of llama-speculative."""

    slots: Slots = field(default_factory=Slots)
    facts: Facts = field(default_factory=Facts)
    counters: dict[bytes, int] = field(default_factory=dict)
    decoded: tuple[int, float] | None = None  # tokens and seconds
    rate: float | None = None  # of accepted drafts, %
    section: bytes = b""
    draft_model: tuple[int, float] | None = None  # runs and seconds of the draft's own timings

    @property
    def unread(self) -> Counter[str]:
        """Reason -> lines that could not be read."""
        return self.slots.unread

    @property
    def says_anything(self) -> bool:
        """Whether anything was measured, or could not be read."""
        served = any(request.known for request in self.slots.requests)
        return bool(served or self.decoded or self.counters or self.unread)


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read llama-server's log, or the summary of llama-speculative.

    Each round of a request emits its accepted drafts and one token of the target. Builds since
    about 11000 time the n - 1 tokens after the first, which the prefill gives: a request that got
    n tokens of which a were drafts took n - 1 - a rounds. Older ones time n tokens, and n - a
    rounds are counted. Where lines carry the time (``--log-timestamps``), there is a row per
    number of busy slots that was held for some requests' time, with the throughput that clients
    saw. Memory grows with the number of requests.
    """
    runs = [_Run()]
    for line in source.lines():
        another = line.startswith(b"decoded ") and runs[-1].decoded
        if another or (begins_server(line) and runs[-1].slots.requests):
            runs.append(_Run())
        _read_line(_COLOUR.sub(b"", line) if b"\x1b" in line else line, runs[-1])
    return [
        _tool_entry(run, source.path)
        if run.decoded or run.counters
        else server_entry(run.slots, run.facts, source.path, truncated(run.unread))
        for run in [run for run in runs if run.says_anything] or runs[:1]
    ]


def _read_line(line: bytes, run: _Run) -> None:
    if section := _SECTION.match(line):
        run.section = section[1]
    marked, whole = _MARK.search(line), line.endswith((b"\n", b"\r"))
    if (marked and not whole) or (not marked and _CUT.search(line.rstrip())):
        run.unread[TRUNCATED] += 1
    if not whole:
        return
    try:
        if _OF_SLOT.search(line):
            run.slots.read(line)
        elif not marked:
            run.facts.read(line)
        if marked:
            _tool_line(line, run)
    except Unread as error:
        run.unread[error.reason] += 1


def _tool_line(line: bytes, run: _Run) -> None:
    """Take in a line of llama-speculative's summary; of a model's own timings, the draft's."""
    if b"decoded " in line:
        found = _DECODED.search(line)
        if found is None:
            raise Unread(DAMAGED)
        tokens, seconds, speed = int(found[1]), float(found[2]), float(found[3])
        agree = seconds and abs(tokens / seconds - speed) <= 0.001 + 0.001 * speed
        check(agree, CONTRADICTION)
        run.decoded = (tokens, seconds)
    elif found := _RATE.match(line):
        run.rate = float(found[1])
    elif found := _COUNTER.match(line):
        run.counters[found[1]] = int(found[2])
    elif b"eval time =" in line and b" runs " in line:
        found = _RUNS.search(line)
        if found is None:
            raise Unread(DAMAGED)
        n, ms, each = int(found["n"]), float(found["ms"]), float(found["each"])
        check(not n or abs(ms / n - each) <= 0.006 + 1e-4 * each, CONTRADICTION)
        if not found["prompt"] and run.section == b"draft" and n and ms:
            run.draft_model = (n, ms / 1e3)


def _tool_entry(run: _Run, path: str) -> LogEntry:
    """Summary of llama-speculative: one stream."""
    steps, drafted = run.counters.get(b"n_draft"), run.counters.get(b"n_drafted")
    accepted, predicted = run.counters.get(b"n_accept"), run.counters.get(b"n_predict")
    tokens, seconds = run.decoded or (predicted, None)
    if accepted is not None and drafted is not None and not _agree(accepted, drafted, run.rate):
        drafted = accepted = None
        run.unread[CONTRADICTION] += 1
    rounds = max(tokens - accepted, 0) if tokens is not None and accepted is not None else 0
    each = drafted / rounds if drafted is not None and rounds else None
    row = LogRow(
        kind="closed_loop",
        batch_size=1.0,
        concurrency=1.0,
        output_tps=tokens / seconds if tokens and seconds else None,
        accept_length=tokens / rounds if tokens and rounds else None,
        round_time_s=seconds / rounds if seconds and rounds else None,
        drafted_per_round=each,
        accept_rate=accepted / drafted if accepted is not None and drafted else None,
        num_requests=1,
        output_len=tokens,
        duration_s=seconds,
        accept_length_scope="run",
    )
    timings: tuple[Timing, ...] = ()
    if run.draft_model:
        n, total_s = run.draft_model
        timings = (Timing("draft", total_s / n, count=n, batch_size=1, name="draft eval"),)
    settings: dict[str, object] = {"algorithm": "STANDALONE"}
    return LogEntry(
        path=path,
        format=FORMAT.name,
        engine="llama.cpp",
        settings=settings | (chain_settings(steps) if steps else {}),
        rows=(row,),
        windows=WindowCount(1, 1),
        diagnoses=(*truncated(run.unread), *partial_drafting(each, steps)),
        unread=dict(+run.unread),
        timings=timings,
    )


def _agree(accepted: int, drafted: int, rate: float | None) -> bool:
    """Whether counts of drafts agree with the rate, in percent, that is printed below them."""
    return rate is not None and abs(accepted - rate / 100 * drafted) <= 1e-5 * drafted + 0.01


FORMAT = Format(
    name="llamacpp",
    mark=re.compile(
        rb"llama_perf_\w|llama_print_timings|^n_(?:drafted|accept) +=|eval time = +\d"
        rb"|draft acceptance(?: rate)? = ",
        re.MULTILINE,
    ),
    parse=parse,
)
