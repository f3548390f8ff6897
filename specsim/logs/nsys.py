"""Nsight Systems: ``cuda_gpu_kern_sum`` as CSV or text, and the .sqlite export."""

from __future__ import annotations

import csv
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from specsim.errors import FormatError
from specsim.logs.durations import Durations
from specsim.logs.entry import LogEntry, Timing, WindowCount
from specsim.logs.kernels import kernel_phase, step_of, timing
from specsim.logs.source import as_lines

HEADER_MARKS = (b"Total Time (ns)", b"Instances")
_NUMBERS = re.compile(
    r"(\d{1,18}) (\d{1,18})" + 2 * r" (\d{1,18}(?:\.\d{1,6})?)" + 2 * r" (\d{1,18})"
)
_COLUMNS = ("Total Time (ns)", "Instances", "Avg (ns)", "Med (ns)", "Min (ns)", "Max (ns)")
_TEXT_ROW = re.compile(
    rb"\s*\d{1,3}\.\d +([\d,]{1,24} +[\d,]{1,14}" + 4 * rb" +[\d,.]{1,24}" + rb") +[\d,.]{1,24} +"
    rb"(?:\d[\d ]* \d[\d ]* )?([A-Za-z_<(~][^\n]*?)\s*[\r\n]"
)
_LONGEST = 200
_STEPS = 2_000_000
"""Virtual-machine steps of SQLite between looks at whether a query runs wild."""
_MAX_LOOKS = 1_000

_KERNELS = """
SELECT s.value, k.end - k.start FROM CUPTI_ACTIVITY_KIND_KERNEL k
JOIN StringIds s ON s.id = k.demangledName"""
_RANGES = "SELECT text, end - start FROM NVTX_EVENTS WHERE end IS NOT NULL"
_NAMED_RANGES = """
SELECT COALESCE(e.text, s.value), e.end - e.start FROM NVTX_EVENTS e
LEFT JOIN StringIds s ON s.id = e.textId WHERE e.end IS NOT NULL"""

Key = TypeVar("Key")


def read_kernel_summary(lines: Iterable[bytes] | Iterable[str], path: str = "-") -> list[LogEntry]:
    """Read ``nsys stats -r cuda_gpu_kern_sum``, as text or with ``--format csv``.

    Of an all-reduce it gives the least duration: the rest waits for peers.
    """
    unread: Counter[str] = Counter()
    timings: list[Timing] = []
    columns: list[str] | None = None
    in_table = False
    for line in as_lines(lines):
        if all(mark in line for mark in HEADER_MARKS):
            in_table = True
            columns = _cells(line) if b"," in line else None
        elif in_table and line.strip(b" -\r\n") and line[:1] != b"#":
            row = _csv_row(line, columns) if columns else _text_row(line)
            found = _checked(*row) if row else "damaged row"
            if isinstance(found, Timing):
                timings.append(found)
            elif row or line.endswith((b"\n", b"\r")):
                unread[found] += 1
            else:
                unread["truncated"] += 1
    return [_entry(path, "nsys_kernel_summary", timings, unread)]


def _cells(line: bytes) -> list[str]:
    try:
        (cells,) = csv.reader([line.decode("utf-8", "replace")])
    except (csv.Error, ValueError):
        return []
    return [cell.strip() for cell in cells]


def _csv_row(line: bytes, columns: list[str]) -> tuple[str, Sequence[str]] | None:
    """Return name and numbers of a row; None if it is damaged."""
    cells = _cells(line)
    if len(cells) != len(columns) or not line.endswith((b"\n", b"\r")):
        return None
    row = dict(zip(columns, cells, strict=True))
    return row.get("Name", ""), [row.get(name, "") for name in _COLUMNS]


def _text_row(line: bytes) -> tuple[str, Sequence[str]] | None:
    found = _TEXT_ROW.match(line)
    if found is None:
        return None
    return found[2].decode("utf-8", "replace"), found[1].decode().replace(",", "").split()


def _checked(name: str, texts: Sequence[str]) -> Timing | str:
    """Check total = count x mean, and that mean and median lie between the extremes."""
    found = _NUMBERS.fullmatch(" ".join(texts))
    if not name or not found:
        return "damaged row"
    total, count, mean, median, least, most = map(float, found.groups())
    low, high = min(mean, median), max(mean, median)
    if count < 1 or mean <= 0 or not least - 1 <= low <= high <= most + 1:
        return "a number is out of range"
    if abs(count * mean - total) > 0.002 * total + count:
        return "numbers contradict each other"
    phase = kernel_phase(name)
    return Timing(
        phase=phase,
        seconds=(max(least, 1.0) if phase == "allreduce" else median) * 1e-9,
        seconds_mean=mean * 1e-9,
        seconds_min=least * 1e-9,
        count=int(count),
        name=name[:_LONGEST],
    )


def read_nsys_sqlite(path: str) -> list[LogEntry]:
    """Read kernels, and NVTX ranges named as SGLang's steps, from an export in SQLite.

    Raises
    ------
    FormatError
        If it is damaged, or is not an export of Nsight Systems.
    """
    uri = f"{Path(path).resolve().as_uri()}?mode=ro&immutable=1"
    looks = iter(range(_MAX_LOOKS))
    try:
        with sqlite3.connect(uri, uri=True) as db:
            db.set_progress_handler(lambda: 0 if next(looks, None) is not None else 1, _STEPS)
            db.text_factory = lambda b: b.decode("utf-8", "replace")
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
            columns = {row[1] for row in db.execute("PRAGMA table_info(NVTX_EVENTS)")}
            timings: list[Timing] = []
            if {"start", "end", "text"} <= columns:
                named = "textId" in columns and "StringIds" in tables
                steps = _durations(db, _NAMED_RANGES if named else _RANGES, step_of)
                timings += [timing(phase, d, "host", batch) for (phase, batch), d in steps.items()]
            if {"CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"} <= tables:
                kernels = _durations(db, _KERNELS, str)
                timings += [timing(kernel_phase(k), d, k[:_LONGEST]) for k, d in kernels.items()]
    except (sqlite3.Error, UnicodeError, OverflowError) as error:
        raise FormatError(
            path,
            f"cannot be read as SQLite ({error})",
            "export it again: nsys export --type sqlite",
        ) from error
    if not tables & {"CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"}:
        raise FormatError(
            path,
            "has no table of GPU kernels",
            "record with --trace=cuda,nvtx and export with nsys export --type sqlite",
        )
    return [_entry(path, "nsys_sqlite", timings, Counter())]


def _durations(
    db: sqlite3.Connection, query: str, key: Callable[[str], Key | None]
) -> dict[Key, Durations]:
    """Durations of what a query names, by what the name stands for (None: nothing here)."""
    found: dict[Key, Durations] = {}
    for name, duration_ns in db.execute(query):
        at = key(name) if isinstance(name, str) else None
        if at is not None and isinstance(duration_ns, int) and duration_ns > 0:
            found.setdefault(at, Durations()).add(duration_ns * 1e-9)
    return found


def _entry(path: str, format_: str, timings: list[Timing], unread: Counter[str]) -> LogEntry:
    return LogEntry(
        path=path,
        format=format_,
        windows=WindowCount(len(timings), len(timings)),
        timings=tuple(timings),
        unread=dict(unread),
    )
