"""The drafter's part of a round: S - 1 steps, the tree, the extend after the verification."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from specsim.cost.model import CostModel, active_experts, more_than_one

if TYPE_CHECKING:
    from specsim.arrays import Floats

DRAFT_FORWARD_S = 250e-6
"""Assumed: launches, top-k and small kernels of one captured draft forward: EAGLE-1 in vLLM costs
0.73 ms a step at Llama-3.1-8B on H100, 0.54 of them bytes (vllm#20780)."""
EAGER_DRAFT_S = 450e-6
"""Assumed: what a forward costs besides where nothing captures it: a step of EAGLE-3 in vLLM of
mid-2025 takes 1.0 ms on the same server, 0.26 of them bytes (vllm#20780)."""
EXTEND_S = 350e-6
"""Assumed: the same for the draft extend, which also gathers the accepted tokens' features."""
TREE_S = 100e-6
TREE_PER_TOKEN_S = 1.5e-6
"""Assumed: building the tree and its mask, sampling the verification: 0.11-0.3 ms
[@launch-cost]."""
OVERHEAD_S = 1.5e-3
"""Assumed: what a speculating round pays whatever it drafts: waiting for the accepted tokens,
many small kernels, eager gaps. 1 ms (SpecDecode-Bench, vLLM) to 3 ms (sync of a TP4 profile) were
published, 4 ms and 9 ms are what the Kimi boxes want: a factor of three either way."""


def draft_forward_s(
    cost: CostModel,
    tokens: ArrayLike,
    context_tokens: ArrayLike,
    rows: ArrayLike,
    extend: bool = False,
) -> Floats:
    """One forward of the drafter (DRAFT).

    Parameters
    ----------
    cost
        The system.
    tokens
        Tokens that go in: batch * topk in a step, the accepted or all verified ones in an extend.
    context_tokens
        Tokens in the drafter's KV cache, all requests together.
    rows
        Tokens whose logits are computed (the last of each request in an extend).
    extend
        Whether the target's features are projected first (EAGLE-3's fc).
    """
    draft = cost.draft
    t = np.asarray(tokens, dtype=np.float64)
    if draft is None or draft.part is None:
        return np.zeros_like(t)
    part = draft.part
    layers = part.model.layers
    bandwidth = cost.bandwidth
    rate = cost.flops(part.dense_dtype)
    weights = draft.step_bytes + (draft.fc_bytes if extend else 0.0)
    flops = draft.flops_per_token + (draft.fc_flops_per_token if extend else 0.0)
    layer = cost.product_s(weights / bandwidth, flops * t / rate, more_than_one(t))
    touched = active_experts(t, part.experts, part.experts_per_token)
    experts = part.moe_layers * touched * part.expert_bytes / bandwidth + (
        part.expert_flops_per_token * t / rate
    )
    drawn = np.asarray(rows, dtype=np.float64)
    head = cost.product_s(
        part.head_bytes / bandwidth,
        part.head_flops_per_token * drawn / rate,
        more_than_one(drawn),
    )
    cache = part.kv_bytes_per_token * np.asarray(context_tokens, dtype=np.float64) / bandwidth
    floor = EXTEND_S if extend else DRAFT_FORWARD_S * max(1.0, layers / 4)
    if cost.draft_eager:
        floor += EAGER_DRAFT_S
    floor *= cost.launch_share
    total: Floats = (
        layer + experts + head + cache + floor + cost.allreduce_s(t, part.model.hidden, layers)
    )
    return total


def overhead_s(cost: CostModel) -> float | Floats:
    """Return what a server with a drafter pays each round whatever it drafts, seconds."""
    return OVERHEAD_S * cost.parameters["round_overhead"]


def draft_time(
    cost: CostModel,
    batch: ArrayLike,
    topk: ArrayLike,
    width: ArrayLike,
    draft_forwards: ArrayLike,
    extend_tokens: ArrayLike,
    context_tokens: ArrayLike,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Price what speculation adds to a round, arrays broadcast.

    Parameters
    ----------
    cost
        The system.
    batch, topk, width
        Requests B, branches k, verified tokens n of each; n = 1 means no speculation: no time.
    draft_forwards
        S - 1 (0 also for drafters without a model).
    extend_tokens
        Tokens of the draft extend, all requests together; 0 for none.
    context_tokens
        Tokens in the KV cache, all requests together.

    Returns
    -------
    draft_s, tree_s, overhead_s, extend_s
        Seconds; zero without speculation.
    """
    b = np.asarray(batch, dtype=np.float64)
    n = np.asarray(width, dtype=np.float64)
    speculates = n > 1
    scale = np.where(speculates, cost.parameters["draft"], 0.0)
    tokens = b * np.asarray(topk, dtype=np.float64)
    steps = np.asarray(draft_forwards, dtype=np.float64) * draft_forward_s(
        cost, tokens, context_tokens, tokens
    )
    extended = np.asarray(extend_tokens, dtype=np.float64)
    extend = np.where(
        extended > 0, draft_forward_s(cost, extended, context_tokens, b, extend=True), 0.0
    )
    tree = (TREE_S + TREE_PER_TOKEN_S * b * n) * cost.launch_share
    overhead = np.where(speculates, overhead_s(cost), 0.0)
    return steps * scale, tree * scale, overhead * np.ones_like(b), extend * scale
