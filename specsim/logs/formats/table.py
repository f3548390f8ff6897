"""Printed results: tables of benchmark programs and of people, markdown, CSV or drawn.

A table of a program is known by the names of its columns or of its metrics (``benchmarks.toml``).
Any other is one of people, if it has a column of clients and one of speeds, whatever their names: a
row is read only as far as the names of its columns are known and say their unit. Columns of text
tell servers apart, and so do words before a speed (``EAGLE3 tok/s``).
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, islice
from typing import Any

from specsim.errors import UnknownNameError
from specsim.logs.diagnose import finding
from specsim.logs.entry import LogEntry
from specsim.logs.formats import _llama_bench as llama_bench
from specsim.logs.formats import texts
from specsim.logs.formats._benchmarks import Column, Said, column_of, figures_of, names, scaled
from specsim.logs.formats._grids import Grid, grids, value_of, with_points
from specsim.logs.formats._results import collected, run_entry
from specsim.logs.formats._serving import of_table as serving_table
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, DAMAGED_ROW, TWO_IN_ONE, Unread, check, counted
from specsim.setting import NO_SPECULATION, chain_settings, parse_algorithm

_LOADS, _SPEEDS = {"concurrency", "batch_size"}, {"output_tps", "user_tps"}
_TIMES = {"tpot_s", "tpot_ms", "round_time_ms"}
_SHARED = {*_LOADS, "input_len", "output_len", "tp"}  # said of all servers of a row
_SETTINGS = {"num_steps", "topk", "num_draft_tokens", "k", "tp"}
PEOPLES, TURNED = "user_table", "turned"
_TURNED = {"", "metric", "metrics"}
WHOSE, FALLS = "speed of one request or all", 0.8
_METRICS = {"Metric": "aiperf", "Statistic": "aiperf", "Key": "evalscope"}
"""First head of a table with a metric in each row."""
_CLIENTS = re.compile(rb"(?:--concurrency[ =]|[Cc]oncurrency: *)(\d{1,6})(?![\d.])")
_OF_DRAFTS = {"accept_length", "num_steps", "topk", "num_draft_tokens", "k"}
_OFF, _ON = {"none", "no", "off", "without", "false"}, {"on", "yes", "with", "true", "✓", "✅"}
_INSERT = re.compile(rb"INSERT INTO \w+ \(([^()\n]+)\) VALUES \(([^()\n]+)\);\s*")
_TEXT = texts("tables")
OF_PROMPTS = "speed of prompts, not of answers"
CLIENT_SLACK = 1.1
"""So much faster than one token per TPOT of every client nothing is: requests differ."""


def parse(source: Source) -> list[LogEntry]:
    """Read printed results, one entry per server that headings, text and settings tell apart."""
    unread: Counter[str] = Counter()
    results: list[LogEntry] = []
    metrics = _Metrics(results, unread)
    lines = metrics.noting_flags(_one_header(source.lines()))
    for grid in grids(lines, _kind, unread):
        if grid.separator == ":":
            with counted(unread):
                results.append(serving_table(grid, unread))
            continue
        grid = _upright(grid)
        kind = _kind(grid.header)
        if kind == TURNED:
            continue
        if kind in _METRICS.values():
            metrics.take(grid, kind)
            continue
        metrics.end()
        titles = (grid.under, *grid.label.split(", "))
        if kind == PEOPLES and any(map(_TEXT["of_prompts"].fullmatch, titles)):
            unread[OF_PROMPTS] += len(grid.rows)
            continue
        results += _peoples(grid, unread) if kind == PEOPLES else _rows(grid, kind, unread)
    metrics.end()
    return collected(_by_server(results, unread), unread, source.path, "table")


def _by_server(results: Sequence[LogEntry], unread: Counter[str]) -> Iterator[LogEntry]:
    """Yield results, those of people's tables by the servers that text tells apart.

    A speed that falls with more clients is not that of all of them, and such a time is.
    """
    found: dict[object, list[LogEntry]] = {}
    for at, result in enumerate(results):
        server = (result.label, *sorted(result.settings.items(), key=str))
        found.setdefault(server if result.format == PEOPLES else at, []).append(result)
    for of in found.values():
        speeds: dict[object, dict[float, float]] = {}  # by lengths, then clients
        for row in (r for e in of for r in e.rows if e.format == PEOPLES):
            by_load = speeds.setdefault((row.input_len, row.output_len), {})
            by_load[row.concurrency or 1.0] = row.output_tps or row.tpot_s or math.inf
        falls = any(
            max(s) >= 2 * min(s) and s[max(s)] < FALLS * s[min(s)] < math.inf
            for s in speeds.values()
        )
        kept = [e for e in of if not falls or e.rows[0].concurrency == 1]
        unread[WHOSE] += len(of) - len(kept)
        yield from kept


def _upright(grid: Grid) -> Grid:
    """Return a table with its figures as columns, and with a name on a column of loads."""
    turned = replace(grid, header=(grid.header[0], *(row[0] for row in grid.rows)))
    turned.rows = list(zip(grid.header[1:], *(row[1:] for row in grid.rows), strict=True))
    for one in (grid, turned):
        loads = _loads([row[0] for row in one.rows])
        if loads and not column_of(one.header[0]):
            cells = [(n, *row[1:]) for n, row in zip(loads, one.rows, strict=True)]
            one = replace(one, header=("concurrency", *one.header[1:]), rows=cells)
        if _kind(one.header) not in ("", TURNED):
            return one
    return _long(grid)


def _loads(cells: Sequence[str]) -> list[str]:
    """Return the numbers of clients that cells name; none if one of them names none."""
    found = [_TEXT["load"].fullmatch(cell.strip("*`_ ")) for cell in cells]
    return [load[1] or load[2] for load in found if load] if all(found) else []


def _long(grid: Grid) -> Grid:
    """Return a table that has a server in each row and a load in each column, a load in each row.

    What the cells are stands in its corner or above it.
    """
    loads = _loads(grid.header[1:])
    texts = [grid.header[0], *grid.label.split(", ")]
    figures = [t for t in texts if (c := column_of(t)) and c.name in _SPEEDS | _TIMES]
    if not (loads and figures):
        return grid
    rows: list[tuple[str, ...]] = []
    rows += [(n, row[0], v) for row in grid.rows for n, v in zip(loads, row[1:], strict=True)]
    label = ", ".join(text for text in texts[1:] if text != figures[0])
    return replace(grid, header=("concurrency", "server", figures[0]), rows=rows, label=label)


def _one_header(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Join the three lines of headings of GuideLLM's CSV to one, and read SQL of llama-bench."""
    first = next(lines, b"")
    if b",Server Throughput," in first:
        texts = [line.decode("utf-8", "replace") for line in (first, *islice(lines, 2))]
        rows = list(csv.reader(texts))
        alike = len({len(row) for row in rows}) == 1  # a cell more moves all that follow it
        heads = zip(*rows, strict=True) if alike else ()
        first = ",".join(" | ".join(filter(None, head)) for head in heads).encode() + b"\n"
    for line in chain((first,), lines):
        if insert := _INSERT.fullmatch(line):
            yield insert[1].replace(b" ", b"") + b"\n"
            yield insert[2].replace(b"', '", b'","').replace(b"'", b'"') + b"\n"
        else:
            yield line


@lru_cache(1024)
def _kind(header: tuple[str, ...]) -> str:
    """Return whose table has such a header: a program's, or people's; empty if it is no one's.

    >>> _kind(("Key", "Value")), _kind(("conc", "tok/s")), _kind(("conc", "p99"))
    ('evalscope', 'user_table', '')
    """
    heads = {head.lower() for head in header}
    for program, of in names("grids").items():
        if heads.issuperset(of["needs"]):
            return program
    if header and header[0] in _METRICS and {"avg", "Value"} & set(header):
        return _METRICS[header[0]]
    if llama_bench.wanted(header):
        return llama_bench.NAME
    found = {column.name for head in header if (column := column_of(head))}
    if found & _LOADS and found & (_SPEEDS | _TIMES):
        return PEOPLES
    names_each = len(set(header)) == len(header) > 1 and all(header[1:])
    turned = header[0].lower() in _TURNED if header else False
    turned = turned or (len(header) > 2 and bool(_loads(header[1:])))
    return TURNED if names_each and turned else ""


def _rows(grid: Grid, program: str, unread: Counter[str]) -> Iterator[LogEntry]:
    """Yield the runs of a program that are the rows of a table."""
    if program == llama_bench.NAME:
        for record in grid.records():
            with counted(unread):
                yield llama_bench.entry(grid.label, record)
        return
    heads = names("grids", program)["heads"]
    found = (heads.get(head.lower()) for head in grid.header)
    columns = [Column(name) if name else None for name in found]
    for row in grid.rows:
        with counted(unread):
            yield replace(run_entry(program, _said(row, columns)), label=grid.label)


@dataclass(slots=True)
class _Metrics:
    """Tables with a metric in each row: a metric that comes again begins another run."""

    results: list[LogEntry]  # where the runs go
    unread: Counter[str]
    program: str = ""
    said: dict[str, float] = field(default_factory=dict)
    label: str = ""
    cut: bool = False
    clients: float | None = None  # as a command says

    def noting_flags(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield lines, and note the clients that a command among them asks for."""
        for line in lines:
            for clients in _CLIENTS.findall(line) if b"oncurrency" in line else ():
                self.clients = float(clients)
            yield line

    def take(self, grid: Grid, program: str) -> None:
        """Take the means in a table."""
        found = self._means(grid, program)
        if program != self.program or found.keys() & self.said.keys():
            self.end()
        self.program, self.label, self.said = program, grid.label, self.said | found
        if self.clients is not None:
            self.said.setdefault("concurrency", self.clients)
        if program == "evalscope" and not grid.ruled:
            self.cut = True

    def _means(self, grid: Grid, program: str) -> dict[str, float]:
        """Return the means in a table, SI units."""
        column = grid.header.index("avg" if "avg" in grid.header else "Value")
        known = names("metrics", program)
        said: dict[str, float] = {}
        for row in grid.rows:
            metric, value = _TEXT["metric"].fullmatch(row[0]), value_of(row[column])
            name = known.get(re.sub(r"[ -]+", "_", metric[1].strip().lower())) if metric else None
            if metric and name and value is not None:
                with counted(self.unread):
                    value = scaled(name, value, metric[2] or "")
                    check(said.setdefault(name, value) == value, TWO_IN_ONE)
            elif name and row[column] != "N/A":
                self.unread[DAMAGED_ROW] += 1
        return said

    def end(self) -> None:
        """Keep the run, if it measured anything of decoding."""
        with counted(self.unread):
            if self.said.keys() - {"concurrency"}:
                entry = run_entry(self.program, self.said)
                cut = (finding("truncated", "grid"),) if self.cut else ()
                diagnoses = (*entry.diagnoses, *cut)
                self.results.append(replace(entry, label=self.label, diagnoses=diagnoses))
        self.said, self.cut = {}, False


def _peoples(grid: Grid, unread: Counter[str]) -> Iterator[LogEntry]:
    grid = replace(grid, rows=with_points(grid.rows))
    columns = [column_of(head) for head in grid.header]
    speeds = [c.server for c in columns if c and c.name in _SPEEDS]
    speeds = speeds or [c.server for c in columns if c and c.name in _TIMES]
    several = len(set(speeds)) > 1
    drafting = [s for s in {*speeds} - _OFF if not _TEXT["plain"].fullmatch(s)]
    texts = _text_columns(grid, columns)
    labels = [i for i, name in texts.items() if not name]
    for server in dict.fromkeys(speeds or [""]):
        alone = not several or drafting == [server]  # what is said of drafts is said of it
        own = [c if c and _is_of(c, server, several, alone) else None for c in columns]
        for row in grid.rows:
            with counted(unread):
                said = figures_of(_said(row, own))
                check(said.keys() & _LOADS and said.keys() - _LOADS - _SETTINGS, DAMAGED_ROW)
                stated = {name: row[i] for i, name in texts.items() if name not in ("", "none")}
                named = {grid.header[i]: row[i] for i in labels}
                yield _peoples_row(said, stated, grid.label, named | {"": server})


def of_records(records: Sequence[Mapping[str, Any]], unread: Counter[str]) -> Iterator[LogEntry]:
    """Yield what records of a person's own JSON say: their keys are heads of columns."""
    for header in dict.fromkeys(map(tuple, records)):
        some = [record.values() for record in records if tuple(record) == header]
        rows = [tuple(str(v) if isinstance(v, str | float | int) else "" for v in r) for r in some]
        if _kind(header) == PEOPLES:
            yield from _by_server(list(_peoples(Grid(header, rows=rows), unread)), unread)
        else:
            unread["not a result that is known"] += len(rows)


def _is_of(column: Column, server: str, several: bool, alone: bool) -> bool:
    """Whether a column is of a server; `alone`: it is the only one that may draft."""
    if column.name in _OF_DRAFTS and (alone and not (several and column.server)):
        return True
    if column.name in _SPEEDS or column.server:
        return column.server == server
    return not several or column.name in _SHARED


def _text_columns(grid: Grid, columns: Sequence[Column | None]) -> dict[int, str]:
    """Columns that are not known and in no row a number: settings by name, or without one.

    The latter tell servers apart.
    """
    known = {head: name for name, heads in names("texts").items() for head in heads}
    found = {}
    for i, (head, column) in enumerate(zip(grid.header, columns, strict=True)):
        name = head.lower().replace("_", " ")
        cells = [row[i].strip("*`_ ") for row in grid.rows]
        amounts = any(map(_TEXT["amount"].fullmatch, cells)) and not _TEXT["gpus"].search(name)
        if column is None and not amounts and any(re.search(r"\w", cell) for cell in cells):
            found[i] = known.get(name, "")
    return found


def _said(row: Sequence[str], columns: Sequence[Column | None]) -> Said:
    """Return what a row says in the columns that are known."""
    said: Said = {}
    for column, cell in zip(columns, row, strict=True):
        if column is None:
            continue
        unit = _TEXT["timed" if column.name.endswith("_s") else "paced"]
        timed = None if column.factor else unit.fullmatch(cell)
        factor = names("units").get(timed[2], 1.0) if timed else column.factor
        factor *= 1.024 if column.name.endswith("_len") and cell[-1:] in ("k", "K") else 1.0
        value = value_of(timed[1] if timed else _TEXT["unit"].sub("", cell))
        if not factor:
            continue  # a figure without its unit
        if value is not None:
            said.setdefault(column.name, value * factor)
        elif column.name == "strategy":
            said[column.name] = cell
        elif re.search(r"\d", cell):
            raise Unread(DAMAGED_ROW)
    return said


def _peoples_row(
    said: dict[str, float], stated: Mapping[str, object], label: str, texts: Mapping[str, str]
) -> LogEntry:
    clients = said.setdefault("concurrency", said.get("batch_size", 0.0))
    check(clients >= 1 and clients % 1 == 0, DAMAGED_ROW)
    tps, tpot_s = said.get("output_tps"), said.get("tpot_s")
    if tpot_s is None and (each := said.get("user_tps")):
        tpot_s = 1 / each
    if tps and tpot_s:
        check(tps <= CLIENT_SLACK * clients / tpot_s, CONTRADICTION)
        check(clients == 1 or not 0.9 < tps * tpot_s < CLIENT_SLACK, WHOSE)
    settings = dict(stated) | _algorithm("", label)
    for head, text in texts.items():
        settings |= _algorithm(head, text)
    entry = run_entry(PEOPLES, said, settings)
    return replace(entry, label=", ".join(filter(None, (label, *texts.values()))))


def _algorithm(head: str, text: str) -> dict[str, object]:
    """Return the setting that a text states, if it is nothing but one."""
    word = text.strip(" *`").lower()
    if _TEXT["plain"].fullmatch(word) or (word in _OFF and _TEXT["drafts"].search(head)):
        return dict(NO_SPECULATION)
    if word in _ON:
        return _algorithm("", head)
    if depth := _TEXT["depth"].fullmatch(word):
        return chain_settings(int(depth[1])) if int(depth[1]) else dict(NO_SPECULATION)
    found = _TEXT["drafting"].fullmatch(word)
    for name in (found["name"], re.sub(r"[ -]", "", found["name"])) if found else ():
        with suppress(UnknownNameError):
            chain = chain_settings(int(found["k"])) if found and found["k"] else {}
            return {**chain, "algorithm": parse_algorithm(name)}
    return {}
