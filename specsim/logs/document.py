"""The JSON document ``specsim.log/1`` of log entries, as plain dictionaries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from specsim.logs.entry import LogEntry, LogRow, Timing

SCHEMA = "specsim.log/1"

SPECULATION_KEYS = ("algorithm", "topk", "num_steps", "num_draft_tokens")
"""Keys of ``settings`` that are always there, null where the file does not say."""


def log_document(entries: Iterable[LogEntry]) -> dict[str, object]:
    """Return the document ``specsim.log/1``: keys in the order of the contract.

    >>> log_document([])
    {'schema': 'specsim.log/1', 'files': []}
    """
    return {"schema": SCHEMA, "files": [entry_document(entry) for entry in entries]}


def entry_document(entry: LogEntry) -> dict[str, object]:
    """Return the object of one entry; ``timings`` and ``label`` only where there are any."""
    main = entry.main_row or LogRow(windows=0)
    document: dict[str, object] = {
        "path": entry.path,
        "format": entry.format,
        "engine": entry.engine,
        "engine_version": entry.engine_version,
        "settings": settings_document(entry),
        **_numbers(main),
    }
    if entry.accept_length is not None:
        document["accept_length"] = _rounded(entry.accept_length)
    if entry.survival is not None:
        document["survival"] = _list(entry.survival)
    document["windows"] = {
        "read": entry.windows.read,
        "used": entry.windows.used,
        "dropped": dict(entry.windows.dropped),
    }
    document["rows"] = [_row(row) for row in entry.rows]
    document["diagnoses"] = [{"code": d.code, "message": d.message} for d in entry.diagnoses]
    document["unread_lines"] = entry.unread_lines
    if entry.timings:
        document["timings"] = [_timing(t) for t in entry.timings]
    return document


def settings_document(entry: LogEntry) -> dict[str, object]:
    """Return the settings with the four speculation keys first."""
    settings: dict[str, object] = {key: entry.settings.get(key) for key in SPECULATION_KEYS}
    settings.update((k, v) for k, v in entry.settings.items() if k not in settings)
    if entry.label:
        settings["label"] = entry.label
    return settings


def _numbers(row: LogRow) -> dict[str, object]:
    concurrency = row.concurrency
    return {
        "concurrency": None if concurrency is None else round(concurrency),
        "batch_size": _rounded(row.batch_size),
        "output_tps": _rounded(row.output_tps),
        "accept_length": _rounded(row.accept_length),
        "survival": _list(row.survival),
        "tpot_s": _rounded(row.tpot_s),
        "ttft_s": _rounded(row.ttft_s),
        "round_time_s": _rounded(row.round_time_s),
    }


def _windows(row: LogRow) -> dict[str, object]:
    dropped = dict(row.dropped)
    return {"read": row.windows + sum(dropped.values()), "used": row.windows, "dropped": dropped}


def _row(row: LogRow) -> dict[str, object]:
    return {
        **_numbers(row),
        "windows": _windows(row),
        "cuda_graph": row.cuda_graph,
        "prefill_mixed": row.mixed,
    }


def _timing(timing: Timing) -> dict[str, object]:
    return {
        "phase": timing.phase,
        "batch_size": timing.batch_size,
        "size_bytes": timing.size_bytes,
        "seconds": _rounded(timing.seconds),
        "count": timing.count,
        "rank": timing.rank,
        "ranks": timing.ranks,
        "name": timing.name,
        **({"prompt_tokens": _rounded(timing.prompt_tokens)} if timing.prompt_tokens else {}),
    }


def _list(values: Sequence[float] | None) -> list[float | None] | None:
    return None if values is None else [_rounded(v) for v in values]


def _rounded(value: float | None) -> float | None:
    """Six significant digits: more than any engine prints."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")
