"""Several formats in one file: what is not of the main one is collected while that is read."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from specsim.logs.format import Format
from specsim.logs.source import Source, split_lines

LOOK_BYTES = 1 << 18
"""So much of a file is searched for the marks of all formats; further on a format's words are."""
IN_MEMORY = 8 << 20
"""Bytes of a part that are kept in memory; the rest goes to a temporary file."""
BEFORE = 400
"""Lines without a mark before a part that may be its beginning."""


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
    _rest: bytes = b""  # of a line that is not whole
    _open: _Part | None = None
    _before: deque[bytes] = field(default_factory=lambda: deque(maxlen=BEFORE))

    def read(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the chunks, and look at each."""
        for chunk in chunks:
            self._look(chunk)
            yield chunk
        self._lines(self._rest)

    def _look(self, chunk: bytes) -> None:
        text = self._rest + chunk
        end = text.rfind(b"\n") + 1
        text, self._rest = text[:end], text[end:]
        self._lines(text)

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
            yield part.kind, part.begins, Source(path, part.file)
