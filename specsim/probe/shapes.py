"""One GPU's matrices of a model, layer by layer: what the probe builds with random weights."""

from dataclasses import dataclass, replace
from math import prod

from specsim.architecture import DraftArchitecture, ModelArchitecture
from specsim.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """One decoder layer on one GPU; widths in numbers, after tensor parallelism."""

    hidden: int  # model width
    inputs: int  # what the first projection reads: twice `hidden` in EAGLE-3
    heads: int
    kv_heads: int  # of grouped-query attention
    head_dim: int
    gate: bool = False  # whether queries have an output gate as large as themselves
    q_rank: int = 0  # latent attention (MLA), where `kv_rank` > 0: ranks, and widths of a head
    kv_rank: int = 0
    nope: int = 0
    rope: int = 0
    value: int = 0
    window: int = 0  # tokens that attention sees at most; 0 for all
    ffn: int = 0  # of the dense FFN and of the shared experts together; 0 for none
    experts: int = 0  # routed ones
    experts_per_token: int = 0
    expert_ffn: int = 0

    @property
    def latent(self) -> bool:
        """Whether attention is latent (MLA)."""
        return self.kv_rank > 0

    @property
    def kv_numbers(self) -> int:
        """Numbers that a token leaves in the cache of the layer."""
        if self.latent:
            return self.kv_rank + self.rope
        return 2 * self.kv_heads * self.head_dim

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the layer's weights, all experts included."""
        inner = self.heads * self.head_dim
        found: dict[str, tuple[int, ...]] = {"norm": (self.hidden,), "ffn_norm": (self.hidden,)}
        if self.latent:
            found["down"] = (self.q_rank + self.kv_rank + self.rope, self.inputs)
            found["up_q"] = (self.heads * (self.nope + self.rope), self.q_rank or self.inputs)
            found["absorb"] = (self.heads, self.nope, self.kv_rank)
            found["expand"] = (self.heads, self.kv_rank, self.value)
            found["out"] = (self.hidden, self.heads * self.value)
        else:
            query = inner * (2 if self.gate else 1)
            found["qkv"] = (query + 2 * self.kv_heads * self.head_dim, self.inputs)
            found["out"] = (self.hidden, inner)
        if self.ffn:
            found["up"], found["back"] = (2 * self.ffn, self.hidden), (self.hidden, self.ffn)
        if self.experts:
            found["router"] = (self.experts, self.hidden)
            found["expert_up"] = (self.experts, 2 * self.expert_ffn, self.hidden)
            found["expert_back"] = (self.experts, self.hidden, self.expert_ffn)
        return found

    @property
    def params(self) -> int:
        """Weights of the layer."""
        return sum(map(prod, self.weights.values()))

    def seen(self, context_len: int) -> int:
        """Tokens of the cache that attention reads."""
        return min(context_len, self.window) if self.window else context_len


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of one shape.

    A point is timed over all that are built and over `small` of them: the difference is what a
    layer costs, the rest what a forward costs besides its layers.
    """

    shape: LayerShape
    whole: int  # that the model has
    built: int = 0

    @property
    def small(self) -> int:
        """Layers of the shorter forward."""
        return self.built // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StackShape:
    """A whole forward: layers of one or more kinds, the most frequent first, and what is around."""

    id: str  # of the model or drafter
    groups: tuple[Layers, ...]
    vocab: int  # rows of the LM head on one GPU
    front: int = 0  # width that a projection to `hidden` before the layers reads; 0 for none
    head_per_request: bool = False  # only one row per request goes to the head (a draft extend)

    @property
    def hidden(self) -> int:
        """Width."""
        return self.groups[0].shape.hidden

    @property
    def around(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights outside of the layers that a forward reads whole."""
        found: dict[str, tuple[int, ...]] = {
            "norm": (self.hidden,),
            "head": (self.vocab, self.hidden),
        }
        if self.front:
            found["front"] = (self.hidden, self.front)
        return found

    @property
    def around_params(self) -> int:
        """Weights outside of the layers."""
        return sum(map(prod, self.around.values()))


_NOT_BUILT = (
    *("linear_layers", "index_topk", "compressed", "expert_hidden", "shared_kv", "ffn_only_layers"),
    *("sliding_heads", "sliding_kv_heads", "sliding_head_dim", "sliding_v_head_dim"),
)
"""Fields of a model that ask for layers which the probe does not have."""


def target_shape(model: ModelArchitecture, tp: int = 1) -> StackShape:
    """Return the matrices of one of `tp` GPUs; refuses layers that the probe cannot build.

    >>> from specsim.architecture import load_model
    >>> (layers,) = target_shape(load_model("llama-3.1-8b")).groups
    >>> layers.whole, round(layers.shape.params / 1e6)
    (32, 218)
    """
    if model.ffn_matrices != 3 or any(getattr(model, key) for key in _NOT_BUILT):
        why = "has layers that the probe cannot build (linear, sparse, no gate or of two kinds)"
        remedy = "probe a model with full attention; bandwidth and GEMM rate hold for this one too"
        raise InputError(f"model {model.id}", why, remedy)
    _check(model, tp)
    plain = _layer(model, tp)
    dense = replace(plain, ffn=_split(model.ffn_inter, tp))
    moe = replace(
        plain,
        ffn=_split(model.shared_width, tp),
        experts=model.experts,
        experts_per_token=model.experts_per_token,
        expert_ffn=_split(model.moe_inter, tp),
    )
    groups = [(dense, model.dense_layers), (moe, model.moe_layers)]
    share = model.sliding_layers / model.layers
    kinds = [(replace(kind, window=model.sliding_window), round(n * share)) for kind, n in groups]
    kinds += [(kind, n - round(n * share)) for kind, n in groups]
    kept = sorted((Layers(kind, n) for kind, n in kinds if n), key=lambda layers: -layers.whole)
    return StackShape(id=model.id, groups=tuple(kept), vocab=_split(model.vocab, tp))


def draft_shapes(
    draft: DraftArchitecture, tp: int = 1
) -> tuple[StackShape, StackShape | None] | None:
    """Return the matrices of a draft step and of a draft extend; None for a drafter without any.

    The extend is None where it is a step on more tokens (a model of its own).
    """
    if draft.shape is None:
        return None
    whole = target_shape(draft.shape, tp)
    first = draft.shape.qkv_inputs * draft.hidden
    groups = tuple(replace(g, shape=replace(g.shape, inputs=first)) for g in whole.groups)
    input_width = draft.input_params // draft.hidden
    step = replace(whole, id=draft.id, groups=groups, front=input_width)
    if draft.kind == "standalone":
        return step, None
    width = draft.fc_params // draft.hidden + input_width
    return step, replace(step, front=width, head_per_request=True)


def _layer(model: ModelArchitecture, tp: int) -> LayerShape:
    """Return the attention of a layer, without an FFN."""
    latent = model.attention == "mla"
    return LayerShape(
        hidden=model.hidden,
        inputs=model.qkv_inputs * model.hidden,
        heads=model.heads // tp,
        kv_heads=model.heads // tp if latent else max(1, model.kv_heads // tp),
        head_dim=model.head_dim,
        gate=model.query_gate,
        q_rank=model.q_lora_rank if latent else 0,
        kv_rank=model.kv_lora_rank if latent else 0,
        nope=model.qk_nope_head_dim if latent else 0,
        rope=model.qk_rope_head_dim if latent else 0,
        value=model.v_head_dim if latent else 0,
    )


def _split(width: int, tp: int) -> int:
    return -(-width // tp)


def _check(model: ModelArchitecture, tp: int) -> None:
    fits = tp >= 1 and model.heads % tp == 0
    if fits and model.attention == "gqa":
        fits = model.kv_heads % tp == 0 or tp % model.kv_heads == 0
    if not fits:
        why = f"does not split the {model.heads} heads of {model.id}"
        raise InputError(f"tp {tp}", why, f"use a divisor of {model.heads}")
