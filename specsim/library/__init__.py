"""The tables that ship (GPUs, links, models, drafts), and the checked reading of such tables.

A TOML file of one's own with the keys of one such table stands wherever an id does. A number in a
table is either bare, or says what it rests on::

    mem_bandwidth = { value = 1.792e12, evidence = "published", source = "data sheet" }
"""

import difflib
import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from specsim.errors import FormatError, InputError, UnknownNameError
from specsim.textfile import name_of, read_toml, shown
from specsim.uncertainty import ORDER, Evidence

Table = Mapping[str, object]
LibraryName = Literal[
    "gpus", "links", "models", "drafts", "families", "acceptance", "quantisations"
]
Kind = type | tuple[str, ...]  # what a key may hold: a value of a type, or one of so many texts

_MISFITS = {
    str: ("is not text", "put it in quotes"),
    bool: ("is not true or false", "write true"),
    int: ("is not an integer", "write a whole number"),
    float: ("is not a number", "write a number"),
    list: ("is not a list", "write it in brackets"),
    dict: ("is not a table", "write it as a TOML table"),
}
_BOUND = 1e300
_SOURCED: dict[str, Kind] = {"value": float, "evidence": ORDER, "source": str}


@dataclass(frozen=True, slots=True)
class Sourced:
    """What the number in the field `name` rests on, and where it is from."""

    name: str
    evidence: Evidence
    source: str


@functools.cache
def read_library(name: LibraryName) -> dict[str, Table]:
    """Return the tables of one library file by id; read once per process."""
    return {id: _entry(name, id) for id in _texts(name)}


@functools.cache
def _texts(name: LibraryName) -> dict[str, str]:
    """Return the text of each table of a file, its own tables with it."""
    text = Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8")
    parts: dict[str, str] = {}
    for part in re.split(r"^(?=\[)", text, flags=re.MULTILINE)[1:]:
        quoted, bare = re.findall(r'\[+(?:"([^"]+)"|([\w-]+))', part)[0]
        parts[quoted or bare] = parts.get(quoted or bare, "") + part
    return parts


@functools.cache
def _entry(name: LibraryName, id: str) -> Table:
    """Return one table, parsed alone: a question is about one GPU of a hundred."""
    table: Table = tomllib.loads(_texts(name)[id])[id]
    return table


def is_file(name: str) -> bool:
    """Whether a name is the path of a TOML file rather than an id of the library.

    >>> is_file("my-gpu.toml"), is_file("h100-sxm")
    (True, False)
    """
    return name_of(name).lower().endswith(".toml")


def look_up(library: LibraryName, name: str, remedy: str) -> tuple[str, Table]:
    """Return the id and the table that `name` means.

    Parameters
    ----------
    library
        Where to look.
    name
        An id, a name or an alias of an entry as people write them: in any case, order and
        punctuation, whoever uploaded it; or the path of a TOML file with the keys of one entry.
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
        path = name if "\n" in name else Path(name.strip()).expanduser()
        return Path(name_of(path)).stem, read_toml(path, f"a {kind}'s TOML table")
    tables = _texts(library)
    wanted = name.strip().lower().rsplit("/", 1)[-1]
    id = named(library, wanted)
    if id is not None:
        return id, _entry(library, id)
    near = difflib.get_close_matches(wanted, tables, n=8, cutoff=0.0)
    listed = ", ".join(sorted(tables if len(tables) < 40 else near))
    raise UnknownNameError(kind, wanted, tables, f"use one of: {listed}; or {remedy}")


def named(library: LibraryName, name: str) -> str | None:
    """Return the id that `name` means, however it is written; None if that is not sure.

    >>> named("gpus", "NVIDIA H100 80GB HBM3"), named("gpus", "h101")
    ('h100-sxm', None)
    """
    return name if name in _texts(library) else _spellings(library).get(_spelling(name))


_NOISE = {
    *("nvidia", "amd", "geforce", "instinct", "tesla", "quadro", "radeon", "intel", "arc", "apple"),
    *("oam", "huawei", "gpu", "graphics", "instruct", "it", "chat", "base", "hf"),
}


def _spelling(name: str) -> str:
    """Return the words of a name in one order, then its numbers: the same however it is written.

    >>> _spelling("NVIDIA RTX6000 Pro") == _spelling("rtx-pro-6000")
    True
    """
    own = re.sub(r"^[\w.-]+/(?=[\w.-]+$)", "", name.lower().strip())  # without who uploaded it
    parts = re.findall(r"[a-z]+|[0-9]+", own)
    kept = [part for part in parts if part not in _NOISE]
    return " ".join(sorted(kept, key=lambda part: (part.isdigit(), "" if part.isdigit() else part)))


@functools.cache
def _spellings(library: LibraryName) -> dict[str, str]:
    """Return the id for every spelling of an id, name or alias."""
    found: dict[str, str] = {}
    for id, table in read_library(library).items():
        aliases = table.get("aliases")
        names = [id, str(table.get("name") or id), *(aliases if isinstance(aliases, list) else [])]
        found |= {_spelling(str(name)): id for name in names}
    return found


def repository(library: LibraryName, id: str) -> str | None:
    """Return the Hugging Face name of an entry itself, not of what is only shaped like it."""
    names = _entry(library, id).get("aliases") if id in _texts(library) else None
    full = [str(name) for name in names if "/" in str(name)] if isinstance(names, list) else []
    own = [name for name in full if _letters(id) in _letters(name.rsplit("/", 1)[-1])]
    return min(own, key=len, default=None)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@functools.cache
def kinds_of(of: Any) -> dict[str, Any]:
    """Return what may stand under the name of each field or argument, by its annotation.

    Of ``X | None`` it is X, as None is a key left out; of several types, the first.
    """
    return {key: _kind(hint) for key, hint in get_type_hints(of).items() if key != "return"}


def _kind(hint: Any) -> Any:
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) is tuple:
        return list
    return _kind(get_args(hint)[0]) if get_args(hint) else hint


def read_table(
    where: str, table: Table, keys: Mapping[str, Kind], required: Iterable[str]
) -> dict[str, Any]:
    """Return the values of a table after a check of its keys and types.

    Parameters
    ----------
    where
        What the table describes, for messages.
    table
        As a TOML parser returns it.
    keys
        What may stand under each: text, true or false, a whole number (int), a finite number
        (float), a list, a table (dict), or one of so many texts.
    required
        Keys that must be there; others are left out of the result where they are not.

    Raises
    ------
    UnknownNameError
        If a key, or a text among several, is not known.
    FormatError, InputError
        If a required key is missing; if a value is not of its kind.

    Examples
    --------
    >>> read_table("gpu x", {"mem_bytes": 1}, {"mem_bytes": float, "is_cpu": bool}, ())
    {'mem_bytes': 1.0}
    """
    for key in table:
        if key not in keys:
            raise UnknownNameError(f"{where}: key", str(key), keys)
    for key in required:
        if key not in table:
            raise FormatError(where, f"has no {key!r}", f"add {key} = ...")
    return {
        key: checked(f"{where}: {key}", table[key], kind)
        for key, kind in keys.items()
        if key in table
    }


def checked(name: str, value: Any, kind: Kind) -> Any:
    """Return the value called `name` if it is of its kind (:func:`read_table`)."""
    if isinstance(kind, tuple):
        if value not in kind:
            raise UnknownNameError(name, str(value), kind)
        return value
    fits = isinstance(value, int | float if kind is float else kind)
    if not fits or isinstance(value, bool) != (kind is bool):
        raise InputError(f"{name} = {shown(value)}", *_MISFITS[kind])
    if kind is float and not abs(value) < _BOUND:
        raise InputError(f"{name} = {shown(value)}", "must be finite", "correct it")
    return float(value) if kind is float else value


def positive(name: str, value: object, least: float = 0.0, hint: str = "") -> float:
    """Return `value` as a float if it is a finite number above `least`.

    Parameters
    ----------
    name
        What the number is called in messages.
    value
        What was given.
    least
        A bound below it.
    hint
        The remedy, where a slip is usual: a number in GB or TFLOP/s.

    Raises
    ------
    InputError
        If it is none, not finite, or too small.
    """
    number: float = checked(name, value, float)
    if number <= least:
        bound = "positive" if least == 0 else f"above {least:g}"
        raise InputError(f"{name} = {value!r}", f"must be finite and {bound}", hint or "correct it")
    return number


def at_least(least: float, **values: float | None) -> None:
    """Refuse values of setup.toml below `least`; one that is left out (None) passes."""
    for name, value in values.items():
        if value is not None and not least <= value <= 2**53:
            reason = f"must be at least {least}" if value < least else "is more than any server has"
            raise InputError(f"{name} = {shown(value)}", reason, "leave it out for the default")


def split_sources(
    where: str, table: Table, keys: Iterable[str], source: str
) -> tuple[dict[str, object], tuple[Sourced, ...]]:
    """Return a table with bare values, and the origins of the values under `keys`.

    Parameters
    ----------
    where
        What the table describes, for messages.
    table
        Numbers, bare or as ``{value, evidence, source}``.
    keys
        Those that may be so.
    source
        Where a bare number is from, which is assumed: somebody wrote it down without saying why.
    """
    bare, origins = dict(table), []
    for key in keys:
        about: dict[str, Any] = {}
        raw = table.get(key)
        if isinstance(raw, Mapping):
            about = read_table(f"{where}: {key}", raw, _SOURCED, ("value",))
            bare[key] = about["value"]
        if key in table:
            evidence = about.get("evidence", "assumed")
            origins.append(Sourced(key, evidence, about.get("source", source)))
    return bare, tuple(origins)
