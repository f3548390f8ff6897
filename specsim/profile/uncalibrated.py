"""A profile of a server that nobody has measured: library physics with the priors' errors."""

from dataclasses import replace

from specsim.acceptance import Acceptance
from specsim.acceptance.prior import at_accept_length, default_acceptance
from specsim.errors import InputError
from specsim.parameters import (
    SPECULATING_KNOT,
    acceptance_priors,
    correction_priors,
    cost_priors,
    prior_correlation,
)
from specsim.profile.profile import (
    FitRecord,
    Profile,
    acceptance_name,
    main_algorithm,
    of_drafter,
)
from specsim.server import Setup
from specsim.server.system import assemble
from specsim.setting import SpecSetting

MODEL_ERROR = 0.15
"""Error of ln(throughput) beyond the priors: median error of 884 public cells was 13 %."""

UNSEEN_ROUNDS = 0.15
"""Error of ln(round) of speculation beyond that of the priors: where a sweep without speculation is
matched, twelve public servers scatter by so much [@public-servers]."""

ASSUMED_LEVEL_SD = 0.15
"""Error of an accept length that the user states, in log-odds: about 5 % of the length."""


def uncalibrated_profile(
    setup: Setup,
    name: str = "uncalibrated",
    accept_length: float | None = None,
    setting: SpecSetting | None = None,
) -> Profile:
    """Build a profile from the library and the priors alone.

    `accept_length` is assumed of `setting`, or of the setup's current one; None keeps the drafter's
    prior.
    """
    system = assemble(setup)
    current = setup.current
    main, wanted = main_algorithm(setup), setting or current
    drafter = wanted.algorithm if wanted is not None and wanted.speculates else main
    work = setup.workload
    acceptance = default_acceptance(setup.engine.name, drafter, work.dataset, work.temperature)
    if not of_drafter((acceptance,), drafter, main):  # of another than the server's own
        acceptance = replace(acceptance, algorithm=drafter)
    names = (acceptance_name(acceptance),)
    bought = acceptance_priors(names, standalone=drafter == "STANDALONE")
    if accept_length is not None:
        if wanted is None or not wanted.speculates:
            remedy = "name the setting with --steps (and --topk, --draft-tokens)"
            raise InputError(f"accept length {accept_length:g}", "belongs to no setting", remedy)
        acceptance = at_accept_length(acceptance, wanted, accept_length)
        level = replace(bought[0], prior_sd=ASSUMED_LEVEL_SD, sd=ASSUMED_LEVEL_SD)
        bought = (level, *bought[1:])
    acceptances: tuple[Acceptance, ...] = (acceptance,)
    if acceptance.algorithm:
        own = default_acceptance(setup.engine.name, main, work.dataset, work.temperature)
        acceptances = (own, acceptance)
    missed = correction_priors({SPECULATING_KNOT: UNSEEN_ROUNDS})
    parameters = (*cost_priors(system.facts), *bought, *missed)
    correlation = prior_correlation([p.name for p in parameters])
    record = FitRecord(model_error=MODEL_ERROR, source="library and priors, nothing measured")
    return Profile(name, setup, parameters, tuple(map(tuple, correlation)), acceptances, record)
