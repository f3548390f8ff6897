"""``specsim read``: what a log, a benchmark result or a trace says, and what is wrong with it."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.cli import output
from specsim.cli.options import command

if TYPE_CHECKING:
    from rich.console import Console

    from specsim.logs import LogEntry, LogRow, Timing

MAX_TIMINGS = 24  # timings shown in the terminal; the JSON has them all
HIDDEN_SETTINGS = ("label", "inferred", "tag", "backend")
WIDTH, FILE_WIDTH = 80, 100


@dataclass(frozen=True)
class Options:
    """What to read, and in which form to say it."""

    files: tuple[str, ...]
    watch: float | None
    profile: str | None
    as_json: bool
    as_csv: bool
    target: str | None


@command("read", Options)
def read_command(how: Options) -> None:
    """Say what logs, benchmark results and traces hold, and what is wrong with them.

    The format is found by content: SGLang, vLLM, TensorRT-LLM, llama.cpp, Prometheus, benchmark
    JSON and tables, torch and Nsight traces, nccl-tests; plain, .gz or .zst; - is standard input.
    A URL is a running server, which is asked with GET; a key comes from SPECSIM_API_KEY.
    """
    from specsim.logs import read_file, require_usable
    from specsim.logs.document import csv_text, log_json
    from specsim.logs.source import is_url
    from specsim.textfile import write_text

    entries: list[LogEntry] = []
    for name in how.files:
        if is_url(name):
            from specsim.cli.live import watched

            entries.append(watched(name, how.watch, how.profile))
            continue
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
            filled = [column for column in COLUMNS if any(map(column[1], entry.rows))]
            out.print(output.table(filled, entry.rows, left=(), wrap=True))
        if entry.timings:
            timings = entry.timings[:MAX_TIMINGS]
            out.print(output.table(TIMINGS, timings, left=(0, 6), wrap=True))
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


def _lengths(row: LogRow) -> str:
    """Mean tokens of a prompt and of an answer, where a run states them."""
    lengths = [_number(n, 0) or "?" for n in (row.input_len, row.output_len)]
    return " / ".join(lengths) if any(n != "?" for n in lengths) else ""


COLUMNS: output.Columns[LogRow] = (
    ("running", lambda r: _number(r.batch_size, 1)),
    ("clients", lambda r: _number(r.concurrency, 0)),
    ("in / out", _lengths),
    ("req/s", lambda r: _number(r.request_rate, 2)),
    ("tok/s", lambda r: _with_error(r.output_tps, r.output_tps_sem, 1)),
    ("accept length", lambda r: _with_error(r.accept_length, r.accept_length_sem, 2)),
    ("survival", lambda r: _survival(r.survival)),
    ("round ms", lambda r: _number(r.round_time_s, 2, 1e3)),
    ("TPOT ms", lambda r: _number(r.tpot_s, 2, 1e3)),
    ("TTFT ms", lambda r: _number(r.ttft_s, 0, 1e3)),
    ("graph", lambda r: "" if r.cuda_graph is None else ("yes" if r.cuda_graph else "no")),
    ("windows", lambda r: f"{r.windows}" + (" with prefill" if r.mixed else "")),
)


def _size(value: int | None) -> str:
    return "" if value is None else str(value)


TIMINGS: output.Columns[Timing] = (
    ("phase", lambda t: t.phase),
    ("batch", lambda t: _size(t.batch_size)),
    ("bytes", lambda t: _size(t.size_bytes)),
    ("us", lambda t: f"{1e6 * t.seconds:.1f}"),
    ("count", lambda t: _size(t.count)),
    ("ranks", lambda t: _size(t.ranks)),
    ("name", lambda t: t.name[:60]),
)


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
