"""Which points are measured, on how many layers, and what they say of the whole model."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Self

from specsim.errors import InputError
from specsim.probe.bench import Bench, Sample
from specsim.probe.document import StepPoint
from specsim.probe.shapes import Layers, LayerShape, StackShape

CONTEXT = 1024  # KV tokens of each request, where they are not what is varied
TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Decode steps: so many requests of a token each."""
WIDTHS = (1, 2, 4, 8, 16)
BATCHES = (1, 4, 16, 64)  # verify steps: batch times width, at most the largest token count
KV_BATCHES = (1, 8, 32)
CONTEXTS = (1024, 4096, 16384)  # decode steps over KV length
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


def coarse_first(values: Sequence[int]) -> tuple[int, ...]:
    """Order values so that any first few span the range: ends, middle, quarters, ...

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
    context_len: int = CONTEXT,
    contexts: Sequence[int] = CONTEXTS,
) -> tuple[Point, ...]:
    """Return decode steps over tokens, verify steps over batch and width, then over KV length."""
    most = max(tokens)
    batches = [b for b in BATCHES if b <= most]
    widths = coarse_first(WIDTHS)
    found = [Point(t, 1, context_len) for t in coarse_first(tokens)]
    found += [Point(b, n, context_len) for b in batches for n in widths if b * n <= most]
    found += [Point(b, 1, c) for c in coarse_first(contexts) for b in KV_BATCHES if b <= most]
    return tuple(dict.fromkeys(found))


def draft_points(tokens: Sequence[int] = TOKENS, context_len: int = CONTEXT) -> tuple[Point, ...]:
    """Return draft steps over tokens (batch times topk)."""
    return tuple(Point(t, 1, context_len) for t in coarse_first(tokens) if t <= 256)


def extend_points(tokens: Sequence[int] = TOKENS, context_len: int = CONTEXT) -> tuple[Point, ...]:
    """Return draft extends: batch times verified tokens."""
    points = (Point(b, n, context_len) for b in BATCHES for n in (4, 1, 8))
    return tuple(point for point in points if point.tokens <= max(tokens))


def fitting(
    stack: StackShape, points: Sequence[Point], bench: Bench, most: int, base_context: int
) -> tuple[list[Layers], tuple[Point, ...]]:
    """Choose how many layers of each kind are built, and the points that fit beside them."""
    size, memory = bench.number_bytes, bench.memory_bytes
    chosen: list[Layers] = []
    for kind in stack.groups:
        around = 0 if chosen else stack.around_params * size
        beside = around + activation_bytes(Point(1, 1, 1), stack, kind.shape, size)
        layers = layers_that_fit(kind, beside, memory, bench.cache_bytes, size, most)
        left = memory - around - layers.built * kind.shape.params * size
        points = fitted_points(points, stack, layers, left, size, base_context)
        chosen.append(layers)
    return chosen, tuple(points)


def layers_that_fit(
    layers: Layers,
    around_bytes: float,
    memory_bytes: float,
    cache_bytes: float,
    number_bytes: int,
    most: int = MOST_LAYERS,
) -> Layers:
    """Choose how many of the layers to build.

    At least `most` (or all there are), more where they would fit into the cache, fewer where
    memory is short, at least one; half of the memory is left for the KV cache and activations.
    """
    size = layers.shape.params * number_bytes
    wanted = max(most, int(CACHE_FACTOR * cache_bytes // size) + 1)
    room = int((memory_bytes / 2 - around_bytes) // size)
    built = min(layers.whole, wanted, room)
    if built < 1:
        why = f"do not hold one layer of {size / 1e9:.3g} GB, the head and a KV cache"
        remedy = "raise --max-memory-gb, or probe a share of the model with --tp"
        raise InputError(f"{memory_bytes / 1e9:.3g} GB of memory", why, remedy)
    return replace(layers, built=built)


def fitted_points(
    points: Sequence[Point],
    stack: StackShape,
    layers: Layers,
    memory_bytes: float,
    number_bytes: int,
    base_context: int,
) -> tuple[Point, ...]:
    """Shorten contexts, or drop points, until cache and activations fit.

    `memory_bytes` is what is left beside the weights. Only steps at `base_context` may be
    shortened: the others are there for theirs.
    """
    kept: list[Point] = []
    for point in points:
        left = memory_bytes - activation_bytes(point, stack, layers.shape, number_bytes)
        per_token = point.batch * layers.built * layers.shape.kv_numbers * number_bytes
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


@dataclass(frozen=True, slots=True)
class Timed:
    """One point, timed over the layers of one kind that were built."""

    sample: Sample  # over all of them
    layer_s: float  # a layer
    fixed_s: float  # besides the layers
    layer_error: float  # of `layer_s`, relative
    experts: float | None  # that a layer touched

    @classmethod
    def of(
        cls, large: Sample, small: Sample | None, layers: Layers, experts: float | None = None
    ) -> Self:
        """Fit time = fixed + layers x layer through two numbers of layers.

        Without a second one, or where noise would make a part negative, the time is all the
        layers'.
        """
        if small is not None:
            more = layers.built - layers.small
            layer = (large.seconds - small.seconds) / more
            fixed = large.seconds - layers.built * layer
            if layer > 0 and fixed >= 0:
                noise = (large.error * large.seconds) ** 2 + (small.error * small.seconds) ** 2
                return cls(large, layer, fixed, noise**0.5 / more / layer, experts)
        return cls(large, large.seconds / layers.built, 0.0, large.error, experts)


def joined_points(layers: Sequence[Layers], found: Sequence[dict[Point, Timed]]) -> list[StepPoint]:
    """Scale every point to the whole model; points that a kind of layer lacks are left out.

    seconds = fixed + sum over kinds of layers x layer_s, where `fixed` is what the first kind,
    which has the head, costs besides its layers. A model that was built whole is its own time.
    """
    joined = []
    for point in sorted(set(found[0]).intersection(*found[1:])):
        parts = [one[point] for one in found]
        first = parts[0]
        in_layers = [part.layer_s * kind.whole for part, kind in zip(parts, layers, strict=True)]
        noise = sum((p.layer_error * s) ** 2 for p, s in zip(parts, in_layers, strict=True))
        seconds = first.fixed_s + sum(in_layers)
        error = noise**0.5 / seconds
        if len(parts) == 1 and layers[0].built == layers[0].whole:
            seconds, error = first.sample.seconds, first.sample.error
        joined.append(
            StepPoint(
                **asdict(point),
                seconds=seconds,
                fixed_s=first.fixed_s,
                layers_s=tuple(part.layer_s for part in parts),
                error=error,
                repeats=min(part.sample.repeats for part in parts),
                experts=next((p.experts for p in parts if p.experts is not None), None),
            )
        )
    return joined
