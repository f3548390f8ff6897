"""Measured cells: observations.csv, one row per cell."""

from specsim.observations.observation import COLUMNS as COLUMNS
from specsim.observations.observation import SCHEMA as SCHEMA
from specsim.observations.observation import SURVIVAL as SURVIVAL
from specsim.observations.observation import Observation as Observation
from specsim.observations.observation import cell_name as cell_name
from specsim.observations.observation import checked as checked
from specsim.observations.observation import weight_of as weight_of
from specsim.observations.table import Observations as Observations
from specsim.observations.table import contradictions as contradictions
from specsim.observations.table import first_of as first_of
from specsim.observations.table import observations_from_rows as observations_from_rows
from specsim.observations.table import read_observations as read_observations
from specsim.observations.table import write_observations as write_observations
