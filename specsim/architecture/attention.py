"""Groups of attention layers: what they are built of, what they cache and what they read."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
