"""setup.toml to Setup and back: the boundary, where whatever is wrong becomes one line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import FormatError, InputError
from specsim.server.complaints import in_file, refusal
from specsim.server.spec import SECTIONS, CurrentSetting, GpuTable, Setup
from specsim.server.textfile import read_text, shown

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SCHEMA = "specsim.setup/1"


def read_setup(path: str | Path) -> Setup:
    """Read a setup.toml.

    Parameters
    ----------
    path
        The file; a relative ``config`` in it counts from its folder.

    Raises
    ------
    FormatError, UnknownNameError
        If the file is not TOML of this schema; the message names file, key and nearest known key.
    InputError
        If the file cannot be opened.
    """
    path = Path(path)
    text = read_text(path, "a setup.toml")
    try:
        mapping = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "nested too deep"
        raise FormatError(path, f"is not TOML: {reason}", "correct that line") from None
    return setup_from_mapping(mapping, path)


def setup_from_mapping(mapping: Mapping[str, Any], origin: str | Path = "setup") -> Setup:
    """Check a mapping of the schema and return it as a Setup.

    Parameters
    ----------
    mapping
        As a TOML or JSON parser returns it. An empty text is the same as a key left out.
    origin
        For messages; where it is a Path, a relative ``config`` counts from its folder.

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
    from pydantic import ValidationError  # here: a profile that ships does not need it

    _check_schema(mapping.get("schema"), origin)
    sections = {
        name: {key: value for key, value in table.items() if not _is_blank(value)}
        if isinstance(table, Mapping)
        else table
        for name, table in mapping.items()
        if name != "schema"
    }
    part = "current"
    try:
        if "current" in sections:
            checked = _current_adapter().validate_python({"current": sections["current"]})
            sections["current"] = checked["current"].setting
        setup = _adapter().validate_python(sections)
        part = "workload"
        _ = setup.workload.workload
    except ValidationError as error:
        raise refusal(origin, error) from None
    except InputError as error:
        raise in_file(f"{origin}: [{part}]", error) from None
    if (setup.model.id is None) == (setup.model.config is None):
        raise FormatError(
            f"{origin}: [model]",
            "must have either id or config",
            "give a library id, or the path of the model's config.json",
        )
    if setup.model.config is not None and isinstance(origin, Path):
        config = origin.parent / Path(setup.model.config).expanduser()
        return replace(setup, model=replace(setup.model, config=str(config)))
    return setup


def setup_from_shipped(mapping: Mapping[str, Any]) -> Setup:
    """Return a mapping that specsim wrote itself as a Setup, unchecked.

    Only for the profiles that ship: a test reads them with :func:`setup_from_mapping` too, which
    costs a third of a second more (pydantic).
    """
    sections: dict[str, Any] = {
        name: section(**mapping[name]) for name, section in SECTIONS.items() if name in mapping
    }
    gpu, allreduce = sections["hardware"].gpu, sections["hardware"].allreduce
    sections["hardware"] = replace(
        sections["hardware"],
        gpu=gpu if isinstance(gpu, str) else GpuTable.of(gpu),
        allreduce=allreduce
        if isinstance(allreduce, str)
        else tuple(sorted((int(size), float(seconds)) for size, seconds in allreduce.items())),
    )
    if "current" in sections:
        sections["current"] = sections["current"].setting
    return Setup(**sections)


def setup_to_mapping(setup: Setup) -> dict[str, Any]:
    """Return the plain mapping that :func:`setup_from_mapping` reads back to the same Setup."""
    mapping: dict[str, Any] = {"schema": SCHEMA}
    for name in SECTIONS:
        section = getattr(setup, name)
        if section is not None:
            values = ((f.name, getattr(section, f.name)) for f in fields(section))
            mapping[name] = {k: _plain(v) for k, v in values if v is not None and v != ""}
    return mapping


def _plain(value: object) -> object:
    """Return the TOML form of a field."""
    if isinstance(value, GpuTable):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return {str(size): seconds for size, seconds in value}
    return value


def _is_blank(value: object) -> bool:
    return isinstance(value, str) and not value.strip()


@cache
def _adapter() -> TypeAdapter[Setup]:
    from pydantic import TypeAdapter

    return TypeAdapter(Setup)


@cache
def _current_adapter() -> TypeAdapter[dict[str, CurrentSetting]]:
    from pydantic import TypeAdapter

    return TypeAdapter(dict[str, CurrentSetting])


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
