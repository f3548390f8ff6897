"""One GPU's share of a drafter; the conventions are those of :mod:`specsim.sharding`."""

from __future__ import annotations

from dataclasses import dataclass

from specsim.architecture import DraftArchitecture, DraftKind, ModelArchitecture
from specsim.quantisation import load_quantisation
from specsim.sharding.model import scheme_for, shard


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedDraft:
    """One GPU's share of a drafter; per forward, all its layers. All zero for ngram.

    Parameters
    ----------
    draft, quantisation
        What is sharded, and the scheme of its weights.
    tp, dp
        As for the target.
    layers, hidden, vocab
        Decoder layers (two all-reduces each), width, rows of the head.
    step_bytes
        Weights that every draft forward reads on one GPU, without head and routed experts.
    fc_bytes
        Read besides, once per extend: EAGLE-3's projection of target features, which is whole on
        every rank.
    head_bytes
        LM head on one GPU.
    expert_bytes, experts, experts_per_token, moe_layers
        As in :class:`ShardedModel`; for MTP and MoE drafters.
    kv_bytes_per_token
        KV cache of one token on one GPU.
    flops_per_token, fc_flops_per_token, head_flops_per_token, expert_flops_per_token
        FLOPs of one token in those parts.
    attention_flops_per_pair
        FLOPs per (query token, KV token) pair.
    weight_bytes_per_gpu
        Memory on one GPU for what is the drafter's own: not the target's head and embedding.
    dense_dtype, expert_dtype
        Number types the GEMMs run in.
    """

    draft: DraftArchitecture
    quantisation: str
    tp: int
    dp: int
    layers: int = 0
    hidden: int = 0
    vocab: int = 0
    step_bytes: float = 0.0
    fc_bytes: float = 0.0
    head_bytes: float = 0.0
    expert_bytes: float = 0.0
    experts: int = 0
    experts_per_token: int = 0
    moe_layers: int = 0
    kv_bytes_per_token: float = 0.0
    flops_per_token: float = 0.0
    fc_flops_per_token: float = 0.0
    head_flops_per_token: float = 0.0
    expert_flops_per_token: float = 0.0
    attention_flops_per_pair: float = 0.0
    weight_bytes_per_gpu: float = 0.0
    dense_dtype: str = "bf16"
    expert_dtype: str = "bf16"

    @property
    def kind(self) -> DraftKind:
        """Kind of the drafter."""
        return self.draft.kind


def shard_draft(
    draft: DraftArchitecture,
    target: ModelArchitecture,
    quantisation: str = "native",
    tp: int = 1,
    dp: int = 1,
    ep: int = 1,
    kv_dtype: str = "bf16",
    draft_quantisation: str | None = None,
) -> ShardedDraft:
    """Split a drafter over the target's GPUs.

    The projections in front of the layers (EAGLE-3's fc, EAGLE's and MTP's 2*hidden -> hidden)
    are whole on every rank, as SGLang and vLLM build them.

    Parameters
    ----------
    draft, target
        Shapes; `draft` was loaded for `target`.
    quantisation
        Scheme of the TARGET's weights, which an MTP layer shares.
    tp, dp, ep, kv_dtype
        As in :func:`shard`.
    draft_quantisation
        Scheme of the drafter's weights, where it is not its own published one.

    Examples
    --------
    >>> from specsim.architecture import load_draft, load_model
    >>> kimi = load_model("kimi-k2.5")
    >>> eagle = shard_draft(load_draft("kimi-k2.5-eagle3", kimi), kimi, "int4-experts", tp=1)
    >>> f"{(eagle.step_bytes + eagle.head_bytes) / 1e9:.2f} GB"
    '2.07 GB'
    """
    if draft.shape is None:
        return ShardedDraft(draft=draft, quantisation="bf16", tp=tp, dp=dp)
    own = draft_quantisation or "native"
    if draft.follows_target and draft_quantisation is None:
        own = scheme_for(target, quantisation).id
    part = shard(draft.shape, own, tp, dp, ep, kv_dtype)
    size = load_quantisation(part.quantisation).dense
    step = part.dense_bytes + draft.input_params * size
    fc = draft.fc_params * size
    head = part.head_bytes if draft.own_head else 0.0
    embedding = part.head_bytes if draft.kind == "standalone" else 0.0
    if draft.shape.tied_embeddings:
        embedding = 0.0
    return ShardedDraft(
        draft=draft,
        quantisation=part.quantisation,
        tp=tp,
        dp=dp,
        layers=draft.layers,
        hidden=draft.hidden,
        vocab=draft.draft_vocab,
        step_bytes=step,
        fc_bytes=fc,
        head_bytes=part.head_bytes,
        expert_bytes=part.expert_bytes,
        experts=part.experts,
        experts_per_token=part.experts_per_token,
        moe_layers=part.moe_layers,
        kv_bytes_per_token=part.kv_bytes_per_token,
        flops_per_token=part.flops_per_token + 2 * draft.input_params / dp,
        fc_flops_per_token=2 * draft.fc_params / dp,
        head_flops_per_token=part.head_flops_per_token,
        expert_flops_per_token=part.expert_flops_per_token,
        attention_flops_per_pair=part.attention_flops_per_pair,
        weight_bytes_per_gpu=step
        + fc
        + head
        + embedding
        + part.moe_layers * part.experts * part.expert_bytes,
        dense_dtype=part.dense_dtype,
        expert_dtype=part.expert_dtype,
    )
