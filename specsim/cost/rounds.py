"""A whole round: phases put on the engine's timeline; and a prefill step.

    front        draft + tree + target + overhead
    sequential   front + extend + host                                               (ROUND-SEQ)
    overlap      max(front + max(extend, SCHEDULE_SHARE host), host)                 (ROUND-OVL)
    run_ahead    max(front + extend, host)                                           (ROUND-RUN)

In an overlap round the CPU processes the last round's results under the GPU and can schedule the
next round only under the draft extend (SGLang 0.5.9 scheduler.py:1135, schedule_batch.py:2032);
a run-ahead round never waits for the CPU unless the CPU is slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from specsim.cost.forward import TargetTime, draft_forward_s, draft_time, target_time
from specsim.cost.model import (
    EAGER_LAYER_S,
    CostModel,
    active_experts,
    correction_factor,
    more_than_one,
)
from specsim.parameters import SPECULATING_KNOT

if TYPE_CHECKING:
    from specsim.arrays import Floats

SEQUENTIAL, OVERLAP, RUN_AHEAD = 0, 1, 2

HOST_S = 1.2e-3
HOST_PER_TOKEN_S = 20e-6
"""Assumed: T_host = c0 + c1 B without speculation, c0 of 1-3 ms and c1 of 10-50 us
[@host-time]."""

PREFILL_EFFICIENCY = 0.7
"""Assumed: share of the measured GEMM rate that a prefill step reaches over all its kernels."""

SCHEDULE_SHARE = 0.4
"""Assumed: the part of the CPU's work that comes before a launch (scheduling, preparing the batch)
rather than after it (results, detokenising). Overlap then saves 1.2 ms of a Llama-8B round, 1.1
measured (sglang#11398), and of a DeepSeek-R1 round as much of the 2.0 measured (sglang#12128)."""


@dataclass(frozen=True, slots=True)
class RoundTime(TargetTime):
    """Phases of a round, seconds: the target's, the drafter's, the CPU's."""

    draft_s: Floats  # the drafter's steps
    tree_s: Floats
    overhead_s: Floats
    extend_s: Floats
    host_s: Floats
    timeline: ArrayLike  # SEQUENTIAL, OVERLAP or RUN_AHEAD

    @property
    def front_s(self) -> Floats:
        """What comes before the draft extend: draft, tree, target, overhead."""
        return self.draft_s + self.tree_s + self.target_s + self.overhead_s

    @property
    def round_s(self) -> Floats:
        """Length of the round (ROUND-SEQ, ROUND-OVL, ROUND-RUN)."""
        return compose_s(self.timeline, self.front_s, self.extend_s, self.host_s)


def round_time(
    cost: CostModel,
    batch: ArrayLike,
    width: ArrayLike,
    context_tokens: ArrayLike,
    *,
    topk: ArrayLike = 1,
    draft_forwards: ArrayLike = 0,
    extend_tokens: ArrayLike = 0,
    timeline: ArrayLike = SEQUENTIAL,
    padded: ArrayLike | None = None,
    eager: ArrayLike = False,
    draft_share: ArrayLike = 1.0,
    loaded: ArrayLike = False,
    committed: ArrayLike = 1.0,
) -> RoundTime:
    """Price rounds; all counts are arrays that broadcast against each other.

    Parameters
    ----------
    cost
        The system.
    batch, width, topk
        Running requests B, verified tokens n of each (1: no speculation), tokens of each in a
        forward of the drafter: branches k, or the block.
    context_tokens, extend_tokens
        Tokens in the KV cache and in the draft extend, all requests together.
    draft_forwards
        Draft steps: S - 1, or 1 for a block.
    timeline
        SEQUENTIAL, OVERLAP or RUN_AHEAD.
    padded, eager
        Requests that the captured graph computes, and whether none fits.
    draft_share
        Share of its rounds in which a request has a draft: below 1 in lookups that find nothing.
    loaded
        Whether a drafter is loaded although nothing is drafted (n = 1): its extend and the worker's
        overhead are paid all the same,

            T(K = 0) = target(B, 1) + overhead + extend(B)  on the plan's timeline    (ZERO-STEPS)

        SGLang 0.5.23 ``eagle_worker_v2.py:1471`` unless SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND;
        vLLM 0.33.0 runs the drafter's forward and skips the sampling.
    committed
        Tokens that each request commits in the round: its accept length. What a request adds to a
        step without speculation, sampling on the GPU and results on the CPU, each of them adds to a
        round (COMMIT): servers whose steps grow by 0.05 to 0.7 ms per request commit two or three
        tokens for no less each [@public-servers].
    """
    target = target_time(cost, batch, width, context_tokens, padded, eager, draft_share, committed)
    draft, tree, overhead, extend = draft_time(
        cost,
        batch,
        topk,
        width,
        draft_forwards,
        extend_tokens,
        context_tokens,
        loaded,
        np.asarray(timeline) == RUN_AHEAD,
    )
    correction = correction_factor(cost.parameters, SPECULATING_KNOT, np.multiply(batch, width))
    slots = np.power(cost.parameters["several_slots"], more_than_one(batch))
    factor = np.where(np.asarray(width) > 1, correction * slots, 1.0)
    return RoundTime(
        target.dense_s * factor,
        target.experts_s * factor,
        target.attention_s * factor,
        target.head_s * factor,
        target.allreduce_s * factor,
        target.fixed_s * factor,
        draft * factor,
        tree * factor,
        overhead * factor,
        extend * factor,
        host_s(cost, batch, committed) * factor,
        timeline,
    )


L2_SHARE = 1.0 / 3.0
"""Assumed: a KV page that another request of the round reads too comes from the L2 cache, three
times as fast: of 128k tokens in common, Qwen3.5-397B on four RTX PRO 6000 pays 0.65 ms per step for
one request and 0.15-0.22 for each of eight and more [@rtx6kpro-wiki]."""


def read_once(context_tokens: ArrayLike, batch: ArrayLike, shared: ArrayLike) -> Floats:
    """KV tokens to read from memory, where all requests begin with `shared`   (SHARED-PREFIX).

    T - (1 - L2_SHARE) (B - 1) shared, of T tokens of all B requests.

    >>> float(read_once(8000.0, 8, 400.0)), float(read_once(8000.0, 1, 400.0))
    (6133.333333333333, 8000.0)
    """
    kv, b = np.asarray(context_tokens, np.float64), np.asarray(batch, np.float64)
    again = np.minimum(np.asarray(shared, np.float64), kv / np.maximum(b, 1.0))
    tokens: Floats = kv - (1.0 - L2_SHARE) * np.maximum(b - 1.0, 0.0) * again
    return tokens


def host_s(cost: CostModel, batch: ArrayLike, committed: ArrayLike = 1.0) -> Floats:
    """CPU time of one round, seconds: c0 + c1 B a                                     (HOST).

    `a` are the tokens that each request commits. The engines go over them one by one: for a stop
    (SGLang 0.5.9 eagle_info.py:396, vLLM 0.24.0 v1/core/sched/scheduler.py:1856), for the text
    (vLLM v1/engine/detokenizer.py:117).
    """
    tokens = np.multiply(np.asarray(batch, np.float64), committed)
    return (HOST_S + HOST_PER_TOKEN_S * tokens) * cost.parameters["host"]


def compose_s(timeline: ArrayLike, front: Floats, extend: Floats, host: Floats) -> Floats:
    """Length of a round from its phases (ROUND-SEQ, ROUND-OVL, ROUND-RUN), seconds.

    `front` is draft + tree + target + overhead.
    """
    which = np.asarray(timeline)
    sequential = front + extend + host
    overlap = np.maximum(front + np.maximum(extend, SCHEDULE_SHARE * host), host)
    run_ahead = np.maximum(front + extend, host)
    return np.where(which == SEQUENTIAL, sequential, np.where(which == OVERLAP, overlap, run_ahead))


def prefill_s(
    cost: CostModel,
    tokens: ArrayLike,
    context: ArrayLike,
    speculates: ArrayLike = False,
    beside: ArrayLike | None = None,
) -> Floats:
    """Time of a prefill step, seconds (PREFILL), or what prompt tokens add to a round (MIXED).

    A round that prompts join reads the weights anyway, and computes little while it does; but it is
    no longer replayed as one graph (vLLM captures whole rounds of decoding alone):

        T = products(d + t) - products(d) + attention(t) + launches                       (MIXED)

    over the products and all-reduces of d tokens that decode and t of prompts. So a hundred prompt
    tokens are cheap beside a few that decode, and cost all their FLOPs beside a wide verification.

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
    beside
        Tokens that decode or are verified in the round that the prompts join; None where the step
        is the prompts' own.
    """
    target = cost.target
    t = np.asarray(tokens, np.float64)
    d = np.zeros(()) if beside is None else np.asarray(beside, np.float64)
    _, per_token = target.attention_work(np.asarray(context, np.float64), np.minimum)
    attention = per_token * t / (cost.flops(target.dense_dtype) * PREFILL_EFFICIENCY)
    seconds = _products_s(cost, d + t) + attention
    extend = draft_forward_s(cost, d + t, 0.0, 1.0, extend=True)
    if beside is None:
        seconds = seconds + cost.layers_s + host_s(cost, 1.0)
    else:
        launches = target.model.depth * EAGER_LAYER_S * cost.launch_share
        seconds = seconds - _products_s(cost, d) + launches
        extend = extend - draft_forward_s(cost, d, 0.0, 1.0, extend=True)
    total = np.where(t > 0, seconds + np.where(speculates, extend, 0.0), 0.0)
    return total * cost.parameters["prefill"]


def _products_s(cost: CostModel, tokens: Floats) -> Floats:
    """Weights times the tokens of a prefill step, and their all-reduces, seconds."""
    target = cost.target
    rate = cost.flops(target.dense_dtype) * PREFILL_EFFICIENCY
    expert_rate = cost.flops(target.expert_dtype) * PREFILL_EFFICIENCY
    touched = active_experts(tokens, target.experts, target.experts_per_token)
    weights = target.dense_bytes + target.moe_layers * touched * target.expert_bytes
    flops = target.flops_per_token / rate + target.expert_flops_per_token / expert_rate
    products = cost.product_s(weights / cost.bandwidth, flops * tokens, more_than_one(tokens))
    return products + cost.allreduce_s(tokens, target.model.hidden, target.model.depth)
