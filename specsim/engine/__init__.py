"""Engines by version: what runs with what, caps, captured sizes, allocation, launch flags.

One file per engine holds all that is known of it, as one record; `ENGINES` lists the files.
"""

from functools import lru_cache
from importlib import import_module

from specsim.engine.plan import RunPlan as RunPlan
from specsim.engine.plan import padded_batch as padded_batch
from specsim.engine.plan import with_draft_share as with_draft_share
from specsim.engine.rules import Engine as Engine
from specsim.engine.rules import EngineSpec as EngineSpec
from specsim.engine.rules import parse_version as parse_version
from specsim.errors import InputError, UnknownNameError
from specsim.setting import Algorithm

ENGINES = {
    "sglang": "specsim.engine.sglang",
    "vllm": "specsim.engine.vllm",
    "tensorrt-llm": "specsim.engine.tensorrt_llm",
    "llama.cpp": "specsim.engine.llama_cpp",
}
"""The module that holds an engine's record, imported when it is asked for."""


def engine_names() -> tuple[str, ...]:
    """Names of the engines."""
    return tuple(ENGINES)


def engine_named(name: str) -> Engine:
    """Return the engine of that name, in any case.

    >>> engine_named("vLLM").program
    ('vllm', 'serve')
    """
    wanted = name.strip().lower()
    if wanted not in ENGINES:
        raise UnknownNameError("engine", name, ENGINES)
    engine: Engine = import_module(ENGINES[wanted]).ENGINE
    return engine


@lru_cache(maxsize=1024)
def kv_capacity(
    engine: EngineSpec,
    gpu_mem_bytes: float,
    weight_bytes_per_gpu: float,
    kv_bytes_per_token_per_gpu: float,
    algorithm: Algorithm = "none",
) -> int:
    """Return the tokens that the KV cache holds, per data-parallel rank: its room by their size.

    Parameters
    ----------
    engine
        As it is launched.
    gpu_mem_bytes, weight_bytes_per_gpu, kv_bytes_per_token_per_gpu
        Of one GPU: its memory, the weights on it, and the cache of a token, with the drafter's
        where there is one.
    algorithm
        How tokens are drafted: speculation reserves memory of its own in SGLang.

    Raises
    ------
    InputError
        If the weights leave no room.
    """
    rules = engine_named(engine.name)
    room = rules.kv_room_bytes(engine, gpu_mem_bytes, weight_bytes_per_gpu, algorithm)
    tokens = int(room // kv_bytes_per_token_per_gpu)
    if tokens < 1:
        short = kv_bytes_per_token_per_gpu - room
        raise InputError(
            f"weights of {weight_bytes_per_gpu / 1e9:.3g} GB per GPU",
            f"do not fit on a GPU of {gpu_mem_bytes / 1e9:.3g} GB: {short / 1e9:.3g} GB too much "
            "for a KV cache",
            "use more GPUs (--tp), a smaller quantisation or a larger mem_fraction_static; "
            "layers on the CPU are not modelled",
        )
    return tokens
