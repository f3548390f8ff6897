"""A profile of a server that nobody has measured: library physics with the priors' errors."""

from __future__ import annotations

from dataclasses import replace

from specsim.acceptance import Acceptance, at_accept_length
from specsim.engine import engine_named
from specsim.errors import InputError
from specsim.parameters import (
    SPECULATING_KNOT,
    acceptance_priors,
    correction_priors,
    cost_priors,
    prior_correlation,
)
from specsim.profile.profile import FitRecord, Profile, acceptance_name
from specsim.server import Setup
from specsim.server.system import System, assemble
from specsim.setting import SpecSetting

MODEL_ERROR = 0.15
"""Error of ln(throughput) beyond the priors: median error of 884 public cells was 13 %."""

UNSEEN_ROUNDS = 0.15
"""Error of ln(round) of speculation beyond that of the priors: where a sweep without speculation is
matched, twelve public servers scatter by so much [@public-servers]."""

ASSUMED_LEVEL_SD = 0.15
"""Error of an accept length that the user states, in log-odds: about 5 % of the length."""

STANDALONE_DECAY, STANDALONE_SPREAD = 1.0, 0.9
"""Of a small model that drafts for a larger one: 57 requests of prose, code and lists accept 1.95
of 3 and 2.86 of 5 drafts on average, with standard deviations of 0.46 and 0.93 between requests;
0.25 and 0.46 are what the spread of EAGLE-3 drafters would give. The conditional acceptance does
not fall with depth (0.78, 0.76, 0.81, 0.84, 0.87): easy requests are what is left
[@smollm2-live]."""

LOOKUP_SHARE = 0.5
"""Assumed: rounds in which an n-gram lookup finds something; 0.24 measured on mixed prompts with
three tokens that must repeat [@smollm2-live]."""

FIRST_ACCEPTED = {"MTP": 0.78, "STANDALONE": 0.7, "NGRAM": 0.35, "EAGLE": 0.62, "EAGLE3": 0.65}
"""Accept probability of the first draft [@specbundle]."""


def default_acceptance(
    system: System, algorithm: str, dataset: str, temperature: float
) -> Acceptance:
    """Return what a drafter of this kind accepts before anything is known about it."""
    alone = algorithm == "STANDALONE"
    fills = engine_named(system.engine.name).lookup_fills_tree
    return Acceptance(
        dataset=dataset,
        temperature=temperature,
        accept_prob=(FIRST_ACCEPTED.get(algorithm, FIRST_ACCEPTED["EAGLE3"]),),
        confidence_shift=0.9,
        decay=STANDALONE_DECAY if alone else 0.97,
        request_spread=STANDALONE_SPREAD if alone else 0.45,
        draft_share=LOOKUP_SHARE if algorithm == "NGRAM" and not fills else 1.0,
        source=f"prior for {algorithm}",
    )


def uncalibrated_profile(
    setup: Setup,
    name: str = "uncalibrated",
    accept_length: float | None = None,
    setting: SpecSetting | None = None,
) -> Profile:
    """Build a profile from the library and the priors alone.

    Parameters
    ----------
    setup
        The server.
    name
        Name of the profile.
    accept_length
        Accept length that `setting` is assumed to have; None keeps the drafter's prior.
    setting
        The setting it belongs to; the setup's current one if None.

    Raises
    ------
    InputError
        If the accept length is out of what the setting can give, or belongs to none.
    """
    system = assemble(setup)
    current = setup.current
    algorithm = "EAGLE3" if current is None else current.algorithm
    acceptance = default_acceptance(
        system, algorithm, setup.workload.dataset, setup.workload.temperature
    )
    names = (acceptance_name(acceptance),)
    bought = acceptance_priors(names, standalone=algorithm == "STANDALONE")
    if accept_length is not None:
        wanted = setting or current
        if wanted is None or not wanted.speculates:
            raise InputError(
                f"accept length {accept_length:g}",
                "belongs to no setting",
                "name the setting with --steps (and --topk, --draft-tokens)",
            )
        acceptance = at_accept_length(acceptance, wanted, accept_length)
        level = replace(bought[0], prior_sd=ASSUMED_LEVEL_SD, sd=ASSUMED_LEVEL_SD)
        bought = (level, *bought[1:])
    missed = correction_priors(system.facts, {SPECULATING_KNOT: UNSEEN_ROUNDS})
    parameters = (*cost_priors(system.facts), *bought, *missed)
    correlation = prior_correlation([p.name for p in parameters])
    record = FitRecord(model_error=MODEL_ERROR, source="library and priors, nothing measured")
    return Profile(name, setup, parameters, tuple(map(tuple, correlation)), (acceptance,), record)
