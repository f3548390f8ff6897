"""Pydantic's complaints about a setup, as the errors of specsim: file, key, value, remedy."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.errors import FormatError, InputError, SpecsimError, UnknownNameError
from specsim.server.spec import SECTIONS
from specsim.server.textfile import shown

if TYPE_CHECKING:
    from pydantic import ValidationError


def in_file(where: str, error: SpecsimError) -> InputError:
    """Return the same complaint with the file and the key in front."""
    if isinstance(error, UnknownNameError):
        return UnknownNameError(f"{where}: {error.kind}", error.name, error.known)
    return FormatError(f"{where}: {error.value}", error.reason, error.remedy)


def refusal(origin: str | Path, error: ValidationError) -> InputError:
    """Return the first complaint of pydantic as one line; unknown keys go first.

    An unknown key is often the misspelt one that another complaint misses.
    """
    details = error.errors(include_url=False)
    first = min(details, key=lambda detail: detail["type"] != "unexpected_keyword_argument")
    section, *rest = (str(part) for part in first["loc"])
    given, context = first["input"], first.get("ctx", {})
    where = f"{origin}: [{section}]" + (f" {rest[0]}" if rest else "")
    match first["type"]:
        case "unexpected_keyword_argument":
            return _unknown_key(origin, section, rest[0] if rest else None)
        case "missing" if rest:
            return FormatError(where, "is missing", f"add {rest[0]} to [{section}]")
        case "missing":
            return FormatError(where, "is missing", f"add a section [{section}]")
        case "dataclass_type":
            return FormatError(where, "must be a table", f"write [{section}] and its keys below")
        case "literal_error" if isinstance(given, str):
            return UnknownNameError(where, given, re.findall(r"'([^']*)'", context["expected"]))
        case "value_error" if isinstance(context["error"], SpecsimError):
            return in_file(where, context["error"])
    reason = first["msg"].replace("Input should be", "must be")
    remedy = "leave it out for the default"
    if section == "engine" and rest[0] == "mem_fraction_static":
        remedy = "write a fraction: 0.88, not 88"
    elif first["type"] == "string_type":
        remedy = "put it in quotes"
    return FormatError(f"{where} = {shown(given)}", reason, remedy)


def _unknown_key(origin: str | Path, section: str, key: str | None) -> UnknownNameError:
    """Return the error of a key that its section, or a section that the file, does not have."""
    known = {name: [f.name for f in fields(cls)] for name, cls in SECTIONS.items()}
    name = section if key is None else key
    homes = [other for other, keys in known.items() if name in keys]
    remedy = f"it belongs in [{homes[0]}]" if homes else None
    if key is None:
        return UnknownNameError(f"{origin}: section", section, known, remedy)
    return UnknownNameError(f"{origin}: key of [{section}]", key, known[section], remedy)
