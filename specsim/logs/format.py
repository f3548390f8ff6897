"""What a log format is; and from a file of any of them, or of several, to its entries.

A format is known by content, never by its name.
"""

import pkgutil
import re
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from specsim.errors import FormatError
from specsim.logs import formats
from specsim.logs.entry import Diagnosis, LogEntry, believable
from specsim.logs.formats import listed, pattern
from specsim.logs.paste import MARGIN, margins, unwrapped, wrapping
from specsim.logs.source import SQLITE, Source, open_source, pieces, split_lines

FIRST_BYTES = 1 << 16  # the first look is at so much; most files show what they are within it
OF_AN_OPTION = re.compile(rb'\Aschema = "specsim\.(profile|setup)/|"(model)_type":')
SEARCH_BYTES = 16 << 20  # how far into a file a known line is looked for


Reader = Callable[[Source], list[LogEntry]]  # from an open file to one entry per server or run


@dataclass(frozen=True, slots=True)
class Format:
    """A format that specsim reads: a row of ``formats/formats.toml``, or of one's own.

    One's own is one new file in ``specsim/logs/formats`` with a ``FORMAT``; nothing else need know
    of it (CONTRIBUTING.md has one).
    """

    name: str
    # What only such files hold. The format whose marks are most frequent is it.
    mark: re.Pattern[bytes]
    parse: Reader
    # What to give instead of such a file that measures nothing.
    remedy: str = "give a complete result"
    # One of these is in any such text: by them it is found deep within a file of another format.
    words: tuple[bytes, ...] = ()
    # Marks of JSON formats come first in a file that begins with a bracket, last in any other.
    is_json: bool = False


def known_formats() -> list[Format]:
    """Return the formats of the table, then those of modules that it does not name.

    The modules of the former are imported when a file is of theirs.
    """
    found = {module.name for module in pkgutil.iter_modules(formats.__path__)}
    named = {row["parse"].partition(":")[0] for row in listed("formats").values()}
    own = sorted(name for name in found - named if name[0] != "_")
    modules = (import_module(f"{formats.__name__}.{name}") for name in own)
    return [*_shipped(), *(module.FORMAT for module in modules)]


@cache
def _shipped() -> tuple[Format, ...]:
    def of_row(name: str, parse: str, mark: list[str], words: Any = (), **more: Any) -> Format:
        known = tuple(word.encode() for word in words)
        return Format(name, pattern("|".join(mark)), partial(_parse, parse), words=known, **more)

    return tuple(of_row(name, **row) for name, row in listed("formats").items())


def _parse(by: str, source: Source) -> list[LogEntry]:
    """Read a file by a function of a module, ``module:function``."""
    module, _, function = by.partition(":")
    read: Reader = getattr(import_module(f"{formats.__name__}.{module}"), function)
    return read(source)


GIVE = (
    "give a log of SGLang, vLLM, TensorRT-LLM or llama.cpp, a benchmark result, Prometheus "
    "metrics, a torch or Nsight trace, nccl-tests output, or a probe.json"
)


def detect(source: Source) -> Format:
    """Return the format of an open file, whose head grows while nothing known was found in it.

    Raises :class:`FormatError` if it is in no format that specsim reads.
    """
    found = detect_text(source.head[:FIRST_BYTES])
    begun = 0
    while found is None:
        found = detect_text(source.head, begun)
        begun = max(len(source.head) - 4096, 0)
        if found is None and (len(source.head) >= SEARCH_BYTES or not source.grow()):
            own = OF_AN_OPTION.search(source.head)
            give = f"--{(own[1] or own[2]).decode()} takes it" if own else GIVE
            raise FormatError(source.path, "is in no format that specsim reads", give)
    return found


def detect_text(head: bytes, begin: int = 0) -> Format | None:
    """Return the format whose marks are most frequent in the head of a file, from `begin` on.

    >>> detect_text(b"[2026-01-01 00:00:00] Decode batch, #running-req: 1").name
    'sglang_log'
    """
    json_first = _begins_json(head)
    formats = known_formats()
    for is_json in (json_first, not json_first):
        counts = [(len(f.mark.findall(head, begin)), f) for f in formats if f.is_json == is_json]
        found = [(f.name != "launch", n, f) for n, f in counts if n]  # a log names its program
        if found:
            return max(found, key=itemgetter(0, 1))[2]
    return None


def _begins_json(head: bytes) -> bool:
    r"""Whether the first line that is no comment begins an object or a list: a log's date does not.

    >>> _begins_json(b"# made today\n[{"), _begins_json(b"[2026-01-01 00:00:00] Decode batch")
    (True, False)
    """
    for line in head[:FIRST_BYTES].splitlines():
        text = line.strip()
        if text and not text.startswith(b"#"):
            return text[:1] == b"{" or (text[:1] == b"[" and text[1:].lstrip()[:1] in b'[{"')
    return False


LOOK_BYTES = 1 << 18  # of a file, that are searched for all marks; further on a format's words are
IN_MEMORY = 8 << 20  # bytes of a part that are kept in memory; the rest goes to a temporary file
MOST_SERVICES, _REMEDY = 64, "give the log of one server"
PAGE = re.compile(rb"<table[\s>]", re.IGNORECASE)
BEFORE = 400  # lines without a mark before a part that may be its beginning


def read_file(path: str | Path) -> list[LogEntry]:
    """Read a file of any known format, or of several.

    The entries come in the order in which their formats do.

    Parameters
    ----------
    path
        File name, ``-`` for standard input; ``.gz`` and ``.zst`` are unpacked.

    Returns
    -------
    list of LogEntry
        At least one; it may hold settings only, see :func:`require_usable`.

    Raises
    ------
    InputError
        If the file cannot be opened.
    FormatError
        If it is empty, binary, damaged, or in no known format.
    """
    with open_source(path) as source:
        entries = _read(source)
        if source.cut:
            diagnoses = (*entries[-1].diagnoses, Diagnosis("truncated", source.cut))
            entries[-1] = replace(entries[-1], diagnoses=diagnoses)
        return [believable(entry) for entry in entries]


def _read(source: Source) -> list[LogEntry]:
    """Read the format that a file has most of, then what else is in it."""
    if source.head.startswith(SQLITE):
        return detect(source).parse(source)
    head = source.head[:FIRST_BYTES].rpartition(b"\n")[0]
    whose = margins(head)
    if whose == {b""}:
        source = Source(source.path, (MARGIN.sub(b"", line, 1) for line in source.lines()))
    elif len(whose) > 1 and (of := detect_text(head)) and of.words and of.name != "table":
        return _each(source)
    if PAGE.search(source.head):
        from specsim.logs.html_text import MOST_BYTES, plain

        while len(source.head) <= MOST_BYTES and source.grow():
            pass
        if len(source.head) <= MOST_BYTES:
            source = Source(source.path, [plain(source.head)])
    if wrapped := wrapping(source.head[:FIRST_BYTES]):
        source = Source(source.path, unwrapped(source.lines(), *wrapped))
    main = detect(source)
    others = [f for f in known_formats() if f.name != main.name]
    with ExitStack() as files:
        parts = Parts(main, others, files)
        watched = Source(source.path, parts.read(source.chunks()))
        entries = main.parse(watched)
        found = [(parts.main_begins, entries)]
        for kind, begins, part in parts.sources(source.path):
            try:
                found.append((begins, kind.parse(part)))
            except FormatError:
                continue  # it only looked like one
    read = [e for _, some in sorted(found, key=lambda pair: pair[0]) for e in some]
    if not any(_tells(e, read) for _, others in found[1:] for e in others):
        return entries
    return [e for e in read if _tells(e, read)]


def _each(source: Source) -> list[LogEntry]:
    """Read the logs of services that stand in one another, each by itself."""
    entries: list[LogEntry] = []
    with ExitStack() as files:
        logs: dict[str, IO[bytes]] = {}
        log: IO[bytes] | None = None
        for line in source.lines():
            if found := MARGIN.match(line):
                name = (found[1] or found[2] or b"").decode("utf-8", "replace")
                if name not in logs and len(logs) < MOST_SERVICES:
                    logs[name] = files.enter_context(tempfile.SpooledTemporaryFile(IN_MEMORY))
                log = logs.get(name)
            if log is not None:
                log.write(line[found.end() :] if found else line)
        for name, own in logs.items():
            own.seek(0)
            with suppress(FormatError):
                read = _read(Source(source.path, pieces(own)))
                entries += [
                    replace(e, label=", ".join(filter(None, (name, e.label)))) for e in read
                ]
    if not any(entry.usable for entry in entries):
        raise FormatError(source.path, "holds no calibration data in any service's log", _REMEDY)
    return entries


def _tells(entry: LogEntry, among: Sequence[LogEntry]) -> bool:
    """Whether an entry is worth telling: a command is part of the entry of its server.

    Iterations of TensorRT-LLM are read without one.
    """
    if entry.format == "launch":
        same = (e for e in among if e.usable and e.engine == entry.engine)
        return all(e.format.startswith("trtllm") for e in same)
    return entry.usable


def require_usable(entries: Sequence[LogEntry]) -> None:
    """Refuse a file whose entries measure nothing, with what was found instead."""
    if any(entry.usable or entry.format == "launch" for entry in entries):
        return
    path, name = entries[0].path, entries[0].format
    remedies = (f.remedy for f in known_formats() if f.name == name)
    reason = f"holds no calibration data: {name} with {_found_instead(entries)}"
    raise FormatError(path, reason, next(remedies, "give a complete result"))


def _found_instead(entries: Iterable[LogEntry]) -> str:
    found: list[str] = []
    for entry in entries:
        prefills = entry.settings.get("prefill_batches")
        if prefills:
            found.append(f"{prefills} prefill lines")
        if entry.windows.read:
            reasons = ", ".join(f"{n} {reason}" for reason, n in entry.windows.dropped.items())
            found.append(f"{entry.windows.read} windows, none usable ({reasons or 'too few'})")
        found += [f"{n} lines unread ({reason})" for reason, n in entry.unread.items()]
        known = [k for k in ("model", "algorithm", "num_steps", "topk") if entry.settings.get(k)]
        if known and not entry.windows.read:
            found.append("settings (" + ", ".join(f"{k} {entry.settings[k]}" for k in known) + ")")
    return "; ".join(found[:4]) or "no measurement"


@dataclass(slots=True)
class _Part:
    """Lines of one format within a file of another."""

    kind: Format
    begins: int  # byte of its first mark
    file: tempfile.SpooledTemporaryFile[bytes]


@dataclass(slots=True)
class Parts:
    """Watches the chunks of a file go by, and keeps the lines of other formats than its main one.

    A line without a mark belongs to the parts before and after it: their readers pass over what is
    not theirs.
    """

    main: Format
    others: Sequence[Format]
    files: ExitStack  # that closes the parts
    main_begins: int = -1
    found: dict[str, _Part] = field(default_factory=dict)
    _at: int = 0  # bytes that went by
    _open: _Part | None = None
    _before: deque[bytes] = field(default_factory=lambda: deque(maxlen=BEFORE))

    def read(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the chunks, and look at the lines of each."""
        rest = b""  # of a line that is not whole
        for chunk in chunks:
            text = rest + chunk
            end = text.rfind(b"\n") + 1
            self._lines(text[:end])
            rest = text[end:]
            yield chunk
        self._lines(rest)

    def _lines(self, text: bytes) -> None:
        """Give the lines to the parts that they belong to."""
        if self._at < LOOK_BYTES:
            seen = [f for f in self.others if f.mark.search(text[: LOOK_BYTES - self._at])]
        else:
            seen = [f for f in self.others if any(word in text for word in f.words)]
        if self.main_begins < 0 and (first := self.main.mark.search(text)):
            self.main_begins = self._at + first.start()
        if not seen and self._open is None:
            self._at += len(text)
            return
        for line in split_lines([text]):
            self._line(line, seen)
            self._at += len(line)

    def _line(self, line: bytes, seen: Sequence[Format]) -> None:
        if self.main.mark.search(line):
            self._open = None
            self._before.clear()
            return
        kind = next((f for f in seen if f.mark.search(line)), None)
        if kind is None:
            self._before.append(line)
            if self._open is not None:
                self._open.file.write(line)
            return
        part = self.found.get(kind.name)
        if part is None:
            spool = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 (the stack closes it)
            file = self.files.enter_context(spool)
            part = self.found[kind.name] = _Part(kind, self._at, file)
        if part is not self._open:
            part.file.writelines(self._before)
        part.file.write(line)
        self._open = part
        self._before.clear()

    def sources(self, path: str) -> Iterator[tuple[Format, int, Source]]:
        """Yield each part: its format, where it begins, its text."""
        for part in self.found.values():
            part.file.seek(0)
            yield part.kind, part.begins, Source(path, pieces(part.file))
