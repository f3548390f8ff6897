"""Layers of a Hugging Face config: which are of what kind, and what a linear one costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specsim.architecture.hf_config import Config

MOST_LAYERS = 4096
STATE_BYTES = 4  # recurrent states are kept in fp32 unless the config says otherwise


def layer_kinds(config: Config) -> list[str]:
    """Return the kind of each layer: full, sliding, sparse, linear; dense or experts alone."""
    for key in ("layer_types", "layers_block_type", "hybrid_override_pattern"):
        listed = config.get(key)
        if isinstance(listed, list | str) and listed:
            return _checked(config, key, _named(config, key, listed))
    layers = config.number("layers")
    if layers > MOST_LAYERS:
        config.refuse("num_hidden_layers", "is more than any model has", "correct it")
    marks = {"hybrid_layer_pattern": ("full", "sliding"), "attn_type_list": ("linear", "full")}
    marks["sparse_attention_freq"] = ("full", "sparse")
    for key, (zero, one) in marks.items():
        if listed := config.listed(key):
            return _checked(config, key, [one if mark else zero for mark in listed])
    for key, first in (("attn_layer_indices", 0), ("full_attn_idxs", 0), ("full_attn_layers", 1)):
        if full := config.listed(key):
            config.seen.update(_SAID_TWICE)
            return ["full" if i + first in full else "linear" for i in range(layers)]
    return _by_period(config, layers)


def _named(config: Config, key: str, listed: Any) -> list[str]:
    kinds = config.rules["kinds"]
    for name in listed:
        if not isinstance(name, str) or name not in kinds:
            config.refuse(key, f"names layers of kind {name!r}, which specsim does not know", _LOOK)
    found = [kinds[name] for name in listed]
    keys = (*config.keys("sliding_window"), "attention_chunk_size")
    if "sliding" in found and not any(key in config.content for key in keys):
        config.missing(*keys)  # null is said, and means none
    windowed = any(config.content.get(key) for key in keys)
    windowed = config.get("use_sliding_window") is not False and windowed
    if not windowed:
        found = ["full" if kind == "sliding" else kind for kind in found]
    return found


_LOOK = "describe the model in a TOML table"
_SAID_TWICE = ("kda_layers", "full_attn_layers", "full_attn_idxs", "max_window_layers")


def _checked(config: Config, key: str, kinds: list[Any]) -> list[Any]:
    """Return kinds of as many layers as there are; what follows them drafts (MTP)."""
    layers = config.number("layers", len(kinds))
    if len(kinds) < layers or (len(kinds) > layers + config.number("mtp_layers", 0)):
        config.refuse(key, f"is not of {layers} layers", "correct the config")
    config.seen.update((*config.rules["periods"], *_SAID_TWICE))
    return kinds[:layers]


def _by_period(config: Config, layers: int) -> list[str]:
    """Return the kind of each layer where the config does not list it."""
    for key, kind in config.rules["periods"].items():
        if kind == "linear" and (every := config.count(key)):
            return [kind if (i + 1) % every else "full" for i in range(layers)]
    if config.content.get("attention_chunk_size"):
        return _chunked(config, layers)
    used = config.get("use_sliding_window")
    windows = config.keys("sliding_window")
    if used is False or not any(config.content.get(key) for key in windows):
        config.seen.update(("max_window_layers", *config.rules["periods"]))
        return ["full"] * layers
    for key, kind in config.rules["periods"].items():
        pattern = config.get(key)
        if isinstance(pattern, str) and pattern:  # "LLLG": three local layers, a global one
            return ["full" if pattern[i % len(pattern)] == "G" else kind for i in range(layers)]
        if every := config.count(key):
            return [kind if (i + 1) % every else "full" for i in range(layers)]
    return _windowed(config, layers)


def _windowed(config: Config, layers: int) -> list[str]:
    """Return the kinds by the rule of the family, where a window is given and no layer named."""
    if every := config.family.get("period"):
        return ["sliding" if (i + 1) % every else "full" for i in range(layers)]
    rule = config.family.get("window")
    if rule == "late":  # the first so many layers see everything
        if config.get("use_sliding_window") is None:
            config.refuse("sliding_window", "is given, 'use_sliding_window' is not", "add it")
        start = min(config.count("max_window_layers"), layers)
        return ["full"] * start + ["sliding"] * (layers - start)
    if rule != "all":
        for key in config.keys("sliding_window"):
            config.seen.discard(key)  # the family has no windows: it is named as left over
    return ["sliding" if rule == "all" else "full"] * layers


def _chunked(config: Config, layers: int) -> list[str]:
    """Return chunked layers: those with rotary positions, by list or all but every fourth."""
    listed = config.listed("no_rope_layers")
    if listed:
        return _checked(config, "no_rope_layers", ["sliding" if x else "full" for x in listed])
    every = config.count("no_rope_layer_interval", 4)
    return ["sliding" if (i + 1) % every else "full" for i in range(layers)]


_DENSE = ("first_k_dense_replace", "moe_layer_freq", "mlp_only_layers", "decoder_sparse_step")


def moe_layers(config: Config, layers: int) -> int:
    """Return how many layers have experts: each family has its own way of saying so."""
    config.seen.update(_DENSE)
    if types := config.listed("mlp_layer_types"):
        kinds = _named(config, "mlp_layer_types", types)
        return _checked(config, "mlp_layer_types", kinds).count("experts")
    for key in ("moe_layers", "moe_layers_enum"):
        if listed := config.listed(key):
            return len([i for i in range(layers) if i in listed])
    for key in ("moe_layer_freq", "is_moe_layer"):
        if marks := config.listed(key):
            return sum(map(bool, _checked(config, key, marks)))
    firsts = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
    first, dense = max(map(config.count, firsts)), config.listed("mlp_only_layers")
    every = config.count("moe_layer_freq", 1) or 1
    # counted from one, as some families do
    steps = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")
    step = math.prod(config.count(key, 1) or 1 for key in steps)
    last = config.get("moe_layer_end_index")
    end = last + 1 if isinstance(last, int) and last >= 0 else layers
    kept = (i for i in range(first, min(end, layers)) if i % every == 0 and (i + 1) % step == 0)
    return sum(i not in dense for i in kept)


def linear_layer(config: Config) -> dict[str, int]:
    """Return parameters and state of one linear layer."""
    mixer = config.family.get("mixer")
    if mixer not in _MIXERS:
        config.refuse("layer_types", f"has linear layers, unknown in {config.kind!r}", _LOOK)
    params, state = _MIXERS[str(mixer)](config)
    return {"linear_params": params, "linear_state_bytes": state}


def _state_bytes(config: Config) -> int:
    said = str(config.get("mamba_ssm_cache_dtype") or config.get("mamba_ssm_dtype") or "float32")
    return 2 if said.endswith("16") else STATE_BYTES


def _gated_delta(config: Config) -> tuple[int, int]:
    """Gated DeltaNet (Qwen3-Next): q and k, v and its gate, two gates per v head, out."""
    keys = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
    k_heads, v_heads, k_dim, v_dim = (config.whole(f"linear_{key}") for key in keys)
    hidden, value = config.number("hidden"), v_heads * v_dim
    into = hidden * (2 * k_heads * k_dim + 2 * value + 2 * v_heads)
    return into + value * hidden, _state_bytes(config) * v_heads * k_dim * v_dim


def _kda(config: Config) -> tuple[int, int]:
    """Kimi delta attention: q, k, v and out, two gates through a narrow middle, one per head."""
    hidden, heads = config.number("hidden"), config.number("linear_heads")
    dim = config.number("linear_head_dim")
    inner, narrow = heads * dim, hidden * dim + dim * heads * dim
    gate = hidden * inner if config.get("use_full_rank_gate") is True else narrow
    return 4 * hidden * inner + narrow + gate + hidden * heads, STATE_BYTES * inner * dim


def _mamba2(config: Config) -> tuple[int, int]:
    """Mamba-2 (arXiv 2405.21060): one projection to z, x, B, C and dt, a short convolution, out."""
    hidden, heads = config.number("hidden"), config.number("linear_heads")
    auto = config.content.get("mamba_d_head") == "auto"
    wide = config.whole("mamba_expand") * hidden if auto else 0
    inner = wide or heads * config.number("linear_head_dim")
    config.seen.update((*config.keys("linear_head_dim"), "expand", "mamba_expand"))
    state, groups = config.number("linear_state"), config.number("linear_groups")
    mixed, kernel = inner + 2 * groups * state, config.number("linear_conv")
    params = hidden * (inner + mixed + heads) + mixed * kernel + inner * hidden
    return params, _state_bytes(config) * inner * state + 2 * mixed * (kernel - 1)


def _conv(config: Config) -> tuple[int, int]:
    """Gated short convolution (LFM2): three projections in, a convolution, one out."""
    hidden, kernel = config.number("hidden"), config.number("linear_conv")
    return 4 * hidden * hidden + hidden * kernel, 2 * hidden * kernel


_MIXERS: dict[str, Callable[[Config], tuple[int, int]]] = {
    "gated-delta": _gated_delta,
    "kda": _kda,
    "mamba2": _mamba2,
    "conv": _conv,
}
