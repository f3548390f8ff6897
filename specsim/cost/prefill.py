"""A prefill step: prompt tokens through the target, and through the drafter's extend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from specsim.cost.draft import draft_forward_s
from specsim.cost.host import host_s
from specsim.cost.model import DENSE_LAYER_S, MOE_LAYER_S, CostModel, active_experts, more_than_one

if TYPE_CHECKING:
    from specsim.arrays import Floats

PREFILL_EFFICIENCY = 0.7
"""Assumed: share of the measured GEMM rate that a prefill step reaches over all its kernels."""


def prefill_s(
    cost: CostModel,
    tokens: ArrayLike,
    context: ArrayLike,
    speculates: ArrayLike = False,
    mixed: bool = False,
) -> Floats:
    """Time of a prefill step, seconds (PREFILL).

    Parameters
    ----------
    cost
        The system.
    tokens
        Prompt tokens computed (those found in the prefix cache are not).
    context
        Mean KV tokens that each of them attends to.
    speculates
        Whether the drafter runs its extend over the prompt too.
    mixed
        Whether the tokens join a decode step that reads the weights anyway: only what they add.
    """
    target, p = cost.target, cost.parameters
    t = np.asarray(tokens, dtype=np.float64)
    rate = cost.flops(target.dense_dtype) * PREFILL_EFFICIENCY
    expert_rate = cost.flops(target.expert_dtype) * PREFILL_EFFICIENCY
    touched = active_experts(t, target.experts, target.experts_per_token)
    weights = (
        0.0 if mixed else target.dense_bytes / cost.bandwidth
    ) + target.moe_layers * touched * target.expert_bytes / cost.bandwidth
    flops = target.flops_per_token * t / rate + target.expert_flops_per_token * t / expert_rate
    pairs = t * np.asarray(context, dtype=np.float64)
    attention = target.attention_flops_per_pair * pairs / rate
    layers, moe = target.model.layers, target.moe_layers
    fixed = ((layers - moe) * DENSE_LAYER_S + moe * MOE_LAYER_S) * p.target_fixed
    seconds = (
        cost.product_s(weights, flops, more_than_one(t))
        + attention
        + cost.allreduce_s(t, target.model.hidden, layers)
    )
    if not mixed:
        seconds = seconds + fixed + host_s(cost, 1.0)
    extend = draft_forward_s(cost, t, 0.0, 1.0, extend=True)
    total: Floats = np.where(t > 0, seconds + np.where(speculates, extend, 0.0), 0.0) * p.prefill
    return total
