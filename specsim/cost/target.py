"""The target's forward on a batch: dense and expert weights, KV cache, head, all-reduce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from specsim.cost.model import (
    DENSE_LAYER_S,
    EAGER_LAYER_S,
    MOE_LAYER_S,
    CostModel,
    active_experts,
    correction_factor,
    more_than_one,
)

if TYPE_CHECKING:
    from specsim.arrays import Floats

ATTENTION_EFFICIENCY = 0.4
"""Assumed: share of the GEMM rate that decode-sized attention kernels reach when they compute."""
CPU_ATTENTION_EFFICIENCY = 0.07
"""Assumed: the same on a CPU, whose kernel takes one row and one cell at a time: 38 ns per head and
cell of 64 dimensions (llama-batched-bench of SmolLM2-135M on two cores)."""

PER_REQUEST_S = 15e-6
"""Assumed: sampling and metadata on the GPU per running request and round."""


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

    Parameters
    ----------
    cost
        The system.
    batch, width
        Requests, and query rows n of each.
    context_tokens
        Tokens in the KV cache, all requests together.
    """
    p, target = cost.parameters, cost.target
    b, n = np.asarray(batch, dtype=np.float64), np.asarray(width, dtype=np.float64)
    kv = np.asarray(context_tokens, dtype=np.float64)
    context = kv / np.where(b > 0, b, 1.0)
    per_request = _kv_read_bytes(cost, context)
    reads = 1.0 + (n - 1.0) * p["kv_reads"]
    rows_to_fill = p["attention_fill"] * np.where(n > 1, p["verify_fill"], 1.0)
    fill = np.hypot(1.0, rows_to_fill / np.maximum(b * reads, 1.0))
    memory = b * per_request * reads * fill * p["attention"] / cost.bandwidth
    share = CPU_ATTENTION_EFFICIENCY if cost.gpu.is_cpu else ATTENTION_EFFICIENCY
    rate = cost.flops("bf16") * share
    own = cost.operation_s(memory, target.attention_flops_per_pair * kv * n / rate)
    return np.asarray(own * cost.walked(b), dtype=np.float64)


def _kv_read_bytes(cost: CostModel, context: Floats) -> Floats:
    """Bytes one query row's attention moves at that context; windows and states included."""
    target = cost.target
    model = target.model
    linear = target.kv_bytes_per_token * context
    if not model.sliding_window and not model.linear_layers:
        return linear
    points = np.array([target.kv_read_bytes(x) for x in context.ravel().tolist()])
    return points.reshape(context.shape)


def target_time(
    cost: CostModel,
    batch: ArrayLike,
    width: ArrayLike,
    context_tokens: ArrayLike,
    padded: ArrayLike | None = None,
    eager: ArrayLike = False,
    draft_share: ArrayLike = 1.0,
) -> TargetTime:
    """Price one target forward, arrays broadcast against each other (TARGET).

    Parameters
    ----------
    cost
        The system.
    batch
        Running requests B.
    width
        Tokens per request n; 1 without speculation.
    context_tokens
        Tokens in the KV cache, all requests together.
    padded
        Requests that the captured graph computes; `batch` if None. Padding rows cost dense work
        and messages, but route to the experts of one token.
    eager
        Whether the forward runs without a CUDA graph: launches then bound it from below.
    draft_share
        Share of its rounds in which a request has a draft to verify; `width` is a mean over all.
    """
    p, target = cost.parameters, cost.target
    b = np.asarray(batch, dtype=np.float64)
    n = np.asarray(width, dtype=np.float64)
    tokens = (b if padded is None else np.asarray(padded, dtype=np.float64)) * n
    alone = 1.0 - more_than_one(b)
    several = np.where(n > 1.0, 1.0 - alone * (1.0 - np.asarray(draft_share)), 1.0 - alone)
    factor = correction_factor(p, b * n)
    bandwidth = cost.bandwidth
    dense = cost.product_s(
        target.dense_bytes / bandwidth,
        target.flops_per_token * tokens / cost.flops(target.dense_dtype),
        several,
    )
    routed = b * np.power(n, p["expert_sharing"])
    touched = active_experts(routed, target.experts, target.experts_per_token) * p["coverage"]
    experts = target.moe_layers * touched * target.expert_bytes / bandwidth + (
        target.expert_flops_per_token * b * n / cost.flops("bf16")
    )
    head = cost.product_s(
        target.head_bytes / bandwidth,
        target.head_flops_per_token * tokens / cost.flops(target.dense_dtype),
        several,
    )
    layers = target.model.layers
    moe = target.moe_layers
    floor = ((layers - moe) * DENSE_LAYER_S + moe * MOE_LAYER_S) * p["target_fixed"]
    fixed = floor + PER_REQUEST_S * p["per_request"] * b
    attention = attention_s(cost, b, n, context_tokens)
    allreduce = cost.allreduce_s(tokens, target.model.hidden, layers)
    allreduce = allreduce + cost.gather_s(tokens, target.model.vocab)
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
