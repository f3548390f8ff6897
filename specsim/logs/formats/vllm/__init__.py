"""vLLM server logs, V0 to 0.33: throughput and drafting lines, configuration.

vLLM prints every ten seconds: a line with the throughput of each engine, and under it, if anything
was drafted, a line with the drafting of the same interval.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Literal

import numpy as np

from specsim.arrays import Floats
from specsim.logs.columns import floats, in_order, runs_back, seconds
from specsim.logs.diagnose import finding, of_load, partial_drafting, truncated
from specsim.logs.entry import Diagnosis, LogEntry, LogRow
from specsim.logs.facts import Facts
from specsim.logs.formats.vllm import lines as grammar
from specsim.logs.formats.vllm.lines import ENGINE_MARK, OLD_SPEC_MARK, SPEC_MARK
from specsim.logs.levels import level_rows
from specsim.logs.paste import Above
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, counted
from specsim.logs.windows import PREFILL_LEAST, Windows
from specsim.setting import NO_SPECULATION, chain_settings

LINES_AT_ONCE, INTERVALS_AT_ONCE = 512, 1024  # lines that are read, and intervals made windows
BACKWARDS_S = 120.0  # time that jumps back by more than this begins another run
LOOKUPS = ("NGRAM", "NGRAM_GPU", "SUFFIX")  # lines tell of rounds that found something
SILENT_WINDOWS = 2  # so many without a drafting line, in a log that is not filtered, draft nothing
_HEAD = ("stamp", "name", *grammar.ENGINE)  # values of a row before those of the drafting line
_NO_ENGINE, _NO_DRAFTING = (b"",) * (1 + len(grammar.ENGINE)), (b"",) * len(grammar.DRAFTING)


def parse(source: Source) -> list[LogEntry]:
    """Read a log: an entry per server."""
    return [server_entry(server, source.path) for server in Reader().read(source)]


class Server:
    """The lines of one server."""

    def __init__(self) -> None:
        self.facts = Facts("vllm")
        self.windows = Windows(lambda name: (int(name) if name else None, ()), True, 0.1)
        self.drafting = grammar.Drafting()
        self.unread: Counter[str] = Counter()
        self.label = ""
        self.stamp = b""  # time of the last line
        # Whether lines of other kinds follow: a log that was filtered for throughput lines says
        # nothing of speculation by not mentioning it.
        self.other_lines = False
        self.mentions_drafting = False  # in any line, read or not
        self.v0: grammar.V0Line | None = None  # the last counters of a V0 engine
        self.preemptions = 0  # that throughput lines tell of
        self.prompts_elsewhere = False  # another node computes them
        self.engines = 1  # the most that one line is the sum of
        self._rows: list[grammar.Values] = []

    @property
    def is_open(self) -> bool:
        """Whether measurements of this server were seen."""
        return bool(self._rows or self.windows.read or self.drafting.lines or self.v0)

    def add(self, rows: Sequence[grammar.Values]) -> None:
        """Add intervals: time, name of the engine, values of `ENGINE` and `DRAFTING`."""
        self._rows.extend(rows)
        self.mentions_drafting |= any(row[-1] for row in rows)
        self.stamp = rows[-1][0] or self.stamp
        if len(self._rows) >= INTERVALS_AT_ONCE:
            self.flush(final=False)

    def add_engine(self, line: grammar.EngineLine, stamp: bytes) -> None:
        """Add a throughput line."""
        self.engines = max(self.engines, line.engines)
        self.preemptions += line.preemptions
        self.add([(stamp, *line.values, *_NO_DRAFTING)])

    def add_spec(self, values: grammar.Values, stamp: bytes) -> None:
        """Add a drafting line: it belongs to the throughput line above it."""
        last = self._rows[-1] if self._rows else None
        if last and last[len(_HEAD) :] == _NO_DRAFTING and stamp in (b"", last[0]):
            self._rows[-1] = (*last[: len(_HEAD)], *values)
        else:
            self._rows.append((stamp, *_NO_ENGINE, *values))
        self.stamp = stamp or self.stamp

    def flush(self, final: bool) -> None:
        """Turn the collected lines into windows; the last one may still get its drafting line."""
        cut = len(self._rows) - (0 if final else 1)
        rows, self._rows = self._rows[:cut], self._rows[cut:]
        if final and self.v0 and not self.drafting.lines:
            self.drafting.add_counters(self.v0)
        if not rows:
            return
        texts = dict(zip((*_HEAD, *grammar.DRAFTING), zip(*rows, strict=True), strict=True))
        stamps, names, rates = (texts.pop(name) for name in ("stamp", "name", "positions"))
        printed = {name: floats(column) for name, column in texts.items()}
        looks_up = self.facts.settings.get("algorithm") in LOOKUPS
        drafted = grammar.judge(printed, grammar.survival_matrix(rates), looks_up)
        self.unread[CONTRADICTION] += int(drafted.faulty.sum())
        self.unread[grammar.NO_DRAFTS] += int(drafted.empty.sum())
        self.drafting.add(drafted, printed["running"])
        with np.errstate(invalid="ignore", divide="ignore"):
            length = np.where(drafted.rounds > 0, drafted.emitted / drafted.rounds, 1.0)
            prefill = printed["prompt"] > PREFILL_LEAST * printed["tps"] / length
        lines = {
            "time_s": seconds(stamps),
            "running": printed["running"],
            "queue": printed["waiting"],
            "usage": printed["usage"] / 100,
            "output_tps": printed["tps"],
            "emitted": drafted.emitted,
            "rounds": drafted.rounds,
            "graph": np.full(len(rows), np.nan),
            "prefill": (prefill & (not self.prompts_elsewhere)).astype(np.float64),
            "drafting": drafted.sums,
        }
        self.windows.started = self.facts.started
        measured = np.flatnonzero(np.isfinite(printed["tps"]))
        read = {name: column[measured] for name, column in lines.items()}
        engines = [names[i] for i in measured]
        self.unread["no engine number"] += self.windows.add(read, engines, final)


class Reader:
    """Hands lines to servers.

    Another process id, a start-up line, time that runs backwards or a label in a paste begins
    another.
    """

    def __init__(self) -> None:
        self.server = Server()
        self.servers = [self.server]
        self.by_pid: dict[bytes, Server] = {}
        self.above = Above("vllm")  # what the text of a paste says
        self.lines: list[bytes] = []  # metrics that wait to be read

    def read(self, source: Source) -> list[Server]:
        """Return the servers of a log."""
        for line in source.lines():
            if ENGINE_MARK in line or SPEC_MARK in line or OLD_SPEC_MARK in line:
                self.lines.append(line)
                whole = SPEC_MARK in line  # no drafting line follows that belongs to this one
                if len(self.lines) >= (LINES_AT_ONCE if whole else 2 * LINES_AT_ONCE):
                    self._drain()
            elif b"HTTP/1." in line:  # tells of a request
                self.server.other_lines |= self.server.is_open or bool(self.lines)
            else:
                self._other(line)
        self._drain()
        if len(self.servers) == 1 and not self.server.facts.launched:
            self.server.facts.take_launch(self.above.left())
        for server in self.servers:
            server.flush(final=True)
        return self.servers

    def _other(self, line: bytes) -> None:
        """Read a line of another kind."""
        self._drain()
        if self.server.facts.concerned(line):
            starts = b"vLLM API server version" in line or b"with config: " in line
            if starts and self.server.is_open:
                self._start()
                self.by_pid = {}
            self.server.facts.learn(line)
        self.above.read(line)
        self.server.other_lines |= self.server.is_open
        self.server.mentions_drafting |= b"metrics.py" in line or b"Per-position" in line
        self.server.prompts_elsewhere |= b"kv_consumer" in line

    def _drain(self) -> None:
        lines, self.lines = self.lines, []
        regular = grammar.parse_regular(lines)
        if regular is not None:
            for pid, found in groupby(regular, itemgetter(1)):
                rows = [(grammar.with_year(stamp), *values) for _, _, stamp, *values in found]
                for part in in_order([row[0] for row in rows], BACKWARDS_S):
                    self._place(rows[part.start][0], pid)
                    self.server.add(rows[part])
            return
        for line in lines:
            with counted(self.server.unread):
                self._read_one(line)

    def _read_one(self, line: bytes) -> None:
        prefix = line[: max(line.find(b" [", 0, 256), 0)] or line[:128]
        if ENGINE_MARK in line:
            engine = grammar.parse_engine_line(line)
            stamp = self._place(*grammar.parse_prefix(prefix))
            self.server.add_engine(engine, stamp)
            return
        self.server.mentions_drafting = True
        spec = grammar.parse_spec_line(line)
        stamp = self._place(*grammar.parse_prefix(prefix))
        if not isinstance(spec, grammar.V0Line):
            self.server.add_spec(spec, stamp)
            return
        last = self.server.v0  # counters since the start: smaller ones are another server's
        if last and (spec.emitted < last.emitted or spec.num_steps != last.num_steps):
            self._start()
        self.server.v0 = spec

    def _place(self, stamp: bytes, pid: bytes) -> bytes:
        """Find the server of a line by its process, and by what stands above it; return its time.

        Another one begins where a label or a command stands above, and where time runs backwards.
        """
        if pid in self.by_pid:
            self.server = self.by_pid[pid]
        elif pid and self.server in self.by_pid.values():
            self._start()
        if self.above.pending:
            launch, label = self.above.launch(), self.above.label
            if self.server.is_open and (launch or label != self.server.label):
                self._start()
            self.server.label = self.server.label or label
            self.server.facts.take_launch(launch)
        if runs_back(stamp, self.server.stamp, BACKWARDS_S):
            self._start()
        if pid:
            self.by_pid[pid] = self.server
        return stamp

    def _start(self) -> None:
        self.server.flush(final=True)
        self.server = Server()
        self.server.label = self.above.label
        self.servers.append(self.server)


def server_entry(server: Server, path: str) -> LogEntry:
    """Return what is known of a server."""
    drafting = server.drafting
    settings = _settings(server)
    plain = settings.get("algorithm") == "none"

    def finished(row: LogRow, sums: Floats) -> LogRow:
        return replace(row, **drafting.fields(sums) | {"accept_length": row.accept_length})

    rows, windows = level_rows(server.windows, finished, plain)
    if not rows and drafting.lines:  # a log without usable throughput lines
        scope: Literal["run", "pooled"] = "pooled" if server.v0 else "run"
        alone = LogRow(windows=drafting.lines, accept_length_scope=scope, **drafting.fields())
        rows = (alone,)
    read, used = windows.read + drafting.alone, windows.used + drafting.alone
    windows, version = replace(windows, read=read, used=used), server.facts.version
    entry = LogEntry(path, "vllm_log", "vllm", version, settings, rows, windows)
    found, unread = tuple(_diagnoses(server, rows, settings)), dict(+server.unread)
    told = drafting.fields()
    pooled = 1.0 if plain else told["accept_length"]
    entry = replace(entry, accept_length=pooled, survival=told["survival"], label=server.label)
    return replace(entry, diagnoses=found, unread=unread)


def _settings(server: Server) -> dict[str, object]:
    settings = dict(server.facts.settings)
    drafts = server.drafting.lines or server.mentions_drafting
    if server.drafting.lines and settings.get("algorithm") == "none":  # its arguments were cut
        settings = {name: value for name, value in settings.items() if name not in NO_SPECULATION}
    if k := server.drafting.positions:
        settings = {**chain_settings(k), **settings}
    silent = server.windows.read >= SILENT_WINDOWS or server.label
    if not drafts and silent and server.other_lines and "algorithm" not in settings:
        settings.update(NO_SPECULATION)
    return settings


def _diagnoses(
    server: Server, rows: Sequence[LogRow], settings: Mapping[str, object]
) -> Iterator[Diagnosis]:
    """Yield what is wrong with one server, whose entry has these rows and settings."""
    yield from of_load(rows, settings, server.windows)
    yield from _of_drafting(server, settings.get("num_steps"))
    if preempted := server.preemptions or server.facts.counts["preemptions"]:
        yield finding("retraction", "vllm", preempted=preempted)
    if settings.get("disable_cuda_graph") is True:
        yield finding("eager", "vllm")
    ranks = max(len(server.windows.ranks.named), server.engines)
    if ranks > 1:
        yield finding("ranks_summed", "vllm", n=ranks)
    yield from truncated(server.unread)


def _of_drafting(server: Server, steps: object) -> Iterator[Diagnosis]:
    """Yield what is wrong with the drafting, and what the numbers mean."""
    drafting, told = server.drafting, server.drafting.fields()
    length, rate = told["accept_length"], told["accept_rate"] or 0.0
    if drafting.corrected:
        yield finding("bonus_excluded", "vllm", lines=drafting.corrected)
    if server.v0:
        over = 1 + drafting.positions * rate
        length_of = {"length": length or 0.0}
        yield finding("accept_rate_definition", "vllm_v0", rate=rate, over=over, **length_of)
    survival = told["survival"] or ()
    useful, last = sum(s > 0 for s in survival), len(survival)
    if drafting.lines and told["accept_rate"] == 0:
        yield finding("zero_acceptance", "never")
    elif length is not None and useful < last:
        first = useful + 1
        about = {"last": last, "useful": useful, "length": length}
        yield finding("zero_acceptance", "positions", first=first, **about)
    yield from partial_drafting(told["drafted_per_round"], steps)
    if drafting.lines and length is None and drafting.positions == 0:
        yield finding("accept_rate_definition", "no_length", percent=100 * rate)
