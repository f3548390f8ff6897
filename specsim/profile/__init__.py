"""Profiles: a server with its numbers, their errors and provenance, and the files they are in."""

from specsim.profile.profile import FitRecord as FitRecord
from specsim.profile.profile import Profile as Profile
from specsim.profile.profile import acceptance_name as acceptance_name
from specsim.profile.profile import acceptance_of as acceptance_of
from specsim.profile.profile import assembled as assembled
from specsim.profile.profile import level_name as level_name
from specsim.profile.profile import main_algorithm as main_algorithm
from specsim.profile.profile import moved_acceptance as moved_acceptance
from specsim.profile.profile import of_drafter as of_drafter
from specsim.profile.toml import DEFAULT_PROFILE as DEFAULT_PROFILE
from specsim.profile.toml import load_profile as load_profile
from specsim.profile.toml import profile_from_toml as profile_from_toml
from specsim.profile.toml import profile_names as profile_names
from specsim.profile.toml import profile_to_toml as profile_to_toml
from specsim.profile.toml import save_profile as save_profile
