"""Measured cells: observations.csv, one row per cell."""

from specsim.observations.observation import (
    COLUMNS,
    SCHEMA,
    SURVIVAL,
    Observation,
    Scope,
    cell_name,
    checked,
)
from specsim.observations.table import (
    Observations,
    contradictions,
    first_of,
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
    "cell_name",
    "checked",
    "contradictions",
    "first_of",
    "observations_from_rows",
    "read_observations",
    "write_observations",
]
