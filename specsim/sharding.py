"""What one GPU of a server holds, reads and computes: bytes and FLOPs after parallelism.

Conventions, the same for every field here:

- `tp` counts all GPUs that hold one copy of the model. `dp` is data-parallel attention within them
  (SGLang's meaning; vLLM's tp x dp is our tp): attention is split over tp/dp GPUs, everything
  else over tp. `ep` is how many groups the experts are dealt out to. `dcp` is decode context
  parallelism: ranks that would hold copies of one cache hold a part of the context each.
- Numbers "per token" are per token of the whole server's batch, averaged over its GPUs: with
  dp = 8 a GPU sees an eighth of the tokens, and that eighth is already in the number.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specsim.architecture import AttentionGroup, ModelArchitecture
from specsim.errors import InputError
from specsim.quantisation import BF16_BYTES, Quantisation, kv_dtype_bytes, load_quantisation

PICKED_HEADS = 64
"""Query heads that kernels of picked entries compute for: fewer are padded to a multiple (PICKS).

A layer of GLM-5 on an H200 (vLLM 0.24, FP8 cache) takes 1.0 us for each further row with 1, 8 or 64
heads alike and 2.3 with 128, and with a context of 16 tokens what it takes with 2048: the kernel
works through 2048 picks. With a bf16 cache it is told how many there are and takes 0.24 us and 0.8
[@layer-tables]. At tp 8 that is eight times GLM-5's own products, in every row that is verified."""


@dataclass(frozen=True, slots=True)
class AttentionShare:
    """One GPU's share of the layers of a group.

    A row's products over picked entries, with h query heads on the GPU and 64 = `PICKED_HEADS`:

        flops = entries * pair_flops(64 ceil(h / 64)),  all picks from an 8-bit cache        (PICKS)
    """

    group: AttentionGroup
    bytes_per_entry: float  # of the cache
    flops_per_entry: float  # for one query token
    whole_picks: bool  # whether a row's products are of all picks, however short the context
    index_bytes_per_token: float  # of the context, whatever attention reads of it
    index_flops_per_token: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedModel:
    """One GPU's share of a model."""

    model: ModelArchitecture
    quantisation: str  # scheme of its weights
    tp: int
    dp: int
    ep: int
    dcp: int
    # Weights that every step reads whole, all layers: attention, dense FFN, shared experts, router,
    # norms. Without the head.
    dense_bytes: float
    # Per routed expert of one MoE layer, averaged over GPUs: N active experts in a layer read
    # N * expert_bytes. With ep > 1 an expert lies whole on fewer GPUs, which the average holds.
    expert_bytes: float
    moe_layers: int  # as in the model, like the next two
    experts: int
    experts_per_token: int
    head_bytes: float  # LM head (vocabulary-parallel)
    kv_bytes_per_token: float  # KV cache of one token, all layers
    kv_dtype_bytes: float  # bytes per number in it
    state_bytes_per_request: float  # linear-attention state of one request
    flops_per_token: float  # in what dense_bytes holds
    head_flops_per_token: float
    expert_flops_per_token: float  # in its routed experts, all MoE layers
    attention: tuple[AttentionShare, ...]
    weight_bytes_total: float  # one copy of the model: the checkpoint's size
    weight_bytes_per_gpu: float  # memory for weights, embedding included
    dense_dtype: str  # number types that the GEMMs run in (`Gpu.compute`)
    expert_dtype: str

    @property
    def attention_tp(self) -> int:
        """GPUs that share one request's attention."""
        return self.tp // self.dp

    @property
    def exchanged_bytes_per_token(self) -> float:
        """Bytes of queries that a rank of `dcp` gathers for one token in one layer."""
        width = max(self.model.head_dim, self.model.kv_lora_rank + self.model.qk_rope_head_dim)
        return BF16_BYTES * width * self.model.heads / self.attention_tp * self.dcp

    def attention_work(
        self, context_len: Any, least: Callable[[Any, Any], Any] = min
    ) -> tuple[Any, Any]:
        """Bytes and FLOPs of one query row's attention on one GPU at that context (SPARSE).

        Windowed layers read their window at most, sparse ones what their indexer picks, and the
        indexer all of its keys; a linear layer reads and writes its state. Kernels of picks from an
        8-bit cache compute with all of them, those that a short context lacks as well. `least` is
        the minimum of two, for arrays numpy's.
        """
        size, flops = 2 * self.state_bytes_per_request, 0.0
        for share in self.attention:
            entries = share.group.entries(context_len, least)
            size += share.bytes_per_entry * entries
            flops += share.flops_per_entry * (share.group.topk if share.whole_picks else entries)
            if share.index_bytes_per_token:
                size += share.index_bytes_per_token * context_len
                flops += share.index_flops_per_token * context_len
        return size, flops

    def head_cache_bytes(self, context_len: Any, least: Callable[[Any, Any], Any] = min) -> Any:
        """Bytes of one head's cache of one sequence that attention reads, all layers."""
        return sum(
            group.layers
            * group.numbers
            * self.kv_dtype_bytes
            / group.cache_heads
            / self.dcp
            * group.entries(context_len, least)
            for group in (share.group for share in self.attention)
        )


def shard(
    model: ModelArchitecture,
    quantisation: str = "native",
    tp: int = 1,
    dp: int = 1,
    ep: int = 1,
    kv_dtype: str = "bf16",
    weight_bytes: float | None = None,
    dcp: int = 1,
) -> ShardedModel:
    """Split a model over GPUs.

    Parameters
    ----------
    model
        Its shape.
    quantisation
        Scheme of the weights; ``native`` is the model's own.
    tp, dp, ep
        Degrees of parallelism (conventions of :mod:`specsim.sharding`).
    kv_dtype
        Type of the KV cache.
    weight_bytes
        Size of the checkpoint, where it is known better than derived; scales all weight bytes.
    dcp
        Degree of decode context parallelism.

    Raises
    ------
    InputError
        If the model cannot be split so, or `weight_bytes` is far from what the shape gives.

    Examples
    --------
    >>> from specsim.architecture import load_model
    >>> kimi = shard(load_model("kimi-k2.5"), "int4-experts", tp=8)
    >>> f"{kimi.expert_bytes / 1e6:.2f} MB, {kimi.weight_bytes_total / 1e9:.0f} GB"
    '3.10 MB, 594 GB'
    """
    scheme = scheme_for(model, quantisation)
    _check_degrees(model, tp, dp, ep, dcp)
    total = _checkpoint_bytes(model, scheme)
    scale = _scale(model, scheme, total, weight_bytes)
    attention_tp = tp // dp
    attention = _attention_on_gpu(model, attention_tp)
    ffn = model.ffn_params / tp
    router = model.moe_layers * model.router_params
    small = (router + model.norm_params) * BF16_BYTES
    dense = scale * (attention * scheme.attention + ffn * scheme.dense + small)
    expert = scale * model.expert_params * scheme.experts / tp
    head = scale * model.head_params * scheme.head / tp
    embedding = 0.0 if model.tied_embeddings else head
    kv_size = kv_dtype_bytes(kv_dtype)
    shares = tuple(
        _share(group, model.heads, tp, dp, dcp, kv_size) for group in model.attention_groups
    )
    return ShardedModel(
        model=model,
        quantisation=scheme.id,
        tp=tp,
        dp=dp,
        ep=ep,
        dcp=dcp,
        dense_bytes=dense,
        expert_bytes=expert,
        moe_layers=model.moe_layers,
        experts=model.experts,
        experts_per_token=model.experts_per_token,
        head_bytes=head,
        kv_bytes_per_token=sum(
            share.bytes_per_entry * share.group.entries_per_token + share.index_bytes_per_token
            for share in shares
        ),
        kv_dtype_bytes=kv_size,
        state_bytes_per_request=model.linear_layers * model.linear_state_bytes / tp,
        flops_per_token=2 * ((attention + router + model.norm_params) / dp + ffn),
        head_flops_per_token=2 * model.head_params / tp,
        expert_flops_per_token=(
            2 * model.moe_layers * model.experts_per_token * model.expert_params / tp
        ),
        attention=shares,
        weight_bytes_total=scale * total,
        weight_bytes_per_gpu=(dense + model.moe_layers * model.experts * expert + head + embedding),
        dense_dtype=scheme.dense_dtype,
        expert_dtype=scheme.expert_dtype,
    )


def scheme_for(model: ModelArchitecture, quantisation: str) -> Quantisation:
    """Return the scheme, ``native`` resolved, if it says something about this model."""
    native = quantisation.strip().lower() == "native"
    scheme = load_quantisation(model.native_quantisation if native else quantisation)
    if "-experts" in scheme.id and scheme.dense == BF16_BYTES and not model.experts:
        why = f"compresses experts, and {model.id} has none"
        remedy = f"use {scheme.id.removesuffix('-experts')!r} or 'bf16'"
        raise InputError(f"quantisation {scheme.id}", why, remedy)
    return scheme


def _check_degrees(model: ModelArchitecture, tp: int, dp: int, ep: int, dcp: int) -> None:
    for name, degree in (("tp", tp), ("dp", dp), ("ep", ep)):
        if degree < 1:
            raise InputError(f"{name} {degree}", "must be at least 1", "use 1 for none")
        if tp % degree:
            remedy = "let tp count all GPUs of one copy of the model (vLLM's tp times dp)"
            raise InputError(f"{name} {degree}", f"does not divide tp {tp}", remedy)
    ranks = tp // dp
    given = f"tp {tp}" + (f" with dp {dp}" if dp > 1 else "")
    if model.heads % ranks:
        why = f"splits attention over {ranks} GPUs, and {model.id} has {model.heads} heads"
        raise InputError(given, why, f"use a divisor of {model.heads}")
    for heads in {group.cache_heads for group in model.attention_groups}:
        if heads % ranks and ranks % heads:
            why = f"neither divides nor is a multiple of the {heads} KV heads of {model.id}"
            raise InputError(given, why, "use another tp")
    if ep > 1 and (not model.experts or model.experts % ep):
        why = f"does not divide the {model.experts} experts of {model.id}"
        raise InputError(f"ep {ep}", why, "use ep 1")
    heads = max((group.cache_heads for group in model.attention_groups), default=1)
    copies = max(1, ranks // heads)
    if dcp < 1 or copies % dcp:
        why = f"does not divide the copies of a cache of {heads} heads on {ranks} ranks: {copies}"
        raise InputError(f"dcp {dcp}", why, f"use a divisor of {copies}")


def _attention_on_gpu(model: ModelArchitecture, ranks: int) -> float:
    """Attention parameters on one of `ranks` GPUs, all layers.

    K and V projections have a copy on each rank once there are more ranks than KV heads; the down
    projections of MLA and indexers are whole on every rank.
    """
    on_gpu = model.linear_layers * model.linear_params / ranks
    for group in model.attention_groups:
        layer = group.params
        split = layer.split / ranks + layer.kv / min(ranks, group.cache_heads)
        on_gpu += group.layers * (split + layer.replicated) + group.index_params
    return on_gpu


def _share(
    group: AttentionGroup, query_heads: int, tp: int, dp: int, dcp: int, kv_bytes: float
) -> AttentionShare:
    """Split a group: requests over dp, heads over the GPUs of a request, the context over dcp."""
    parts = min(tp // dp, group.cache_heads)
    padded = 1.0
    if group.indexers:
        heads = query_heads / (tp // dp)
        padded = math.ceil(heads / PICKED_HEADS) * PICKED_HEADS / heads
    index_flops = group.indexers * group.indexer.pair_flops if group.indexer else 0
    return AttentionShare(
        group,
        group.layers * group.numbers * kv_bytes / parts / dp / dcp,
        padded * group.layers * group.pair_flops / tp,
        group.indexers > 0 and not group.ratio and kv_bytes < BF16_BYTES,
        group.index_bytes_per_token / dp / dcp,
        index_flops * group.entries_per_token / dp / dcp,
    )


def _checkpoint_bytes(model: ModelArchitecture, scheme: Quantisation) -> float:
    small = model.moe_layers * model.router_params + model.norm_params
    attention = model.dense_params - model.ffn_params - small
    routed = model.moe_layers * model.experts * model.expert_params
    matrices = model.head_params * (1 if model.tied_embeddings else 2)
    return (
        attention * scheme.attention
        + model.ffn_params * scheme.dense
        + small * BF16_BYTES
        + routed * scheme.experts
        + matrices * scheme.head
    )


def _scale(
    model: ModelArchitecture, scheme: Quantisation, total: float, weight_bytes: float | None
) -> float:
    if weight_bytes is None:
        return 1.0
    ratio = weight_bytes / total
    if not (math.isfinite(ratio) and 0.25 <= ratio <= 4):
        why = f"is far from the {total:.3g} bytes of {model.id} in {scheme.id}"
        remedy = "give bytes (547 GB is 547e9), and the scheme that the weights are in"
        raise InputError(f"weight_bytes {weight_bytes:g}", why, remedy)
    return ratio
