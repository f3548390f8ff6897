"""How many tokens the KV cache of one GPU holds."""

from __future__ import annotations

import math

from specsim.engine.setup import EngineSetup
from specsim.engine.sglang_limits import mem_fraction_static
from specsim.errors import InputError
from specsim.setting import Algorithm

VLLM_MEMORY_FRACTION = 0.9
VLLM_ACTIVATION_BYTES = 2 * 2**30
"""Assumed: what vLLM's profiling run leaves out of the KV cache."""
TRTLLM_FREE_FRACTION = 0.9
LLAMACPP_COMPUTE_BYTES = 2**30
"""Assumed: compute buffers of llama.cpp."""


def kv_capacity(
    engine: EngineSetup,
    weight_bytes_per_gpu: float,
    kv_bytes_per_token_per_gpu: float,
    algorithm: Algorithm = "none",
) -> int:
    """Return the tokens that the KV cache holds, per data-parallel rank.

    SGLang: (mem * mem_fraction_static - weights) / bytes per token, the fraction as
    :func:`mem_fraction_static` has it. The others with
    defaults that are assumed. `engine.kv_tokens` overrides.

    Parameters
    ----------
    engine
        The server.
    weight_bytes_per_gpu
        Weights on one GPU.
    kv_bytes_per_token_per_gpu
        KV cache of one token on one GPU; with the drafter's where there is one.
    algorithm
        Speculation reserves memory of its own in SGLang.

    Raises
    ------
    InputError
        If the weights leave no room.
    """
    if engine.kv_tokens is not None:
        return engine.kv_tokens
    if not (math.isfinite(weight_bytes_per_gpu) and weight_bytes_per_gpu >= 0):
        raise InputError(f"weights {weight_bytes_per_gpu}", "must be >= 0", "give bytes per GPU")
    if not (math.isfinite(kv_bytes_per_token_per_gpu) and kv_bytes_per_token_per_gpu > 0):
        raise InputError(
            f"KV bytes per token {kv_bytes_per_token_per_gpu}", "must be positive", "give bytes"
        )
    room = _room_bytes(engine, weight_bytes_per_gpu, algorithm)
    tokens = int(room // kv_bytes_per_token_per_gpu)
    if tokens < 1:
        short = kv_bytes_per_token_per_gpu - room
        raise InputError(
            f"weights of {weight_bytes_per_gpu:.4g} bytes per GPU",
            f"do not fit: {short:.4g} bytes too many for a KV cache on a GPU of "
            f"{engine.gpu_mem_bytes:.4g} bytes",
            "use more GPUs, a smaller quantisation or a larger mem_fraction_static, "
            "or give kv_tokens from the start-up log",
        )
    return tokens


def _room_bytes(engine: EngineSetup, weight_bytes: float, algorithm: Algorithm) -> float:
    """Return the bytes of one GPU that the engine gives to the KV cache."""
    memory = engine.gpu_mem_bytes
    match engine.name:
        case "sglang":
            return memory * mem_fraction_static(engine, algorithm) - weight_bytes
        case "vllm":
            fraction = engine.mem_fraction_static or VLLM_MEMORY_FRACTION
            return memory * fraction - weight_bytes - VLLM_ACTIVATION_BYTES
        case "tensorrt-llm":
            return (memory - weight_bytes) * (engine.mem_fraction_static or TRTLLM_FREE_FRACTION)
        case "llama.cpp":
            fraction = engine.mem_fraction_static or 1.0
            return memory * fraction - weight_bytes - LLAMACPP_COMPUTE_BYTES
