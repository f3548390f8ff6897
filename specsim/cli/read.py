"""``specsim read``: what a log, a benchmark result or a trace says, and what is wrong with it."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output
from specsim.cli.options import argument, command, file, flag
from specsim.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from specsim.logs import LogEntry, LogRow, Timing

MAX_TIMINGS = 24
"""Timings shown in the terminal; the JSON has them all."""

HIDDEN_SETTINGS = ("label", "inferred", "tag", "backend")

WIDTH = 80
"""Columns when piped and COLUMNS is not set."""

FILE_WIDTH = 100

CSV_COLUMNS = (
    *("kind", "algorithm", "topk", "num_steps", "num_draft_tokens", "scheduler"),
    *("engine_version", "concurrency", "request_rate", "batch_size", "max_running_requests"),
    *("num_requests", "input_len", "output_len", "output_tps", "accept_length"),
    *("accept_length_scope", *(f"survival_{d}" for d in range(1, 9))),
    *("ttft_s", "tpot_s", "itl_s", "round_time_s", "dataset", "weight", "source"),
)
"""Columns of observations.csv that a log can fill."""


@dataclass(frozen=True)
class Options:
    """What to read, and in which form to say it."""

    files: tuple[str, ...] = argument("FILE...", nargs=-1, required=True)
    as_json: bool = opt.as_json("specsim.log/1")
    as_csv: bool = flag("--csv", "Print rows in the columns of observations.csv.")
    target: str | None = file("--output -o", "Write to this file instead.")


@command("read", Options)
def read_command(how: Options) -> None:
    """Say what logs, benchmark results and traces hold, and what is wrong with them.

    The format is found by content: SGLang, vLLM, TensorRT-LLM, llama.cpp, Prometheus, benchmark
    JSON and tables, torch and Nsight traces, nccl-tests; plain, .gz or .zst; - is standard input.
    """
    from specsim.logs import log_json, read_file, require_usable
    from specsim.textfile import write_text

    if how.as_json and how.as_csv:
        raise InputError("--json --csv", "exclude each other", "choose one")
    output.check_file("--output", how.target)
    entries: list[LogEntry] = []
    for name in how.files:
        found = read_file(name)
        require_usable(found)
        entries += found
    if how.as_json:
        text = log_json(entries)
    elif how.as_csv:
        text = csv_text(entries)
    elif how.target is not None:
        text = terminal_text(entries)
    else:
        _show(entries, output.console(WIDTH))
        return
    if how.target is None:
        sys.stdout.write(text)
    else:
        write_text(Path(how.target), text)


def csv_text(entries: Sequence[LogEntry]) -> str:
    """Return the rows of all entries in the columns of observations.csv.

    What a log does not state is left empty: fill in the setting before fitting on it.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for entry in entries:
        for row in entry.rows:
            writer.writerow(_csv_row(entry, row))
    return text.getvalue()


def _csv_row(entry: LogEntry, row: LogRow) -> dict[str, object]:
    settings = entry.settings
    cells: dict[str, object] = {
        name: getattr(row, name) for name in CSV_COLUMNS if hasattr(row, name)
    }
    cells.update({name: settings[name] for name in CSV_COLUMNS if name in settings})
    cells["engine_version"] = entry.engine_version
    concurrency = row.batch_size if row.kind == "steady_decode" else row.concurrency
    cells["concurrency"] = None if concurrency is None else round(concurrency)
    cells["source"] = " ".join(filter(None, (os.path.basename(entry.path), entry.label)))
    if row.accept_length is None:
        cells["accept_length_scope"] = None
    for depth, value in enumerate((row.survival or ())[:8], start=1):
        cells[f"survival_{depth}"] = value
    return {name: _cell(value) for name, value in cells.items()}


def _cell(value: object) -> object:
    if isinstance(value, bool) or value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value


def terminal_text(entries: Sequence[LogEntry]) -> str:
    """Return what the terminal shows, as plain text."""
    from rich.console import Console

    text = io.StringIO()
    _show(entries, Console(file=text, width=FILE_WIDTH, color_system=None, highlight=False))
    return text.getvalue()


def _show(entries: Sequence[LogEntry], out: Console) -> None:
    from rich.text import Text

    for number, entry in enumerate(entries):
        if number:
            out.print()
        version = f", version {entry.engine_version}" if entry.engine_version else ""
        label = f', "{entry.label}"' if entry.label else ""
        out.print(Text(f"{entry.path}: {entry.format}{version}{label}", style="bold"))
        if settings := _settings_text(entry):
            out.print(Text(settings))
        if entry.rows:
            out.print(_row_table(entry.rows))
        if entry.timings:
            out.print(_timing_table(entry.timings))
            if len(entry.timings) > MAX_TIMINGS:
                out.print(f"... and {len(entry.timings) - MAX_TIMINGS} more (--json)")
        out.print(Text(_account(entry)))
        for diagnosis in entry.diagnoses:
            out.print(Text.assemble((diagnosis.code, "yellow"), ": ", diagnosis.message))


def _settings_text(entry: LogEntry) -> str:
    from specsim.logs.document import stated_settings

    stated = {k: v for k, v in stated_settings(entry).items() if v is not None}
    inferred = entry.settings.get("inferred")
    marks = set(inferred) if isinstance(inferred, list) else set()
    return ", ".join(
        f"{key} {value}" + (" (inferred)" if key in marks else "")
        for key, value in stated.items()
        if key not in HIDDEN_SETTINGS
    )


def _number(value: float | None, digits: int, scale: float = 1.0) -> str:
    return "" if value is None else f"{value * scale:.{digits}f}"


def _with_error(value: float | None, error: float | None, digits: int) -> str:
    text = _number(value, digits)
    shown = f"{error or 0:.{digits}f}"
    return f"{text} ± {shown}" if text and float(shown) else text


def _survival(values: Sequence[float] | None) -> str:
    if not values:
        return ""
    shown = " ".join(f"{v:.2f}" for v in values[:4])
    return shown + (" ..." if len(values) > 4 else "")


COLUMNS: dict[str, Callable[[LogRow], str]] = {
    "running": lambda r: _number(r.batch_size, 1),
    "clients": lambda r: _number(r.concurrency, 0),
    "req/s": lambda r: _number(r.request_rate, 2),
    "tok/s": lambda r: _with_error(r.output_tps, r.output_tps_sem, 1),
    "accept length": lambda r: _with_error(r.accept_length, r.accept_length_sem, 2),
    "survival": lambda r: _survival(r.survival),
    "round ms": lambda r: _number(r.round_time_s, 2, 1e3),
    "TPOT ms": lambda r: _number(r.tpot_s, 2, 1e3),
    "TTFT ms": lambda r: _number(r.ttft_s, 0, 1e3),
    "graph": lambda r: "" if r.cuda_graph is None else ("yes" if r.cuda_graph else "no"),
    "windows": lambda r: f"{r.windows}" + (" with prefill" if r.mixed else ""),
}


def _row_table(rows: Sequence[LogRow]) -> Table:
    """Lay out the rows; what no row states has no column."""
    filled = {name: text for name, text in COLUMNS.items() if any(map(text, rows))}
    cells = [[text(row) for text in filled.values()] for row in rows]
    return output.table(*filled, rows=cells, left=(), wrap=True)


def _timing_table(timings: Sequence[Timing]) -> Table:
    headings = ("phase", "batch", "bytes", "us", "count", "ranks", "name")
    numbers = [
        (t.batch_size, t.size_bytes, f"{1e6 * t.seconds:.1f}", t.count, t.ranks) for t in timings
    ]
    rows = [
        (t.phase, *("" if n is None else str(n) for n in cells), t.name[:60])
        for t, cells in zip(timings, numbers, strict=True)
    ]
    return output.table(*headings, rows=rows[:MAX_TIMINGS], left=(0, 6), wrap=True)


def _account(entry: LogEntry) -> str:
    windows = entry.windows
    text = f"windows: {windows.read} read, {windows.used} used"
    if windows.dropped:
        text += f"; dropped: {_counts(windows.dropped)}"
    if entry.unread:
        text += f"; {entry.unread_lines} lines unread: {_counts(entry.unread)}"
    return text


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in counts.items())
