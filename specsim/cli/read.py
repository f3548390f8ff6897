"""``specsim read``: what a log, a benchmark result or a trace says, and what is wrong with it."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specsim.errors import InputError
from specsim.logs import (
    LogEntry,
    LogRow,
    Timing,
    log_document,
    read_file,
    require_usable,
)
from specsim.logs.document import settings_document

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MAX_TIMINGS = 24
"""Timings shown in the terminal; the JSON has them all."""
HIDDEN_SETTINGS = ("label", "inferred", "tag", "backend")

CSV_COLUMNS = (
    *("kind", "algorithm", "topk", "num_steps", "num_draft_tokens", "scheduler"),
    *("engine_version", "concurrency", "request_rate", "batch_size", "max_running_requests"),
    *("num_requests", "input_len", "output_len", "output_tps", "accept_length"),
    *("accept_length_scope", *(f"survival_{d}" for d in range(1, 9))),
    *("ttft_s", "tpot_s", "itl_s", "round_time_s", "dataset", "weight", "source"),
)
"""Columns of observations.csv that a log can fill."""


def read_command(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Logs, results, traces; - is standard input."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print specsim.log/1.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print rows in the columns of observations.csv.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file instead.")
    ] = None,
) -> None:
    """Say what logs, benchmark results and traces hold, and what is wrong with them.

    The format is found by content: SGLang, vLLM, TensorRT-LLM, llama.cpp, Prometheus, benchmark
    JSON and tables, torch and Nsight traces, nccl-tests; plain, .gz or .zst.
    """
    if as_json and as_csv:
        raise InputError("--json --csv", "exclude each other", "choose one")
    entries: list[LogEntry] = []
    for name in files:
        found = read_file(name)
        require_usable(found)
        entries += found
    if as_json:
        _emit(json.dumps(log_document(entries), indent=2, allow_nan=False) + "\n", output)
    elif as_csv:
        _emit(csv_text(entries), output)
    elif output is not None:
        _emit(terminal_text(entries), output)
    else:
        from rich.console import Console

        _show(entries, Console(soft_wrap=False, highlight=False))


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


def terminal_text(entries: Sequence[LogEntry], width: int = 100) -> str:
    """Return what the terminal shows, as plain text."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    _show(entries, console)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def _show(entries: Sequence[LogEntry], console: Console) -> None:
    from rich.markup import escape

    for number, entry in enumerate(entries):
        if number:
            console.print()
        title = f"{entry.path}: {entry.format}"
        if entry.engine_version:
            title += f", version {entry.engine_version}"
        if entry.label:
            title += f', "{entry.label}"'
        console.print(f"[bold]{escape(title)}[/bold]")
        settings = _settings_text(entry)
        if settings:
            console.print(escape(settings))
        if entry.rows:
            console.print(_row_table(entry.rows))
        if entry.timings:
            console.print(_timing_table(entry.timings))
            if len(entry.timings) > MAX_TIMINGS:
                console.print(f"... and {len(entry.timings) - MAX_TIMINGS} more (--json)")
        console.print(escape(_account(entry)))
        for diagnosis in entry.diagnoses:
            console.print(f"[yellow]{diagnosis.code}[/yellow]: {escape(diagnosis.message)}")


def _settings_text(entry: LogEntry) -> str:
    stated = {k: v for k, v in settings_document(entry).items() if v is not None}
    inferred = entry.settings.get("inferred")
    marks = set(inferred) if isinstance(inferred, list) else set()
    return ", ".join(
        f"{key} {value}" + (" (inferred)" if key in marks else "")
        for key, value in stated.items()
        if key not in HIDDEN_SETTINGS
    )


def _row_table(rows: Sequence[LogRow]) -> Table:
    from rich import box
    from rich.table import Table

    columns = [c for c in _columns() if any(c[1](row) for row in rows)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, _ in columns:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*(text(row) for _, text in columns))
    return table


def _columns() -> Iterator[tuple[str, _Text]]:
    yield "running", lambda r: _number(r.batch_size, 1)
    yield "clients", lambda r: _number(r.concurrency, 0)
    yield "req/s", lambda r: _number(r.request_rate, 2)
    yield "tok/s", lambda r: _with_error(r.output_tps, r.output_tps_sem, 1)
    yield "accept length", lambda r: _with_error(r.accept_length, r.accept_length_sem, 2)
    yield "survival", lambda r: _survival(r.survival)
    yield "round ms", lambda r: _number(r.round_time_s, 2, 1e3)
    yield "TPOT ms", lambda r: _number(r.tpot_s, 2, 1e3)
    yield "TTFT ms", lambda r: _number(r.ttft_s, 0, 1e3)
    yield "graph", lambda r: "" if r.cuda_graph is None else ("yes" if r.cuda_graph else "no")
    yield "windows", lambda r: f"{r.windows}" + (" with prefill" if r.mixed else "")


if TYPE_CHECKING:
    from collections.abc import Callable

    _Text = Callable[[LogRow], str]


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


def _timing_table(timings: Sequence[Timing]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("phase", "batch", "bytes", "us", "count", "ranks", "name"):
        table.add_column(heading, justify="left" if heading in ("phase", "name") else "right")
    for t in timings[:MAX_TIMINGS]:
        cells = (t.batch_size, t.size_bytes, f"{1e6 * t.seconds:.1f}", t.count, t.ranks)
        table.add_row(t.phase, *("" if c is None else str(c) for c in cells), t.name[:60])
    return table


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


def _emit(text: str, output: Path | None) -> None:
    """Print, or write all or nothing."""
    if output is None:
        typer.echo(text, nl=False)
        return
    beside = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(text, encoding="utf-8", newline="\n")
        beside.replace(output)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise InputError(
            output, f"cannot be written ({error.strerror})", "give a file in an existing folder"
        ) from error
