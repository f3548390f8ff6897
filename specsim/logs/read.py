"""From a file of any known format to its entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from specsim.errors import FormatError
from specsim.logs.entry import Diagnosis, LogEntry, believable
from specsim.logs.format import FIRST_BYTES, detect, known_formats
from specsim.logs.parts import Parts
from specsim.logs.source import SQLITE, Source, open_source
from specsim.logs.wrapped import unwrapped, wrapping


def read_file(path: str | Path, samples: int = 0) -> list[LogEntry]:
    """Read a file of any known format, or of several.

    The entries come in the order in which their formats do.

    Parameters
    ----------
    path
        File name, ``-`` for standard input; ``.gz`` and ``.zst`` are unpacked.
    samples
        Keep up to this many single windows per entry (server logs only).

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
        entries = _read(source, samples)
        if source.cut:
            diagnoses = (*entries[-1].diagnoses, Diagnosis("truncated", source.cut))
            entries[-1] = replace(entries[-1], diagnoses=diagnoses)
        return [believable(entry) for entry in entries]


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Chunks as a stream."""

    chunks: Iterator[bytes]

    def read(self, size: int, /) -> bytes:
        return next(self.chunks, b"")


def _read(source: Source, samples: int) -> list[LogEntry]:
    """Read the format that a file has most of, then what else is in it."""
    if source.head.startswith(SQLITE):
        return detect(source).parse(source, samples)
    if wrapped := wrapping(source.head[:FIRST_BYTES]):
        source = Source(source.path, _Chunks(unwrapped(source.lines(), *wrapped)))
    main = detect(source)
    others = [f for f in known_formats() if f.name != main.name]
    with ExitStack() as files:
        parts = Parts(main, others, files)
        watched = Source(source.path, _Chunks(parts.read(source.chunks())))
        entries = main.parse(watched, samples)
        found = [(parts.main_begins, entries)]
        for kind, begins, part in parts.sources(source.path):
            try:
                found.append((begins, kind.parse(part, samples)))
            except FormatError:
                continue  # it only looked like one
    if not any(e.usable for _, others in found[1:] for e in others):
        return entries
    read = [e for _, some in sorted(found, key=lambda pair: pair[0]) for e in some]
    return [e for e in read if _tells(e, read)]


def _tells(entry: LogEntry, among: Sequence[LogEntry]) -> bool:
    """Whether an entry is worth telling: a command is part of the entry of its server."""
    if entry.format == "launch":
        return not any(e.usable and e.engine == entry.engine for e in among)
    return entry.usable


def require_usable(entries: Sequence[LogEntry]) -> None:
    """Refuse a file that measures nothing.

    Parameters
    ----------
    entries
        All entries of one file.

    Raises
    ------
    FormatError
        With what was found instead.
    """
    if any(entry.usable or entry.format == "launch" for entry in entries):
        return
    path, name = entries[0].path, entries[0].format
    remedies = [f.remedy for f in known_formats() if f.name == name]
    raise FormatError(
        path,
        f"holds no calibration data: {name} with {_found_instead(entries)}",
        remedies[0] if remedies else "give a complete result",
    )


def _found_instead(entries: Iterable[LogEntry]) -> str:
    found: list[str] = []
    for entry in entries:
        prefills = entry.settings.get("prefill_batches")
        if prefills:
            found.append(f"{prefills} prefill lines")
        if entry.windows.read:
            reasons = ", ".join(f"{n} {reason}" for reason, n in entry.windows.dropped.items())
            found.append(f"{entry.windows.read} windows, none usable ({reasons})")
        found += [f"{n} lines unread ({reason})" for reason, n in entry.unread.items()]
        known = [k for k in ("model", "algorithm", "num_steps", "topk") if entry.settings.get(k)]
        if known and not entry.windows.read:
            found.append("settings (" + ", ".join(f"{k} {entry.settings[k]}" for k in known) + ")")
    return "; ".join(found[:4]) or "no measurement"
