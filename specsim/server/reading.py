"""setup.toml to Setup and back: the boundary, where whatever is wrong becomes one line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from specsim.engine import ENGINES
from specsim.errors import FormatError, InputError, SpecsimError, UnknownNameError
from specsim.hardware import Gpu, gpu_from_table, load_gpu
from specsim.library import is_file
from specsim.server.spec import REQUIRED, SECTIONS, CurrentSetting, Setup, WorkloadSpec
from specsim.textfile import read_toml, shown

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

SCHEMA = "specsim.setup/1"

PATHS = {"hardware": ("gpu", "link"), "model": ("id", "config"), "draft": ("id",)}
"""Keys that may hold the path of a file, which counts from the setup's folder."""


def read_setup(path: str | Path) -> Setup:
    """Read a setup.toml; a relative path in it counts from its folder.

    Raises
    ------
    FormatError, UnknownNameError
        If the file is not TOML of this schema; the message names file, key and nearest known key.
    InputError
        If the file cannot be opened.
    """
    return setup_from_mapping(read_toml(path, "a setup.toml"), Path(path))


def setup_from_mapping(mapping: Mapping[str, Any], origin: str | Path = "setup") -> Setup:
    """Check a mapping of the schema and return it as a Setup.

    Parameters
    ----------
    mapping
        As a TOML or JSON parser returns it. An empty text is the same as a key left out.
    origin
        For messages; where it is a Path, a relative path in the mapping counts from its folder.

    Raises
    ------
    FormatError, UnknownNameError
        As :func:`read_setup`.

    Examples
    --------
    >>> setup_from_mapping({
    ...     "schema": "specsim.setup/1",
    ...     "hardware": {"gpu": "h100-sxm"},
    ...     "model": {"id": "llama-3.1-8b"},
    ...     "engine": {"name": "sglang", "version": "0.5.9"},
    ... }).hardware.gpu
    'h100-sxm'
    """
    _check_schema(mapping.get("schema"), origin)
    for name in mapping:
        if name != "schema" and name not in SECTIONS:
            raise _unknown_key(origin, str(name), None)
    for name in REQUIRED:
        if name not in mapping:
            raise FormatError(f"{origin}: [{name}]", "is missing", f"add a section [{name}]")
    sections = {name: _section(name, mapping[name], origin) for name in SECTIONS if name in mapping}
    engine = sections["engine"].name
    if engine not in ENGINES:
        raise UnknownNameError(f"{origin}: [engine] name", engine, ENGINES)
    try:
        return Setup(**sections)
    except InputError as error:
        raise _in_file(str(origin), error) from None


def setup_from_shipped(mapping: Mapping[str, Any]) -> Setup:
    """Return a mapping that specsim wrote itself as a Setup, its types unchecked.

    Only for the profiles that ship: a test reads them with :func:`setup_from_mapping` too, which
    costs a third of a second more (pydantic).
    """
    sections = {name: mapping[name] for name in SECTIONS if name in mapping}
    return Setup(**{name: _made(name, _read(table)) for name, table in sections.items()})


def setup_to_mapping(setup: Setup) -> dict[str, Any]:
    """Return the plain mapping that :func:`setup_from_mapping` reads back to the same Setup."""
    mapping: dict[str, Any] = {"schema": SCHEMA}
    for name in SECTIONS:
        section = WorkloadSpec.of(setup.workload) if name == "workload" else getattr(setup, name)
        if section is not None:
            values = ((f.name, getattr(section, f.name)) for f in fields(section))
            mapping[name] = {k: _plain(v) for k, v in values if v is not None and v != ""}
    return mapping


def _plain(value: object) -> object:
    """Return the TOML form of a field."""
    if isinstance(value, Gpu):
        return value.table()
    if isinstance(value, tuple):
        return {str(size): seconds for size, seconds in value}
    return value


def _section(name: str, raw: object, origin: str | Path) -> Any:
    """Check one section of the file and return what it says."""
    from pydantic import ValidationError  # here: a profile that ships does not need it

    where = f"{origin}: [{name}]"
    if not isinstance(raw, Mapping):
        raise FormatError(where, "must be a table", f"write [{name}] and its keys below")
    table = {key: value for key, value in raw.items() if not _is_blank(value)}
    if isinstance(origin, Path):
        for key in PATHS.get(name, ()):
            given = table.get(key)
            if isinstance(given, str) and (key == "config" or is_file(given)):
                table[key] = str(origin.parent / Path(given).expanduser())
    try:
        checked = _schema(name).model_validate(_read(table))
        return _made(name, {key: getattr(checked, key) for key in checked.model_fields_set})
    except ValidationError as error:
        raise _complaint(origin, name, error) from None
    except InputError as error:
        raise _in_file(where, error) from None


def _read(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a section with those that the file writes otherwise turned round."""
    return {key: READ[key](value) if key in READ else value for key, value in table.items()}


def _made(name: str, values: dict[str, Any]) -> Any:
    """Return what a section stands for: mostly its dataclass."""
    section = SECTIONS[name](**values)
    if isinstance(section, CurrentSetting):
        return section.setting
    return section.workload if isinstance(section, WorkloadSpec) else section


def _gpu(value: object) -> object:
    """Return a GPU of the user's own, in a table or a file; an id as it stands."""
    if isinstance(value, Mapping):
        return gpu_from_table(value)
    if isinstance(value, str):
        return load_gpu(value) if is_file(value) else value
    if isinstance(value, Gpu):
        return value
    given = f"gpu = {shown(value)}"
    raise InputError(given, "is neither a library id nor a table", "put the id in quotes")


def _allreduce(value: object) -> object:
    """Turn a table of bytes -> seconds into pairs in order of bytes."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping) or not value:
        raise InputError(
            f"allreduce = {shown(value)}",
            "is neither a name nor a table of bytes and seconds",
            'write e.g. "fused" or {"65536" = 42e-6}',
        )
    for size, seconds in value.items():
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not (re.fullmatch(r"[1-9][0-9]{0,14}", str(size)) and number and 0 < seconds < math.inf):
            raise InputError(
                f"allreduce: {shown(size)} = {shown(seconds)}",
                "must be a whole number of bytes and a positive number of seconds",
                'write e.g. "65536" = 42e-6',
            )
    return tuple(sorted((int(size), float(seconds)) for size, seconds in value.items()))


def _iso(value: object) -> object:
    """Write a TOML date as text."""
    return value.isoformat() if isinstance(value, date) else value


READ = {"gpu": _gpu, "allreduce": _allreduce, "date": _iso}
"""What the value of a key is turned into before its type is checked."""


def _is_blank(value: object) -> bool:
    return isinstance(value, str) and not value.strip()


@cache
def _schema(name: str) -> type[BaseModel]:
    """Return the types of a section as pydantic checks them: strictly, and no other keys."""
    from pydantic import ConfigDict, create_model

    section = SECTIONS[name]
    hints = get_type_hints(section)
    keys: dict[str, Any] = {
        f.name: (hints[f.name], ... if f.default is MISSING else None) for f in fields(section)
    }
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return create_model(section.__name__, __config__=config, **keys)


def _complaint(origin: str | Path, section: str, error: ValidationError) -> InputError:
    """Return the first complaint of pydantic as one line; unknown keys go first.

    An unknown key is often the misspelt one that another complaint misses.
    """
    details = error.errors(include_url=False)
    first = min(details, key=lambda detail: detail["type"] != "extra_forbidden")
    key, given = str(first["loc"][0]), first["input"]
    where = f"{origin}: [{section}] {key}"
    match first["type"]:
        case "extra_forbidden":
            return _unknown_key(origin, section, key)
        case "missing":
            return FormatError(where, "is missing", f"add {key} to [{section}]")
        case "literal_error" if isinstance(given, str):
            known = re.findall(r"'([^']*)'", first["ctx"]["expected"])
            return UnknownNameError(where, given, known)
    reason = first["msg"].replace("Input should be", "must be")
    quotes = first["type"] == "string_type"
    remedy = "put it in quotes" if quotes else "leave it out for the default"
    return FormatError(f"{where} = {shown(given)}", reason, remedy)


def _in_file(where: str, error: SpecsimError) -> InputError:
    """Return the same complaint with the file and the key in front."""
    if isinstance(error, UnknownNameError):
        return UnknownNameError(f"{where}: {error.kind}", error.name, error.known)
    return FormatError(f"{where}: {error.value}", error.reason, error.remedy)


def _unknown_key(origin: str | Path, section: str, key: str | None) -> UnknownNameError:
    """Return the error of a key that its section, or a section that the file, does not have."""
    known = {name: [f.name for f in fields(cls)] for name, cls in SECTIONS.items()}
    name = section if key is None else key
    homes = [other for other, keys in known.items() if name in keys]
    remedy = f"it belongs in [{homes[0]}]" if homes else None
    if key is None:
        return UnknownNameError(f"{origin}: section", section, known, remedy)
    return UnknownNameError(f"{origin}: key of [{section}]", key, known[section], remedy)


def _check_schema(schema: object, origin: str | Path) -> None:
    """Refuse another schema, and a later number of this one with its own remedy."""
    if schema == SCHEMA:
        return
    remedy = f'write schema = "{SCHEMA}"'
    if schema is None:
        raise FormatError(f"{origin}: schema", "is missing", remedy)
    name, number = SCHEMA.split("/")
    match = re.fullmatch(rf"{re.escape(name)}/([0-9]{{1,9}})", str(schema))
    if match and int(match[1]) > int(number):
        raise FormatError(
            f"{origin}: schema {schema}", "was written by a newer specsim", "upgrade specsim"
        )
    raise FormatError(f"{origin}: schema {shown(schema)}", "is not that of a setup", remedy)
