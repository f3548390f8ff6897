"""Profiles: a server with its numbers, their errors and provenance, and the files they are in."""

from specsim.profile.profile import (
    FitRecord,
    Profile,
    acceptance_name,
    acceptance_of,
    assembled,
    level_name,
    main_algorithm,
    moved_acceptance,
    of_drafter,
)
from specsim.profile.toml import (
    DEFAULT_PROFILE,
    load_profile,
    profile_from_toml,
    profile_names,
    profile_to_toml,
    save_profile,
)

__all__ = [
    "DEFAULT_PROFILE",
    "FitRecord",
    "Profile",
    "acceptance_name",
    "acceptance_of",
    "assembled",
    "level_name",
    "load_profile",
    "main_algorithm",
    "moved_acceptance",
    "of_drafter",
    "profile_from_toml",
    "profile_names",
    "profile_to_toml",
    "save_profile",
]
