"""llama.cpp: timings that llama-server prints per request, and llama-speculative's summary."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from specsim.logs.entry import LogEntry
from specsim.logs.format import Format
from specsim.logs.formats.llamacpp.facts import Facts, begins_server
from specsim.logs.formats.llamacpp.requests import Slots
from specsim.logs.formats.llamacpp.server import server_entry
from specsim.logs.formats.llamacpp.summary import Summary, summary_entry
from specsim.logs.source import Source
from specsim.logs.unread import TRUNCATED, counted

_COLOUR = re.compile(rb"\x1b\[[0-9;]{0,12}m")
_MARK = re.compile(
    rb"eval time =|draft acceptance|(?<!_)decoded |n_draft|n_accept|n_predict|accept  "
)
"""What a line with a measurement holds."""
_OF_SLOT = re.compile(rb"\| task |eval time =|draft acceptance|n_decoded = |n_gen = ")
_CUT = re.compile(rb"llama_perf_\w{1,32}: +[a-z ]{0,20}\Z")


@dataclass(slots=True)
class _Run:
    """What has been read of one server, or of one run of llama-speculative."""

    slots: Slots = field(default_factory=Slots)
    facts: Facts = field(default_factory=Facts)
    summary: Summary = field(default_factory=Summary)

    def says_anything(self) -> bool:
        """Whether anything was measured, or could not be read."""
        served = any(request.known or request.progress for request in self.slots.requests)
        return served or self.summary.says_anything or bool(self.slots.unread)

    def read(self, line: bytes) -> None:
        """Take in a line, or count why it cannot be read."""
        self.summary.begin_section(line)
        marked, whole = _MARK.search(line), line.endswith((b"\n", b"\r"))
        if (marked and not whole) or (not marked and _CUT.search(line.rstrip())):
            self.slots.unread[TRUNCATED] += 1
        if not whole:
            return
        with counted(self.slots.unread):
            if _OF_SLOT.search(line):
                self.slots.read(line)
            elif not marked:
                self.facts.read(line)
            if marked:
                self.summary.read(line)

    def entry(self, path: str) -> LogEntry:
        """Return what was read as an entry."""
        if self.summary.says_anything:
            return summary_entry(self.summary, self.slots.unread, path)
        return server_entry(self.slots, self.facts, path)


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
        another = line.startswith(b"decoded ") and runs[-1].summary.decoded
        if another or (begins_server(line) and runs[-1].slots.requests):
            runs.append(_Run())
        runs[-1].read(_COLOUR.sub(b"", line) if b"\x1b" in line else line)
    told = [run for run in runs if run.says_anything()] or runs[:1]
    return [run.entry(source.path) for run in told]


FORMAT = Format(
    name="llamacpp",
    mark=re.compile(
        rb"llama_perf_\w|llama_print_timings|^n_(?:drafted|accept) +=|eval time = +\d"
        rb"|draft acceptance(?: rate)? = |n_(?:decoded|gen) = +\d+, tg = ",
        re.MULTILINE,
    ),
    parse=parse,
)
