"""A server as one file describes it: setup.toml, schema ``specsim.setup/1``."""

from specsim.server.reading import SCHEMA as SCHEMA
from specsim.server.reading import read_setup as read_setup
from specsim.server.reading import setup_from_mapping as setup_from_mapping
from specsim.server.reading import setup_to_mapping as setup_to_mapping
from specsim.server.spec import DraftSpec as DraftSpec
from specsim.server.spec import HardwareSpec as HardwareSpec
from specsim.server.spec import ModelSpec as ModelSpec
from specsim.server.spec import Setup as Setup
from specsim.server.spec import SourceSpec as SourceSpec
