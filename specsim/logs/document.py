"""The JSON document of log entries: ``specsim read --json``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from specsim import documents
from specsim.logs.entry import Diagnosis, LogEntry, LogRow, Timing, WindowCount

SCHEMA = "specsim.log/1"

DIGITS = 6
"""Significant digits of a number: more than any engine prints."""

SPECULATION_KEYS = ("algorithm", "topk", "num_steps", "num_draft_tokens")
"""Keys of ``settings`` that are always there, null where the file does not say."""


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
    numbers = _numbers(entry.main_row or LogRow(windows=0)) | {"windows": entry.windows}
    pooled = {"accept_length": entry.accept_length, "survival": entry.survival}
    numbers |= {name: value for name, value in pooled.items() if value is not None}
    return LogFile(
        path=entry.path,
        format=entry.format,
        engine=entry.engine,
        engine_version=entry.engine_version,
        settings=stated_settings(entry),
        **numbers,
        rows=tuple(
            LogLevel(**_numbers(row), cuda_graph=row.cuda_graph, prefill_mixed=row.mixed)
            for row in entry.rows
        ),
        diagnoses=entry.diagnoses,
        unread_lines=entry.unread_lines,
        timings=tuple(map(_timing, entry.timings)),
    )


def _numbers(row: LogRow) -> dict[str, Any]:
    dropped = dict(row.dropped)
    return {
        "concurrency": None if row.concurrency is None else round(row.concurrency),
        "batch_size": row.batch_size,
        "output_tps": row.output_tps,
        "accept_length": row.accept_length,
        "survival": row.survival,
        "tpot_s": row.tpot_s,
        "ttft_s": row.ttft_s,
        "round_time_s": row.round_time_s,
        "windows": WindowCount(row.windows + sum(dropped.values()), row.windows, dropped),
    }


def _timing(timing: Timing) -> dict[str, object]:
    shown = ("phase", "batch_size", "size_bytes", "seconds", "count", "rank", "ranks", "name")
    prompt = {"prompt_tokens": timing.prompt_tokens} if timing.prompt_tokens else {}
    return {name: getattr(timing, name) for name in shown} | prompt
