"""Nsight Systems: kernels and steps of the .sqlite export."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from specsim.errors import FormatError
from specsim.logs.durations import Durations
from specsim.logs.entry import LogEntry, Timing
from specsim.logs.format import Format
from specsim.logs.formats._profiles import (
    LONGEST_NAME,
    kernel_phase,
    profile_entry,
    step_of,
    timing,
)
from specsim.logs.source import Source

_KERNELS = """
SELECT s.value, k.end - k.start FROM CUPTI_ACTIVITY_KIND_KERNEL k
JOIN StringIds s ON s.id = k.demangledName"""
_RANGES = "SELECT text, end - start FROM NVTX_EVENTS WHERE end IS NOT NULL"
_NAMED_RANGES = """
SELECT COALESCE(e.text, s.value), e.end - e.start FROM NVTX_EVENTS e
LEFT JOIN StringIds s ON s.id = e.textId WHERE e.end IS NOT NULL"""
_STEPS = 2_000_000
"""Virtual-machine steps of SQLite between looks at whether a query runs wild."""
_MAX_LOOKS = 1_000

Key = TypeVar("Key")


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read kernels, and NVTX ranges named as SGLang's steps, from an export in SQLite.

    Raises
    ------
    FormatError
        If it is damaged, or is not an export of Nsight Systems.
    """
    path = source.file_name()
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
                timings += [
                    timing(kernel_phase(k), d, k[:LONGEST_NAME]) for k, d in kernels.items()
                ]
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
    return [profile_entry(path, "nsys_sqlite", timings)]


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


FORMAT = Format(name="nsys_sqlite", mark=re.compile(rb"\ASQLite format 3\x00"), parse=parse)
