"""profile.toml: a profile as a file, schema ``specsim.profile/1``."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from specsim.acceptance import Acceptance
from specsim.architecture.loading import is_config
from specsim.curve import Misfit
from specsim.errors import FormatError, SpecsimError, UnknownNameError
from specsim.library import is_file, kinds_of, read_table
from specsim.profile.profile import FitRecord, Profile
from specsim.server import PATHS, setup_from_mapping, setup_to_mapping
from specsim.textfile import carried, check_schema, parse_toml, read_text, write_text
from specsim.uncertainty import Parameter

SCHEMA = "specsim.profile/1"
SHIPPED = Path(__file__).parent.parent / "profiles"
DEFAULT_PROFILE = "kimi-k2.5-int4-8x-rtx-pro-6000"
SECTIONS = ("schema", "name", "setup", "parameters", "correlation", "acceptance", "fit", "misfits")
DIGITS = 8
_NEW = ("draft_share", "algorithm", "asked_depth", "asked_loss", "shape")
LATER = {f.name: f.default for f in fields(Acceptance) if f.name in _NEW}
"""Fields that came later, with what they are where a file does not say."""


def profile_names() -> tuple[str, ...]:
    """Names of the profiles that ship."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def load_profile(profile: str | Path | None = None) -> Profile:
    """Load a shipped profile by name, or a profile.toml by path; the default one for None.

    Raises :class:`UnknownNameError` if it is neither a file nor a shipped name;
    :class:`FormatError` if the file is not a profile, or is of a newer schema.

    >>> load_profile().name
    'kimi-k2.5-int4-8x-rtx-pro-6000'
    """
    name = DEFAULT_PROFILE if profile is None else os.fspath(profile)
    path = Path(name)
    if name in profile_names():
        shipped = (SHIPPED / f"{name}.toml").read_text(encoding="utf-8")
        return profile_from_toml(shipped, name)
    if path.suffix != ".toml" and not path.exists():
        raise UnknownNameError(
            "profile", name, profile_names(), f"use one of {', '.join(profile_names())}, or a file"
        )
    return profile_from_toml(read_text(path, "a profile.toml"), name)


def profile_from_toml(text: str, origin: str) -> Profile:
    """Parse a profile; a :class:`FormatError` names what is wrong in it."""
    document = parse_toml(text, origin)
    check_schema(document.get("schema"), SCHEMA, origin, "make a profile with specsim calibrate")
    for key in document:
        if key not in SECTIONS:
            raise UnknownNameError(f"{origin}: section", key, SECTIONS)
    try:
        return Profile(
            str(document["name"]),
            setup_from_mapping(document["setup"], origin),
            tuple(_record(Parameter, row, origin) for row in document["parameters"]),
            _correlation(document["correlation"]),
            tuple(_record(Acceptance, row, origin) for row in document["acceptance"]),
            _record(FitRecord, document["fit"], origin),
            tuple(_record(Misfit, row, origin) for row in document.get("misfits", ())),
        )
    except SpecsimError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        why = f"is no complete profile ({error!r})"
        raise FormatError(origin, why, "fit it again with specsim calibrate") from error


def _record(kind: Any, row: Mapping[str, Any], origin: str) -> Any:
    """Build a flat dataclass from a table; whole numbers may stand for fractions."""
    needed = [f.name for f in fields(kind) if f.default is MISSING]
    values = read_table(origin, row, kinds_of(kind), needed)
    lists = {k: tuple(map(float, v)) for k, v in values.items() if isinstance(v, list)}
    return kind(**values | lists)


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
    document.add("setup", tomlkit.item(_plain(_whole(setup_to_mapping(profile.setup)))))
    tables: dict[str, Sequence[Acceptance | Parameter | Misfit]] = {}
    tables |= {"acceptance": profile.acceptances, "parameters": profile.parameters}
    if profile.misfits:
        tables["misfits"] = profile.misfits
    for key, rows in tables.items():
        array = tomlkit.aot()
        for row in rows:
            table = _plain(asdict(row))
            for name in LATER:  # older versions do not know them
                if table.get(name) == LATER[name]:
                    del table[name]
            array.append(tomlkit.item(table))
        document.add(key, array)
    return tomlkit.dumps(document)


def _whole(setup: dict[str, Any]) -> dict[str, Any]:
    """Return a setup with the files that it names in it: a profile may move where they are not."""
    for section, keys in PATHS.items():
        table = setup.get(section, {})
        for key in keys:
            name = table.get(key)
            if isinstance(name, str) and "\n" not in name and (is_file(name) or is_config(name)):
                file = Path(name, "config.json") if Path(name).is_dir() else Path(name).expanduser()
                table |= {key: carried(file)} if file.is_file() else {}
    return setup


def _plain(value: Any) -> Any:
    """Round floats, drop what is infinite or not stated, turn tuples into lists."""
    if isinstance(value, Mapping):
        stated = {key: entry for key, entry in value.items() if entry is not None}
        return {key: _plain(v) for key, v in stated.items() if v not in (math.inf, -math.inf)}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def save_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile; a failure leaves an existing file as it was."""
    write_text(Path(path), profile_to_toml(profile))
