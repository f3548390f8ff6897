"""Nsight Systems: kernels and steps of its SQLite export, or a printed ``cuda_gpu_kern_sum``."""

import csv
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from specsim.errors import FormatError
from specsim.logs import unread as why
from specsim.logs.durations import Durations, kernel_phase, step_of, timing
from specsim.logs.entry import LogEntry, Timing, WindowCount
from specsim.logs.formats import listed, texts
from specsim.logs.source import SQLITE, Source
from specsim.logs.unread import Unread, check, counted

_QUERY = listed("lines", "nsys")
_STEPS = 2_000_000  # virtual-machine steps of SQLite between looks at whether a query runs wild
_MAX_LOOKS = 1_000

_MARKS = (b"Total Time (ns)", b"Instances")
_COLUMNS = ("Total Time (ns)", "Instances", "Avg (ns)", "Med (ns)", "Min (ns)", "Max (ns)")
_ROW, _NUMBERS = (texts("lines")[name] for name in ("nsys_row", "nsys_numbers"))
_LONGEST_NAME = 200  # of a kernel; templates make longer ones

Key = TypeVar("Key")


def parse(source: Source) -> list[LogEntry]:
    """Read kernels, and in SQLite the NVTX ranges that are named as SGLang's steps.

    Raises :class:`FormatError` if a database is damaged, or no export of Nsight Systems.
    """
    unread: Counter[str] = Counter()
    database = source.head.startswith(SQLITE)
    timings = _exported(source.path) if database else tuple(_summary(source, unread))
    name, count = "nsys_sqlite" if database else "nsys_kernel_summary", len(timings)
    entry = LogEntry(source.path, name, windows=WindowCount(count, count), timings=timings)
    return [replace(entry, unread=dict(unread))]


def _exported(path: str) -> tuple[Timing, ...]:
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
                steps = _durations(db, _QUERY["named_ranges" if named else "ranges"], step_of)
                timings += [timing(phase, d, "host", batch) for (phase, batch), d in steps.items()]
            if {"CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"} <= tables:
                kernels = _durations(db, _QUERY["kernels"], str)
                timings += [
                    timing(kernel_phase(k), d, k[:_LONGEST_NAME]) for k, d in kernels.items()
                ]
    except (sqlite3.Error, UnicodeError, OverflowError) as error:
        remedy = "export it again: nsys export --type sqlite"
        raise FormatError(path, f"cannot be read as SQLite ({error})", remedy) from error
    if not tables & {"CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"}:
        remedy = "record with --trace=cuda,nvtx and export with nsys export --type sqlite"
        raise FormatError(path, "has no table of GPU kernels", remedy)
    return tuple(timings)


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


def _summary(source: Source, unread: Counter[str]) -> Iterator[Timing]:
    """Yield what ``nsys stats -r cuda_gpu_kern_sum`` says, as text or with ``--format csv``.

    Of an all-reduce that is the least duration: the rest waits for peers.
    """
    columns: Sequence[str] | None = None  # of CSV; none of text
    read, kinds = False, 0
    for line in source.lines():
        if all(mark in line for mark in _MARKS):
            read, columns = True, _cells(line) if b"," in line else None
        elif read and line.strip(b" -\r\n") and line[:1] != b"#":
            with counted(unread):
                check(kinds < why.MOST_KINDS, why.TOO_MANY)
                text = line.decode("utf-8", "replace")
                row = text if columns is None else _as_text(line, columns)
                yield _kernel(row, whole=line.endswith((b"\n", b"\r")))
                kinds += 1


def _cells(line: bytes) -> Sequence[str]:
    try:
        (cells,) = csv.reader([line.decode("utf-8", "replace")])
    except (csv.Error, ValueError):
        return []
    return [cell.strip() for cell in cells]


def _as_text(line: bytes, columns: Sequence[str]) -> str:
    """Return a row of CSV as one of the text, without its share and its deviation."""
    cells = _cells(line)
    row = dict(zip(columns, cells, strict=False))
    if len(cells) != len(columns):
        return ""
    return f"0.0 {' '.join(row.get(name, '') for name in _COLUMNS)} 0.0 {row.get('Name', '')}\n"


def _kernel(text: str, whole: bool) -> Timing:
    """Check total = count x mean, and that mean and median lie between the extremes."""
    found = _ROW.match(text) if whole else None
    numbers = _NUMBERS.fullmatch(" ".join(found[1].replace(",", "").split())) if found else None
    if found is None or numbers is None:
        raise Unread(why.DAMAGED_ROW if whole else why.TRUNCATED)
    name = found[2]
    total, count, mean, median, least, most = map(float, numbers.groups())
    low, high = min(mean, median), max(mean, median)
    check(count >= 1 and mean > 0 and least - 1 <= low <= high <= most + 1, why.OUT_OF_RANGE)
    check(abs(count * mean - total) <= 0.002 * total + count, why.CONTRADICTION)
    phase = kernel_phase(name)
    ns = max(least, 1.0) if phase == "allreduce" else median
    return Timing(phase, ns * 1e-9, int(count), name=name[:_LONGEST_NAME])
