"""profile.toml: a profile as a file, schema ``specsim.profile/1``."""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields
from importlib import resources
from pathlib import Path
from typing import Any

from specsim.acceptance import Acceptance
from specsim.errors import FormatError, InputError, SpecsimError, UnknownNameError
from specsim.profile.profile import FitRecord, Profile
from specsim.server import setup_from_mapping, setup_from_shipped, setup_to_mapping
from specsim.textfile import read_text
from specsim.uncertainty import Parameter

SCHEMA = "specsim.profile/1"
DEFAULT_PROFILE = "kimi-k2.5-int4-8x-rtx-pro-6000"
SECTIONS = ("schema", "name", "setup", "parameters", "correlation", "acceptance", "fit")
DIGITS = 8


def profile_names() -> tuple[str, ...]:
    """Names of the profiles that ship."""
    folder = resources.files("specsim") / "profiles"
    return tuple(sorted(p.name[:-5] for p in folder.iterdir() if p.name.endswith(".toml")))


def load_profile(profile: str | Path | None = None) -> Profile:
    """Load a shipped profile by name, or a profile.toml by path; the default one for None.

    Raises
    ------
    UnknownNameError
        If it is neither a file nor a shipped name.
    FormatError
        If the file is not a profile, or is of a newer schema.

    Examples
    --------
    >>> load_profile().name
    'kimi-k2.5-int4-8x-rtx-pro-6000'
    """
    name = DEFAULT_PROFILE if profile is None else os.fspath(profile)
    path = Path(name)
    if name in profile_names():
        shipped = resources.files("specsim") / "profiles" / f"{name}.toml"
        return profile_from_toml(shipped.read_text(encoding="utf-8"), name, shipped=True)
    if path.suffix != ".toml" and not path.exists():
        raise UnknownNameError(
            "profile", name, profile_names(), f"use one of {', '.join(profile_names())}, or a file"
        )
    return profile_from_toml(read_text(path, "a profile.toml"), name)


def profile_from_toml(text: str, origin: str, *, shipped: bool = False) -> Profile:
    """Parse a profile; the setup of one that ships is taken as it stands.

    Raises
    ------
    FormatError
        If the text is not a profile of this schema; names the field.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(origin, f"is not TOML ({error})", "fit the profile again") from error
    _check_schema(document, origin)
    try:
        return Profile(
            str(document["name"]),
            setup_from_shipped(document["setup"])
            if shipped
            else setup_from_mapping(document["setup"], origin),
            tuple(_parameter(row, origin) for row in document["parameters"]),
            _correlation(document["correlation"]),
            tuple(_acceptance(row, origin) for row in document["acceptance"]),
            _record(FitRecord, document["fit"], origin),
        )
    except SpecsimError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            origin, f"is no complete profile ({error!r})", "fit it again with specsim calibrate"
        ) from error


def _check_schema(document: Mapping[str, Any], origin: str) -> None:
    schema = str(document.get("schema", ""))
    if schema != SCHEMA:
        newer = schema.startswith("specsim.profile/") and schema > SCHEMA
        reason = f"has schema {schema!r}, this specsim reads {SCHEMA!r}"
        remedy = (
            "it was written by a newer specsim: upgrade specsim"
            if newer
            else "make a profile with specsim calibrate"
        )
        raise FormatError(origin, reason, remedy)
    for key in document:
        if key not in SECTIONS:
            raise UnknownNameError(f"{origin}: section", key, SECTIONS)


def _record(kind: type, row: Mapping[str, Any], origin: str) -> Any:
    """Build a flat dataclass from a table; whole numbers may stand for fractions."""
    known = {f.name: f for f in fields(kind)}
    for key in row:
        if key not in known:
            raise UnknownNameError(f"{origin}: key", key, known)
    values = {
        key: float(value)
        if known[key].type == "float" and isinstance(value, int) and not isinstance(value, bool)
        else value
        for key, value in row.items()
    }
    for key, value in values.items():
        wanted = {"float": float, "int": int, "str": str, "bool": bool}.get(str(known[key].type))
        if wanted is not None and not isinstance(value, wanted):
            what = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}
            raise FormatError(
                f"{origin}: {key} = {value!r}", f"must be {what[wanted]}", "correct the file"
            )
    return kind(**values)


def _parameter(row: Mapping[str, Any], origin: str) -> Parameter:
    plain = dict(row)
    if "interval" in plain:
        least, most = plain["interval"]
        plain["interval"] = (float(least), float(most))
    result: Parameter = _record(Parameter, plain, origin)
    return result


def _acceptance(row: Mapping[str, Any], origin: str) -> Acceptance:
    plain = dict(row)
    plain["accept_prob"] = tuple(float(x) for x in plain["accept_prob"])
    result: Acceptance = _record(Acceptance, plain, origin)
    return result


def _correlation(triangle: list[list[float]]) -> tuple[tuple[float, ...], ...]:
    """Rows of the lower triangle, diagonal included, to the whole matrix."""
    size = len(triangle)
    return tuple(
        tuple(float(triangle[max(i, j)][min(i, j)]) for j in range(size)) for i in range(size)
    )


def profile_to_toml(profile: Profile) -> str:
    """Write a profile as text; equal profiles give equal bytes."""
    import tomlkit

    document = tomlkit.document()
    document.add("schema", tomlkit.item(SCHEMA))
    document.add("name", tomlkit.item(profile.name))
    triangle = tomlkit.array()
    triangle.multiline(True)
    for i, line in enumerate(profile.correlation):
        triangle.append([round(x, 4) for x in line[: i + 1]])
    document.add("correlation", triangle)  # plain keys stand before the first table
    document.add("fit", tomlkit.item(_plain(asdict(profile.fit))))
    document.add("setup", tomlkit.item(_plain(setup_to_mapping(profile.setup))))
    for key, rows in (("acceptance", profile.acceptances), ("parameters", profile.parameters)):
        array = tomlkit.aot()
        for row in rows:
            table = _plain(asdict(row))
            if table.get("draft_share") == 1.0:  # all but lookups; older versions do not know it
                del table["draft_share"]
            array.append(tomlkit.item(table))
        document.add(key, array)
    return tomlkit.dumps(document)


def _plain(table: Mapping[str, Any]) -> dict[str, Any]:
    """Round floats, drop what is infinite or not stated, turn tuples into lists."""
    result: dict[str, Any] = {}
    for key, value in table.items():
        if value is None or value in (float("inf"), float("-inf")):
            continue
        if isinstance(value, Mapping):
            result[key] = _plain(value)
        elif isinstance(value, float):
            result[key] = float(f"{value:.{DIGITS}g}")
        elif isinstance(value, list | tuple):
            result[key] = [float(f"{x:.{DIGITS}g}") if isinstance(x, float) else x for x in value]
        else:
            result[key] = value
    return result


def save_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile; a failure leaves an existing file as it was."""
    write_text(Path(path), profile_to_toml(profile))


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text as :func:`write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write through a temporary file in the same folder, then rename.

    Raises
    ------
    InputError
        If the folder does not exist or cannot be written to.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(
            str(path), f"cannot be written ({error.strerror})", "choose another path"
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise InputError(
            str(path), f"cannot be written ({error.strerror})", "choose another path"
        ) from error
