"""Any format's parser, called by name on bytes or text."""

from __future__ import annotations

import io

from specsim.logs import LogEntry, Source
from specsim.logs.format import known_formats


class Pieces(io.BytesIO):
    """A stream that gives a few bytes at a time."""

    def __init__(self, data: bytes, piece: int) -> None:
        super().__init__(data)
        self.piece = piece

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self.piece)


def parse(
    name: str, data: bytes | str, path: str = "file", samples: int = 0, piece: int = 1 << 20
) -> list[LogEntry]:
    """Return the entries that the format `name` finds in `data`, read by pieces of some bytes."""
    (found,) = (f for f in known_formats() if f.name == name)
    stream = Pieces(data if isinstance(data, bytes) else data.encode(), piece)
    return found.parse(Source(path, stream), samples)


def parse_one(name: str, data: bytes | str, path: str = "file") -> LogEntry:
    """Return the only entry."""
    (entry,) = parse(name, data, path)
    return entry
