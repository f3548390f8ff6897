"""Which points are measured, in which order, and what of them fits into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specsim.errors import InputError
from specsim.probe.shapes import LayerShape, StackShape

TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Decode steps: so many requests of a token each."""
WIDTHS = (1, 2, 4, 8, 16)
BATCHES = (1, 4, 16, 64)
"""Verify steps: batch times width, at most the largest token count."""
KV_BATCHES = (1, 8, 32)
CONTEXTS = (1024, 4096, 16384)
"""Decode steps over KV length."""

MOST_LAYERS = 4
CACHE_FACTOR = 4.0
"""Weights must exceed the last-level cache by this factor, or repeats would read them from it."""


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One step: `batch` requests, `width` tokens of each, `context_len` KV tokens of each."""

    batch: int
    width: int
    context_len: int

    @property
    def tokens(self) -> int:
        """Tokens of the forward."""
        return self.batch * self.width


@dataclass(frozen=True, slots=True)
class Layers:
    """How many layers of a kind are built, and how many the model has.

    A point is timed over all that were built and over `small` of them: the difference is what a
    layer costs, the rest what a forward costs besides its layers.
    """

    built: int
    small: int
    whole: int


def coarse_first(values: Sequence[int]) -> tuple[int, ...]:
    """Order values so that any first few span the range: ends, middle, quarters, ...

    Examples
    --------
    >>> coarse_first((1, 2, 4, 8, 16))
    (1, 16, 4, 2, 8)
    """
    rising = sorted(set(values))
    order = [rising[0], rising[-1]] if len(rising) > 1 else rising
    gaps = [(0, len(rising) - 1)]
    while gaps:
        low, high = gaps.pop(0)
        if high - low < 2:
            continue
        middle = (low + high) // 2
        order.append(rising[middle])
        gaps += [(low, middle), (middle, high)]
    return tuple(order)


def target_points(
    tokens: Sequence[int] = TOKENS,
    context_len: int = 1024,
    contexts: Sequence[int] = CONTEXTS,
) -> tuple[Point, ...]:
    """Return decode steps over tokens, verify steps over batch and width, then over KV length."""
    most = max(tokens)
    found = [Point(t, 1, context_len) for t in coarse_first(tokens)]
    found += [
        Point(b, n, context_len)
        for b in BATCHES
        for n in coarse_first(WIDTHS)
        if b * n <= most and b <= most
    ]
    found += [Point(b, 1, c) for c in coarse_first(contexts) for b in KV_BATCHES if b <= most]
    return tuple(dict.fromkeys(found))


def draft_points(tokens: Sequence[int] = TOKENS, context_len: int = 1024) -> tuple[Point, ...]:
    """Return draft steps over tokens (batch times topk)."""
    return tuple(Point(t, 1, context_len) for t in coarse_first(tokens) if t <= 256)


def extend_points(tokens: Sequence[int] = TOKENS, context_len: int = 1024) -> tuple[Point, ...]:
    """Return draft extends: batch times verified tokens."""
    most = max(tokens)
    points = (Point(b, n, context_len) for b in BATCHES for n in (4, 1, 8) if b * n <= most)
    return tuple(points)


def layers_that_fit(
    layer: LayerShape,
    whole: int,
    around_bytes: float,
    memory_bytes: float,
    cache_bytes: float,
    number_bytes: int,
    most: int = MOST_LAYERS,
) -> Layers:
    """Choose how many layers to build.

    At least `most` (or all there are), more where they would fit into the cache, fewer where
    memory is short; half of the memory is left for the KV cache and activations.

    Raises
    ------
    InputError
        If not even one layer fits.

    Examples
    --------
    >>> from specsim.architecture import load_model
    >>> from specsim.probe.shapes import target_shape
    >>> small = target_shape(load_model("smollm2-135m")).groups[0][0]
    >>> layers_that_fit(small, 30, 0, 1e9, 50e6, 2)
    Layers(built=29, small=14, whole=30)
    """
    size = layer.params * number_bytes
    wanted = max(most, int(CACHE_FACTOR * cache_bytes // size) + 1)
    room = int((memory_bytes / 2 - around_bytes) // size)
    built = min(whole, wanted, room)
    if built < 1:
        raise InputError(
            f"{memory_bytes / 1e9:.3g} GB of memory",
            f"do not hold one layer of {size / 1e9:.3g} GB, the head and a KV cache",
            "raise --max-memory-gb, or probe a share of the model with --tp",
        )
    return Layers(built, built // 2, whole)


def fitted_points(
    points: Sequence[Point],
    stack: StackShape,
    layer: LayerShape,
    layers: Layers,
    memory_bytes: float,
    number_bytes: int,
    base_context: int,
) -> tuple[Point, ...]:
    """Shorten contexts, or drop points, until cache and activations fit.

    Parameters
    ----------
    points
        As wanted.
    stack, layer, layers
        What is built.
    memory_bytes
        What is left beside the weights.
    number_bytes
        Bytes of a weight, an activation and a cached number.
    base_context
        Only steps at this context may be shortened: the others are there for theirs.
    """
    kept: list[Point] = []
    for point in points:
        left = memory_bytes - activation_bytes(point, stack, layer, number_bytes)
        per_token = point.batch * layers.built * layer.kv_numbers * number_bytes
        longest = int(left // per_token) if left > 0 else 0
        fits = max(point.width, min(point.context_len, longest))
        if longest < point.width or (fits < point.context_len != base_context):
            continue
        kept.append(replace(point, context_len=fits))
    return tuple(dict.fromkeys(kept))


def activation_bytes(
    point: Point, stack: StackShape, layer: LayerShape, number_bytes: int
) -> float:
    """Estimate what one forward holds besides weights and cache, generously (twice the widest)."""
    routed = layer.experts_per_token * (layer.hidden + 3 * layer.expert_ffn)
    heads = layer.heads * (layer.kv_rank + layer.rope if layer.latent else layer.head_dim)
    wide = max(2 * stack.vocab, 3 * layer.ffn + routed, 4 * heads, 8 * layer.hidden)
    scores = layer.heads * point.context_len if layer.latent else 0
    return 2.0 * point.tokens * (wide + 2 * scores) * number_bytes
