"""From a file of any known format to its entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from specsim.errors import FormatError
from specsim.logs.entry import Diagnosis, LogEntry, believable
from specsim.logs.format import detect, known_formats
from specsim.logs.source import open_source


def read_file(path: str | Path, samples: int = 0) -> list[LogEntry]:
    """Read a file of any known format.

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
        entries = detect(source).parse(source, samples)
        if source.cut:
            diagnoses = (*entries[-1].diagnoses, Diagnosis("truncated", source.cut))
            entries[-1] = replace(entries[-1], diagnoses=diagnoses)
        return [believable(entry) for entry in entries]


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
    if any(entry.usable for entry in entries):
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
