"""Measured cells: observations.csv, one row per cell."""

from specsim.observations.cells import COLUMNS, SURVIVAL
from specsim.observations.observation import Observation, Scope
from specsim.observations.table import (
    Observations,
    observations_from_rows,
    read_observations,
    write_observations,
)

__all__ = [
    "COLUMNS",
    "SURVIVAL",
    "Observation",
    "Observations",
    "Scope",
    "observations_from_rows",
    "read_observations",
    "write_observations",
]
