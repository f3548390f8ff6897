"""The engine as it is launched: what the rules look at."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from specsim.engine.version import EngineVersion, parse_version
from specsim.errors import InputError, UnknownNameError

EngineName = Literal["sglang", "vllm", "tensorrt-llm", "llama.cpp"]


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """Section [engine] of setup.toml, and the memory of one GPU; None is the engine's default.

    Parameters
    ----------
    name, version
        Engine and its version, as text.
    gpu_mem_bytes
        Memory of one GPU.
    tp, dp, ep
        Ranks of tensor, data (with attention split by request) and expert parallelism.
    attention_backend, kv_dtype
        As on the command line; the backend is compared in lower case.
    max_running_requests
        Most requests that run at once: SGLang's ``--max-running-requests``, shared out over the
        data-parallel ranks; per rank vLLM's ``--max-num-seqs`` and llama.cpp's slots.
    cuda_graph_max_bs
        Largest captured batch: requests, but tokens in vLLM.
    mem_fraction_static
        Fraction of GPU memory for weights and KV cache; vLLM's ``--gpu-memory-utilization``,
        TensorRT-LLM's fraction of the memory that the weights leave.
    kv_tokens
        Tokens that the KV cache holds, from the start-up log.
    chunked_prefill_size
        Most prompt tokens of one prefill step; vLLM's ``--max-num-batched-tokens``.
    page_size
        Tokens of one KV page.

    Raises
    ------
    InputError
        If a number is out of range, or the version is no version.
    """

    name: EngineName
    version: str
    gpu_mem_bytes: float
    tp: int = 1
    dp: int = 1
    ep: int = 1
    attention_backend: str | None = None
    kv_dtype: str = "bf16"
    max_running_requests: int | None = None
    cuda_graph_max_bs: int | None = None
    mem_fraction_static: float | None = None
    kv_tokens: int | None = None
    chunked_prefill_size: int | None = None
    page_size: int = 1

    def __post_init__(self) -> None:
        if self.name not in get_args(EngineName):
            raise UnknownNameError("engine", self.name, get_args(EngineName))
        parse_version(self.version)
        counts = (
            "tp",
            "dp",
            "ep",
            "page_size",
            "max_running_requests",
            "cuda_graph_max_bs",
            "kv_tokens",
            "chunked_prefill_size",
        )
        for key in counts:
            value: int | None = getattr(self, key)
            if value is not None and value < 1:
                raise InputError(f"engine {key} {value}", "must be at least 1", "or leave it out")
        fraction = self.mem_fraction_static
        if fraction is not None and not 0 < fraction <= 1:
            raise InputError(
                f"engine mem_fraction_static {fraction}", "must lie in 0..1", "or leave it out"
            )
        if not (math.isfinite(self.gpu_mem_bytes) and self.gpu_mem_bytes > 0):
            raise InputError(
                f"GPU memory {self.gpu_mem_bytes}", "must be positive", "give bytes per GPU"
            )

    @property
    def parsed_version(self) -> EngineVersion:
        """The version as the rules compare it."""
        return parse_version(self.version)

    @property
    def backend(self) -> str:
        """The attention backend in lower case; empty if it is not stated."""
        return (self.attention_backend or "").lower()

    @property
    def gpu_mem_mib(self) -> float:
        """Memory of one GPU in MiB, the unit of the engines' own tables."""
        return self.gpu_mem_bytes / 2**20
