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
    assembled,
    cost_parameters,
    moved_acceptance,
)

__all__ = [
    "FitRecord",
    "Parameter",
    "Profile",
    "acceptance_name",
    "acceptance_priors",
    "assembled",
    "correction_correlation",
    "correction_priors",
    "cost_parameters",
    "cost_priors",
    "default_acceptance",
    "moved_acceptance",
]
