"""Nsight Systems: ``cuda_gpu_kern_sum`` as CSV or text, and the .sqlite export."""

from __future__ import annotations

import csv
import io
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from specsim.errors import FormatError
from specsim.logs.chrome_trace import ALLREDUCE, PHASES, STEP
from specsim.logs.durations import Durations
from specsim.logs.entry import LogEntry, Timing, WindowCount
from specsim.logs.source import as_lines

HEADER_MARKS = (b"Total Time (ns)", b"Instances")
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,6})?")
_WHOLE = re.compile(r"\d{1,18}")
_NAMES = ("Total Time (ns)", "Instances", "Avg (ns)", "Med (ns)", "Min (ns)", "Max (ns)")
_TEXT_ROW = re.compile(
    rb"\s*(\d{1,3}\.\d) +([\d,]{1,24}) +([\d,]{1,14}) +([\d,.]{1,24}) +([\d,.]{1,24}) +"
    rb"([\d,.]{1,24}) +([\d,.]{1,24}) +([\d,.]{1,24}) +"
    rb"(?:\d[\d ]* \d[\d ]* )?([A-Za-z_<(~][^\n]*?)\s*[\r\n]"
)
_STEPS = 2_000_000
"""Virtual-machine steps of SQLite between looks at whether a query runs wild."""
_MAX_LOOKS = 1_000


def read_kernel_summary(lines: Iterable[bytes] | Iterable[str], path: str = "-") -> list[LogEntry]:
    """Read ``nsys stats -r cuda_gpu_kern_sum``, as text or with ``--format csv``.

    Parameters
    ----------
    lines
        Lines with their ends.
    path
        Name for the entry.

    Returns
    -------
    list of LogEntry
        `timings` of phase ``allreduce`` (least duration: the rest waits for peers) and ``kernel``.
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
            timing = _csv_row(line, columns) if columns else _text_row(line)
            if isinstance(timing, Timing):
                timings.append(timing)
            else:
                unread[timing] += 1
    return [_entry(path, "nsys_kernel_summary", timings, unread)]


def _cells(line: bytes) -> list[str]:
    try:
        rows = list(csv.reader(io.StringIO(line.decode("utf-8", "replace"))))
    except csv.Error:
        return []
    return [cell.strip() for cell in rows[0]] if rows else []


def _csv_row(line: bytes, columns: list[str]) -> Timing | str:
    cells = _cells(line)
    if len(cells) != len(columns) or not line.endswith((b"\n", b"\r")):
        return "damaged row" if line.endswith((b"\n", b"\r")) else "truncated"
    row = dict(zip(columns, cells, strict=True))
    return _timing(row.get("Name", ""), [row.get(name, "") for name in _NAMES])


def _text_row(line: bytes) -> Timing | str:
    found = _TEXT_ROW.match(line)
    if found is None:
        return "damaged row" if line.endswith((b"\n", b"\r")) else "truncated"
    texts = [found[i].decode().replace(",", "") for i in (2, 3, 4, 5, 6, 7)]
    return _timing(found[9].decode("utf-8", "replace"), texts)


def _timing(name: str, texts: list[str]) -> Timing | str:
    """Check total = count x mean, and that mean and median lie between the extremes."""
    patterns = (_WHOLE, _WHOLE, _NUMBER, _NUMBER, _WHOLE, _WHOLE)
    if not name or not all(p.fullmatch(t) for p, t in zip(patterns, texts, strict=True)):
        return "damaged row"
    total, count, mean, median, least, most = map(float, texts)
    if (
        count < 1
        or mean <= 0
        or not least - 1 <= min(mean, median) <= max(mean, median) <= most + 1
    ):
        return "a number is out of range"
    if abs(count * mean - total) > 0.002 * total + count:
        return "numbers contradict each other"
    reduce_ = ALLREDUCE.search(name) is not None
    return Timing(
        phase="allreduce" if reduce_ else "kernel",
        seconds=(max(least, 1.0) if reduce_ else median) * 1e-9,
        seconds_mean=mean * 1e-9,
        seconds_min=least * 1e-9,
        count=int(count),
        name=name[:200],
    )


def read_nsys_sqlite(path: str) -> list[LogEntry]:
    """Read the kernels and ranges of an Nsight Systems export.

    Parameters
    ----------
    path
        A ``.sqlite`` file.

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
            kernels = list(_kernels(db, tables))
            ranges = list(_ranges(db, tables))
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
    return [_entry(path, "nsys_sqlite", [*ranges, *kernels], Counter())]


def _kernels(db: sqlite3.Connection, tables: set[str]) -> Iterator[Timing]:
    if not {"CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"} <= tables:
        return
    found: dict[str, Durations] = {}
    query = (
        "SELECT s.value, k.end - k.start FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN StringIds s ON s.id = k.demangledName"
    )
    for name, duration_ns in db.execute(query):
        if isinstance(name, str) and isinstance(duration_ns, int) and duration_ns > 0:
            found.setdefault(name, Durations()).add(duration_ns * 1e-9)
    for name, d in found.items():
        reduce_ = ALLREDUCE.search(name) is not None
        yield Timing(
            phase="allreduce" if reduce_ else "kernel",
            seconds=d.quantile(0.1 if reduce_ else 0.5),
            seconds_mean=d.mean,
            seconds_min=d.least,
            count=d.count,
            name=name[:200],
        )


def _ranges(db: sqlite3.Connection, tables: set[str]) -> Iterator[Timing]:
    """NVTX ranges named as SGLang's steps; their times are the host's."""
    if "NVTX_EVENTS" not in tables:
        return
    columns = {row[1] for row in db.execute("PRAGMA table_info(NVTX_EVENTS)")}
    if not {"start", "end", "text"} <= columns:
        return
    text = "e.text"
    join = ""
    if {"textId"} <= columns and "StringIds" in tables:
        text, join = "COALESCE(e.text, s.value)", "LEFT JOIN StringIds s ON s.id = e.textId"
    found: dict[tuple[str, int], Durations] = {}
    query = f"SELECT {text}, e.end - e.start FROM NVTX_EVENTS e {join} WHERE e.end IS NOT NULL"
    for name, duration_ns in db.execute(query):
        step = STEP.fullmatch(name) if isinstance(name, str) else None
        if step and isinstance(duration_ns, int) and duration_ns > 0:
            key = (PHASES.get(step[1], step[1].lower()), int(step[2]))
            found.setdefault(key, Durations()).add(duration_ns * 1e-9)
    for (phase, batch), d in found.items():
        yield Timing(
            phase=phase,
            seconds=d.quantile(0.5),
            seconds_mean=d.mean,
            seconds_min=d.least,
            count=d.count,
            batch_size=batch,
            name="host",
        )


def _entry(path: str, format_: str, timings: list[Timing], unread: Counter[str]) -> LogEntry:
    return LogEntry(
        path=path,
        format=format_,
        windows=WindowCount(len(timings), len(timings)),
        timings=tuple(timings),
        unread=dict(unread),
    )
