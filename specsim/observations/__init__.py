"""Measured cells: observations.csv, a row per cell; read, held against itself, written, a frame."""

from __future__ import annotations

import csv
import difflib
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from specsim.errors import FormatError, InputError, UnknownNameError
from specsim.observations.observation import COLUMNS as COLUMNS
from specsim.observations.observation import (
    PERCENTILE,
    SETTING,
    Column,
    cell_text,
    further_column,
    refusal,
)
from specsim.observations.observation import SCHEMA as SCHEMA
from specsim.observations.observation import SURVIVAL as SURVIVAL
from specsim.observations.observation import Observation as Observation
from specsim.observations.observation import cell_name as cell_name
from specsim.observations.observation import checked as checked
from specsim.observations.observation import weight_of as weight_of
from specsim.setting import FAMILY_OF, Scheduler, SpecSetting, parse_algorithm
from specsim.textfile import csv_cell, from_csv_cell, read_text, write_text
from specsim.workload import LoadKind

if TYPE_CHECKING:
    import pandas as pd

MEASURED = {
    *("num_requests", "batch_size", "window_s", "output_tps", "accept_length", *SURVIVAL),
    *("accept_length_scope", "ttft_s", "tpot_s", "itl_s", "round_time_s", "draft_time_s"),
    *("weight", "source"),
}
"""Columns that say nothing of the question that a cell answers."""

SLACK = 1.25  # survivals and accept lengths of public runs differ by up to 1.12
SAME, FALL, RISE = 1.5, 0.5, 2.0
"""Of throughput: cells of one question differ by less; clients added to a server never halved it
(0.72 at worst), nor made one of them faster (1.02 at most), in 25 public sets."""


def contradictions(rows: Sequence[Observation]) -> tuple[str, ...]:
    """Return a line for each kind of contradiction: a cell, its values, and what may be meant."""
    groups: dict[object, list[Observation]] = {}
    for row in rows:
        if row.output_tps is not None and row.concurrency is not None:
            asked = (c for c in COLUMNS if c not in MEASURED and c != "concurrency")
            stated = row.to_row()
            groups.setdefault(tuple(stated.get(c) for c in asked), []).append(row)
    kinds: dict[str, list[str]] = {}
    for said, meant in (found for row in rows for found in _survivals(row)):
        kinds.setdefault(meant, []).append(said)
    for group in groups.values():
        group.sort(key=lambda row: row.concurrency or 0)
        pairs = [*pairwise(group), *((group[0], row) for row in group[2:])]
        for said, meant in (found for pair in pairs for found in _pair(*pair)):
            kinds.setdefault(meant, []).append(said)
    return tuple(f"{first_of(cells)}{meant}" for meant, cells in kinds.items())


def first_of(cells: Sequence[str]) -> str:
    """Return the first of several things that are said of cells, and how many more there are."""
    return cells[0] + (f" (and {len(cells) - 1} more)" if len(cells) > 1 else "")


def _survivals(row: Observation) -> Iterator[tuple[str, str]]:
    """Accept length is 1 plus the survivals of all depths."""
    length, total = row.accept_length, 1 + sum(row.survival)
    if length is None or not row.survival:
        return
    depths = min(row.setting.num_steps, row.setting.num_draft_tokens - 1)
    if total > SLACK * length or (len(row.survival) == depths and length > SLACK * total):
        said = f"accept_length = {length:g} contradicts its survivals, which give {total:.3g}"
        yield f"{cell_name(row)}: {said}", ": of another run, or without the bonus token?"


def _pair(one: Observation, other: Observation) -> Iterator[tuple[str, str]]:
    """Compare two cells that differ in load at most, the lower load first."""
    clients = (other.concurrency or 1) / (one.concurrency or 1)
    a, b = one.output_tps or 1.0, other.output_tps or 1.0
    said = f"{cell_name(other)}: output_tps = {b:g} beside {a:g} of {cell_name(one)}"
    if clients == 1:
        if max(a, b) > SAME * min(a, b):
            yield said, ", the same cell: one of them is wrong, or of another server"
    elif b < FALL * a:
        yield said, ", fewer for more clients: tokens/s of one client? give those of all"
    elif b > RISE * clients * a:
        yield said, ", more than so many clients can: one of them is wrong"


LIMIT_BYTES = 20_000_000  # a larger file is refused; 20 MB are about 100 000 rows

_REQUIRED = {
    "kind": f"use one of: {', '.join(get_args(LoadKind))}",
    "algorithm": "write none for no speculation",
}
_WRITTEN_NONE = {"topk": (None, 0, 1), "num_steps": (None, 0), "num_draft_tokens": (None, 0, 1)}
_ALWAYS = (*COLUMNS[:6], "concurrency", "output_tps", "accept_length", "source")

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Observations:
    """The rows of one file."""

    rows: tuple[Observation, ...]  # in the order of the file
    notes: tuple[str, ...] = ()  # what was kept but not understood

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Observation]:
        return iter(self.rows)

    def to_frame(self) -> pd.DataFrame:
        """Return a tidy frame: the columns of the format, then the further ones; NaN is empty."""
        import pandas as pd  # here, so that reading a table does not wait for it

        rows = [observation.to_row() for observation in self.rows]
        further = dict.fromkeys(column for row in rows for column in row if column not in COLUMNS)
        return pd.DataFrame(rows, columns=[*COLUMNS, *further])


def read_observations(path: str | Path) -> Observations:
    """Read an observations.csv.

    Blank lines, lines that begin with ``#``, spaces around cells, a byte-order mark and any line
    ends are allowed. Raises :class:`FormatError` if the file is not a comma-separated table with
    the required columns and at least one row; :class:`InputError` or :class:`UnknownNameError` if a
    cell is wrong; the message names file, line, column and value.
    """
    path = Path(path)
    records = _records(path, read_text(path, "an observations.csv", LIMIT_BYTES))
    header = _header(path, next(records, (0, []))[1])
    rows = []
    for line, texts in records:
        where = f"{path}, line {line}"
        if len(texts) != len(header):
            reason = f"has {len(texts)} cells where the header has {len(header)}"
            hint = "write one cell per column; put a cell that holds a comma in double quotes"
            raise FormatError(where, reason, hint)
        rows.append(_observation(dict(zip(header, texts, strict=True)), where, line))
    if not rows:
        raise FormatError(path, "has no row below its header", "add a row per measured cell")
    return Observations(tuple(rows), (*_notes(header), *contradictions(rows)))


def observations_from_rows(
    rows: Iterable[Mapping[str, object]], origin: str = "observations"
) -> Observations:
    """Check rows of values or texts; keys are the columns, None or "" is not stated.

    Raises :class:`InputError` or :class:`UnknownNameError` as :func:`read_observations`; a NaN is
    refused, not taken for an empty cell.

    >>> row = {"kind": "closed_loop", "algorithm": "none", "concurrency": 1, "output_tps": 92.7}
    >>> observations_from_rows([row]).rows[0].setting.key
    (0, 1, 1)
    """
    found = []
    columns: dict[str, None] = {}
    for index, row in enumerate(rows):
        columns |= dict.fromkeys(row)
        found.append(_observation(row, f"{origin}, row {index}", index))
    return Observations(tuple(found), (*_notes(columns), *contradictions(found)))


def write_observations(path: str | Path, rows: Iterable[Observation]) -> None:
    """Write an observations.csv, all or nothing: to a file beside it, which then takes its name.

    Columns that no row states, or all state as their default, are left out, except the central
    ones. Reading the file gives the same rows. Raises :class:`InputError` if the file cannot be
    written.
    """
    cells = [row.to_row() for row in rows]
    stated = {name for row in cells for name, cell in row.items() if (name, cell) != ("weight", 1)}
    columns = [column for column in COLUMNS if column in stated or column in _ALWAYS]
    columns += dict.fromkeys(column for row in cells for column in row if column not in COLUMNS)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(csv_cell, columns))
    texts = ([csv_cell(cell_text(row.get(column))) for column in columns] for row in cells)
    writer.writerows(texts)
    write_text(Path(path), text.getvalue())


def _records(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of the lines that are neither blank nor comments; a line is a row."""
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"{path}, line {number}"
        try:
            (cells,) = csv.reader([line.rstrip("\n") + "\n"], skipinitialspace=True)
        except csv.Error as error:
            raise FormatError(where, str(error), "shorten the cell") from None
        if "\n" in cells[-1]:  # an open quote takes in the line's end
            hint = "close it, and keep every cell on one line"
            raise FormatError(where, "has a double quote that is not closed", hint)
        yield number, [from_csv_cell(cell) for cell in cells]


def _header(path: Path, record: list[str]) -> list[str]:
    if not record:
        raise FormatError(path, "has comments only", "add a header and a row per measured cell")
    header = [name.strip() for name in record]
    for mark, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and mark in header[0]:
            raise FormatError(path, f"is separated by {name}", "save it with commas")
    header = [name or f"column_{index}" for index, name in enumerate(header, 1)]
    for index, name in enumerate(header):
        if name in header[:index]:
            raise FormatError(path, f"has two columns {name!r}", "keep one")
    for name in _REQUIRED:
        if name not in header:
            near = difflib.get_close_matches(name, header, n=1)
            hint = f"rename {near[0]!r}" if near else "add it"
            raise FormatError(
                path, f"has no column {name!r}", f"{hint} in the header, the first line"
            )
    return header


def _notes(columns: Iterable[str]) -> tuple[str, ...]:
    """Say which columns are outside the format, and which column may have been meant."""
    notes = []
    for name in columns:
        if name not in COLUMNS and not PERCENTILE.fullmatch(name):
            near = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.75)
            hint = f" (did you mean {near[0]}?)" if near else ""
            notes.append(f"column {name!r} is not of the format{hint}: kept, not used")
    return tuple(notes)


def _observation(cells: Mapping[str, object], where: str, row: int) -> Observation:
    stated = {n: " ".join(v.split()) if isinstance(v, str) else v for n, v in cells.items()}
    stated = {name: value for name, value in stated.items() if value not in (None, "")}
    for name, hint in _REQUIRED.items():
        if name not in stated:
            raise refusal(where, name, None, "is not stated", hint)
    typed = {c.name: _typed(c, stated[c.name], where) for c in SCHEMA if c.name in stated}
    extra = {
        name: _typed(further_column(name), value, where)
        for name, value in stated.items()
        if name not in COLUMNS
    }
    setting = _setting({name: typed.pop(name, None) for name in SETTING}, where)
    survival = [typed.pop(name, None) for name in SURVIVAL]
    depth = survival.index(None) if None in survival else len(survival)
    for name, value in zip(SURVIVAL[depth:], survival[depth:], strict=True):
        if value is not None:
            raise refusal(where, name, value, "follows a depth that is not stated", "fill the gap")
    typed |= {"setting": setting, "survival": tuple(survival[:depth]), "extra": extra, "row": row}
    return checked(Observation(**typed), where)


def _typed(column: Column, value: object, where: str) -> Any:
    """Return the value of a cell, of the column's type and within its bounds."""
    match column.type:
        case "text":
            return cell_text(value)
        case "name":
            name = str(value).lower()
            if name not in column.known:
                raise UnknownNameError(f"{where}, column {column.name}:", str(value), column.known)
            return name
    number = _number(column, value, where)
    if not math.isfinite(number):
        raise refusal(where, column.name, value, "is not finite")
    if column.type == "number":
        return number
    if not number.is_integer():
        raise refusal(where, column.name, value, "must be a whole number")
    return int(number)


def _number(column: Column, value: object, where: str) -> float:
    """Return the number of a cell; ``16k`` tokens of context are 16384."""
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        return float(value) + 0.0
    text = str(value)
    thousands = column.name == "context_len" and text[-1] in "kK"
    text = text[:-1].rstrip() if thousands else text
    if not _NUMBER.fullmatch(text):
        reason = "is not finite" if _NOT_FINITE.fullmatch(text) else "is not a number"
        raise refusal(where, column.name, value, reason)
    return float(text) * (1024 if thousands else 1) + 0.0


def _setting(parts: Mapping[str, Any], where: str) -> SpecSetting:
    """Return the setting; without a topk it is a chain, whose n follows from its depth."""
    try:
        algorithm = parse_algorithm(parts["algorithm"])
    except UnknownNameError as error:
        kind = f"{where}, column algorithm:"
        raise UnknownNameError(kind, parts["algorithm"], error.known) from None
    scheduler: Scheduler = parts["scheduler"] or "auto"
    if algorithm == "none":
        for column, allowed in _WRITTEN_NONE.items():
            if parts[column] not in allowed:
                hint = "none is written 1, 0, 1"
                raise refusal(where, column, parts[column], "is not none's", hint)
        return SpecSetting.none(scheduler)
    topk, steps, tokens = parts["topk"], parts["num_steps"], parts["num_draft_tokens"]
    if steps is None and not (FAMILY_OF[algorithm] == "block" and tokens):
        raise refusal(where, "num_steps", None, "is not stated", "write the draft depth")
    if tokens is None and topk is not None and topk > 1:
        hint = "a tree needs its size, with root"
        raise refusal(where, "num_draft_tokens", None, "is not stated", hint)
    try:
        return SpecSetting.of(topk, steps, tokens, algorithm, scheduler)
    except InputError as error:
        value = f"{where}: {error.value}"
        raise InputError(value, error.reason, "correct topk, num_steps, num_draft_tokens") from None
