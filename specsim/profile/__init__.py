"""Profiles: a server with its numbers, their priors, errors and provenance."""

from specsim.profile.profile import (
    FitRecord,
    Profile,
    acceptance_name,
    acceptance_of,
    assembled,
    moved_acceptance,
)
from specsim.profile.shown import valued
from specsim.profile.toml import (
    DEFAULT_PROFILE,
    load_profile,
    profile_from_toml,
    profile_names,
    profile_to_toml,
    save_profile,
    write_bytes,
    write_text,
)
from specsim.profile.uncalibrated import at_accept_length, default_acceptance, uncalibrated_profile

__all__ = [
    "DEFAULT_PROFILE",
    "FitRecord",
    "Profile",
    "acceptance_name",
    "acceptance_of",
    "assembled",
    "at_accept_length",
    "default_acceptance",
    "load_profile",
    "moved_acceptance",
    "profile_from_toml",
    "profile_names",
    "profile_to_toml",
    "save_profile",
    "uncalibrated_profile",
    "valued",
    "write_bytes",
    "write_text",
]
