"""Readers: what servers, benchmarks and profilers print -> entries with one row per load level.

One module per source. :func:`read_file` detects the format; the single readers take lines (or, for
traces, chunks) and can be used alone. All are streams: memory does not grow with the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from specsim.errors import FormatError
from specsim.logs.bench_json import read_bench_json
from specsim.logs.chrome_trace import minimum_over_ranks, read_chrome_trace
from specsim.logs.detect import FORMATS, Format, detect, detect_text
from specsim.logs.document import entry_document, log_document
from specsim.logs.entry import (
    CODES,
    Diagnosis,
    LogEntry,
    LogRow,
    LogWindow,
    Timing,
    WindowCount,
)
from specsim.logs.golden import read_golden
from specsim.logs.llamacpp import read_llamacpp
from specsim.logs.nccl import read_nccl
from specsim.logs.nsys import read_kernel_summary, read_nsys_sqlite
from specsim.logs.probe import read_probe
from specsim.logs.prometheus import read_prometheus
from specsim.logs.sglang import read_sglang
from specsim.logs.source import Source
from specsim.logs.tables import read_tables
from specsim.logs.trtllm import read_trtllm_log, read_trtllm_stats
from specsim.logs.vllm import read_vllm

__all__ = [
    "CODES",
    "FORMATS",
    "Diagnosis",
    "Format",
    "LogEntry",
    "LogRow",
    "LogWindow",
    "Source",
    "Timing",
    "WindowCount",
    "detect",
    "detect_text",
    "entry_document",
    "log_document",
    "minimum_over_ranks",
    "read_bench_json",
    "read_chrome_trace",
    "read_file",
    "read_golden",
    "read_kernel_summary",
    "read_llamacpp",
    "read_nccl",
    "read_nsys_sqlite",
    "read_probe",
    "read_prometheus",
    "read_sglang",
    "read_tables",
    "read_trtllm_log",
    "read_trtllm_stats",
    "read_vllm",
    "require_usable",
]


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
    with Source(path) as source:
        format_ = detect(source)
        entries = _read(source, format_, samples)
        return _with_cut(entries, source.cut) if source.cut else entries


def _read(source: Source, format_: Format, samples: int) -> list[LogEntry]:
    path = source.path
    match format_:
        case "sglang_log":
            return read_sglang(source.lines(), path, samples)
        case "vllm_log":
            return read_vllm(source.lines(), path, samples)
        case "trtllm_log":
            return read_trtllm_log(source.lines(), path)
        case "trtllm_stats":
            return read_trtllm_stats(source.lines(), path)
        case "prometheus":
            return read_prometheus(source.lines(), path)
        case "bench_json":
            return read_bench_json(source.lines(), path)
        case "table":
            return read_tables(source.lines(), path)
        case "nccl_tests":
            return read_nccl(source.lines(), path)
        case "nsys_kernel_summary":
            return read_kernel_summary(source.lines(), path)
        case "nsys_sqlite":
            return read_nsys_sqlite(source.file_name())
        case "chrome_trace":
            return read_chrome_trace(source.chunks(), path)
        case "llamacpp":
            return read_llamacpp(source.lines(), path)
        case "golden_acceptance":
            return read_golden(source.lines(), path)
        case "probe":
            return read_probe(source.lines(), path)


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
    path, format_ = entries[0].path, entries[0].format
    raise FormatError(
        path,
        f"holds no calibration data: {format_} with {_found_instead(entries)}",
        _REMEDIES.get(format_, "give a complete result"),
    )


_REMEDIES = {
    "sglang_log": "give a log that has 'Decode batch' lines of steady decoding",
    "vllm_log": "give a log that has 'Avg generation throughput' lines of a busy server",
}


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


def _with_cut(entries: list[LogEntry], cut: str) -> list[LogEntry]:
    """Say on the last entry that the packed file ended early."""
    last = entries[-1]
    diagnosis = Diagnosis("truncated", cut)
    return [*entries[:-1], replace(last, diagnoses=(*last.diagnoses, diagnosis))]
