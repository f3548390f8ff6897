"""What-if: overrides of a profile, one by one or as a named scenario in TOML."""

from specsim.scenario.apply import Applied as Applied
from specsim.scenario.apply import apply_overrides as apply_overrides
from specsim.scenario.file import Scenario as Scenario
from specsim.scenario.file import load_server as load_server
from specsim.scenario.file import read_scenario as read_scenario
from specsim.scenario.override import Override as Override
from specsim.scenario.override import override_keys as override_keys
from specsim.scenario.override import parse_override as parse_override
from specsim.scenario.override import parse_overrides as parse_overrides
