"""The tables that ship (GPUs, links, models, drafts), and the checked reading of such tables.

A number in a table is either bare, or says what it rests on::

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
from typing import Literal

from specsim.errors import FormatError, InputError, UnknownNameError
from specsim.evidence import ORDER, Evidence

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


def read_table(path: str | Path) -> Table:
    """Read a user's TOML file.

    Raises
    ------
    InputError
        If the file cannot be read.
    FormatError
        If it is not TOML.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            path, f"cannot be read ({error.strerror})", "check the path of the file"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(path, f"is not TOML ({error})", "correct the file") from error


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


def find(kind: str, name: str, known: Iterable[str], remedy: str) -> str:
    """Return the id in `known` that `name` means, whatever its case.

    Raises
    ------
    UnknownNameError
        Names the nearest id, all ids, and the way to bring one's own (`remedy`).
    """
    known = tuple(known)
    wanted = name.strip().lower()
    if wanted in known:
        return wanted
    listed = ", ".join(sorted(known))
    raise UnknownNameError(kind, wanted, known, f"use one of: {listed}; or {remedy}")


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


def as_evidence(where: str, table: Table) -> Evidence:
    """Return the table's `evidence`, ``assumed`` if it says none."""
    said = table.get("evidence", "assumed")
    for evidence in ORDER:
        if evidence == said:
            return evidence
    raise UnknownNameError(f"{where}: evidence", str(said), ORDER)


def text(where: str, table: Table, key: str, default: str) -> str:
    """Return a string field."""
    value = table.get(key, default)
    if not isinstance(value, str):
        raise InputError(f"{where}: {key} = {value!r}", "is not text", "put it in quotes")
    return value
