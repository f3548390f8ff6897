"""What-if: overrides of a profile, one by one or as a named scenario, ``specsim.scenario/1``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specsim.errors import FormatError, InputError
from specsim.library import read_table
from specsim.profile import load_profile
from specsim.scenario.apply import Applied as Applied
from specsim.scenario.apply import apply_overrides as apply_overrides
from specsim.scenario.override import Override as Override
from specsim.scenario.override import override_keys as override_keys
from specsim.scenario.override import parse_override as parse_override
from specsim.scenario.override import parse_overrides as parse_overrides
from specsim.textfile import check_schema, read_toml

SCHEMA = "specsim.scenario/1"
KEYS = {**dict.fromkeys(("schema", "name", "description", "profile"), str), "set": list}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named what-if."""

    name: str
    profile: str | None  # shipped profile or file that it starts from; None is the default
    overrides: tuple[Override, ...]  # in order
    description: str = ""  # for people


def read_scenario(path: str | Path) -> Scenario:
    """Read a scenario.toml; a relative profile file counts from its folder."""
    path = Path(path)
    document = read_table(str(path), read_toml(path, "a scenario.toml"), KEYS, ())
    check_schema(document.get("schema"), SCHEMA, path, f'write schema = "{SCHEMA}"')
    overrides = document.get("set", [])
    if not all(isinstance(o, str) for o in overrides):
        raise FormatError(f"{path}: set", "must hold texts", 'write ["allreduce.latency=*0.5"]')
    profile = document.get("profile") or None
    if profile is not None and profile.endswith(".toml"):
        profile = str(path.parent / profile)
    name = document.get("name") or path.stem
    return Scenario(name, profile, parse_overrides(overrides), document.get("description", ""))


def load_server(source: str | None, overrides: Sequence[str] = ()) -> Applied:
    """Load a shipped profile, a profile.toml or a scenario.toml, and apply further overrides."""
    if source is None or not _is_scenario(source):
        return apply_overrides(load_profile(source), parse_overrides(overrides))
    scenario = read_scenario(source)
    base = apply_overrides(load_profile(scenario.profile), scenario.overrides)
    named = replace(base.profile, name=scenario.name)
    changed = apply_overrides(named, parse_overrides(overrides))
    about = (f"{scenario.name}: {scenario.description}",) if scenario.description else ()
    return Applied(changed.profile, (*about, *base.notes, *changed.notes))


def _is_scenario(source: str) -> bool:
    """Whether a file says that it is a scenario."""
    if not source.endswith(".toml") or not Path(source).is_file():
        return False
    try:
        schema = read_toml(source, "a scenario.toml").get("schema")
    except InputError:
        return False  # the profile's reader says what is wrong
    return str(schema).startswith("specsim.scenario/")
