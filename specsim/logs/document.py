"""What was read as a document: JSON of all that is known, or rows of observations.csv."""

import csv
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from specsim import documents
from specsim.logs.entry import Diagnosis, LogEntry, LogRow, Timing, WindowCount
from specsim.observations import COLUMNS, SURVIVAL
from specsim.observations.observation import cell_text
from specsim.textfile import csv_cell

SCHEMA = "specsim.log/1"

DIGITS = 6  # significant digits of a number: more than any engine prints

SPECULATION_KEYS = ("algorithm", "topk", "num_steps", "num_draft_tokens")
"""Keys of ``settings`` that are always there, null where the file does not say."""


UNSTATED = ("input_cached", "context_len", "window_s", "draft_time_s", "temperature")
CSV_COLUMNS = tuple(name for name in COLUMNS if name not in UNSTATED)
"""Columns of observations.csv that a log can fill."""

Made = TypeVar("Made", "LogFile", "LogLevel")


@dataclass(frozen=True, kw_only=True)
class LogIdentity:
    """Where numbers are from."""

    path: str
    format: str
    engine: str | None
    engine_version: str | None
    settings: Mapping[str, object]  # of the launch; the speculation keys first


@dataclass(frozen=True, kw_only=True)
class LogNumbers:
    """What is known of one load level."""

    concurrency: int | None
    batch_size: float | None
    output_tps: float | None
    accept_length: float | None
    survival: tuple[float, ...] | None
    tpot_s: float | None
    ttft_s: float | None
    round_time_s: float | None
    windows: WindowCount


@dataclass(frozen=True, kw_only=True)
class LogLevel(LogNumbers):
    """One load level; with `prefill_mixed`, its throughput is not pure decoding."""

    cuda_graph: bool | None
    prefill_mixed: bool
    input_len: float | None
    output_len: float | None


@dataclass(frozen=True, kw_only=True)
class LogFile(LogNumbers, LogIdentity):
    """What was read from one file: its main load level, then all of them.

    `unread_lines` look like measurements and could not be read; `timings` are there only if the
    file holds some.
    """

    rows: tuple[LogLevel, ...]
    diagnoses: tuple[Diagnosis, ...]
    unread_lines: int
    timings: tuple[Mapping[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class LogDocument:
    """``read --json``."""

    files: tuple[LogFile, ...]


def log_json(entries: Iterable[LogEntry]) -> str:
    """Return the entries as their JSON document."""
    files = [
        {f.name: getattr(file, f.name) for f in fields(file) if f.name != "timings" or file.timings}
        for file in map(_file, entries)
    ]
    return documents.document(SCHEMA, {"files": files}, digits=DIGITS)


def stated_settings(entry: LogEntry) -> dict[str, object]:
    """Return the settings with the four speculation keys first."""
    settings = {**dict.fromkeys(SPECULATION_KEYS), **entry.settings}
    return {**settings, "label": entry.label} if entry.label else settings


def _file(entry: LogEntry) -> LogFile:
    main = _level(entry.main_row or LogRow(windows=0))
    numbers = {of.name: getattr(main, of.name) for of in fields(LogNumbers)}
    numbers["windows"] = entry.windows
    if not entry.rows:  # beside a row's throughput stands the accept length of its own windows
        numbers |= {"accept_length": entry.accept_length, "survival": entry.survival}
    rows, timings = tuple(map(_level, entry.rows)), tuple(map(_timing, entry.timings))
    settings = stated_settings(entry)
    return _made(LogFile, entry, **numbers, settings=settings, rows=rows, timings=timings)


def _level(row: LogRow) -> LogLevel:
    windows = WindowCount(row.windows + sum(row.dropped.values()), row.windows, dict(row.dropped))
    clients = None if row.concurrency is None else round(row.concurrency)
    return _made(LogLevel, row, concurrency=clients, windows=windows, prefill_mixed=row.mixed)


def _made(kind: type[Made], of: object, **more: Any) -> Made:
    """Return a document's part: what `of` has under its names, and more."""
    names = (field.name for field in fields(kind) if field.name not in more)
    return kind(**{name: getattr(of, name) for name in names}, **more)


def _timing(timing: Timing) -> dict[str, object]:
    shown = ("phase", "batch_size", "size_bytes", "seconds", "count", "rank", "ranks", "name")
    prompt = {"prompt_tokens": timing.prompt_tokens} if timing.prompt_tokens else {}
    return {name: getattr(timing, name) for name in shown} | prompt


def csv_text(entries: Iterable[LogEntry]) -> str:
    """Return the rows of all entries in the columns of observations.csv.

    What a log does not state is left empty: fill in the setting before fitting on it.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for entry in entries:
        for row in entry.rows:
            cells = _observed(entry, row)
            writer.writerow({name: csv_cell(cell_text(cells[name])) for name in cells})
    return text.getvalue()


def _observed(entry: LogEntry, row: LogRow) -> dict[str, object]:
    cells: dict[str, object] = {
        name: getattr(row, name) for name in CSV_COLUMNS if hasattr(row, name)
    }
    cells |= {name: entry.settings[name] for name in CSV_COLUMNS if name in entry.settings}
    cells["engine_version"] = entry.engine_version
    concurrency = row.batch_size if row.kind == "steady_decode" else row.concurrency
    cells["concurrency"] = None if concurrency is None else round(concurrency)
    cells["source"] = " ".join(filter(None, (os.path.basename(entry.path), entry.label)))
    if row.accept_length is None:
        cells["accept_length_scope"] = None
    cells |= dict(zip(SURVIVAL, row.survival or (), strict=False))
    return {k: float(f"{v:.{DIGITS}g}") if isinstance(v, float) else v for k, v in cells.items()}
