"""Hands the lines of a vLLM log to servers: where one server ends and another begins."""

from __future__ import annotations

from collections.abc import Mapping

from specsim.logs.columns import runs_back
from specsim.logs.entry import LogEntry
from specsim.logs.formats.vllm.entry import server_entry
from specsim.logs.formats.vllm.facts import ANY_FACT
from specsim.logs.formats.vllm.lines import (
    ENGINE_MARK,
    OLD_SPEC_MARK,
    SPEC_MARK,
    V0Line,
    parse_engine_line,
    parse_prefix,
    parse_regular,
    parse_spec_line,
)
from specsim.logs.formats.vllm.server import Server
from specsim.logs.paste import Above
from specsim.logs.source import Source
from specsim.logs.unread import Unread

BATCH = 512
"""Lines that are read at once."""
BACKWARDS_S = 120.0
"""Time that jumps back by more than this begins another run."""


def read_log(source: Source, samples: int) -> list[LogEntry]:
    """Read the log of one or more vLLM servers.

    Another process id, a start-up line, time that runs backwards or a label in a paste begins a
    new entry.
    """
    reader = _Reader(samples)
    for line in source.lines():
        if ENGINE_MARK in line or SPEC_MARK in line or OLD_SPEC_MARK in line:
            reader.metrics(line)
        elif b"HTTP/1." in line:
            reader.access()
        else:
            reader.other(line)
    return [server_entry(server, source.path) for server in reader.end()]


class _Reader:
    """Hands lines to servers; those of a file are told apart by process id."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.server = Server(samples)
        self.servers = [self.server]
        self.by_pid: dict[bytes, Server] = {}
        self.above = Above("vllm")  # what the text of a paste says
        self.last: tuple[bytes, bytes, Server | None] = (b"", b"", None)
        self.lines: list[bytes] = []  # metrics that wait to be read

    def metrics(self, line: bytes) -> None:
        """Take in a throughput or drafting line."""
        self.lines.append(line)
        whole = SPEC_MARK in line  # no drafting line follows that belongs to this one
        if len(self.lines) >= (BATCH if whole else 2 * BATCH):
            self.drain()

    def access(self) -> None:
        """Pass over a line that tells of a request."""
        self.server.other_lines |= self.server.is_open or bool(self.lines)

    def other(self, line: bytes) -> None:
        """Read a line of another kind."""
        self.drain()
        if ANY_FACT.search(line):
            starts = b"vLLM API server version" in line or b"with config: " in line
            if starts and self.server.is_open:
                self._start()
                self.by_pid = {}
            self.server.facts.learn(line)
        self.above.read(line)
        self.server.other_lines |= self.server.is_open
        self.server.mentions_drafting |= b"metrics.py" in line or b"Per-position" in line
        self.server.prompts_elsewhere |= b"kv_consumer" in line

    def end(self) -> list[Server]:
        """Return all servers."""
        self.drain()
        if len(self.servers) == 1 and not self.server.launched:
            self.server.take_launch(self.above.left())
        for server in self.servers:
            server.flush(final=True)
        return self.servers

    def drain(self) -> None:
        """Read the lines that wait."""
        lines, self.lines = self.lines, []
        regular = parse_regular(lines)
        if regular is not None:
            for prefix, *values in regular:
                stamp = self._place(prefix)
                self.server.add((stamp, *values))
            return
        for line in lines:
            try:
                self._read_one(line)
            except Unread as unread:
                self.server.unread[unread.reason] += 1

    def _read_one(self, line: bytes) -> None:
        if ENGINE_MARK in line:
            engine = parse_engine_line(line)
            stamp = self._place(_prefix(line))
            self.server.add_engine(engine, stamp)
            return
        self.server.mentions_drafting = True
        spec = parse_spec_line(line)
        stamp = self._place(_prefix(line))
        if isinstance(spec, V0Line):
            self._cumulative(spec)
        else:
            self.server.add_spec(spec, stamp)

    def _cumulative(self, line: V0Line) -> None:
        """Counters since the start: the last line says all; smaller ones are another server's."""
        last = self.server.v0
        if last and (line.emitted < last.emitted or line.num_steps != last.num_steps):
            self._start()
        self.server.v0 = line

    def _place(self, prefix: bytes) -> bytes:
        """Find the server of a line by what stands before its message; return its time."""
        same_prefix, stamp, home = self.last
        if prefix == same_prefix and self.server is home and not self.above.pending:
            return stamp
        stamp, pid = parse_prefix(prefix)
        if pid in self.by_pid:
            self.server = self.by_pid[pid]
        elif pid and self.server in self.by_pid.values():
            self._start()
        if self.above.pending:
            self._heed(self.above.launch())
        if runs_back(stamp, self.server.stamp, BACKWARDS_S):
            self._start()
        if pid:
            self.by_pid[pid] = self.server
        self.last = (prefix, stamp, self.server)
        return stamp

    def _heed(self, launch: Mapping[str, object]) -> None:
        """Begin another server where a label or a command stands above its lines."""
        label = self.above.label
        if self.server.is_open and (launch or label != self.server.label):
            self._start()
        self.server.label = self.server.label or label
        self.server.take_launch(launch)

    def _start(self) -> None:
        """Begin another server."""
        self.server.flush(final=True)
        self.server = Server(self.samples)
        self.server.label = self.above.label
        self.servers.append(self.server)


def _prefix(line: bytes) -> bytes:
    """Return what stands before the message of a line."""
    return line[: max(line.find(b" [", 0, 256), 0)] or line[:128]
