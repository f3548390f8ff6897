"""How many bytes a weight takes, and in which number type its products are computed.

A scheme gives one size to each kind of weight: `dense` (attention, dense FFN, shared experts),
`experts` (routed experts), `head` (LM head and embedding). Router and norms stay bf16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from specsim.errors import UnknownNameError
from specsim.library import read_library

BF16_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Bytes per weight by kind of weight, and the number types of the GEMMs."""

    id: str  # name in setup.toml
    dense: float  # bytes per weight, scales included, like the next two
    experts: float
    head: float
    dense_dtype: str  # what the tensor cores compute in: weight-only schemes unpack to bf16
    expert_dtype: str

    @property
    def only_experts(self) -> bool:
        """Whether nothing but routed experts is compressed."""
        return self.id.endswith("-experts")


@cache
def schemes() -> dict[str, Quantisation]:
    """Return the schemes of ``library/quantisations.toml`` by id."""
    found = {}
    for id, row in read_library("quantisations")["scheme"].items():
        assert isinstance(row, dict)
        said = {"dense": BF16_BYTES, "head": BF16_BYTES, "dense_dtype": "bf16", **row}
        said = {"experts": said["dense"], "expert_dtype": said["dense_dtype"], **said}
        found[id] = Quantisation(id, **said)
    return found


def load_quantisation(name: str) -> Quantisation:
    """Return the scheme called `name`.

    Raises
    ------
    UnknownNameError
        Names the nearest scheme.

    Examples
    --------
    >>> load_quantisation("int4-experts").experts, load_quantisation("int4-experts").dense
    (0.5625, 2.0)
    """
    known = schemes()
    scheme = known.get(name.strip().lower())
    if scheme is None:
        listed = ", ".join((*known, "native"))
        remedy = f"use one of: {listed}; or the nearest of them with weight_bytes"
        raise UnknownNameError("quantisation", name, (*known, "native"), remedy)
    return scheme


def kv_dtype_bytes(name: str) -> float:
    """Bytes per number in the KV cache.

    Raises
    ------
    UnknownNameError
        Names the nearest type.

    Examples
    --------
    >>> kv_dtype_bytes("fp8_e4m3")
    1.0
    """
    sizes: Any = read_library("quantisations")["kv_bytes"]
    if (known := name.strip().lower()) not in sizes:
        raise UnknownNameError("kv_dtype", name, sizes)
    return float(sizes[known])


def scheme_of_config(about: Mapping[str, Any]) -> tuple[str, str]:
    """Return the scheme and the KV type that a checkpoint's `quantization_config` states.

    The scheme is empty where there is none of ours, the KV type where nothing is said of it.

    Examples
    --------
    >>> scheme_of_config({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"})
    ('fp8', 'fp8')
    """
    inner = about.get("quantization")  # hf_quant_config.json of ModelOpt
    if isinstance(inner, Mapping):
        about = {"quant_method": "modelopt", **inner}
    return _scheme(about), _kv_type(about)


def _scheme(about: Mapping[str, Any]) -> str:
    method = str(about.get("quant_method", "")).lower().replace("-", "_")
    bits = str(about.get("bits", about.get("w_bit")))
    if method in ("fp8", "fbgemm_fp8"):
        if about.get("expert_dtype") == "fp4":
            return "mxfp4-experts-fp8"
        return "fp8-block" if about.get("weight_block_size") else "fp8"
    if method in ("awq", "gptq", "awq_marlin", "gptq_marlin", "auto_round"):
        name = "awq" if method.startswith("awq") else "gptq"
        return {"4": name, "8": "int8"}.get(bits, "")
    skipped = ("ignore", "exclude_modules", "exclude", "modules_to_not_convert")
    suffix = "-experts" if any("self_attn" in str(about.get(key)) for key in skipped) else ""
    if method.startswith("modelopt") or (not method and "quant_algo" in about):
        algorithm = str(about.get("quant_algo", "")).upper()
        if algorithm == "MIXED_PRECISION":
            return _mixed(about.get("quantized_layers"))
        return {"FP8": "fp8", "NVFP4": f"nvfp4{suffix}", "W4A16_AWQ": "awq"}.get(algorithm, "")
    if method == "compressed_tensors":
        groups = _table(about, "config_groups").values()
        found = {_weights(_table(group, "weights"), suffix) for group in groups}
        return found.pop() if len(found) == 1 else ""
    if method == "quark":
        weight = _table(_table(about, "global_quant_config"), "weight")
        kinds = {"fp4": f"mxfp4{suffix}", "fp8_e4m3": "fp8", "int8": "int8", "int4": "int4"}
        return kinds.get(str(weight.get("dtype")), "")
    return {"mxfp4": "mxfp4-experts", "w4afp8": "int4-experts-fp8"}.get(method, "")


def _table(about: object, key: str) -> Mapping[str, Any]:
    """Return the table under a key, empty where there is none."""
    inside = about.get(key) if isinstance(about, Mapping) else None
    return inside if isinstance(inside, Mapping) else {}


def _weights(weights: Mapping[str, Any], suffix: str) -> str:
    """Return the scheme of one group of layers of compressed-tensors."""
    block, small = weights.get("strategy") == "block", weights.get("group_size") == 32
    return {
        ("int", "4"): f"int4{suffix}",
        ("int", "8"): "int8",
        ("float", "8"): "fp8-block" if block else "fp8",
        ("float", "4"): f"mxfp4{suffix}" if small else f"nvfp4{suffix}",
    }.get((str(weights.get("type")), str(weights.get("num_bits"))), "")


def _mixed(layers: object) -> str:
    """Return the scheme of a checkpoint that lists each layer's: one of experts, one of the rest.

    Shared experts and the head are left out: where they are compressed more, that is small.
    """
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for name, about in layers.items() if isinstance(layers, Mapping) else ():
        if "shared" not in str(name) and "lm_head" not in str(name):
            algorithm = str(about.get("quant_algo") if isinstance(about, Mapping) else about)
            found[".experts" in str(name)].add(algorithm.removeprefix("W4A16_"))
    experts, others = ("+".join(sorted(found[kind])) for kind in (True, False))
    rest = {"FP8": "-fp8", "MXFP8": "-fp8", "": ""}.get(others)
    return f"nvfp4-experts{rest}" if experts == "NVFP4" and rest is not None else ""


def _kv_type(about: Mapping[str, Any]) -> str:
    said = about.get("kv_cache_scheme") or about.get("kv_cache_quant_algo")
    if isinstance(said, Mapping):
        said = f"{said.get('type')}{said.get('num_bits')}"
    return {"FP8": "fp8", "FLOAT8": "fp8", "NVFP4": "nvfp4"}.get(str(said).upper(), "")
