"""Hands llama.cpp's lines to servers, and to the summaries of llama-speculative."""

import re
from dataclasses import dataclass, field, replace

from specsim.logs.entry import LogEntry
from specsim.logs.formats.llamacpp.facts import Facts
from specsim.logs.formats.llamacpp.requests import Slots
from specsim.logs.formats.llamacpp.server import server_entry
from specsim.logs.formats.llamacpp.summary import Summary, summary_entry
from specsim.logs.paste import Above
from specsim.logs.source import Source
from specsim.logs.unread import TRUNCATED, counted

_COLOUR = re.compile(rb"\x1b\[[0-9;]{0,12}m")
_MARK = re.compile(
    rb"eval time =|draft acceptance|(?<!_)decoded |n_draft|n_accept|n_predict|accept  "
)
"""What a line with a measurement holds."""
_OF_SLOT = re.compile(rb"\| task |eval time =|draft acceptance|n_decoded = |n_gen = ")
_PROCESS = re.compile(rb"\[(\d{1,9})\] ")
"""What a router puts before the lines of each of its servers."""
_CUT = re.compile(rb"llama_perf_\w{1,32}: +[a-z ]{0,20}\Z")


@dataclass(slots=True)
class Run:
    """What has been read of one server, or of one run of llama-speculative."""

    slots: Slots = field(default_factory=Slots)
    facts: Facts = field(default_factory=Facts)
    summary: Summary = field(default_factory=Summary)
    label: str = ""

    def says_anything(self) -> bool:
        """Whether anything was measured, or could not be read."""
        served = any(request.known or request.progress for request in self.slots.requests)
        return served or self.summary.says_anything or bool(self.slots.unread)

    def read(self, line: bytes, marked: bool, of_slot: bool) -> None:
        """Take in a line, or count why it cannot be read."""
        whole = line.endswith((b"\n", b"\r"))
        if (marked and not whole) or (not marked and _CUT.search(line.rstrip())):
            self.slots.unread[TRUNCATED] += 1
        if not whole:
            return
        self.slots.see(line)
        with counted(self.slots.unread):
            if of_slot:
                self.slots.read(line)
            elif not marked:
                self.facts.read(line)
            if marked:
                self.summary.read(line)

    def entry(self, path: str) -> LogEntry:
        """Return what was read as an entry."""
        if self.summary.says_anything:
            entry = summary_entry(self.summary, self.slots.unread, path)
        else:
            entry = server_entry(self.slots, self.facts, path)
        settings = {**self.facts.launched, **entry.settings}
        return replace(entry, label=self.label, settings=settings)


@dataclass(slots=True)
class Reader:
    """Hands lines to servers: a start, another process, a label or a command begins one."""

    above: Above = field(default_factory=lambda: Above("llama.cpp"))
    run: Run = field(default_factory=Run)
    runs: list[Run] = field(default_factory=list)
    by_process: dict[bytes, Run] = field(default_factory=dict)
    process: bytes = b""

    def __post_init__(self) -> None:
        self.runs.append(self.run)

    def read(self, source: Source) -> list[Run]:
        """Return the servers of a log that say anything."""
        for line in source.lines():
            self._line(_COLOUR.sub(b"", line) if b"\x1b" in line else line)
        told = [run for run in self.runs if run.says_anything()] or self.runs[:1]
        if len(told) == 1 and not told[0].facts.launched:
            told[0].facts.launched = self.above.left()
        return told

    def _line(self, line: bytes) -> None:
        if found := _PROCESS.match(line):
            line = line[found.end() :]
            if found[1] != self.process:
                self._switch(found[1])
        marked, of_slot = bool(_MARK.search(line)), bool(_OF_SLOT.search(line))
        another = line.startswith(b"decoded ") and self.run.summary.decoded
        if another or (self.run.slots.requests and self.run.facts.told.starts(line)):
            self._start()
        if marked or of_slot:
            self._place()
        elif not self.run.summary.begins_section(line):
            self.above.read(line)
        self.run.read(line, marked, of_slot)

    def _place(self) -> None:
        """Begin another server where a label or a command says so."""
        if not self.above.pending:
            return
        label, launch = self.above.label, self.above.launch()
        if self.run.says_anything() and (launch or label != self.run.label):
            self._start()
        self.run.label = self.run.label or label
        self.run.facts.launched = {**launch, **self.run.facts.launched}

    def _switch(self, process: bytes) -> None:
        """Go on with the server of a process."""
        self.process = process
        if process in self.by_process:
            self.run = self.by_process[process]
        elif self.by_process or self.run.says_anything():
            self._start()
        self.by_process[process] = self.run

    def _start(self) -> None:
        self.run = self.by_process[self.process] = Run()
        self.runs.append(self.run)
