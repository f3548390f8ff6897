"""How many bytes a weight takes, and in which number type its products are computed.

A scheme gives one size to each kind of weight: `dense` (attention, dense FFN, shared experts),
`experts` (routed experts), `head` (LM head and embedding). Router and norms stay bf16. Scales are
counted with the weights they belong to: group-g scales of s bytes add s/g per weight.
"""

from __future__ import annotations

from dataclasses import dataclass

from specsim.errors import UnknownNameError

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


def _uniform(id: str, size: float, dtype: str, head: float = BF16_BYTES) -> Quantisation:
    return Quantisation(id, size, size, head, dtype, dtype)


def _experts(id: str, size: float, dtype: str) -> Quantisation:
    return Quantisation(id, BF16_BYTES, size, BF16_BYTES, "bf16", dtype)


_INT4_G128 = 4 / 8 + 2 / 128
_INT4_G32 = 4 / 8 + 2 / 32  # reproduces 3.10 MB per expert and rank of Kimi-K2 at TP8
_NVFP4 = 4 / 8 + 1 / 16  # one fp8 scale per 16 weights
_MXFP4 = 4 / 8 + 1 / 32  # one 8-bit exponent per 32 weights
_Q6_K = 210 / 256  # llama.cpp writes output.weight so, whatever the scheme (except Q8_0)

SCHEMES = {
    scheme.id: scheme
    for scheme in (
        _uniform("bf16", 2.0, "bf16"),
        _uniform("fp16", 2.0, "fp16"),
        _uniform("fp8", 1.0, "fp8"),
        _uniform("fp8-block", 1.0, "fp8"),  # its fp32 scale per 128 x 128 block adds 0.02 %
        _uniform("int8", 1.0, "int8"),
        _uniform("int4", _INT4_G128, "bf16"),
        _uniform("awq", _INT4_G128, "bf16"),
        _uniform("gptq", _INT4_G128, "bf16"),
        _uniform("nvfp4", _NVFP4, "fp4"),
        _experts("int4-experts", _INT4_G32, "bf16"),
        _experts("nvfp4-experts", _NVFP4, "fp4"),
        _experts("mxfp4-experts", _MXFP4, "bf16"),
        # llama.cpp blocks of 32, scales included: 18 bytes (fp16 scale), 20 (and minimum) or 34.
        # Counted as bf16 compute: its int8 kernels serve small batches, which bandwidth limits.
        _uniform("f32", 4.0, "bf16", 4.0),
        _uniform("f16", 2.0, "fp16"),
        _uniform("q4_0", 18 / 32, "bf16", _Q6_K),
        _uniform("q4_1", 20 / 32, "bf16", _Q6_K),
        _uniform("q8_0", 34 / 32, "bf16", 34 / 32),
    )
}
"""Schemes by id."""

_KV_BYTES = {
    "bf16": 2.0,
    "fp16": 2.0,
    "f16": 2.0,
    "auto": 2.0,  # the engines' default: the model's own type
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "int8": 1.0,
    "q8_0": 34 / 32,
}


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
    scheme = SCHEMES.get(name.strip().lower())
    if scheme is None:
        known = ", ".join((*SCHEMES, "native"))
        remedy = f"use one of: {known}; or the nearest of them with weight_bytes"
        raise UnknownNameError("quantisation", name, (*SCHEMES, "native"), remedy)
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
    size = _KV_BYTES.get(name.strip().lower())
    if size is None:
        raise UnknownNameError("kv_dtype", name, _KV_BYTES)
    return size
