"""Decoder layers of given shapes with random weights, as few kernels as an engine would launch.

Every matrix of the model is there and is read once per forward. Stand-ins, which move the bytes of
the real thing in one kernel: the rotary embedding is a multiplication with a table; a verification
has no mask (each of its tokens sees the whole context). Query heads that share a KV head are packed
into one attention call, so that the cache is read once per KV head. Latent attention (MLA) is in
absorbed form, by plain products, which read the latent cache twice. Routing is drawn uniformly
beforehand: the router's product runs, its choice is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.arrays import Ints
from specsim.probe.bench import Filler, Step
from specsim.probe.device import import_torch
from specsim.probe.document import MoeKind
from specsim.probe.grid import Point
from specsim.probe.shapes import Layers, LayerShape, StackShape

if TYPE_CHECKING:
    import torch
    from torch import Tensor


EMBEDDED = 1024  # rows of the stand-in for the embedding


@dataclass(frozen=True, slots=True)
class Routing:
    """Which rows go to which expert in one layer, sorted by expert."""

    rows: Tensor  # row of the activations of each (token, expert) pair
    ends: Tensor  # where each expert's pairs end, int32, one per expert
    # (expert, first pair, end) of the touched, on the host
    bounds: tuple[tuple[int, int, int], ...]


def draw_experts(
    tokens: int, experts: int, experts_per_token: int, rng: np.random.Generator
) -> Ints:
    """Draw distinct experts for each token, uniformly: array (tokens, experts_per_token)."""
    order = np.argsort(rng.random((tokens, experts)), axis=1)
    return order[:, :experts_per_token]


def route(chosen: Ints, experts: int, device: torch.device) -> Routing:
    """Sort the drawn pairs by expert."""
    torch = import_torch()
    flat = chosen.ravel()
    order = np.argsort(flat, kind="stable")
    ends = np.cumsum(np.bincount(flat, minlength=experts))
    begins = np.concatenate([[0], ends[:-1]])
    touched = np.flatnonzero(ends > begins)
    return Routing(
        torch.from_numpy(order // chosen.shape[1]).to(device),
        torch.from_numpy(ends.astype(np.int32)).to(device),
        tuple(zip(touched.tolist(), begins[touched].tolist(), ends[touched].tolist(), strict=True)),
    )


def route_layers(
    layers: Layers, tokens: int, device: torch.device, rng: np.random.Generator
) -> tuple[list[Routing], float | None]:
    """Draw the routing of each layer that is built; mean experts that are touched."""
    experts, each = layers.shape.experts, layers.shape.experts_per_token
    if not experts:
        return [], None
    found = [
        route(draw_experts(tokens, experts, each, rng), experts, device)
        for _ in range(layers.built)
    ]
    return found, sum(len(routing.bounds) for routing in found) / len(found)


class Layer:
    """One decoder layer."""

    def __init__(self, shape: LayerShape, fill: Filler, moe: MoeKind | None, cache: int) -> None:
        s = self._shape = shape
        self._moe, self._torch = moe, import_torch()
        self._weights = {name: fill(*size) for name, size in s.weights.items()}
        self._cache = fill(cache * s.kv_numbers)
        self._rotary = fill((s.heads + s.kv_heads) * s.head_dim)
        self._input_norm = self._weights["norm"] if s.inputs == s.hidden else fill(s.inputs)

    def forward(self, x: Tensor, point: Point, routing: Routing | None) -> Tensor:
        """Return the layer's output for activations (tokens, width)."""
        s, w, f = self._shape, self._weights, self._torch.nn.functional
        residual = x[:, : s.hidden]
        h = f.rms_norm(x, (s.inputs,), self._input_norm)
        x = residual + (self._latent(h, point) if s.latent else self._grouped(h, point))
        h = f.rms_norm(x, (s.hidden,), w["ffn_norm"])
        if s.ffn:
            x = x + f.linear(self._gated(f.linear(h, w["up"]), s.ffn), w["back"])
        if routing is not None:
            f.linear(h, w["router"])
            x = x + self._experts(h, routing)
        return x

    def _gated(self, both: Tensor, width: int) -> Tensor:
        return self._torch.nn.functional.silu(both[:, :width]).mul_(both[:, width:])

    def _grouped(self, h: Tensor, point: Point) -> Tensor:
        s, w, f = self._shape, self._weights, self._torch.nn.functional
        b, n, c = point.batch, point.width, max(point.width, s.seen(point.context_len))
        d, kv = s.head_dim, s.kv_heads
        group = s.heads // kv
        qkv = f.linear(h, w["qkv"])
        inner = s.heads * d
        turned = qkv[:, : inner + kv * d] * self._rotary
        size = b * kv * c * d
        keys = self._cache[:size].view(b, kv, c, d)
        values = self._cache[size : 2 * size].view(b, kv, c, d)
        new = turned[:, inner:].view(b, n, kv, d).transpose(1, 2)
        keys[:, :, c - n :].copy_(new)
        values[:, :, c - n :].copy_(qkv[:, -kv * d :].view(b, n, kv, d).transpose(1, 2))
        q = turned[:, :inner].view(b, n, kv, group, d).permute(0, 2, 3, 1, 4)
        o = f.scaled_dot_product_attention(q.reshape(b, kv, group * n, d), keys, values)
        o = o.view(b, kv, group, n, d).permute(0, 3, 1, 2, 4).reshape(b * n, inner)
        return f.linear(o, w["out"])

    def _latent(self, h: Tensor, point: Point) -> Tensor:
        s, w, torch, f = self._shape, self._weights, self._torch, self._torch.nn.functional
        b, n, c = point.batch, point.width, max(point.width, s.seen(point.context_len))
        wide = s.kv_rank + s.rope
        down = f.linear(h, w["down"])
        q = f.linear(down[:, : s.q_rank] if s.q_rank else h, w["up_q"])
        q = q.view(b * n, s.heads, s.nope + s.rope).transpose(0, 1)
        q = torch.cat([torch.bmm(q[..., : s.nope], w["absorb"]), q[..., s.nope :]], dim=-1)
        cache = self._cache[: b * c * wide].view(b, c, wide)
        cache[:, c - n :].copy_(down[:, s.q_rank :].view(b, n, wide))
        q = q.transpose(0, 1).reshape(b, n * s.heads, wide)
        scores = torch.bmm(q, cache.transpose(1, 2)).softmax(dim=-1)
        o = torch.bmm(scores, cache[..., : s.kv_rank])
        o = o.view(b * n, s.heads, s.kv_rank).transpose(0, 1)
        o = torch.bmm(o, w["expand"]).transpose(0, 1).reshape(b * n, s.heads * s.value)
        return f.linear(o, w["out"])

    def _experts(self, h: Tensor, routing: Routing) -> Tensor:
        torch, w, width = self._torch, self._weights, self._shape.expert_ffn
        out = torch.zeros_like(h)
        if self._moe == "grouped":
            rows = h.index_select(0, routing.rows)
            inner = grouped_mm(rows, w["expert_up"].transpose(1, 2), routing.ends)
            back = w["expert_back"].transpose(1, 2)
            done = grouped_mm(self._gated(inner, width), back, routing.ends)
            return out.index_add_(0, routing.rows, done)
        f = torch.nn.functional
        for expert, begin, end in routing.bounds:
            rows = routing.rows[begin:end]
            inner = f.linear(h.index_select(0, rows), w["expert_up"][expert])
            out.index_add_(0, rows, f.linear(self._gated(inner, width), w["expert_back"][expert]))
        return out


def grouped_mm(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    """Multiply each expert's rows with its matrix, in one kernel; public from torch 2.10."""
    torch = import_torch()
    public = getattr(torch.nn.functional, "grouped_mm", None)
    return (public or torch._grouped_mm)(rows, matrices, offs=ends)


def moe_kind(device: torch.device, dtype: torch.dtype) -> MoeKind:
    """Return grouped where the device has a grouped product for this type, else loop.

    A CPU loops over the touched experts, which is what its own grouped product does.
    """
    if device.type != "cuda":
        return "loop"
    torch = import_torch()
    try:
        rows = torch.ones(4, 64, dtype=dtype, device=device)
        matrices = torch.ones(2, 64, 64, dtype=dtype, device=device).transpose(1, 2)
        ends = torch.tensor([2, 4], dtype=torch.int32, device=device)
        right = bool((grouped_mm(rows, matrices, ends) == 64).all())
    except (RuntimeError, AttributeError, TypeError, NotImplementedError):
        return "loop"
    return "grouped" if right else "loop"


class Model:
    """Layers of one kind, and for the first kind what is around them."""

    def __init__(
        self,
        stack: StackShape,
        layers: Layers,
        fill: Filler,
        moe: MoeKind | None,
        *,
        cache_tokens: int,
        around: bool,
    ) -> None:
        self._stack, self._shape, self._fill = stack, layers.shape, fill
        self._torch = import_torch()
        self._layers = [Layer(layers.shape, fill, moe, cache_tokens) for _ in range(layers.built)]
        self._around: dict[str, Tensor] = {}
        if around:
            self._around = {name: fill(*size) for name, size in stack.around.items()}
            # a step reads a row of the embedding per token
            self._around["embedding"] = fill(EMBEDDED, stack.hidden)

    def step(self, point: Point, layers: int, routings: Sequence[Routing]) -> Step:
        """Return a function that runs one forward of the first `layers` layers."""
        torch, f, w = self._torch, self._torch.nn.functional, self._around
        stack, shape = self._stack, self._shape
        ids = torch.arange(point.tokens, device=self._fill.device) % EMBEDDED
        given = self._fill(point.tokens, max(stack.front, shape.inputs, 1))
        rows = point.batch if stack.head_per_request else point.tokens

        def run() -> object:
            x = given[:, : shape.inputs]
            if w:
                x = self._entered(f.embedding(ids, w["embedding"]), given)
            for index, layer in enumerate(self._layers[:layers]):
                x = layer.forward(x, point, routings[index] if routings else None)
                if shape.inputs != shape.hidden and index + 1 < layers:
                    x = torch.cat([x, x], dim=1)
            if not w:
                return x
            x = f.rms_norm(x[:rows, : stack.hidden], (stack.hidden,), w["norm"])
            return f.linear(x, w["head"]).argmax(dim=-1)

        return run

    def _entered(self, embedded: Tensor, given: Tensor) -> Tensor:
        """Return what the first layer reads: embeddings, or features projected, or both."""
        stack, wide = self._stack, self._shape.inputs == 2 * self._stack.hidden
        hidden = embedded
        if stack.front:
            front = self._around["front"]
            hidden = self._torch.nn.functional.linear(given[:, : stack.front], front)
        elif wide:
            hidden = given[:, : stack.hidden]
        return self._torch.cat([embedded, hidden], dim=1) if wide else hidden
