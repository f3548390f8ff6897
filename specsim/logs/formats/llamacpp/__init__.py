"""llama.cpp: timings that llama-server prints per request, and llama-speculative's summary."""

from collections import Counter
from dataclasses import dataclass, field, replace

from specsim.logs.diagnose import partial_drafting, truncated
from specsim.logs.entry import LogEntry, LogRow, Timing, WindowCount
from specsim.logs.formats import patterns
from specsim.logs.formats.llamacpp.requests import INDENT, Slots
from specsim.logs.formats.llamacpp.server import Facts, server_entry
from specsim.logs.paste import VERSION, Above
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, DAMAGED, MISSING, TRUNCATED, Unread, check, counted
from specsim.setting import chain_settings

_LINE = patterns("llama.cpp")


def parse(source: Source) -> list[LogEntry]:
    """Read llama-server's log, or the summary of llama-speculative.

    Each round of a request emits its accepted drafts and one token of the target. Builds since
    about 11000 time the n - 1 tokens after the first, which the prefill gives: a request that got
    n tokens of which a were drafts took n - 1 - a rounds. Older ones time n tokens, and n - a
    rounds are counted. Where lines carry the time (``--log-timestamps``), there is a row per
    number of busy slots that was held for some requests' time, with the throughput that clients
    saw. Memory grows with the number of requests.
    """
    return [run.entry(source.path) for run in Reader().read(source)]


@dataclass(slots=True)
class Summary:
    """What has been read of one run."""

    counters: dict[bytes, int] = field(default_factory=dict)
    decoded: tuple[int, float] | None = None  # tokens and seconds
    rate: float | None = None  # of accepted drafts, %
    draft_model: tuple[int, float] | None = None  # runs and seconds of the draft's own timings
    _section: bytes = b""
    _prompted: bool = False  # a prompt's timing came: that of decoding is below it

    @property
    def says_anything(self) -> bool:
        """Whether anything of a summary was read."""
        return bool(self.decoded or self.counters)

    def begins_section(self, line: bytes) -> bool:
        """Note whose timings follow; return whether the line says it."""
        if section := _LINE["section"].match(line):
            self._section = section[1]
        return section is not None

    def read(self, line: bytes) -> None:
        """Take in a line; raise :class:`Unread` if it is damaged."""
        if b"decoded " in line:
            found = _LINE["decoded"].search(line)
            if found is None:
                raise Unread(DAMAGED)
            tokens, seconds, speed = int(found[1]), float(found[2]), float(found[3])
            agree = seconds and abs(tokens / seconds - speed) <= 0.001 + 0.001 * speed
            check(agree, CONTRADICTION)
            self.decoded = (tokens, seconds)
        elif found := _LINE["rate"].match(line):
            self.rate = float(found[1])
        elif found := _LINE["counter"].match(line):
            self.counters[found[1]] = int(found[2])
        elif b"eval time =" in line:
            found = _LINE["timing"].match(line)
            self._prompted |= bool(found and found["prompt"])
            if b" runs " not in line:
                return
            if found is None or not (found["prompt"] or found["before"].endswith(INDENT)):
                raise Unread(DAMAGED)
            n, ms, each = int(found["n"]), float(found["ms"]), float(found["each"])
            check(not n or abs(ms / n - each) <= 0.006 + 1e-4 * each, CONTRADICTION)
            if not found["prompt"] and n and ms:
                if self._section == b"draft":
                    self.draft_model = (n, ms / 1e3)
                elif not self._section and not self.counters:
                    check(self._prompted, MISSING)  # else it may be the draft's, out of its place
                    self.decoded = self.decoded or (n, ms / 1e3)  # llama-cli's one stream


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
    settings |= chain_settings(steps) if steps else {}
    found, one = (*truncated(unread), *partial_drafting(each, steps)), WindowCount(1, 1)
    entry = LogEntry(path, "llamacpp", "llama.cpp", None, settings, (row,), one, found)
    return replace(entry, unread=dict(+unread), timings=timings)


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
        if (marked and not whole) or (not marked and _LINE["cut"].search(line.rstrip())):
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
            self._line(_LINE["colour"].sub(b"", line) if b"\x1b" in line else line)
        told = [run for run in self.runs if run.says_anything()] or self.runs[:1]
        if len(told) == 1 and not told[0].facts.launched:
            told[0].facts.launched = self.above.left()
        return told

    def _line(self, line: bytes) -> None:
        if found := _LINE["process"].match(line):
            line = line[found.end() :]
            if found[1] != self.process:
                self._switch(found[1])
        marked, of_slot = bool(_LINE["mark"].search(line)), bool(_LINE["of_slot"].search(line))
        another = line.startswith(b"decoded ") and self.run.summary.decoded
        if another or (self.run.slots.requests and self.run.facts.told.starts(line)):
            self._start()
        if marked or of_slot:
            self._place(line.startswith(b"llama_perf") and bool(self.run.summary.counters))
        elif not self.run.summary.begins_section(line):
            self.above.read(line)
        self.run.read(line, marked, of_slot)

    def _place(self, follows: bool) -> None:
        """Begin another server where a label or a command says so.

        Timings that follow counts of drafts are of the same run, whatever stands between them.
        """
        if not self.above.pending:
            return
        label, launch = self.above.label, self.above.launch()
        if self.run.says_anything() and (launch or (label != self.run.label and not follows)):
            self._start()
        self.run.label = self.run.label or label
        self.run.facts.launched = {**launch, **self.run.facts.launched}

    def _switch(self, process: bytes) -> None:
        self.process = process
        if process in self.by_process:
            self.run = self.by_process[process]
        elif self.by_process or self.run.says_anything():
            self._start()
        self.by_process[process] = self.run

    def _start(self) -> None:
        self.run = self.by_process[self.process] = Run()
        self.runs.append(self.run)
