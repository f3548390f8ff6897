"""Forwards of the target and of the drafter, and what else a round's drafting takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from specsim.cost.model import (
    EAGER_LAYER_S,
    CostModel,
    active_experts,
    correction_factor,
    more_than_one,
)
from specsim.parameters import KNOT

if TYPE_CHECKING:
    from specsim.arrays import Floats

ATTENTION_EFFICIENCY = 0.4
"""Assumed: share of the GEMM rate that decode-sized attention kernels reach when they compute."""
CPU_ATTENTION_EFFICIENCY = 0.07
"""Assumed: the same on a CPU, whose kernel takes one row and one cell at a time: 38 ns per head and
cell of 64 dimensions (llama-batched-bench of SmolLM2-135M on two cores)."""

BLOCK_READ_BPS = 31e9
"""Bytes/s at which one thread block walks over the KV cache of its sequence and head. A
verification of Qwen3.5-397B on four RTX PRO 6000 takes 23.5 ns more per token of context and layer
(1 kB) at any batch to 16, one of Llama-3.1-8B on an A100 21 ns (512 B): 41 and 24 GB/s, 17 bytes
per clock on both; without speculation neither grows so [@attention-kernels]."""

PER_TOKEN_S = 15e-6
"""Assumed: sampling and metadata on the GPU per token that is committed."""

DRAFT_FORWARD_S = 250e-6
"""Assumed: launches, top-k and small kernels of one captured draft forward: EAGLE-1 in vLLM costs
0.73 ms a step at Llama-3.1-8B on H100, 0.54 of them bytes (vllm#20780)."""
EAGER_DRAFT_S = 450e-6
"""Assumed: what a forward costs besides where nothing captures it: a step of EAGLE-3 in vLLM of
mid-2025 takes 1.0 ms on the same server, 0.26 of them bytes (vllm#20780)."""
EXTEND_S = 350e-6
"""Assumed: the same for the draft extend, which also gathers the accepted tokens' features."""
DEPTH_S = 40e-6
"""Assumed: kernels of one depth's own head, captured (Medusa; the Markov head of DSpark)."""
BLOCK_ROW_S = 1.5e-6
"""Sampling one token of a block over the whole vocabulary, as in a verification. Of the 17.5 us
that DSpark's drafter for DeepSeek-V4-Flash takes for each further request on four B300, 10 are no
bytes or FLOPs of its seven tokens [@dspark-step-cost]."""
TREE_S = 100e-6
TREE_PER_TOKEN_S = 1.5e-6
"""Assumed: building the tree and its mask, sampling the verification: 0.11-0.3 ms
[@launch-cost]."""
OVERHEAD_S, RUN_AHEAD_OVERHEAD_S, DRAFTING_PER_REQUEST_S = 2.5e-3, 0.7e-3, 130e-6
"""What a speculating round pays whatever it drafts, and for each running request: many small
kernels, sampling, and, unless the CPU runs ahead, waiting for the accepted tokens and their
bookkeeping. No baseline shows it. Of public servers [@public-servers] those that wait pay 1.2
to 4.4 ms (SGLang to 0.5.9, vLLM to 0.17; geometric mean), those that run ahead -1 to 3 (vLLM from
0.20): a factor of three either way. The price of a request is the geometric mean of what fits to
20 of them find."""


HOST_PLAN_S = 1.2e-3
"""What a forward of a speculating round costs where the CPU lays it out: it reads the lengths back
and the GPU waits [@attention-kernels]. On an A100 the 8-bit KV cache, which takes FlashInfer, makes
a round of EAGLE-3 with five steps 8.4 to 9.0 ms longer at 1, 8, 32 and 64 clients alike, a step
without speculation 0.7 ms; of these 1.8 are the waiting that `OVERHEAD_S` has."""


@dataclass(frozen=True, slots=True)
class TargetTime:
    """Parts of one target forward, seconds."""

    dense_s: Floats
    experts_s: Floats
    attention_s: Floats
    head_s: Floats
    allreduce_s: Floats
    fixed_s: Floats

    @property
    def target_s(self) -> Floats:
        """Sum of the target's parts."""
        weights = self.dense_s + self.experts_s
        return weights + self.attention_s + self.head_s + self.allreduce_s + self.fixed_s


def attention_s(
    cost: CostModel, batch: ArrayLike, width: ArrayLike, context_tokens: ArrayLike
) -> Floats:
    """Read the KV cache of the batch (ATTENTION).

    T = bytes * reads * hypot(1, fill / rows) / bandwidth, against FLOPs on the roofline, with
    reads = 1 + (n - 1) kv_reads per request and rows = batch * reads: an attention kernel whose
    query rows are virtual sequences reads the cache n times, and few rows cannot fill the GPU.
    Where a verification is not split over the GPU, hypot(1, fill / rows) becomes the time that a
    thread block takes for one sequence,

        T = hypot(bytes * reads / bandwidth, verify_fill bytes of one head / block rate)      (WALK)
    """
    p, target = cost.parameters, cost.target
    b, n = np.asarray(batch, np.float64), np.asarray(width, np.float64)
    kv = np.asarray(context_tokens, np.float64)
    context = kv / np.where(b > 0, b, 1.0)
    per_request, flops = target.attention_work(context, np.minimum)
    reads = 1.0 + (n - 1.0) * p["kv_reads"]
    rows_to_fill = p["attention_fill"] * np.where(n > 1, p["verify_fill"], 1.0)
    fill = np.hypot(1.0, rows_to_fill / np.maximum(b * reads, 1.0))
    memory = b * per_request * reads * fill * p["attention"] / cost.bandwidth
    if cost.verify_walks:
        walk = p["verify_fill"] * target.head_cache_bytes(context, np.minimum) / BLOCK_READ_BPS
        whole = b * per_request * reads * p["attention"] / cost.bandwidth
        memory = np.where(n > 1, np.hypot(whole, walk), memory)
    share = CPU_ATTENTION_EFFICIENCY if cost.gpu.is_cpu else ATTENTION_EFFICIENCY
    rate = cost.flops("bf16") * share
    own = cost.operation_s(memory, flops * b * n / rate)
    return own * cost.walked(b)


def target_time(
    cost: CostModel,
    batch: ArrayLike,
    width: ArrayLike,
    context_tokens: ArrayLike,
    padded: ArrayLike | None = None,
    eager: ArrayLike = False,
    draft_share: ArrayLike = 1.0,
    committed: ArrayLike = 1.0,
) -> TargetTime:
    """Price one target forward, arrays broadcast against each other (TARGET).

    Counts are those of :func:`specsim.cost.round_time`. Padding rows cost dense work and messages,
    and read experts where they hold old tokens (`cost.padding_routes`); without a CUDA graph
    (`eager`) launches bound the forward from below; `width` is a mean over all requests, of which
    `draft_share` have a draft.
    """
    p, target = cost.parameters, cost.target
    b = np.asarray(batch, np.float64)
    n = np.asarray(width, np.float64)
    tokens = (b if padded is None else np.asarray(padded, np.float64)) * n
    alone = 1.0 - more_than_one(b)
    several = np.where(n > 1.0, 1.0 - alone * (1.0 - np.asarray(draft_share)), 1.0 - alone)
    factor = correction_factor(p, KNOT, b * n)
    bandwidth = cost.bandwidth
    dense = cost.product_s(
        target.dense_bytes / bandwidth,
        target.flops_per_token * tokens / cost.flops(target.dense_dtype),
        several,
    )
    routing = tokens / n if cost.padding_routes else b
    routed = routing * np.power(n, p["expert_sharing"])
    touched = active_experts(routed, target.experts, target.experts_per_token) * p["coverage"]
    experts = target.moe_layers * touched * target.expert_bytes / bandwidth + (
        target.expert_flops_per_token * b * n / cost.grouped_flops
    )
    head = cost.product_s(
        target.head_bytes / bandwidth,
        target.head_flops_per_token * tokens / cost.flops(target.dense_dtype),
        several,
    )
    layers = target.model.depth
    fixed = cost.layers_s + PER_TOKEN_S * p["per_request"] * np.multiply(b, committed)
    attention = attention_s(cost, b, n, context_tokens)
    allreduce = cost.allreduce_s(tokens, target.model.hidden, layers)
    allreduce = allreduce + cost.gather_s(tokens, target.model.vocab) + cost.exchange_s(tokens)
    gpu = dense + experts + head + fixed + allreduce
    launches = np.where(eager, np.maximum(layers * EAGER_LAYER_S - gpu, 0.0), 0.0)
    return TargetTime(
        dense * factor,
        experts * factor,
        attention,
        head * factor,
        allreduce * factor,
        (fixed + launches) * factor,
    )


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
    t = np.asarray(tokens, np.float64)
    if draft is None or draft.part is None:
        return np.zeros_like(t)
    part = draft.part
    layers = part.model.layers
    bandwidth = cost.bandwidth
    rate = cost.flops(part.dense_dtype)
    if extend and draft.is_block:  # the features become keys and values; no layer runs
        features = cost.product_s(
            draft.fc_bytes / bandwidth, draft.fc_flops_per_token * t / rate, more_than_one(t)
        )
        return features + EXTEND_S * cost.launch_share
    weights = draft.step_bytes + (draft.fc_bytes if extend else 0.0)
    flops = draft.flops_per_token + (draft.fc_flops_per_token if extend else 0.0)
    layer = cost.product_s(weights / bandwidth, flops * t / rate, more_than_one(t))
    touched = active_experts(t, part.experts, part.experts_per_token)
    experts = part.moe_layers * touched * part.expert_bytes / bandwidth + (
        part.expert_flops_per_token * t / rate
    )
    drawn = np.asarray(rows, np.float64)
    head = cost.product_s(
        part.head_bytes / bandwidth,
        part.head_flops_per_token * drawn / rate,
        more_than_one(drawn),
    )
    cache = part.kv_bytes_per_token * np.asarray(context_tokens, np.float64) / bandwidth
    floor = EXTEND_S if extend else DRAFT_FORWARD_S * max(1.0, layers / 4)
    if cost.draft_eager:
        floor += EAGER_DRAFT_S
    floor *= cost.launch_share
    total: Floats = layer + experts + head + cache + floor
    if part.tp > 1:
        total = total + cost.allreduce_s(t, part.model.hidden, layers)
    return total


def depth_s(cost: CostModel, batch: Floats, depths: Floats) -> Floats:
    """Price what a depth takes beside the drafter's layers                          (DEPTHS).

    T = depths (bytes / bandwidth + floor) of a depth's own head, if there is one; and for a block
    `BLOCK_ROW_S` for each request's row.
    """
    draft, row_s = cost.draft, np.zeros_like(batch)
    if draft is not None and draft.depth_bytes:
        flops = draft.depth_flops_per_token * batch / cost.flops("bf16")
        own = cost.product_s(draft.depth_bytes / cost.bandwidth, flops, more_than_one(batch))
        row_s = own + DEPTH_S * cost.launch_share
    if draft is not None and draft.is_block:
        row_s = row_s + BLOCK_ROW_S * batch
    total: Floats = row_s * depths
    return total


def overhead_s(
    cost: CostModel, batch: ArrayLike, run_ahead: ArrayLike, forwards: ArrayLike = 0
) -> Floats:
    """Return what a round of `forwards` costs whatever it drafts, seconds          (OVERHEAD)."""
    p = cost.parameters
    waits = np.where(run_ahead, RUN_AHEAD_OVERHEAD_S, OVERHEAD_S)
    if cost.host_plans:
        waits = OVERHEAD_S + HOST_PLAN_S * np.asarray(forwards, np.float64)
    once = waits * p["round_overhead"]
    each = DRAFTING_PER_REQUEST_S * p["drafting_per_request"]
    return once + each * np.asarray(batch, np.float64)  # a CPU samples and waits as well


def draft_time(
    cost: CostModel,
    batch: ArrayLike,
    topk: ArrayLike,
    width: ArrayLike,
    draft_forwards: ArrayLike,
    extend_tokens: ArrayLike,
    context_tokens: ArrayLike,
    loaded: ArrayLike = False,
    run_ahead: ArrayLike = False,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Price what speculation adds to a round, arrays broadcast.

    Counts are those of :func:`specsim.cost.round_time`; `run_ahead` says whether the CPU never
    waits for the accepted tokens.

    Returns
    -------
    draft_s, tree_s, overhead_s, extend_s
        Seconds; zero without a drafter.
    """
    b = np.asarray(batch, np.float64)
    n = np.asarray(width, np.float64)
    speculates = (n > 1) | np.asarray(loaded, np.bool_)
    scale = np.where(speculates, cost.parameters["draft"], 0.0)
    rows, forwards = np.asarray(topk, np.float64), np.asarray(draft_forwards, np.float64)
    steps = forwards * draft_forward_s(cost, b * rows, context_tokens, b * rows)
    depths = rows if cost.draft is not None and cost.draft.is_block else 1.0
    steps = steps + depth_s(cost, b, forwards * depths)
    extended = np.asarray(extend_tokens, np.float64)
    extend = np.where(
        extended > 0, draft_forward_s(cost, extended, context_tokens, b, extend=True), 0.0
    )
    tree = np.where(n > 1, (TREE_S + TREE_PER_TOKEN_S * b * n) * cost.launch_share, 0.0)
    every = forwards + (extended > 0) + 1.0  # with the extend and the verification
    overhead = np.where(speculates, overhead_s(cost, b, run_ahead, every), 0.0)
    return steps * scale, tree * scale, overhead, extend * scale
