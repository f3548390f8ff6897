"""What-if: overrides of a profile, one by one or as a named scenario, ``specsim.scenario/1``."""

from collections.abc import Sequence
from dataclasses import replace
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


def load_server(source: str | None, overrides: Sequence[str] = ()) -> Applied:
    """Load a shipped profile, a profile.toml or a scenario.toml, and apply further overrides.

    A profile file that a scenario names counts from its folder.
    """
    if source is None or not _is_scenario(source):
        return apply_overrides(load_profile(source), parse_overrides(overrides))
    path = Path(source)
    said = read_table(source, read_toml(path, "a scenario.toml"), KEYS, ())
    check_schema(said.get("schema"), SCHEMA, path, f'write schema = "{SCHEMA}"')
    changes = said.get("set", [])
    if not all(isinstance(change, str) for change in changes):
        raise FormatError(f"{path}: set", "must hold texts", 'write ["allreduce.latency=*0.5"]')
    start = said.get("profile") or None
    if start is not None and start.endswith(".toml"):
        start = str(path.parent / start)
    name = said.get("name") or path.stem
    base = apply_overrides(load_profile(start), parse_overrides(changes))
    changed = apply_overrides(replace(base.profile, name=name), parse_overrides(overrides))
    about = (f"{name}: {said['description']}",) if said.get("description") else ()
    return Applied(changed.profile, (*about, *base.notes, *changed.notes))


def _is_scenario(source: str) -> bool:
    if not source.endswith(".toml") or not Path(source).is_file():
        return False
    try:
        schema = read_toml(source, "a scenario.toml").get("schema")
    except InputError:
        return False  # the profile's reader says what is wrong
    return str(schema).startswith("specsim.scenario/")
