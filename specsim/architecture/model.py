"""The shape of a model, what its attention caches and reads, and what follows in parameters."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from specsim.errors import InputError
from specsim.library import positive
from specsim.quantisation import kv_dtype_bytes, load_quantisation
from specsim.uncertainty import Evidence

INDEX_SCALE_BYTES = 4
"""The cache of an indexer holds 8-bit keys and an fp32 scale for each (DeepSeek-V3.2's kernels)."""


@dataclass(frozen=True, slots=True)
class AttentionParams:
    """Parameters of one attention layer by how tensor parallelism treats them."""

    split: int  # divided by the TP degree (by heads)
    kv: int  # K and V projections of grouped-query attention: divided by min(TP, kv_heads)
    replicated: int  # whole on every rank: the down projections of MLA

    @property
    def total(self) -> int:
        """Parameters of the layer."""
        return self.split + self.kv + self.replicated


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """What picks the entries that sparse attention reads: a small attention over all of them."""

    heads: int
    head_dim: int
    params: int  # whole on every rank

    @property
    def bytes_per_entry(self) -> int:
        """Bytes of one key, whatever the type of the KV cache."""
        return self.head_dim + INDEX_SCALE_BYTES

    @property
    def pair_flops(self) -> int:
        """FLOPs for one query token and one entry."""
        return 2 * self.heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionGroup:
    """Attention layers that are built alike and read alike.

    Of a context of c tokens one query token reads                                       (SPARSE)

        min(c, window) + min(c / ratio, topk)    where entries are compressed,
        min(c, window)  or  min(c, topk)         elsewhere.
    """

    layers: int
    params: AttentionParams  # of one layer
    cache_heads: int  # parts that the cache falls into over GPUs; 1: whole on every one
    numbers: int  # in one cached entry of one layer
    pair_flops: int  # of one layer for one query token and one entry, all heads
    window: int = 0  # last tokens that are read as they are; 0: no bound
    ratio: float = 0.0  # tokens of a compressed entry, inf: none is kept; 0: not compressed
    topk: float = math.inf  # most entries that the indexer picks
    indexer: Indexer | None = None
    indexers: int = 0  # layers with their own; the others read what it picked

    @property
    def total_params(self) -> int:
        """Parameters of all layers of the group."""
        return self.layers * self.params.total + self.index_params

    @property
    def index_params(self) -> int:
        """Parameters of all indexers."""
        return self.indexers * self.indexer.params if self.indexer else 0

    def entries(self, context_len: Any, least: Callable[[Any, Any], Any] = min) -> Any:
        """Entries of a layer that a query token reads (SPARSE); `least` of arrays is numpy's."""
        if self.ratio:
            return least(context_len, self.window) + least(context_len / self.ratio, self.topk)
        bound = self.window or self.topk
        return context_len if bound == math.inf else least(context_len, bound)

    @property
    def index_bytes_per_token(self) -> float:
        """Bytes that the indexers of all layers keep and read for each token of the context."""
        own = self.indexers * self.indexer.bytes_per_entry if self.indexer else 0
        return own * self.entries_per_token

    @property
    def entries_per_token(self) -> float:
        """Entries that a token adds to the cache of one layer."""
        return 1.0 / self.ratio if self.ratio else 1.0


Attention = Literal["gqa", "mla"]

_ALWAYS = ("layers", "hidden", "vocab", "heads", "kv_heads", "head_dim", "qkv_inputs")
MLA = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
NEEDED = {
    "dense_layers": ("ffn_inter",),
    "experts": ("experts_per_token", "moe_inter"),
    "sliding_layers": ("sliding_window",),
    "compressed": ("sliding_window",),
    "index_topk": ("index_heads", "index_head_dim"),
    "o_lora_rank": ("o_groups",),
    "linear_layers": ("linear_params",),
}
"""Fields that must be positive: of every model, of latent attention, and where another one is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArchitecture:
    """Shape of a decoder-only model: attention or linear layers, FFNs or experts."""

    id: str  # library id, or where the shape is from
    layers: int
    hidden: int
    vocab: int
    attention: Attention  # "gqa" (grouped-query; MHA is kv_heads = heads) or "mla" (latent)
    heads: int
    kv_heads: int  # MLA: unused, set to heads
    head_dim: int
    dense_layers: int  # layers with a dense FFN (all of them without experts)
    ffn_inter: int = 0  # width of the FFN in the dense layers
    ffn_matrices: int = 3  # gate, up and down; 2 without a gate
    ffn_only_layers: int = 0  # layers that are an FFN or experts alone, where mixers are layers too
    mixer_only_layers: int = 0  # layers that are attention or a linear layer alone
    q_lora_rank: int = 0  # 0: queries are projected in one go
    kv_lora_rank: int = 0  # MLA, as the next two
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0  # 0: as head_dim
    o_lora_rank: int = 0  # the output is projected in two goes: `o_groups` parts to this rank each
    o_groups: int = 0
    shared_kv: bool = False  # whether one projection gives both K and V of full attention
    experts: int = 0  # routed, per MoE layer
    experts_per_token: int = 0
    shared_experts: int = 0  # that every token takes
    shared_inter: int = 0  # width of them all; 0: shared_experts * moe_inter
    moe_inter: int = 0  # width of one expert
    expert_hidden: int = 0  # what routed experts read, a projection before and after; 0: hidden
    tied_embeddings: bool = False  # whether the LM head is the embedding matrix
    native_quantisation: str = "bf16"  # scheme in which it is published
    kv_dtype: str = ""  # of the KV cache, where the checkpoint states one
    mtp_layers: int = 0  # multi-token prediction, not counted in any total here
    sliding_window: int = 0  # tokens
    sliding_layers: int = 0  # layers that have that window
    sliding_heads: int = 0  # where they differ from the full layers, as the next three
    sliding_kv_heads: int = 0
    sliding_head_dim: int = 0
    sliding_v_head_dim: int = 0
    index_topk: int = 0  # most entries that sparse attention reads
    index_heads: int = 0
    index_head_dim: int = 0
    sparse_layers: int = 0  # full layers that are sparse; 0: all, where index_topk is given
    index_shared_layers: int = 0  # of them, those that read what another layer's indexer picked
    # (layers, tokens per entry) of layers that read their window and compressed entries; 0 tokens:
    # the window alone; those with the fewest tokens per entry have the indexer
    compressed: tuple[tuple[int, int], ...] = ()
    linear_layers: int = 0  # linear attention: no KV cache
    linear_params: int = 0  # of one such layer
    linear_state_bytes: int = 0  # its state per request
    query_gate: bool = False  # whether full attention has a gate as large as its query projection
    # Width of what QKV reads, in units of `hidden`: an EAGLE-3 drafter reads the embedding beside
    # the hidden state.
    qkv_inputs: int = 1
    evidence: Evidence = "assumed"
    source: str = ""

    def __post_init__(self) -> None:
        load_quantisation(self.native_quantisation)
        kv_dtype_bytes(self.kv_dtype or "auto")
        latent = MLA if self.attention == "mla" else ()
        needed = [key for of, keys in NEEDED.items() if getattr(self, of) for key in keys]
        for key in (*_ALWAYS, *latent, *needed):
            positive(f"model {self.id}: {key}", getattr(self, key))
        for key in self.__slots__:
            value = getattr(self, key)
            if isinstance(value, int) and value < 0:
                self._refuse(key, "is negative", "use 0 for none")
        if self.heads % self.kv_heads:
            self._refuse("kv_heads", f"do not divide the {self.heads} heads", "check both")
        if self.experts_per_token > self.experts:
            self._refuse("experts_per_token", f"exceed {self.experts} experts", "check both")
        if self.dense_layers > self.layers or (not self.experts and self.moe_layers):
            self._refuse("dense_layers", f"do not fit {self.layers} layers", "check both")
        if self.full_layers < 0 or self.moe_layers < 0:
            self._refuse("sliding_layers", f"exceed the {self.layers} layers", "check both")
        if self.sliding_heads % (self.sliding_kv_heads or 1):
            self._refuse("sliding_kv_heads", f"do not divide {self.sliding_heads}", "check both")
        if self.sparse_layers > self.full_layers or self.index_shared_layers >= self.layers:
            self._refuse("sparse_layers", f"exceed {self.full_layers} full layers", "check both")
        if self.compressed and sum(n for n, _ in self.compressed) != self.full_layers:
            self._refuse("compressed", f"is not of {self.full_layers} layers", "check both")

    def _refuse(self, key: str, reason: str, remedy: str) -> None:
        raise InputError(f"model {self.id}: {key} = {getattr(self, key)}", reason, remedy)

    @property
    def moe_layers(self) -> int:
        """Layers with routed experts."""
        return self.layers - self.dense_layers - self.mixer_only_layers

    @property
    def full_layers(self) -> int:
        """Attention layers without a window; those that compress or pick what they read count."""
        mixers = self.layers - self.ffn_only_layers
        return mixers - self.sliding_layers - self.linear_layers

    @property
    def depth(self) -> float:
        """Layers of a mixer and an FFN each: a layer that is one of them counts half."""
        return self.layers - (self.ffn_only_layers + self.mixer_only_layers) / 2

    @property
    def attention_groups(self) -> tuple[AttentionGroup, ...]:
        """Attention layers by what they cache and read."""
        full = self._full_group(self.full_layers)
        if self.compressed:
            groups = [self._compressed_group(*pair) for pair in self.compressed]
        elif self.index_topk:
            sparse = self.sparse_layers or self.full_layers
            own = sparse - min(self.index_shared_layers, sparse)
            picks = replace(full, topk=self.index_topk, indexer=self._indexer(), indexers=own)
            whole = replace(full, layers=self.full_layers - sparse)
            groups = [replace(picks, layers=sparse), whole]
        else:
            groups = [full]
        if self.sliding_layers:
            groups.append(self._sliding_group())
        return tuple(group for group in groups if group.layers)

    def _full_group(self, layers: int) -> AttentionGroup:
        """Return full-attention layers, without an indexer.

        GQA: q and o are hidden x heads x head_dim, k and v hidden x kv_heads x head_dim.
        MLA (DeepSeek-V2, arXiv 2405.04434, section 2.1): down projections of q and kv, then up
        projections by heads.
        """
        if self.attention == "gqa":
            sizes = (self.heads, self.kv_heads, self.head_dim, self.v_head_dim)
            return self._group(layers, *sizes, self.shared_kv)
        width = self.qkv_inputs * self.hidden
        numbers = self.kv_lora_rank + self.qk_rope_head_dim
        query = self.heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        up_kv = self.kv_lora_rank * self.heads * (self.qk_nope_head_dim + self.v_head_dim)
        out = self.heads * self.v_head_dim * self.hidden * (2 if self.query_gate else 1)
        split = query * (self.q_lora_rank or width) + up_kv + out
        # on the latent (absorbed projections): scores over latent and rotary key, sum over latent
        return AttentionGroup(
            layers=layers,
            params=AttentionParams(split, 0, width * (self.q_lora_rank + numbers)),
            cache_heads=1,
            numbers=numbers,
            pair_flops=2 * self.heads * (numbers + self.kv_lora_rank),
        )

    def _group(
        self, layers: int, heads: int, kv_heads: int, dim: int, v_dim: int, shared_kv: bool
    ) -> AttentionGroup:
        """Return grouped-query layers: scores and weighted sum take two FLOPs a number each."""
        width, rank, both = self.qkv_inputs * self.hidden, self.o_lora_rank, dim + (v_dim or dim)
        query = heads * dim * (self.q_lora_rank or width) * (2 if self.query_gate else 1)
        out = heads * (v_dim or dim) * (rank or self.hidden) + self.o_groups * rank * self.hidden
        kv = kv_heads * (dim if shared_kv else both) * width
        return AttentionGroup(
            layers=layers,
            params=AttentionParams(query + out, kv, width * self.q_lora_rank),
            cache_heads=kv_heads,
            numbers=kv_heads * both,
            pair_flops=2 * heads * both,
        )

    def _sliding_group(self) -> AttentionGroup:
        """Return the windowed layers; K and V are two projections there, whatever full ones do."""
        group = self._full_group(self.sliding_layers)
        if self.attention == "gqa":
            group = self._group(
                self.sliding_layers,
                self.sliding_heads or self.heads,
                self.sliding_kv_heads or self.kv_heads,
                self.sliding_head_dim or self.head_dim,
                self.sliding_v_head_dim or self.v_head_dim,
                False,
            )
        return replace(group, window=self.sliding_window)

    def _compressed_group(self, layers: int, tokens: int) -> AttentionGroup:
        """Return layers that cache one entry of `tokens` tokens, K and V in one (DeepSeek-V4).

        The compressor has two matrices hidden x head_dim; overlapping entries, which are those
        that an indexer picks from, take two of each (and the indexer has a compressor as well).
        """
        picks = self.index_topk > 0 and tokens == min(
            (n for _, n in self.compressed if n), default=-1
        )
        group = self._full_group(layers)
        compressor = 2 * self.hidden * (2 if picks else 1) if tokens else 0
        params = group.params
        whole = params.kv + params.replicated + compressor * self.head_dim
        indexer = self._indexer(compressor) if picks else None
        return replace(
            group,
            params=AttentionParams(params.split, 0, whole),
            cache_heads=1,
            numbers=self.kv_heads * self.head_dim,
            window=self.sliding_window,
            ratio=tokens or math.inf,
            topk=self.index_topk if picks else math.inf,
            indexer=indexer,
            indexers=layers if picks else 0,
        )

    def _indexer(self, compressor: int = 0) -> Indexer:
        """Return the indexer: queries by heads, one key, a weight per head (DeepSeek-V3.2)."""
        query = (self.q_lora_rank or self.hidden) * self.index_heads * self.index_head_dim
        key = (compressor or self.hidden) * self.index_head_dim
        params = query + key + self.hidden * self.index_heads
        return Indexer(heads=self.index_heads, head_dim=self.index_head_dim, params=params)

    @property
    def expert_params(self) -> int:
        """Parameters of one routed expert."""
        return self.ffn_matrices * (self.expert_hidden or self.hidden) * self.moe_inter

    @property
    def shared_width(self) -> int:
        """Width of the experts that every token takes, together."""
        return self.shared_inter or self.shared_experts * self.moe_inter

    @property
    def ffn_params(self) -> int:
        """Parameters of the dense FFNs and the shared experts, all layers."""
        widths = self.dense_layers * self.ffn_inter + self.moe_layers * self.shared_width
        return self.ffn_matrices * self.hidden * widths

    @property
    def router_params(self) -> int:
        """Parameters of one MoE layer's router, and of the projections around narrower experts."""
        return self.hidden * (self.experts + 2 * self.expert_hidden)

    @property
    def norm_params(self) -> int:
        """Parameters of all norms: one before each mixer and FFN, and a last one."""
        return (int(2 * self.depth) + 1) * self.hidden

    @property
    def head_params(self) -> int:
        """Parameters of the LM head, read whole in every step; the embedding has as many."""
        return self.hidden * self.vocab

    @property
    def dense_params(self) -> int:
        """Parameters that every token passes, the head left out."""
        return (
            sum(group.total_params for group in self.attention_groups)
            + self.linear_layers * self.linear_params
            + self.ffn_params
            + self.moe_layers * self.router_params
            + self.norm_params
        )

    @property
    def total_params(self) -> int:
        """All parameters; a tied embedding counts once; vision tower and MTP do not count.

        >>> from specsim.architecture import load_model
        >>> round(load_model("kimi-k2.5").total_params / 1e9, 1)
        1026.4
        """
        routed = self.moe_layers * self.experts * self.expert_params
        matrices = self.head_params * (1 if self.tied_embeddings else 2)
        return self.dense_params + routed + matrices

    @property
    def active_params(self) -> int:
        """Parameters that one token is multiplied with, head included."""
        routed = self.moe_layers * self.experts_per_token * self.expert_params
        return self.dense_params + routed + self.head_params

    def kv_bytes_per_token(self, kv_dtype_bytes: float = 2.0) -> float:
        """KV bytes of one token over all layers, one copy; windows are not applied."""
        return sum(
            group.layers * group.numbers * kv_dtype_bytes * group.entries_per_token
            + group.index_bytes_per_token
            for group in self.attention_groups
        )
