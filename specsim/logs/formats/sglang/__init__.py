"""SGLang server logs, 0.4.0 to 0.5.23: decode windows, start-up facts and warnings.

SGLang prints one decode line every 40 decode iterations (``decode_log_interval``); its throughput
is tokens since the last such line over the wall time in between, prefill and idle time included.
"""

from __future__ import annotations

import re

from specsim.logs.columns import runs_back
from specsim.logs.entry import LogEntry
from specsim.logs.format import Format
from specsim.logs.formats.sglang.entry import server_entry
from specsim.logs.formats.sglang.facts import ANY_FACT
from specsim.logs.formats.sglang.lines import (
    COLUMNS,
    MARK,
    DecodeLine,
    Layout,
    parse_decode_line,
    parse_prefix,
)
from specsim.logs.formats.sglang.server import UNLIKE, Server
from specsim.logs.paste import label_of, separates
from specsim.logs.source import Source

BACKWARDS_S = 60.0
"""Time that jumps back by more than this begins another run."""
MAX_PREFILLS = 4096
"""So many prefill lines wait for the decode line that tells whose they are."""


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read the log of one or more SGLang servers.

    A start-up line, a change of the line's layout, time that runs backwards or a label in a paste
    begins a new entry.
    """
    reader = _Reader(samples)
    for line in source.lines():
        at = line.find(MARK)
        if at >= 0:
            reader.decode(line, at)
        elif b"Prefill batch" in line:
            reader.prefill(line)
        elif b"HTTP/1." not in line:
            reader.other(line)
    reader.end()
    return [server_entry(server, source.path) for server in reader.done]


class _Reader:
    """Hands lines to servers, and decides where another server begins."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.server = Server(samples)
        self.done: list[Server] = []
        self.layout: Layout | None = None  # of the last line that was read
        self.odd: tuple[DecodeLine, bool] | None = None  # a line unlike those before it
        self.boundary = False  # whether what separates two runs in a paste came last
        self.label = ""
        self.prefills: list[bytes] = []
        self.prefilled = False

    def decode(self, line: bytes, at: int) -> None:
        """Read a line with ``Decode batch`` at a place in it."""
        prefill, self.prefilled = self.prefilled, False
        if self.layout is not None and self.odd is None and not self.boundary:
            found = self.layout.pattern.match(line, at)
            if found is not None:
                self._add(line[:at], found.group(*COLUMNS), prefill)
                return
        parsed = parse_decode_line(line)
        if isinstance(parsed, str):
            self.server.not_read(line, parsed)
        elif self._place(parsed, prefill):
            self.layout = parsed.layout

    def _add(self, prefix: bytes, values: tuple[bytes, ...], prefill: bool) -> None:
        stamp, rank = parse_prefix(prefix)
        if runs_back(stamp, self.server.stamp, BACKWARDS_S):
            self._start(self.server.restarted())
        self.server.add((stamp, rank, b"True" if prefill else b"False", *values))
        if self.prefills:
            self._drain_prefills()

    def _place(self, line: DecodeLine, prefill: bool) -> bool:
        """Put a line in its server; hold it back if it is unlike the lines before it."""
        odd, self.odd = self.odd, None
        if odd is not None and line.layout.like(odd[0].layout):
            self.server.forget_single_line()  # it was itself the odd one
            self._start()
            self._take(*odd)
        elif odd is not None:
            self.server.not_read(odd[0].prefix, UNLIKE)
        mine = self.server.layout
        if mine is not None and not mine.like(line.layout):
            if not self.boundary:
                self.odd = (line, prefill)
                return False
            self._start()
        elif mine is not None and self.boundary:
            stamp, _ = parse_prefix(line.prefix)
            other_version = mine.trailing_comma != line.layout.trailing_comma
            if other_version or self.server.jumps_back(stamp, line.values):
                self._start()
        self._take(line, prefill)
        return True

    def _take(self, line: DecodeLine, prefill: bool) -> None:
        server, values = self.server, line.values
        server.layout = server.layout or line.layout
        server.label = server.label or self.label
        self.boundary, self.label = False, ""
        if server.layout.trailing_comma != line.layout.trailing_comma:
            values = (*values[:-1], b"")  # the last number of the line, the queue, may be cut
        self._add(line.prefix, values, prefill)

    def end(self) -> None:
        """Close the last server."""
        self._drop_odd()
        self._drain_prefills()
        self._start()

    def _drop_odd(self) -> None:
        """Give up the line that was held back."""
        if self.odd is not None:
            self.server.not_read(self.odd[0].prefix, UNLIKE)
            self.odd = None

    def prefill(self, line: bytes) -> None:
        """Keep a prefill line: the decode line after it tells whose it is."""
        self.prefilled = True
        self.prefills.append(line)
        if len(self.prefills) >= MAX_PREFILLS:
            self._drain_prefills()

    def _drain_prefills(self) -> None:
        for line in self.prefills:
            self.server.prefill(line)
        self.prefills = []

    def _start(self, other: Server | None = None) -> None:
        """Close the server and begin another."""
        self.server.flush(final=True)
        self.done.append(self.server)
        self.server = other or Server(self.samples)

    def other(self, line: bytes) -> None:
        """Read a line of another kind: a fact, or what may separate two runs in a paste."""
        if ANY_FACT.search(line):
            if b"server_args=" in line:
                self._drain_prefills()
                if self.server.is_open:
                    self._drop_odd()
                    self._start()
            self.server.facts.learn(line)
            return
        label = label_of(line)
        if label or separates(line):
            self._drain_prefills()
            self.boundary = True
            self.label = label or self.label


FORMAT = Format(
    name="sglang_log",
    mark=re.compile(
        rb"Decode batch(?: ?\[\d+\])?[.,] |Prefill batch(?: ?\[\d+\])?[.,] "
        rb"|server_args=ServerArgs\("
        rb"|max_total_num_tokens=\d|KV Cache is allocated\. #tokens|#retracted_reqs: "
        rb"|Max running requests is reset to|Capture (?:draft |draft extend )?cuda graph "
        rb"|Capture [a-z ]{5,14} CUDA graph |[Ss]pec v[12] "
    ),
    parse=parse,
    remedy="give a log that has 'Decode batch' lines of steady decoding",
)
