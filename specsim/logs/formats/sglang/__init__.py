"""SGLang server logs, 0.4.0 to 0.5.23: decode windows, start-up facts and warnings.

SGLang prints one decode line every 40 decode iterations (``decode_log_interval``); its throughput
is tokens since the last such line over the wall time in between, prefill and idle time included.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress

import numpy as np

from specsim.logs.columns import floats, in_order, runs_back, seconds
from specsim.logs.diagnose import finding, nothing_accepted, of_load, truncated
from specsim.logs.entry import LEAST_ACCEPT, Diagnosis, LogEntry, LogRow
from specsim.logs.facts import Facts
from specsim.logs.formats import patterns
from specsim.logs.formats.sglang import lines as grammar
from specsim.logs.levels import level_rows
from specsim.logs.paste import Above
from specsim.logs.source import Source
from specsim.logs.unread import TRUNCATED, Unread
from specsim.logs.windows import Windows
from specsim.setting import NO_SPECULATION

POOR_LENGTH = 1.05
LINES_AT_ONCE, COLUMNS_AT_ONCE = 512, 4096  # decode lines that are read, and turned to columns
BACKWARDS_S = 60.0  # time that jumps back by more than this begins another run
UNLIKE = "unlike its neighbours"
"""Why a well-formed line with other fields than the lines around it is not read."""
MAX_LINE = 4096  # no more of a damaged line is looked at
PASTE_GAP_S = 30.0  # in a paste, a label and a gap like this begin another run


def parse(source: Source) -> list[LogEntry]:
    """Read a log: an entry per server."""
    return [server_entry(server, source.path) for server in Reader().read(source)]


class Server:
    """The lines of one server."""

    def __init__(self) -> None:
        self.layout: grammar.Layout | None = None  # of the first decode line
        self.facts = Facts("sglang")
        self.windows = Windows(grammar.parse_ranks)
        self.rate = grammar.AcceptRate()
        self.unread: Counter[str] = Counter()
        self.label = ""
        self.stamp = b""  # time of the last decode line
        self.has_threshold = False  # of the batch, beyond which nothing is drafted
        self.prefills = 0  # prefill lines
        self.prompt = np.zeros(3)  # their sums of sequences, new and cached tokens
        self.version_hint = ""  # versions that print them
        names = ("rank", "stamp", *grammar.COLUMNS)
        self._lines: dict[str, list[bytes]] = {name: [] for name in names}
        self._prefilled: list[bool] = []
        self._last_tokens = b""

    @property
    def is_open(self) -> bool:
        """Whether batches of this server were seen."""
        return bool(self._prefilled or self.windows.read or self.prefills)

    @property
    def drafts_nothing(self) -> bool:
        """Whether no fact tells of speculation."""
        return self.facts.settings.get("algorithm") in (None, "none")

    def add(self, lines: grammar.Printed, prefilled: Sequence[bool]) -> None:
        """Add decode lines, with `stamp` and `rank`; before some of them a prefill ran."""
        for name, texts in self._lines.items():
            texts.extend(lines[name])
        self._prefilled.extend(prefilled)
        self.stamp = lines["stamp"][-1] or self.stamp
        self._last_tokens = lines["tokens"][-1]
        if len(self._prefilled) >= COLUMNS_AT_ONCE:
            self.flush(final=False)

    def prefill(self, line: bytes) -> None:
        """Count a prefill line."""
        found = patterns("sglang")["prefill"].search(line)
        if found is None:
            self.unread["damaged prefill line"] += 1
        else:
            self.prompt += [int(count) for count in found.groups()]
            self.version_hint = self.version_hint or grammar.prefill_versions(line)
        self.prefills += 1

    def not_read(self, line: bytes, reason: str) -> None:
        """Count a decode line that could not be read; the ranks that it names are known."""
        self.unread[reason] += 1
        for piece in line[:MAX_LINE].split(b"[20")[1:]:
            self.windows.ranks.see(piece[17 : piece.find(b"] ") + 2])

    def forget_single_line(self) -> None:
        """Take back a decode line if nothing else is known: the lines after it are unlike it."""
        if len(self._prefilled) == 1 and not self.windows.read and not self.facts.started:
            self._take_lines()
            self.unread[UNLIKE] += 1

    def jumps_back(self, printed: grammar.Printed) -> bool:
        """Whether a line after a label in a paste is of another run."""
        stamp, _ = grammar.parse_prefix(printed["prefix"][0])
        now, before = seconds([stamp, self.stamp])
        tokens, last_tokens = floats([printed["tokens"][0], self._last_tokens])
        return bool(now - before > PASTE_GAP_S or now < before or tokens < last_tokens)

    def flush(self, final: bool) -> None:
        """Turn the collected lines into windows."""
        lines, prefilled = self._take_lines()
        printed = {name: floats(lines[name]) for name in grammar.COLUMNS}
        if self.layout and not self.layout.prints("accept") and self.drafts_nothing:
            printed["accept"][:] = 1.0
            self.windows.accept_quantum = 0.0
        steps = self.facts.settings.get("num_steps")
        most = steps + 1.005 if isinstance(steps, int) and not self.drafts_nothing else np.inf
        good = np.ones(len(prefilled), dtype=bool)
        for reason, where in grammar.implausible(printed, most).items():
            self.unread[reason] += int((where & good).sum())
            good &= ~where
        self.rate.see(printed["accept"][good], printed["rate"][good])
        drafted = np.isfinite(printed["accept"])
        columns = {
            "time_s": seconds(lines["stamp"]),
            "running": printed["running"],
            "queue": printed["queue"],
            "usage": printed["usage"],
            "output_tps": printed["tps"],
            "emitted": np.where(drafted, printed["running"] * printed["accept"], 0.0),
            "rounds": np.where(drafted, printed["running"], 0.0),  # equally many in each window
            "graph": printed["graph"],
            "prefill": np.array(prefilled, dtype=np.float64),
        }
        self.windows.started = self.facts.started
        read = {name: column[good] for name, column in columns.items()}
        self.unread["no rank"] += self.windows.add(read, list(compress(lines["rank"], good)), final)

    def _take_lines(self) -> tuple[dict[str, list[bytes]], list[bool]]:
        taken = self._lines, self._prefilled
        self._lines, self._prefilled = {name: [] for name in self._lines}, []
        return taken


class Reader:
    """Hands lines to servers, and decides where another server begins.

    A start-up line, a change of the line's layout, time that runs backwards or a label in a paste
    begins another.
    """

    def __init__(self) -> None:
        self.server = Server()
        self.done: list[Server] = []
        self.layout: grammar.Layout | None = None  # of the last line that was read
        # A line unlike those before it, its layout, and whether a prefill ran before it.
        self.odd: tuple[grammar.Printed, grammar.Layout, bool] | None = None
        self.above = Above("sglang")  # what the text of a paste says
        self.lines: list[bytes] = []  # decode lines that wait to be read
        self.prefilled: list[bool] = []  # whether a prefill ran before each of them
        self.prefill_ran = False  # and since
        self.prefills: list[bytes] = []

    def read(self, source: Source) -> list[Server]:
        """Return the servers of a log."""
        for line in source.lines():
            if grammar.MARK in line:
                self.lines.append(line)
                self.prefilled.append(self.prefill_ran)
                self.prefill_ran = False
                if len(self.lines) >= LINES_AT_ONCE:
                    self._drain()
            elif b"Prefill batch" in line:  # the decode lines around it tell whose it is
                self.prefill_ran = True
                self.prefills.append(line)
                if len(self.prefills) >= LINES_AT_ONCE:
                    self._drain()
            elif b"HTTP/1." not in line:
                self._other(line)
        self._drain()
        self._drop_odd()
        self._start()
        if len(self.done) == 1 and not self.done[0].facts.launched:
            self.done[0].facts.take_launch(self.above.left())
        return self.done

    def _other(self, line: bytes) -> None:
        """Read a line of another kind: a fact, or what may separate two runs in a paste."""
        if not self.server.facts.concerned(line):
            self.above.read(line, self._drain)
            return
        if b"server_args=" in line:
            self._drain()
            if self.server.is_open:
                self._drop_odd()
                self._start()
        self.server.facts.learn(line)
        self.server.has_threshold |= patterns("sglang")["threshold"].search(line) is not None

    def _drain(self) -> None:
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
            printed, layout = grammar.parse_decode_line(line)
        except Unread as unread:
            self.server.not_read(line, unread.reason)
            return
        if (odd := self.odd) is not None and layout.like(odd[1]):
            self.odd = None
            self.server.forget_single_line()  # it was itself the odd one
            self._start()
            self._take(*odd)
        self._drop_odd()
        mine, boundary = self.server.layout, self.above.pending
        launch = self.above.launch() if boundary else {}
        alike = mine is None or mine.like(layout)
        if not alike and not boundary:
            self.odd = printed, layout, prefilled
            return
        if mine is not None and boundary:
            named = launch or self.above.label != self.server.label
            other_version = not alike or mine.trailing_comma != layout.trailing_comma
            if named or other_version or self.server.jumps_back(printed):
                self._start()
        self.server.facts.take_launch(launch)
        self.server.label = self.server.label or self.above.label
        self._take(printed, layout, prefilled)
        self.layout = layout

    def _take(self, printed: grammar.Printed, layout: grammar.Layout, prefilled: bool) -> None:
        server = self.server
        server.layout = server.layout or layout
        if server.layout.trailing_comma != layout.trailing_comma:
            printed = {**printed, "queue": (b"",)}  # the last number of the line may be cut
        self._add(printed, [prefilled])

    def _add(self, printed: grammar.Printed, prefilled: list[bool]) -> None:
        """Give lines to the server; where time runs backwards, another one like it begins."""
        self.server.layout = self.server.layout or self.layout
        stamps, ranks = zip(*map(grammar.parse_prefix, printed["prefix"]), strict=True)
        lines = {**printed, "stamp": stamps, "rank": ranks}
        for part in in_order(stamps, BACKWARDS_S):
            if runs_back(stamps[part.start], self.server.stamp, BACKWARDS_S):
                other = Server()
                other.layout, other.label = self.server.layout, self.server.label
                other.facts.settings = dict(self.server.facts.settings)
                self._start(other)
            self.server.add({name: texts[part] for name, texts in lines.items()}, prefilled[part])

    def _drop_odd(self) -> None:
        """Give up the line that was held back, unlike those around it: its end may be missing."""
        if self.odd is not None:
            printed, layout, _ = self.odd
            reason = UNLIKE if layout.prints("queue") else TRUNCATED
            self.server.not_read(printed["prefix"][0], reason)
            self.odd = None

    def _start(self, other: Server | None = None) -> None:
        self.server.flush(final=True)
        self.done.append(self.server)
        self.server = other or Server()


def server_entry(server: Server, path: str) -> LogEntry:
    """Return what is known of a server."""
    rows, windows = level_rows(server.windows)
    settings, version = _settings(server), server.facts.version
    entry = LogEntry(path, "sglang_log", "sglang", version, settings, rows, windows)
    found, unread = tuple(_diagnoses(server, rows, settings)), dict(+server.unread)
    pooled, label = server.windows.accept_length, server.label
    return replace(entry, diagnoses=found, unread=unread, accept_length=pooled, label=label)


def _settings(server: Server) -> dict[str, object]:
    """Return the settings of a server, with what its lines let one infer."""
    settings, layout = dict(server.facts.settings), server.layout
    versions = server.version_hint
    if layout is not None:
        found = grammar.generation(layout)
        versions = (versions or found) if found in ("", grammar.NEWEST) else found
        if not layout.prints("accept") and server.drafts_nothing:
            settings.update(NO_SPECULATION)
    if versions:
        settings["version_range"] = versions
    if layout is not None and layout.prints("rate") and "num_draft_tokens" not in settings:
        definition = server.rate.definition(layout, None, server.facts.version or versions)
        n = server.rate.num_draft_tokens(definition)
        if n is not None:
            settings["num_draft_tokens"] = n
            settings["inferred"] = ["num_draft_tokens"]
    if server.prefills:
        settings["prefill_batches"] = server.prefills
    sequences, new, cached = server.prompt
    if sequences:
        settings["prefill_tokens_per_sequence"] = float(f"{new / sequences:.6g}")
        settings["cached_tokens_per_sequence"] = float(f"{cached / sequences:.6g}")
    return settings


def _diagnoses(
    server: Server, rows: Sequence[LogRow], settings: Mapping[str, object]
) -> Iterator[Diagnosis]:
    """Yield what is wrong with one server, whose entry has these rows and settings."""
    events, layout = server.facts.counts, server.layout
    ranks = len(server.windows.ranks.named)
    yield from of_load(rows, settings, server.windows)
    if layout is not None and layout.prints("accept"):
        yield from _acceptance(rows, settings, server)
    if events["adaptive"] or settings.get("speculative_adaptive"):
        yield finding("partial_drafting", "adaptive", adaptive=events["adaptive"])
    if events["retractions"]:
        yield finding("retraction", "sglang", **events)
    if layout is not None and layout.prints("rate"):
        versions = server.facts.version or str(settings.get("version_range", ""))
        yield server.rate.told(layout, settings, versions)
    if ranks > 1:
        yield finding("ranks_summed", "sglang", n=ranks)
    yield from truncated(server.unread, "decode line(s)")


def _acceptance(
    rows: Sequence[LogRow], settings: Mapping[str, object], server: Server
) -> Iterator[Diagnosis]:
    """Tell of accept lengths of about 1: a drafter that fails, or speculation that is off."""
    lengths = [(r.accept_length, r.batch_size or 0.0) for r in rows if r.accept_length is not None]
    off = [batch for length, batch in lengths if length < LEAST_ACCEPT]
    poor = [length for length, _ in lengths if LEAST_ACCEPT <= length < POOR_LENGTH]
    if poor:
        yield finding("zero_acceptance", "poor", length=min(poor))
    if poor or not off:
        return
    drafting = [batch for length, batch in lengths if length >= LEAST_ACCEPT]
    by_batch = drafting and (min(off) > max(drafting) or max(off) < min(drafting))
    algorithm = settings.get("algorithm")
    low, high = f"{min(off):.0f}", f"{max(off):.0f}"
    where = f" at {low} running" if low == high else f" at {low} to {high} running"
    where = where if drafting else ""
    if by_batch or server.has_threshold:
        yield finding("speculation_off", "batches", where=where)
        return
    yield from nothing_accepted(algorithm, where)
