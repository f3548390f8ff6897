"""Hands the lines of an SGLang log to servers: where one server ends and another begins."""

from __future__ import annotations

import re
from itertools import pairwise

from specsim.logs.columns import runs_back
from specsim.logs.entry import LogEntry
from specsim.logs.formats.sglang.entry import server_entry
from specsim.logs.formats.sglang.facts import ANY_FACT
from specsim.logs.formats.sglang.lines import (
    MARK,
    DecodeLine,
    Layout,
    Printed,
    parse_decode_line,
    parse_prefixes,
)
from specsim.logs.formats.sglang.server import UNLIKE, Server
from specsim.logs.paste import Above
from specsim.logs.source import Source
from specsim.logs.unread import TRUNCATED, Unread

BATCH = 512
"""Decode lines that are read at once."""
BACKWARDS_S = 60.0
"""Time that jumps back by more than this begins another run."""

_THRESHOLD = re.compile(
    rb"speculative_(?!accept)\w{0,32}(?:threshold|batch_size|max_bs)\w{0,16}['\"]?[=:] ?[1-9]"
)
"""Forks stop drafting from some batch on."""


def read_log(source: Source, samples: int) -> list[LogEntry]:
    """Read the log of one or more SGLang servers.

    A start-up line, a change of the line's layout, time that runs backwards or a label in a paste
    begins a new entry.
    """
    reader = _Reader(samples)
    for line in source.lines():
        if MARK in line:
            reader.decode(line)
        elif b"Prefill batch" in line:
            reader.prefill(line)
        elif b"HTTP/1." not in line:
            reader.other(line)
    return [server_entry(server, source.path) for server in reader.end()]


class _Reader:
    """Hands lines to servers, and decides where another server begins."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.server = Server(samples)
        self.done: list[Server] = []
        self.layout: Layout | None = None  # of the last line that was read
        self.odd: tuple[DecodeLine, bool] | None = None  # a line unlike those before it
        self.above = Above("sglang")  # what the text of a paste says
        self.lines: list[bytes] = []  # decode lines that wait to be read
        self.prefilled: list[bool] = []  # whether a prefill ran before each of them
        self.prefill_ran = False  # and since
        self.prefills: list[bytes] = []

    def decode(self, line: bytes) -> None:
        """Take in a decode line."""
        self.lines.append(line)
        self.prefilled.append(self.prefill_ran)
        self.prefill_ran = False
        if len(self.lines) >= BATCH:
            self.drain()

    def prefill(self, line: bytes) -> None:
        """Take in a prefill line: the decode lines around it tell whose it is."""
        self.prefill_ran = True
        self.prefills.append(line)
        if len(self.prefills) >= BATCH:
            self.drain()

    def other(self, line: bytes) -> None:
        """Read a line of another kind: a fact, or what may separate two runs in a paste."""
        if ANY_FACT.search(line):
            if b"server_args=" in line:
                self.drain()
                if self.server.is_open:
                    self._drop_odd()
                    self._start()
            self.server.facts.learn(line)
            self.server.has_threshold |= _THRESHOLD.search(line) is not None
            return
        self.above.read(line, self.drain)

    def end(self) -> list[Server]:
        """Return all servers."""
        self.drain()
        self._drop_odd()
        self._start()
        if len(self.done) == 1 and not self.done[0].launched:
            self.done[0].take_launch(self.above.left())
        return self.done

    def drain(self) -> None:
        """Read the lines that wait: all at once if they are all of the present layout."""
        lines, prefilled, prefills = self.lines, self.prefilled, self.prefills
        self.lines, self.prefilled, self.prefills = [], [], []
        if lines and not self._read_alike(lines, prefilled):
            for line, ran in zip(lines, prefilled, strict=True):
                if not self._read_alike([line], [ran]):
                    self._read_strictly(line, ran)
        for line in prefills:
            self.server.prefill(line)

    def _read_alike(self, lines: list[bytes], prefilled: list[bool]) -> bool:
        """Read lines if they are all of the present layout; return whether they are."""
        if self.layout is None or self.odd is not None or self.above.pending:
            return False
        printed = self.layout.read(lines)
        if printed is not None:
            self._add(printed, prefilled)
        return printed is not None

    def _read_strictly(self, line: bytes, prefilled: bool) -> None:
        try:
            parsed = parse_decode_line(line)
        except Unread as unread:
            self.server.not_read(line, unread.reason)
            return
        if self._place(parsed, prefilled):
            self.layout = parsed.layout

    def _place(self, line: DecodeLine, prefilled: bool) -> bool:
        """Put a line in its server; hold it back if it is unlike the lines before it."""
        odd, self.odd = self.odd, None
        if odd is not None and line.layout.like(odd[0].layout):
            self.server.forget_single_line()  # it was itself the odd one
            self._start()
            self._take(*odd)
        elif odd is not None:
            self._not_read(odd[0])
        mine, boundary = self.server.layout, self.above.pending
        label, launch = self.above.label, self.above.launch() if boundary else {}
        if mine is not None and boundary and (launch or label != self.server.label):
            self._start()
        elif mine is not None and not mine.like(line.layout):
            if not boundary:
                self.odd = (line, prefilled)
                return False
            self._start()
        elif mine is not None and boundary:
            other_version = mine.trailing_comma != line.layout.trailing_comma
            if other_version or self.server.jumps_back(line):
                self._start()
        self.server.take_launch(launch)
        self.server.label = self.server.label or label
        self._take(line, prefilled)
        return True

    def _take(self, line: DecodeLine, prefilled: bool) -> None:
        server, printed = self.server, line.printed
        server.layout = server.layout or line.layout
        if server.layout.trailing_comma != line.layout.trailing_comma:
            printed = {**printed, "queue": (b"",)}  # the last number of the line may be cut
        self._add(printed, [prefilled])

    def _add(self, printed: Printed, prefilled: list[bool]) -> None:
        """Give lines to the server; where time runs backwards, another one begins."""
        stamps, ranks = zip(*parse_prefixes(printed["prefix"]), strict=True)
        lines = {**printed, "stamp": stamps, "rank": ranks}
        begun = 0
        for at, (before, now) in enumerate(pairwise((self.server.stamp, *stamps))):
            if now < before and runs_back(now, before, BACKWARDS_S):
                self.server.add(_part(lines, begun, at), prefilled[begun:at])
                self._start(self.server.restarted())
                begun = at
        self.server.add(_part(lines, begun, len(stamps)), prefilled[begun:])

    def _drop_odd(self) -> None:
        """Give up the line that was held back."""
        if self.odd is not None:
            self._not_read(self.odd[0])
            self.odd = None

    def _not_read(self, line: DecodeLine) -> None:
        """Count a line that is unlike those around it, perhaps because its end is missing."""
        reason = UNLIKE if line.layout.prints("queue") else TRUNCATED
        self.server.not_read(line.text("prefix"), reason)

    def _start(self, other: Server | None = None) -> None:
        """Close the server and begin another."""
        self.server.flush(final=True)
        self.done.append(self.server)
        self.server = other or Server(self.samples)


def _part(lines: Printed, start: int, stop: int) -> Printed:
    return {name: texts[start:stop] for name, texts in lines.items()}
