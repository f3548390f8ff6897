"""What one GPU of a server holds, reads and computes of a drafter (see `sharding`)."""

import math
from dataclasses import dataclass

from specsim.architecture import BLOCK_KINDS, DraftArchitecture, DraftKind, ModelArchitecture
from specsim.quantisation import BF16_BYTES, load_quantisation
from specsim.sharding import ShardedModel, scheme_for, shard


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedDraft:
    """One GPU's share of a drafter; per forward, all its layers."""

    draft: DraftArchitecture
    part: ShardedModel | None = None  # its layers and head; None without layers
    step_bytes: float = 0.0  # weights that every forward reads, without head and routed experts
    flops_per_token: float = 0.0  # in them
    fc_bytes: float = 0.0  # read besides, once per extend: EAGLE-3's projection of target features
    fc_flops_per_token: float = 0.0
    depth_bytes: float = 0.0  # read besides, once per depth: Medusa's heads, a Markov head
    depth_flops_per_token: float = 0.0
    weight_bytes_per_gpu: float = 0.0  # its own: not the target's head and embedding

    @property
    def kind(self) -> DraftKind:
        """Kind of the drafter."""
        return self.draft.kind

    @property
    def is_block(self) -> bool:
        """Whether one forward drafts all depths."""
        return self.kind in BLOCK_KINDS

    @property
    def kv_bytes_per_token(self) -> float:
        """KV cache of one token; every layer of a multi-layer MTP has its own."""
        return 0.0 if self.part is None else self.draft.copies * self.part.kv_bytes_per_token


def shard_draft(
    draft: DraftArchitecture,
    target: ModelArchitecture,
    quantisation: str = "native",
    tp: int = 1,
    dp: int = 1,
    ep: int = 1,
    kv_dtype: str = "bf16",
    draft_quantisation: str | None = None,
    dcp: int = 1,
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
    dcp
        As in :func:`shard`, where the drafter's ranks hold copies of its cache.

    Examples
    --------
    >>> from specsim.architecture import load_draft, load_model
    >>> kimi = load_model("kimi-k2.5")
    >>> eagle = shard_draft(load_draft("kimi-k2.5-eagle3", kimi), kimi, "int4-experts", tp=1)
    >>> f"{(eagle.step_bytes + eagle.part.head_bytes) / 1e9:.2f} GB"
    '2.07 GB'
    """
    depth = draft.depth_params / tp
    if draft.shape is None:
        return ShardedDraft(
            draft=draft,
            depth_bytes=BF16_BYTES * depth,
            depth_flops_per_token=2 * depth,
            weight_bytes_per_gpu=BF16_BYTES * depth * draft.copies,
        )
    own = draft_quantisation or "native"
    if draft.follows_target and draft_quantisation is None:
        own = scheme_for(target, quantisation).id
    copies = tp // dp // min(tp // dp, *(g.cache_heads for g in draft.shape.attention_groups))
    part = shard(
        draft.shape,
        own,
        tp,
        dp,
        ep if draft.shape.experts else 1,
        kv_dtype,
        dcp=math.gcd(dcp, max(1, copies)),
    )
    size = load_quantisation(part.quantisation).dense
    step, fc = part.dense_bytes + draft.input_params * size, draft.fc_params * size
    head = part.head_bytes if draft.own_head else 0.0
    embeds = draft.kind == "standalone" and not draft.shape.tied_embeddings
    experts = part.moe_layers * part.experts * part.expert_bytes
    return ShardedDraft(
        draft=draft,
        part=part,
        step_bytes=step,
        flops_per_token=part.flops_per_token + 2 * draft.input_params / dp,
        fc_bytes=fc,
        fc_flops_per_token=2 * draft.fc_params / dp,
        depth_bytes=BF16_BYTES * depth,
        depth_flops_per_token=2 * depth,
        weight_bytes_per_gpu=(
            draft.copies * (step + experts)
            + fc
            + head
            + (part.head_bytes if embeds else 0.0)
            + BF16_BYTES * depth
        ),
    )
