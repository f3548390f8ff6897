"""What-if: overrides of a profile, one by one or as a named scenario in TOML."""

from specsim.scenario.apply import Applied, apply_overrides
from specsim.scenario.file import Scenario, load_server, read_scenario
from specsim.scenario.override import Override, override_keys, parse_override, parse_overrides

__all__ = [
    "Applied",
    "Override",
    "Scenario",
    "apply_overrides",
    "load_server",
    "override_keys",
    "parse_override",
    "parse_overrides",
    "read_scenario",
]
