"""vLLM server logs, V0 to 0.33: throughput and drafting lines, configuration.

vLLM prints every ten seconds: a line with the throughput of each engine, and under it, if anything
was drafted, a line with the drafting of the same interval.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from specsim.logs.columns import seconds
from specsim.logs.entry import LogEntry
from specsim.logs.paste import label_of, separates
from specsim.logs.source import as_lines
from specsim.logs.vllm_block import Block
from specsim.logs.vllm_facts import ANY_FACT
from specsim.logs.vllm_lines import (
    ENGINE_MARK,
    OLD_SPEC_MARK,
    SPEC_MARK,
    V0Line,
    parse_engine_line,
    parse_old_spec_line,
    parse_plain,
    parse_prefix,
    parse_spec_line,
)

BATCH = 1024
"""Intervals that are turned into windows at once."""
BACKWARDS_S = 120.0
"""Time that jumps back by more than this begins another run."""


def read_vllm(
    lines: Iterable[bytes] | Iterable[str], path: str = "-", samples: int = 0
) -> list[LogEntry]:
    """Read the log of one or more vLLM servers.

    Parameters
    ----------
    lines
        Lines with their ends.
    path
        Name for the entries.
    samples
        Keep up to this many single windows per entry.

    Returns
    -------
    list of LogEntry
        One per server: another process id, a start-up line, time that runs backwards or a label
        in a paste begins a new one.
    """
    reader = _Reader(samples)
    above = b""
    for line in as_lines(lines):
        if above:
            if SPEC_MARK in line and reader.plain(above + line):
                above = b""
                continue
            reader.throughput(above)
            above = b""
        if ENGINE_MARK in line:
            above = line
        elif SPEC_MARK in line or OLD_SPEC_MARK in line:
            reader.drafting(line)
        elif b"HTTP/1." in line:
            reader.block.other_lines |= reader.block.is_open
        else:
            reader.other(line)
    if above:
        reader.throughput(above)
    return reader.entries(path)


class _Reader:
    """Hands lines to blocks; the servers of a file are told apart by process id."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.block = Block(samples)
        self.blocks = [self.block]
        self.by_pid: dict[bytes, Block] = {}
        self.boundary = False
        self.label = ""
        self.prefix: tuple[bytes, bytes, bytes] = (b"", b"", b"")
        self.home: Block | None = None

    def plain(self, lines: bytes) -> bool:
        """Read a throughput line, or one with the drafting line under it, if they are plain."""
        found = parse_plain(lines)
        if found is None:
            return False
        stamp = self._home(found[0])
        self.block.add_plain(found[1:], stamp)
        if len(self.block) >= BATCH:
            self.block.flush(final=False)
        return True

    def throughput(self, line: bytes) -> None:
        """Read a throughput line."""
        if self.plain(line):
            return
        engine = parse_engine_line(line)
        if isinstance(engine, str):
            self.block.unread[engine] += 1
            return
        stamp = self._place(line)
        self.block.add_engine(engine, stamp)
        if len(self.block) >= BATCH:
            self.block.flush(final=False)

    def drafting(self, line: bytes) -> None:
        """Read a drafting line of any version."""
        spec = parse_spec_line(line) if SPEC_MARK in line else parse_old_spec_line(line)
        self.block.mentions_drafting = True
        if isinstance(spec, str):
            self.block.unread[spec] += 1
            return
        stamp = self._place(line)
        if isinstance(spec, V0Line):
            self._cumulative(spec)
        else:
            self.block.add_spec(spec, stamp)

    def _cumulative(self, line: V0Line) -> None:
        """Counters since the start: the last line says all; smaller ones are another server's."""
        last = self.block.v0
        if last and (line.emitted < last.emitted or line.num_steps != last.num_steps):
            self.start()
        self.block.v0 = line

    def _place(self, line: bytes) -> bytes:
        """Find the block of a line; return its time."""
        return self._home(line[: max(line.find(b" [", 0, 256), 0)] or line[:128])

    def _home(self, head: bytes) -> bytes:
        """Find the block of a line by what stands before its message; return its time."""
        if head == self.prefix[0] and self.block is self.home and not self.boundary:
            return self.prefix[1]
        self.prefix = (head, *parse_prefix(head))
        _, stamp, pid = self.prefix
        if pid:
            self._switch(pid)
        if self.boundary and self.label and self.block.is_open:
            self.start()
        elif stamp and stamp < self.block.last_stamp:  # as text, which sorts like time
            now, before = seconds([stamp, self.block.last_stamp])
            if np.isfinite(now - before) and now - before < -BACKWARDS_S:
                self.start()
        if pid:
            self.by_pid[pid] = self.block
        self.block.label = self.block.label or self.label
        self.label, self.boundary, self.home = "", False, self.block
        return stamp

    def _switch(self, pid: bytes) -> None:
        known = self.by_pid.get(pid)
        if known is not None:
            self.block = known
        elif self.block in self.by_pid.values():
            self.start()

    def start(self) -> None:
        """Begin another block."""
        self.block.flush(final=True)
        self.block = Block(self.samples)
        self.blocks.append(self.block)

    def other(self, line: bytes) -> None:
        """Read a line of another kind."""
        if ANY_FACT.search(line):
            starts = b"vLLM API server version" in line or b"with config: " in line
            if starts and self.block.is_open:
                self.start()
                self.by_pid = {}
            self.block.facts.learn(line)
        label = label_of(line)
        self.label = label or self.label
        if label or separates(line):
            self.boundary = True
        self.block.other_lines |= self.block.is_open
        self.block.mentions_drafting |= b"metrics.py" in line or b"Per-position" in line

    def entries(self, path: str) -> list[LogEntry]:
        """Return the entries of the blocks that say anything."""
        for block in self.blocks:
            block.flush(final=True)
        return [b.entry(path) for b in self.blocks if b.says_anything] or [
            self.blocks[0].entry(path)
        ]
