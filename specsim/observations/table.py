"""observations.csv: read, written, and as a frame."""

from __future__ import annotations

import contextlib
import csv
import difflib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.errors import FormatError, InputError
from specsim.observations.cells import COLUMNS, PERCENTILE, Cells
from specsim.observations.observation import Observation, observation_from_cells

if TYPE_CHECKING:
    import pandas as pd

LIMIT_BYTES = 20_000_000
"""A larger file is refused; 20 MB are about 100 000 rows."""

REQUIRED = ("kind", "algorithm")
_DEFAULTS = {"weight": 1.0}
_ALWAYS = (*COLUMNS[:6], "concurrency", "output_tps", "accept_length", "source")


@dataclass(frozen=True, slots=True)
class Observations:
    """The rows of one file.

    Parameters
    ----------
    rows
        In the order of the file.
    notes
        What was kept but not understood.
    path
        The file, None if there is none.
    """

    rows: tuple[Observation, ...]
    notes: tuple[str, ...] = ()
    path: Path | None = None

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
    ends are allowed.

    Raises
    ------
    FormatError
        If the file is not a comma-separated table with the required columns and at least one row.
    InputError, UnknownNameError
        If a cell is wrong; the message names file, line, column and value.
    """
    from specsim.textfile import read_text  # here: it brings pydantic, which a table does not need

    path = Path(path)
    records = _records(path, read_text(path, "an observations.csv", LIMIT_BYTES))
    header = _header(path, next(records, (0, []))[1])
    rows = []
    for line, texts in records:
        if len(texts) != len(header):
            raise FormatError(
                f"{path}, line {line}",
                f"has {len(texts)} cells where the header has {len(header)}",
                "write one cell per column; put a cell that holds a comma in double quotes",
            )
        where = f"{path}, line {line}"
        stated = {column: _collapsed(text) for column, text in zip(header, texts, strict=True)}
        rows.append(observation_from_cells(Cells(where, stated), line))
    if not rows:
        raise FormatError(path, "has no row below its header", "add a row per measured cell")
    return Observations(tuple(rows), _notes(header), path)


def observations_from_rows(
    rows: Iterable[Mapping[str, object]], origin: str = "observations"
) -> Observations:
    """Check rows that a program made; keys are the columns, None or "" is not stated.

    Raises
    ------
    InputError, UnknownNameError
        As :func:`read_observations`; a NaN is refused, not taken for an empty cell.

    Examples
    --------
    >>> row = {"kind": "closed_loop", "algorithm": "none", "concurrency": 1, "output_tps": 92.7}
    >>> observations_from_rows([row]).rows[0].setting.key
    (0, 1, 1)
    """
    checked = []
    columns: dict[str, None] = {}
    for index, row in enumerate(rows):
        texts = {key: "" if cell is None else _collapsed(str(cell)) for key, cell in row.items()}
        columns |= dict.fromkeys(texts)
        checked.append(observation_from_cells(Cells(f"{origin}, row {index}", texts), index))
    return Observations(tuple(checked), _notes(columns))


def write_observations(path: str | Path, rows: Iterable[Observation]) -> None:
    """Write an observations.csv, all or nothing: to a file beside it, which then takes its name.

    Columns that no row states, or all state as their default, are left out, except the central
    ones. Reading the file gives the same rows.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    path = Path(path)
    cells = [row.to_row() for row in rows]
    stated = {
        column for row in cells for column, cell in row.items() if cell != _DEFAULTS.get(column)
    }
    columns = [column for column in COLUMNS if column in stated or column in _ALWAYS]
    columns += dict.fromkeys(column for row in cells for column in row if column not in COLUMNS)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row.get(column, "")) for column in columns] for row in cells)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(text.getvalue(), encoding="utf-8", newline="\n")
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise InputError(
            path, f"cannot be written ({error.strerror})", "give a file in an existing folder"
        ) from None


def _records(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of the lines that are neither blank nor comments; a line is a row."""
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            (cells,) = csv.reader([line.rstrip("\n") + "\n"], skipinitialspace=True)
        except csv.Error as error:
            raise FormatError(f"{path}, line {number}", str(error), "shorten the cell") from None
        if "\n" in cells[-1]:  # an open quote takes in the line's end
            raise FormatError(
                f"{path}, line {number}",
                "has a double quote that is not closed",
                "close it, and keep every cell on one line",
            )
        yield number, cells


def _header(path: Path, record: list[str]) -> list[str]:
    """Check the names of the columns."""
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
    for name in REQUIRED:
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


def _collapsed(text: str) -> str:
    """Return the text on one line, without spaces around it."""
    return " ".join(text.split())


def _cell(value: float | int | str) -> str:
    """Return the shortest text that reads back as the value."""
    if isinstance(value, str):
        return _collapsed(value)
    number = float(value)
    return str(int(number)) if number.is_integer() else repr(number)
