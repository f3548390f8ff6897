"""Counters of a running server, differenced to windows, and windows to rows by running batch.

A window is a few scrapes: of gauges it has the mean, of counters the difference between its last
scrape and the last one of the window before.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from specsim.errors import FormatError
from specsim.live.fetch import parsed
from specsim.live.server import FORMAT, Server, find
from specsim.logs.diagnose import of_load
from specsim.logs.entry import LogEntry, LogRow, WindowCount, believable, measures
from specsim.logs.format import detect
from specsim.logs.formats._scrape import Dump, scraped
from specsim.logs.formats.prometheus import columns_of, entry_of, finished, no_windows
from specsim.logs.levels import level_rows
from specsim.logs.source import Source, split_lines
from specsim.logs.windows import Windows
from specsim.setting import NO_SPECULATION

POLLS, LEAST_POLL_S = 4, 0.5  # scrapes of a window, and the least time between two
LOOK_S, LOOK_WINDOWS = 2.0, 3  # a look at a server that works is so many windows of so many seconds
MOST_STATISTICS = 64 << 20  # bytes of iteration statistics that are kept


@dataclass(slots=True)
class Watch:
    """Windows of one server."""

    server: Server
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    restarts: int = 0  # windows in which the server was started anew; they are not counted
    first: Dump = field(default_factory=Dump)  # what it had counted before
    _last: tuple[float, float, bytes] = (0.0, 0.0, b"")  # time, tokens in flight, scrape
    _windows: Windows = field(default_factory=no_windows)
    _iterations: bytearray = field(default_factory=bytearray)

    def start(self) -> bool:
        """Take the first scrape; return whether requests run."""
        self._last = self._poll()
        self.first = _dump(self._last[2])
        return sum(self.first.means("running")) >= 1

    def window(self, seconds: float) -> None:
        """Wait for one window, and count it."""
        begun, in_flight, scrape = self._last
        polls, scrapes, last = max(1, min(POLLS, int(seconds / LEAST_POLL_S))), [scrape], self._last
        for i in range(1, polls + 1):
            self.sleep(max(0.0, begun + i * seconds / polls - self.clock()))
            last = self._poll()
            scrapes.append(last[2])
        self._last, dump = last, _dump(*scrapes)
        if dump.restarted:
            self.restarts += 1
        elif dump.engines and not self.server.served.iterations:
            served, tokens = self.server.served, None
            if served.tokens:
                more = last[1] - in_flight  # came out than the counter tells
                tokens = max((dump.increase(served.tokens) or 0.0) + more, 0.0)
            columns = columns_of(dump, time.time(), last[0] - begun, tokens, served.counts_all)
            self._windows.add(columns, [b""], final=True)

    def _poll(self) -> tuple[float, float, bytes]:
        """Scrape once: when, tokens of requests in flight, counters."""
        served, at = self.server.served, self.server.site
        if served.iterations and len(self._iterations) < MOST_STATISTICS:
            self._iterations += (at.get(served.iterations) or b"") + b"\n"
        scrape, now = self.server.scrape(), self.clock()
        slots = parsed(at.get(served.in_flight), list) if served.in_flight else []
        return now, sum(map(_decoded, slots)), scrape

    def entry(self) -> LogEntry:
        """Return what is known of the server so far: windows, else what it had counted before."""
        server, before = self.server, entry_of(self.first, self.server.site.url)
        settings: dict[str, object] = {**before.settings, **server.settings}
        if server.served.counts_all and self.first.engines and not settings.get("num_steps"):
            settings |= NO_SPECULATION if self.first.increase("drafts") is None else {}
        plain = settings.get("algorithm") == "none"
        rows, windows = level_rows(self._windows, finished, plain)
        if server.served.iterations:
            with suppress(FormatError):
                source = Source(server.site.url, [bytes(self._iterations)])
                (found,) = detect(source).parse(source)
                rows, windows = found.rows, found.windows
                settings = {**found.settings, **settings}
        if not rows:
            rows = server.told.rows if server.told is not None else ()
            rows = rows or tuple(_lifetime(row, plain) for row in before.rows)
            rows = tuple(row for row in rows if measures(row))
            windows = WindowCount(len(rows), len(rows)) if not windows.read else windows
        entry = LogEntry(server.site.url, FORMAT, server.served.engine, server.version, settings)
        told = tuple(of_load(rows, settings, self._windows))
        entry = replace(entry, rows=rows, windows=windows, diagnoses=told, unread=before.unread)
        return believable(entry)


def look(url: str) -> tuple[LogEntry, tuple[str, ...]]:
    """Return what a server says now, and what it does not tell.

    If it works, a few seconds of its counters; else what it had counted before.
    """
    watch = Watch(find(url))
    if watch.start():
        for _ in range(LOOK_WINDOWS):
            watch.window(LOOK_S)
        return watch.entry(), watch.server.notes
    idle = "is idle: what it tells is of before; --watch 10s waits for load"
    return watch.entry(), (*watch.server.notes, f"{watch.server.site.url} {idle}")


def counted(server: Server, before: bytes) -> LogRow | None:
    """Return what a server has counted since a scrape, where it says anything."""
    rows = entry_of(_dump(before, server.scrape()), server.site.url).rows
    return rows[0] if rows else None


def _dump(*scrapes: bytes) -> Dump:
    return scraped(split_lines(scrape + b"\n" for scrape in scrapes))


def _decoded(slot: object) -> float:
    """Tokens that a slot of llama.cpp's has given for the request that it works on."""
    said = slot if isinstance(slot, dict) and slot.get("is_processing") is True else {}
    told = said.get("next_token")
    told = told[0] if isinstance(told, list) and told else told
    count = told.get("n_decoded") if isinstance(told, dict) else None
    return float(count) if type(count) is int and 0 <= count < 1e9 else 0.0


def _lifetime(row: LogRow, plain: bool) -> LogRow:
    """Keep of a row what is of the server's life, not of the moment."""
    accept = 1.0 if plain else row.accept_length
    return LogRow(accept_length=accept, accept_length_scope="pooled", survival=row.survival)
