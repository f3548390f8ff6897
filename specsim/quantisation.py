"""How many bytes a weight takes, and in which number type its products are computed.

A scheme gives one size to each kind of weight: `attention` (linear layers too), `dense` (dense FFN,
shared experts), `experts` (routed ones), `head` (LM head, embedding). Router and norms stay bf16.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from specsim.errors import UnknownNameError
from specsim.library import read_library

BF16_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Bytes per weight by kind of weight, and the number types of the GEMMs."""

    id: str  # name in setup.toml
    dense: float  # bytes per weight, scales included, like the next three
    attention: float  # its products are counted in `dense_dtype` all the same
    experts: float
    head: float
    dense_dtype: str  # what the tensor cores compute in: weight-only schemes unpack to bf16
    expert_dtype: str


@cache
def schemes() -> dict[str, Quantisation]:
    """Return the schemes of ``library/quantisations.toml`` by id."""
    found = {}
    for id, row in read_library("quantisations")["scheme"].items():
        assert isinstance(row, dict)
        said = {"dense": BF16_BYTES, "head": BF16_BYTES, "dense_dtype": "bf16", **row}
        said = {"experts": said["dense"], "expert_dtype": said["dense_dtype"], **said}
        found[id] = Quantisation(id, **{"attention": said["dense"], **said})
    return found


def _of_parts(name: str) -> Quantisation | None:
    """Return the scheme of a name such as ``fp8-ffn`` or ``nvfp4-experts-fp8``.

    The first compresses FFNs and experts, or experts alone, the last what is left: bf16 unsaid.
    """
    found = re.fullmatch(r"(.+)-(ffn|experts)(?:-(.+))?", name)
    own = schemes().get(found[1]) if found else None
    rest = schemes().get(found[3] or "bf16") if found else None
    if found is None or own is None or rest is None:
        return None
    if found[2] == "ffn":
        return replace(own, id=name, attention=rest.attention)
    return replace(rest, id=name, experts=own.experts, expert_dtype=own.expert_dtype)


def load_quantisation(name: str) -> Quantisation:
    """Return the scheme called `name`.

    >>> load_quantisation("int4-experts").experts, load_quantisation("int4-experts").dense
    (0.5625, 2.0)
    >>> load_quantisation("fp8-ffn").attention
    2.0
    """
    known = schemes()
    wanted = name.strip().lower()
    scheme = known.get(wanted) or _of_parts(wanted)
    if scheme is None:
        listed = ", ".join((*known, "native"))
        remedy = f"use one of: {listed}; or the nearest of them with weight_bytes"
        raise UnknownNameError("quantisation", name, (*known, "native"), remedy)
    return scheme


def kv_dtype_bytes(name: str) -> float:
    """Bytes per number in the KV cache.

    Raises :class:`UnknownNameError`, which names the nearest type.

    >>> kv_dtype_bytes("fp8_e4m3")
    1.0
    """
    sizes: Any = read_library("quantisations")["kv_bytes"]
    if (known := name.strip().lower()) not in sizes:
        raise UnknownNameError("kv_dtype", name, sizes)
    return float(sizes[known])


_KINDS = (
    # what a pattern of weights' names is about; what weighs little is skipped
    (r"visual|vision|audio|projector|mtp|eagle|conv1d|norm|indexer|in_proj_(ba|a|b)\b", ""),
    (r"lm_head|embed|shared|router|\bgate\b", ""),
    (r"attn|attention", "attention"),
    (r"experts", "experts"),
    (r".", "ffn"),
)
_PRODUCTS = re.compile(r"gate(?=_proj)|up|down|[qkvo](?=_proj)")


def scheme_of_config(
    about: Mapping[str, Any], layers: int = 0, routed: bool = False
) -> tuple[str, str]:
    """Return the scheme and the KV type that a checkpoint's `quantization_config` states.

    Of whichever tool wrote it. The scheme is empty where there is none of ours, the KV type where
    nothing is said of it. What is said of fewer than half of the model's `layers` does not count;
    of a model with experts (`routed`) the dense parts are taken to be as its attention.

    >>> scheme_of_config({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"})
    ('fp8', 'fp8')
    >>> scheme_of_config({"quant_method": "fp8", "ignore": ["re:.*self_attn.*"]})
    ('fp8-ffn', '')
    """
    inner = about.get("quantization")  # hf_quant_config.json of ModelOpt
    if isinstance(inner, Mapping):
        about = {"quant_method": "modelopt", **inner}
    parts: dict[str, dict[str, set[str]]] = {}  # kind of weight: scheme: its layers, "" for all
    for name, scheme in _parts(about):
        kind = next((kind for words, kind in _KINDS if re.search(words, name)), "all")
        layer = re.search(r"layers\.(\d+)\.", name)
        if not layer and len({*_PRODUCTS.findall(name)}) == 1:  # of one product in all layers
            scheme = ""
        parts.setdefault(kind, {}).setdefault(scheme, set()).add(layer[1] if layer else "")
    if any("" in said for kind, said in parts.items() if kind):
        return "", _kv_type(about)
    named = max((len(at) for said in parts.values() for at in said.values()), default=0)
    least = (layers if "all" in parts else named) / 2

    def scheme_of(*kinds: str) -> str:
        """Return the scheme of the first kind of which something is said; empty for several."""
        for kind in kinds:
            said = parts.get(kind, {}).items()
            if found := [s for s, at in said if "" in at or len(at) >= least]:
                return found[0] if len(found) == 1 else ""
        return "bf16"

    main = scheme_of("experts", "all", "ffn") if routed else scheme_of("ffn", "all")
    rest = scheme_of("attention", "all")
    if main and rest and main != rest and "-experts" not in main:
        main += ("-experts" if routed else "-ffn") + ("" if rest == "bf16" else f"-{rest}")
    return main if rest and main != "bf16" else "", _kv_type(about)


def scheme_of_engine(word: str) -> str:
    """Return the scheme that an engine's ``--quantization`` means, empty where it says no bits.

    >>> scheme_of_engine("awq_marlin"), scheme_of_engine("compressed-tensors")
    ('awq', '')
    """
    return _said("engine", word.lower().replace("-", "_").removesuffix("_marlin"))


def _parts(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield patterns of weights' names, empty for all others, and their schemes, empty if none."""
    method = str(about.get("quant_method") or "").lower().replace("-", "_")
    method = method.removesuffix("_marlin") or ("modelopt" if "quant_algo" in about else "mlx")
    for key in ("ignore", "exclude_modules", "exclude", "modules_to_not_convert"):
        yield from ((name, "bf16") for name in _names(about, key))
    if method == "compressed_tensors":
        groups = _table(about, "config_groups")
        for group in (_table(groups, name) for name in groups):
            for target in _names(group, "targets") or [""]:
                yield target.replace("Linear", ""), _weights(group)
    elif method == "quark":
        own = {**_table(about, "layer_quant_config"), "": _table(about, "global_quant_config")}
        for name in own:
            yield name, _said("quark", _table(_table(own, name), "weight").get("dtype"))
    elif listed := _table(about, "quantized_layers"):
        for name, part in listed.items():
            said = part.get("quant_algo") if isinstance(part, Mapping) else part
            yield name, _said("modelopt", said)
    else:
        # layers of their own: GPTQ's, AutoRound's, MLX's; "-:" leaves one out
        others = {**_table(about, "dynamic"), **_table(about, "extra_config")}
        others |= {k: v for k, v in about.items() if method == "mlx" and isinstance(v, Mapping)}
        for name in others:
            compressed = _whole(method, {**about, **_table(others, name)})
            yield name, "bf16" if name[:2] == "-:" else compressed
        yield "", _whole(method, about)


def _whole(method: str, about: Mapping[str, Any]) -> str:
    """Return the scheme of what a checkpoint compresses alike."""
    bits = about.get("bits", about.get("w_bit", about.get("quant_algo")))
    if method == "fp8" and about.get("expert_dtype") == "fp4":
        return "mxfp4-experts-fp8"
    if method == "fp8" and about.get("weight_block_size"):
        return "fp8-block"
    if method == "bitsandbytes":
        bits = next((n for n in (4, 8) if about.get(f"load_in_{n}bit") is True), None)
        bits = f"{bits}-double" if about.get("bnb_4bit_use_double_quant") is True else bits
    if method == "mlx" and about.get("mode", "affine") == "affine":
        bits = f"{bits}/{about.get('group_size')}"
    return _said(method, bits)


def _said(method: str, word: object) -> str:
    """Return the scheme that a tool calls so (``quantisations.toml``), empty if none of ours."""
    tools: Any = read_library("quantisations")["said"]
    table = tools.get(re.sub("(?<=modelopt)_.*", "", method), {})
    return str(table.get(str(word).lower(), table.get("any", "")))


def _table(about: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inside = about.get(key)
    return inside if isinstance(inside, Mapping) else {}


def _names(about: Mapping[str, Any], key: str) -> list[str]:
    inside = about.get(key) or []
    return [*map(str, inside)] if isinstance(inside, list | tuple) else [str(inside)]


def _weights(group: Mapping[str, Any]) -> str:
    """Return the scheme of one group of layers of compressed-tensors."""
    weights, unpacked = _table(group, "weights"), not group.get("input_activations")
    block, small = weights.get("strategy") == "block", weights.get("group_size") == 32
    return {
        ("int", "4"): "int4",
        ("int", "8"): "w8a16" if unpacked else "int8",
        ("float", "8"): "fp8-block" if block else "fp8",
        ("float", "4"): "mxfp4" if small else "nvfp4a16" if unpacked else "nvfp4",
    }.get((str(weights.get("type")), str(weights.get("num_bits"))), "")


def _kv_type(about: Mapping[str, Any]) -> str:
    said = about.get("kv_cache_scheme") or about.get("kv_cache_quant_algo")
    if isinstance(said, Mapping):
        said = f"{said.get('type')}{said.get('num_bits')}"
    return {"FP8": "fp8", "FLOAT8": "fp8", "NVFP4": "nvfp4"}.get(str(said).upper(), "")
