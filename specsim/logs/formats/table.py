"""Printed results: serving tables, send_one and one-batch grids, evalscope's summary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from specsim.logs.diagnose import told
from specsim.logs.entry import LogEntry, LogRow
from specsim.logs.format import Format
from specsim.logs.formats._benchmarks import names
from specsim.logs.formats._results import (
    LOOSE,
    RATES,
    accept_length,
    agree,
    count,
    joined,
    positive,
    serving,
    with_unread,
)
from specsim.logs.json_values import number
from specsim.logs.paste import Headings, label_of
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, DAMAGED_ROW, MISSING, TRUNCATED, check, counted

_TITLE = re.compile(r"(?:Serving|Offline Throughput) Benchmark Result")
_LINE = re.compile(r"([A-Z][A-Za-z0-9 ()/.]{1,48}):[ \t]+(\S{1,32})[ \t]*")
_POSITION = re.compile(r"[ \t]*Position (\d{1,2}):[ \t]+(\d{1,3}\.\d{1,4})[ \t]*")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_MEASURE = re.compile(r"(?:Mean|Median|P9\d|Output|Total|Request|Accept|Benchmark)\b")
_RULE = re.compile(r"[+|][-=+|]{3,}")

_Read = Callable[[Mapping[str, Any]], LogEntry]


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read printed results, one entry per table."""
    tables = _Tables()
    for line in source.lines():
        tables.read(line)
    tables.close(ended=False)
    entries = joined(tables.results, source.path)
    return with_unread(entries, tables.unread, source.path, FORMAT.name)


@dataclass(slots=True)
class _Tables:
    """Collects the rows of the table that is open."""

    results: list[LogEntry] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    serving: dict[str, object] | None = None  # the record of an open serving table
    before: dict[str, object] = field(default_factory=dict)  # labelled lines above one
    positions: dict[int, float] = field(default_factory=dict)
    header: list[str] = field(default_factory=list)  # keys of the columns of a grid
    summary: dict[str, object] | None = None  # evalscope's, while it is open
    complete: bool = False  # whether a rule ends it
    above: Headings = field(default_factory=Headings)
    label: str = ""

    def read(self, line: bytes) -> None:
        """Read one line."""
        text = line.decode("utf-8", "replace").strip("\r\n")
        bare = text.strip()
        if _TITLE.search(text):
            self.close(ended=False)
            self.serving, self.positions = dict(self.before), {}
        elif self.serving is not None and re.fullmatch(r"={20,}", bare):
            self.close(ended=True)
        elif bare.startswith("|") and not bare.endswith("|"):
            self.unread[TRUNCATED] += 1
        elif bare.startswith("|"):
            self._cells([cell.strip() for cell in bare.strip("|").split("|")])
        elif bare.startswith("+") and self.summary is not None:
            self.complete = bool(_RULE.fullmatch(bare))
        else:
            self._labelled(line, text)

    def _labelled(self, line: bytes, text: str) -> None:
        found, position = _LINE.fullmatch(text), _POSITION.fullmatch(text)
        if position and self.serving is not None:
            self.positions[int(position[1])] = float(position[2]) / 100
        elif self.serving is None and self.above.read(line):
            self.label = ""
        elif not found:
            self.label = label_of(line) or self.label
            if self.serving is not None and _MEASURE.match(text):
                self.unread[TRUNCATED] += 1
        elif key := names("lines", "serving").get(found[1]):
            self._stated(key, found[2], whole_line=line.endswith((b"\n", b"\r")))

    def _stated(self, key: str, value: str, whole_line: bool) -> None:
        """Take a figure of a serving table, or one printed above it."""
        target = self.before if self.serving is None else self.serving
        if not whole_line:
            self.unread[TRUNCATED] += 1
        elif target is self.serving and key in target and key not in self.before:
            self.unread["two tables written into one"] += 1
            self.serving = None
        elif value not in ("None", "not"):  # "not set"
            target[key] = _value(value)

    def _cells(self, cells: list[str]) -> None:
        if cells == ["Key", "Value"]:
            self.close(ended=False)
            self.summary, self.complete = {}, False
        elif self.summary is not None and len(cells) == 2:
            self.summary[names("lines", "evalscope").get(cells[0], "")] = _value(cells[1])
        elif any(cell.lower() in names("lines", "sglang_grid") for cell in cells):
            self.header = [names("lines", "sglang_grid").get(cell.lower(), "") for cell in cells]
        elif self.header and not all(set(cell) <= set("-: ") for cell in cells):
            if len(cells) != len(self.header):
                self.unread[DAMAGED_ROW] += 1
                return
            record = dict(zip(self.header, map(_value, cells), strict=True))
            self._keep(_grid_row, record)

    def close(self, ended: bool) -> None:
        """End the table that is open."""
        if self.serving is not None:
            record = dict(self.serving)
            if self.positions and sorted(self.positions) == list(range(len(self.positions))):
                record[RATES] = [self.positions[i] for i in sorted(self.positions)]
            cut = "" if ended else "the table has no end: its last lines are missing"
            self._keep(partial(serving, suffix="_table"), record, cut)
            self.before = {}
        if self.summary is not None:
            cut = "" if self.complete else "the grid is cut: its last rows are missing"
            self._keep(_evalscope, self.summary, cut)
        self.serving, self.summary, self.complete = None, None, False

    def _keep(self, read: _Read, record: Mapping[str, Any], cut: str = "") -> None:
        with counted(self.unread):
            result = read(record)
            diagnoses = (*result.diagnoses, *told([("truncated", cut)]))
            label = ", ".join(filter(None, (self.above.label, self.label)))
            self.results.append(replace(result, label=label, diagnoses=diagnoses))


def _value(text: str) -> float | str:
    return float(text) if _NUMBER.fullmatch(text) else text


def _grid_row(record: Mapping[str, Any]) -> LogEntry:
    """Read a row of SGLang's send_one (a single stream), or of its bench_one_batch_server."""
    single = "speed" in record
    accept, latency = accept_length(record, "acc_length"), positive(record, "latency")
    tps = positive(record, "speed" if single else "output_throughput")
    batch = 1 if single else count(record, "batch_size")
    out = number(record, "tokens" if single else "output_len") or None
    if single:
        check(accept is not None and out, MISSING)
        check(agree((out or 0.0) / latency, tps), CONTRADICTION)
    row = LogRow(
        kind="closed_loop",
        batch_size=batch,
        concurrency=batch,
        output_tps=tps,
        accept_length=accept,
        accept_length_scope="run" if single else "pooled",
        round_time_s=accept * batch / tps if accept else None,
        num_requests=batch,
        input_len=number(record, "input_len"),
        output_len=out,
        duration_s=latency,
    )
    name = "sglang_send_one" if single else "sglang_bench_one_batch_table"
    return LogEntry("", name, "sglang", rows=(row,))


def _evalscope(record: Mapping[str, Any]) -> LogEntry:
    clients, total = number(record, "concurrency"), number(record, "total")
    duration, done = positive(record, "duration"), positive(record, "completed")
    counts = (clients or 0, total or 0, done)
    check(all(n % 1 == 0 for n in counts), "a count is no whole number")
    tps, out = number(record, "output_throughput"), number(record, "output_len")
    check(not tps or not out or agree(out * done / duration, tps, LOOSE), CONTRADICTION)
    check(done <= (total or done), CONTRADICTION)
    row = LogRow(
        kind="closed_loop",
        concurrency=clients,
        output_tps=tps,
        ttft_s=number(record, "ttft"),
        tpot_s=number(record, "tpot"),
        num_requests=int(done),
        input_len=number(record, "input_len"),
        output_len=out,
        duration_s=duration,
    )
    return LogEntry("", "evalscope", rows=(row,))


FORMAT = Format(
    name="table",
    words=(b"Benchmark Result",),
    mark=re.compile(
        rb"Serving Benchmark Result|\| Acc Length +\|| Speed \(token/s\) +\||\| Key +\| Value +\|"
        rb"|\| *batch size *\|"
    ),
    parse=parse,
)
