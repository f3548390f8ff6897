"""A server as one file describes it: setup.toml, schema ``specsim.setup/1``."""

from specsim.server.reading import (
    SCHEMA,
    read_setup,
    setup_from_mapping,
    setup_to_mapping,
)
from specsim.server.spec import (
    DraftSpec,
    HardwareSpec,
    ModelSpec,
    Setup,
    SourceSpec,
)

__all__ = [
    "SCHEMA",
    "DraftSpec",
    "HardwareSpec",
    "ModelSpec",
    "Setup",
    "SourceSpec",
    "read_setup",
    "setup_from_mapping",
    "setup_to_mapping",
]
