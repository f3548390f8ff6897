"""Profiles: a server with its numbers, their priors, errors and provenance."""

from specsim.profile.parameter import Parameter
from specsim.profile.priors import (
    acceptance_priors,
    correction_correlation,
    correction_priors,
    cost_priors,
    default_acceptance,
)
from specsim.profile.profile import (
    FitRecord,
    Profile,
    acceptance_name,
    acceptance_of,
    assembled,
    cost_parameters,
    moved_acceptance,
    with_acceptances,
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
from specsim.profile.uncalibrated import at_accept_length, uncalibrated_profile

__all__ = [
    "DEFAULT_PROFILE",
    "FitRecord",
    "Parameter",
    "Profile",
    "acceptance_name",
    "acceptance_of",
    "acceptance_priors",
    "assembled",
    "at_accept_length",
    "correction_correlation",
    "correction_priors",
    "cost_parameters",
    "cost_priors",
    "default_acceptance",
    "load_profile",
    "moved_acceptance",
    "profile_from_toml",
    "profile_names",
    "profile_to_toml",
    "save_profile",
    "uncalibrated_profile",
    "valued",
    "with_acceptances",
    "write_bytes",
    "write_text",
]
