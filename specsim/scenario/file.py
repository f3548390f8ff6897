"""Named scenarios: a profile and overrides in TOML, schema ``specsim.scenario/1``."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specsim.errors import FormatError, UnknownNameError
from specsim.profile import load_profile
from specsim.scenario.apply import Applied, apply_overrides
from specsim.scenario.override import Override, parse_overrides
from specsim.textfile import read_text

SCHEMA = "specsim.scenario/1"
TEXTS = ("name", "description", "profile")
KEYS = ("schema", *TEXTS, "set")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named what-if."""

    name: str
    profile: str | None  # shipped profile or file that it starts from; None is the default
    overrides: tuple[Override, ...]  # in order
    description: str = ""  # for people

    def applied(self) -> Applied:
        """Return the changed profile under the scenario's name."""
        result = apply_overrides(load_profile(self.profile), self.overrides)
        return Applied(replace(result.profile, name=self.name), result.notes)


def read_scenario(path: str | Path) -> Scenario:
    """Read a scenario.toml; a relative profile file counts from its folder.

    Raises
    ------
    FormatError, UnknownNameError
        If it is not a scenario of this schema.
    InputError
        If it cannot be read.
    """
    path = Path(path)
    return scenario_from_toml(read_text(path, "a scenario.toml"), path)


def scenario_from_toml(text: str, origin: str | Path) -> Scenario:
    """Parse a scenario; `origin` names it in messages, and is its name where it has none."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(origin, f"is not TOML ({error})", "correct that line") from None
    if document.get("schema") != SCHEMA:
        raise FormatError(
            f"{origin}: schema {document.get('schema')!r}",
            "is not that of a scenario",
            f'write schema = "{SCHEMA}"',
        )
    for key, value in document.items():
        if key not in KEYS:
            raise UnknownNameError(f"{origin}: key", key, KEYS)
        if key in TEXTS and not isinstance(value, str):
            raise FormatError(f"{origin}: {key} = {value!r}", "must be a text", "put it in quotes")
    overrides = document.get("set", [])
    if not isinstance(overrides, list) or not all(isinstance(o, str) for o in overrides):
        raise FormatError(
            f"{origin}: set", "must be a list of texts", 'write set = ["allreduce.latency=*0.5"]'
        )
    profile = document.get("profile") or None
    if profile is not None and profile.endswith(".toml") and isinstance(origin, Path):
        profile = str(origin.parent / profile)
    name = document.get("name") or Path(origin).stem
    return Scenario(name, profile, parse_overrides(overrides), document.get("description", ""))


def load_server(source: str | None, overrides: Sequence[str] = ()) -> Applied:
    """Load a shipped profile, a profile.toml or a scenario.toml, and apply further overrides.

    Raises
    ------
    UnknownNameError, FormatError, InputError
        If it is none of these, or an override is wrong.
    """
    if source is not None and _is_scenario(source):
        scenario = read_scenario(source)
        base = scenario.applied()
        if scenario.description:
            base = replace(base, notes=(f"{scenario.name}: {scenario.description}", *base.notes))
    else:
        base = Applied(load_profile(source))
    more = apply_overrides(base.profile, parse_overrides(overrides))
    return Applied(more.profile, (*base.notes, *more.notes))


def _is_scenario(source: str) -> bool:
    """Whether a file says that it is a scenario."""
    if not source.endswith(".toml") or not Path(source).is_file():
        return False
    try:
        schema = tomllib.loads(Path(source).read_text("utf-8")).get("schema")
    except (OSError, ValueError):
        return False  # the profile's reader says what is wrong
    return str(schema).startswith("specsim.scenario/")
