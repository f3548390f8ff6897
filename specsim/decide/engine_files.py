"""Tables that engines take and leave to the user, filled from a profile."""

import json
from collections.abc import Sequence

import numpy as np

from specsim.arrays import Floats
from specsim.cost.rounds import round_time
from specsim.decide.schedule import chain_plans
from specsim.errors import InputError
from specsim.profile import Profile
from specsim.question import Question

PROBES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Requests at which the table is filled."""


def sps_table(profile: Profile, question: Question) -> str:
    """Return SGLang's table of round times for DSPARK, which cuts drafts by it.

    Its additive form (0.5.16 ``dspark_sps.py``), seconds of a round of B requests that verify m
    tokens in all,

        T(B, m) = bias + alpha(B) + theta(m)

    fitted to this server's rounds of 2 to n tokens a request, relative errors squared, at the
    requests' mean context; n is of the deepest chain that is wished for.

    Raises
    ------
    InputError
        If the server does not draft with SGLang's DSPARK.
    """
    plan = chain_plans(profile, question)[-1]
    if (plan.engine, plan.setting.algorithm) != ("sglang", "DSPARK"):
        raise InputError(
            f"--sps-table with {plan.engine} and {plan.setting.algorithm}",
            "is a table of SGLang's DSPARK",
            "ask about a server that drafts with it",
        )
    cost, work = profile.system().cost, question.workload(profile.setup.workload)
    context_len = work.input_len.mean + work.output_len.mean / 2

    most = plan.setting.num_draft_tokens
    batch, width = (
        grid.ravel() for grid in np.meshgrid(np.array(PROBES, float), np.arange(2.0, most + 1))
    )
    whole = round_time(
        cost,
        batch,
        width,
        batch * context_len,
        topk=plan.draft_rows,
        draft_forwards=plan.draft_forwards,
        extend_tokens=batch * width,
    ).round_s
    tokens = [int(m) for m in np.unique(np.outer(PROBES, (2, most)))]
    parts = (np.ones((batch.size, 1)), _between(PROBES, batch), _between(tokens, batch * width))
    shares = np.linalg.lstsq(np.hstack(parts) / whole[:, None], np.ones(batch.size), rcond=None)[0]
    bias, alpha, theta = np.split(shares, [1, 1 + len(PROBES)])
    table = {
        "bias_seconds": float(bias[0] + alpha[0] + theta[0]),
        "bs_probes": PROBES,
        "alpha_seconds": (alpha - alpha[0]).tolist(),
        "m_probes": tokens,
        "theta_seconds": (theta - theta[0]).tolist(),
    }
    return json.dumps(table)


def _between(probes: Sequence[int], at: Floats) -> Floats:
    """Return the weight of each probe in a linear interpolation at `at`."""
    return np.stack([np.interp(at, probes, one) for one in np.eye(len(probes))], axis=1)
