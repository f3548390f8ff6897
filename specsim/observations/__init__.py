"""Measured cells: observations.csv, one row per cell."""

from specsim.observations.observation import Observation, checked
from specsim.observations.schema import COLUMNS, SCHEMA, SURVIVAL, Scope
from specsim.observations.table import (
    Observations,
    observations_from_rows,
    read_observations,
    write_observations,
)

__all__ = [
    "COLUMNS",
    "SCHEMA",
    "SURVIVAL",
    "Observation",
    "Observations",
    "Scope",
    "checked",
    "observations_from_rows",
    "read_observations",
    "write_observations",
]
