"""Hands llama.cpp's lines to servers, and to the summaries of llama-speculative's one stream."""

import re
from collections import Counter
from dataclasses import dataclass, field, replace

from specsim.logs.diagnose import partial_drafting, truncated
from specsim.logs.entry import LogEntry, LogRow, Timing, WindowCount
from specsim.logs.formats.llamacpp.facts import Facts
from specsim.logs.formats.llamacpp.requests import INDENT, TIMING, Slots
from specsim.logs.formats.llamacpp.server import server_entry
from specsim.logs.paste import VERSION, Above
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, DAMAGED, TRUNCATED, Unread, check, counted
from specsim.setting import chain_settings

_DECODED = re.compile(
    rb"decoded +(\d{1,9}) tokens in +(\d{1,9}\.\d{3}) seconds, speed: +(\d{1,9}\.\d{3}) t/s\s*\Z"
)
_COUNTER = re.compile(rb"\s*(n_draft|n_predict|n_drafted|n_accept) +=? ?= +(\d{1,9})\s*\Z")
_RATE = re.compile(rb"\s*accept += +(\d{1,3}\.\d{3})%\s*\Z")
_SECTION = re.compile(rb"\s*(draft|target):\s*\Z")


@dataclass(slots=True)
class Summary:
    """What has been read of one run."""

    counters: dict[bytes, int] = field(default_factory=dict)
    decoded: tuple[int, float] | None = None  # tokens and seconds
    rate: float | None = None  # of accepted drafts, %
    draft_model: tuple[int, float] | None = None  # runs and seconds of the draft's own timings
    _section: bytes = b""

    @property
    def says_anything(self) -> bool:
        """Whether anything of a summary was read."""
        return bool(self.decoded or self.counters)

    def begins_section(self, line: bytes) -> bool:
        """Note whose timings follow; return whether the line says it."""
        if section := _SECTION.match(line):
            self._section = section[1]
        return section is not None

    def read(self, line: bytes) -> None:
        """Take in a line; raise :class:`Unread` if it is damaged."""
        if b"decoded " in line:
            found = _DECODED.search(line)
            if found is None:
                raise Unread(DAMAGED)
            tokens, seconds, speed = int(found[1]), float(found[2]), float(found[3])
            agree = seconds and abs(tokens / seconds - speed) <= 0.001 + 0.001 * speed
            check(agree, CONTRADICTION)
            self.decoded = (tokens, seconds)
        elif found := _RATE.match(line):
            self.rate = float(found[1])
        elif found := _COUNTER.match(line):
            self.counters[found[1]] = int(found[2])
        elif b"eval time =" in line and b" runs " in line:
            found = TIMING.match(line)
            if found is None or not (found["prompt"] or found["before"].endswith(INDENT)):
                raise Unread(DAMAGED)
            n, ms, each = int(found["n"]), float(found["ms"]), float(found["each"])
            check(not n or abs(ms / n - each) <= 0.006 + 1e-4 * each, CONTRADICTION)
            if not found["prompt"] and n and ms:
                if self._section == b"draft":
                    self.draft_model = (n, ms / 1e3)
                elif not self._section and not self.counters:  # llama-cli's one stream
                    self.decoded = self.decoded or (n, ms / 1e3)


def summary_entry(of: Summary, unread: Counter[str], path: str) -> LogEntry:
    """Return the entry of a run; counts of drafts must agree with the printed rate."""
    names = (b"n_draft", b"n_drafted", b"n_accept", b"n_predict")
    steps, drafted, accepted, predicted = map(of.counters.get, names)
    tokens, seconds = of.decoded or (predicted, None)
    if accepted is not None and drafted is not None:
        slack = 1e-5 * drafted + 0.01
        if of.rate is None or abs(accepted - of.rate / 100 * drafted) > slack:
            drafted = accepted = None
            unread[CONTRADICTION] += 1
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
    if of.draft_model:
        n, total_s = of.draft_model
        timings = (Timing("draft", total_s / n, count=n, batch_size=1, name="draft eval"),)
    settings: dict[str, object] = {"algorithm": "STANDALONE"} if of.counters else {}
    return LogEntry(
        path=path,
        format="llamacpp",
        engine="llama.cpp",
        settings=settings | (chain_settings(steps) if steps else {}),
        rows=(row,),
        windows=WindowCount(1, 1),
        diagnoses=(*truncated(unread), *partial_drafting(each, steps)),
        unread=dict(+unread),
        timings=timings,
    )


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
        version = settings.pop(VERSION, None)
        build = entry.engine_version or (str(version) if version else None)
        return replace(entry, label=self.label, settings=settings, engine_version=build)


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
