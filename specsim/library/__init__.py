"""The tables that ship (GPUs, links, models, drafts), and the checked reading of such tables.

A TOML file of one's own with the keys of one such table stands wherever an id does. A number in a
table is either bare, or says what it rests on::

    mem_bandwidth = { value = 1.792e12, evidence = "published", source = "data sheet" }
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal, TypeVar

from specsim.errors import FormatError, InputError, UnknownNameError
from specsim.textfile import read_toml
from specsim.uncertainty import ORDER, Evidence

Text = TypeVar("Text", bound=str)
Table = Mapping[str, object]
LibraryName = Literal["gpus", "links", "models", "drafts"]


@dataclass(frozen=True, slots=True)
class Sourced:
    """What the number in the field `name` rests on, and where it is from."""

    name: str
    evidence: Evidence
    source: str


@functools.cache
def read_library(name: LibraryName) -> dict[str, Table]:
    """Return the tables of one library file by id; read once per process.

    >>> read_library("gpus")["rtx-pro-6000"]["name"]
    'RTX PRO 6000 Blackwell Server Edition'
    """
    text = resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return {key: as_table(key, value) for key, value in tomllib.loads(text).items()}


def is_file(name: str) -> bool:
    """Whether a name is the path of a TOML file rather than an id of the library.

    >>> is_file("my-gpu.toml"), is_file("h100-sxm")
    (True, False)
    """
    return name.strip().lower().endswith(".toml")


def look_up(library: LibraryName, name: str, remedy: str) -> tuple[str, Table]:
    """Return the id and the table that `name` means.

    Parameters
    ----------
    library
        Where to look.
    name
        An id in any case, a Hugging Face name among an entry's `aliases` (whoever uploaded it), or
        the path of a TOML file with the keys of one entry.
    remedy
        The way to bring one's own.

    Raises
    ------
    UnknownNameError
        Names the nearest id, and all ids.
    FormatError, InputError
        If the file cannot be read.
    """
    kind = library.removesuffix("s")
    if is_file(name):
        path = Path(name.strip()).expanduser()
        return path.stem, read_toml(path, f"a {kind}'s TOML table")
    tables = read_library(library)
    wanted = name.strip().lower().rsplit("/", 1)[-1]
    for id, table in tables.items():
        if wanted == id or wanted in _aliases(table):
            return id, table
    listed = ", ".join(sorted(tables))
    raise UnknownNameError(kind, wanted, tables, f"use one of: {listed}; or {remedy}")


def _aliases(table: Table) -> list[str]:
    names = table.get("aliases", [])
    return [str(n).lower().rsplit("/", 1)[-1] for n in names] if isinstance(names, list) else []


def as_table(where: str, value: object) -> Table:
    """Return `value` if it is a table."""
    if not isinstance(value, Mapping):
        raise FormatError(where, f"is {value!r}, not a table", "write it as a TOML table")
    return value


def check_keys(where: str, table: Table, known: Iterable[str], required: Iterable[str]) -> None:
    """Refuse keys that nothing reads (naming the nearest known one) and missing required ones."""
    known = tuple(known)
    for key in table:
        if key not in known:
            raise UnknownNameError(f"{where}: key", str(key), known)
    for key in required:
        if key not in table:
            raise FormatError(where, f"has no {key!r}", f"add {key} = ...")


def positive(where: str, key: str, value: object, least: float = 0.0, hint: str = "") -> float:
    """Return `value` as a float if it is a finite number above `least`.

    `hint` becomes the remedy: the usual slip is a number in GB or TFLOP/s.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: {key} = {value!r}", "is not a number", "write a number")
    if not math.isfinite(value) or value <= least:
        bound = "positive" if least == 0 else f"above {least:g}"
        raise InputError(
            f"{where}: {key} = {value!r}", f"must be finite and {bound}", hint or "correct it"
        )
    return float(value)


def whole(where: str, key: str, value: object) -> int:
    """Return a field that must be a whole number of at least zero."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(
            f"{where}: {key} = {value!r}", "is not a whole number >= 0", "correct the field"
        )
    return value


def flag(where: str, table: Table, key: str) -> bool:
    """Return a field that must be true or false; false where it is left out."""
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise InputError(f"{where}: {key} = {value!r}", "is not true or false", "write true")
    return value


def text(where: str, table: Table, key: str, default: str) -> str:
    """Return a string field."""
    value = table.get(key, default)
    if not isinstance(value, str):
        raise InputError(f"{where}: {key} = {value!r}", "is not text", "put it in quotes")
    return value


def one_of(where: str, value: object, known: tuple[Text, ...]) -> Text:
    """Return `value` as one of the known texts."""
    for one in known:
        if one == value:
            return one
    raise UnknownNameError(where, str(value), known)


def as_evidence(where: str, table: Table) -> Evidence:
    """Return the table's `evidence`, ``assumed`` if it says none."""
    return one_of(f"{where}: evidence", table.get("evidence", "assumed"), ORDER)


def quantity(where: str, key: str, raw: object, default_source: str) -> tuple[object, Sourced]:
    """Split a bare value, or a ``{value, evidence, source}`` table, into value and origin.

    A bare value is assumed: somebody wrote it down without saying why.
    """
    if not isinstance(raw, Mapping):
        return raw, Sourced(key, "assumed", default_source)
    place = f"{where}: {key}"
    check_keys(place, raw, ("value", "evidence", "source"), ("value",))
    source = raw.get("source", default_source)
    return raw["value"], Sourced(key, as_evidence(place, raw), str(source))
