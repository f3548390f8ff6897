"""SGLang server logs, 0.4.0 to 0.5.23: decode windows, start-up facts and warnings.

SGLang prints one decode line every 40 decode iterations (``decode_log_interval``); its throughput
is tokens since the last such line over the wall time in between, prefill and idle time included.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from specsim.logs.entry import LogEntry
from specsim.logs.paste import label_of, separates
from specsim.logs.sglang_block import UNLIKE, Block
from specsim.logs.sglang_facts import ANY_FACT
from specsim.logs.sglang_lines import (
    MARK,
    QUEUE_AT,
    DecodeLine,
    Layout,
    parse_decode_line,
)
from specsim.logs.sglang_matrix import one_line, read_lines
from specsim.logs.source import as_lines

BATCH = 4096
"""Lines that are turned into columns at once."""
SHORT = 4
"""Fewer lines than this are read one by one."""


def read_sglang(
    lines: Iterable[bytes] | Iterable[str], path: str = "-", samples: int = 0
) -> list[LogEntry]:
    """Read the log of one or more SGLang servers.

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
        One per server: a start-up line, a change of the line's layout, time that runs backwards
        or a label in a paste begins a new one.
    """
    reader = _Reader(path, samples)
    reader.feed(as_lines(lines))
    return reader.entries()


class _Reader:
    """Hands lines to blocks, and decides where a new block begins."""

    def __init__(self, path: str, samples: int) -> None:
        self.path = path
        self.samples = samples
        self.block = Block(samples)
        self.done: list[Block] = []
        self.layout: Layout | None = None
        self.boundary = False
        self.label = ""
        self.odd: tuple[DecodeLine, bool] | None = None
        self.lines: list[bytes] = []
        self.starts: list[int] = []
        self.prefills: list[tuple[int, bytes]] = []
        self.prefilled = False

    def feed(self, lines: Iterable[bytes]) -> None:
        """Read all lines."""
        for line in lines:
            pos = line.find(MARK)
            if pos >= 0:
                self.lines.append(line)
                self.starts.append(pos)
                if len(self.lines) >= BATCH:
                    self.drain()
            elif b"Prefill batch" in line:
                self.prefills.append((len(self.lines), line))
            elif b"HTTP/1." not in line:
                self.other(line)
        self.drain()
        self._drop_odd()
        self.flush(final=True)
        self.done.append(self.block)

    def drain(self) -> None:
        """Read the collected decode and prefill lines."""
        lines, starts, prefills = self.lines, self.starts, self.prefills
        self.lines, self.starts, self.prefills = [], [], []
        marks = np.zeros(len(lines) + 1, dtype=bool)
        marks[0] = self.prefilled
        marks[[at for at, _ in prefills]] = True
        at = 0
        while at < len(lines):
            at = self._run(lines, starts, marks, at)
            if at < len(lines):
                self.decode(lines[at], bool(marks[at]))
                at += 1
        for _, line in prefills:
            self.block.prefill(line)
        self.prefilled = bool(marks[-1])
        self.flush()

    def _run(self, lines: list[bytes], starts: list[int], marks: NDArray[np.bool_], at: int) -> int:
        """Read lines of the present layout from `at` on; return where another begins."""
        layout = self.layout
        if layout is None or self.boundary or self.odd or len(lines) - at < SHORT:
            return at
        batch, ok = read_lines(lines[at:], starts[at:], layout)
        done = 0
        while done < len(batch):
            bad = np.flatnonzero(~ok[done:])
            stop = done + int(bad[0]) if len(bad) else len(batch)
            self.block.take(batch.part(done, stop), marks[at + done : at + stop])
            done = stop
            if done < len(batch):
                self.decode(lines[at + done], bool(marks[at + done]))
                done += 1
                if self.layout is not layout or self.odd:
                    break
        return at + done

    def flush(self, final: bool = False) -> None:
        """Turn the collected rows into windows; time that runs backwards begins a new block."""
        rest = self.block.flush(final)
        while rest is not None:
            self.done.append(self.block)
            self.block = rest
            rest = rest.flush(final)

    def decode(self, line: bytes, prefill: bool) -> None:
        """Read one decode line strictly."""
        parsed = parse_decode_line(line)
        if isinstance(parsed, str):
            self.block.not_read(line, parsed)
        elif self._place(parsed, prefill):
            self.layout = parsed.layout

    def _place(self, line: DecodeLine, prefill: bool) -> bool:
        """Put a line in its block; hold it back if it is unlike the lines before it."""
        odd, self.odd = self.odd, None
        if odd is not None:
            if line.signature.like(odd[0].signature):
                self._replace_block()
                self._take(*odd)
            else:
                self.block.not_read(odd[0].prefix, UNLIKE)
        if not self.block.like(line.signature):
            if not self.boundary:
                self.odd = (line, prefill)
                return False
            self.start()
        elif self.boundary and (self._other_version(line) or self.block.jumps_back(one_line(line))):
            self.start()
        self._take(line, prefill)
        return True

    def _other_version(self, line: DecodeLine) -> bool:
        mine = self.block.signature
        return mine is not None and mine.trailing_comma != line.signature.trailing_comma

    def _replace_block(self) -> None:
        """Begin a block after two like lines; one line before them was itself the odd one."""
        if self.block.is_single_line:
            self.block.forget_line()
        self.start()

    def _take(self, line: DecodeLine, prefill: bool) -> None:
        self.boundary = False
        self.block.signature = self.block.signature or line.signature
        self.block.label = self.block.label or self.label
        self.label = ""
        batch = one_line(line)
        if self.block.signature.trailing_comma != line.signature.trailing_comma:
            batch.values[QUEUE_AT] = np.nan  # the last number of the line may be cut
        self.block.take(batch, np.array([prefill]))

    def _drop_odd(self) -> None:
        if self.odd is not None:
            self.block.not_read(self.odd[0].prefix, UNLIKE)
            self.odd = None

    def start(self) -> None:
        """Close the block and begin another."""
        self.flush(final=True)
        self.done.append(self.block)
        self.block = Block(self.samples)

    def other(self, line: bytes) -> None:
        """Read a line of another kind: a fact, or what may separate two runs in a paste."""
        if ANY_FACT.search(line):
            if b"server_args=" in line:
                self.drain()
                if self.block.is_open:
                    self._drop_odd()
                    self.start()
            self.block.facts.learn(line)
            return
        label = label_of(line)
        if label or separates(line):
            self.drain()
            self.boundary = True
            self.label = label or self.label

    def entries(self) -> list[LogEntry]:
        """Return the entries of the blocks that say anything."""
        blocks = [b for b in self.done if b.says_anything] or self.done[:1]
        return [block.entry(self.path) for block in blocks]
