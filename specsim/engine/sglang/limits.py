"""SGLang's rules: which settings it runs, refuses or bends, and defaults that bend curves.

Caps, captured sizes, chunks, reserved memory. The release in which a rule was read is named with
it; a rule holds from the first release read that has it. Line numbers are of ``sglang/srt`` (S/).
"""

from typing import Literal

from specsim.engine.rules import (
    GIB,
    MIB,
    EngineSpec,
    EngineVersion,
    by_memory,
    captured_sizes,
    parse_version,
)
from specsim.engine.rulings import listed
from specsim.setting import Algorithm, SpecSetting

SpecEra = Literal["v1", "beta-flag", "env", "default", "v2-only"]

V2_ONLY_FROM = "0.5.13"
"""Release in which the v1 worker is gone and v2, which overlaps, takes trees."""


def spec_era(version: EngineVersion) -> SpecEra:
    """Return how the overlapping worker (v2) is reached in that version.

    0.5.4 itself still has the flag, the environment variable came with 0.5.4.post1.
    """
    if version.before("0.5.3"):
        return "v1"
    if version.before("0.5.4.post1"):
        return "beta-flag"
    if version.before("0.5.11"):
        return "env"
    return "default" if version.before(V2_ONLY_FROM) else "v2-only"


def mixes(setting: SpecSetting, engine: EngineSpec) -> bool:
    """Whether prompt chunks join decode steps: as asked for, where no ruling takes it away."""
    ruling = listed(setting, engine, "mixed chunks")
    return engine.mixed_chunk and (ruling is None or not ruling.rule)


_WIDE_TP = 4


def chunked_prefill_size(engine: EngineSpec, gpu_mem_bytes: float) -> int:
    """Return the most prompt tokens of a prefill step (0.5.9 ``server_args.py:940-998``)."""
    return engine.chunked_prefill_size or int(by_memory(engine, gpu_mem_bytes, "chunk"))


def cuda_graph_max_bs(engine: EngineSpec, gpu_mem_bytes: float) -> int:
    """Return the largest captured batch, requests."""
    size = "wide" if engine.tp >= _WIDE_TP else "narrow"
    return engine.cuda_graph_max_bs or int(by_memory(engine, gpu_mem_bytes, size))


def graph_batch_sizes(
    engine: EngineSpec, gpu_mem_bytes: float, speculates: bool, max_running_requests: int
) -> tuple[int, ...]:
    """Return the captured batch sizes, requests, no larger than the most that can run.

    0.5.9 ``server_args.py:1079-1107`` and ``cuda_graph_runner.py:190-222``: a cap below the
    largest size is captured itself; from 0.5.12 the asked maximum always is.
    """
    most = cuda_graph_max_bs(engine, gpu_mem_bytes)
    kept = captured_sizes(engine, gpu_mem_bytes, speculates, most)
    if engine.parsed_version.since("0.5.12"):
        kept.add(most)
    if max(kept) > max_running_requests:
        kept.add(max_running_requests)
    return tuple(sorted(size for size in kept if size <= max_running_requests))


def max_running_requests(engine: EngineSpec, speculates: bool) -> int:
    """Return the most requests that run at once on one data-parallel rank.

    Speculating: 32 from 0.4.3.post4 (``server_args.py:280``), and still in 0.4.4; 48 from then on.
    Otherwise at least 2048, more where the KV pool holds over four contexts of full length.
    """
    asked = engine.max_running_requests
    if asked is None:
        version = engine.parsed_version
        limited = speculates and version.since("0.4.3.post4")
        if not limited:
            return 2048  # per rank already (0.5.9 model_runner_kv_cache_mixin.py:344-353)
        asked = 48 if version > parse_version("0.4.4") else 32
    return max(1, asked // engine.dp)


def alloc_tokens(setting: SpecSetting, engine: EngineSpec) -> int:
    """Return the KV slots that a request may take in one round, max(S k, n).

    0.5.9 ``S/managers/utils.py:182-206``; from 0.5.13 whole pages for each branch of a tree
    (0.5.23 ``S/mem_cache/allocation_sizing.py:30-62``).
    """
    if not setting.speculates:
        return 1
    k, steps, page = setting.topk, setting.num_steps, engine.page_size
    branches = steps * k
    tree_on_pages = page > 1 and k > 1 and setting.algorithm != "NGRAM"
    if tree_on_pages and engine.parsed_version.since(V2_ONLY_FROM):
        branches = (2 * page - 2 + steps) // page * page * k
    return max(branches, setting.num_draft_tokens)


def mem_fraction_static(engine: EngineSpec, gpu_mem_bytes: float, algorithm: Algorithm) -> float:
    """Return the fraction of GPU memory for weights and KV cache.

    (mem - reserved) / mem, 0.5.9 ``server_args.py:1020-1063``; to 0.5.2 the reserve is by class
    of GPU. Multimodal models get a few per cent less, which is not modelled.
    """
    if engine.mem_fraction_static is not None:
        return engine.mem_fraction_static
    reserved = _reserved_bytes(engine, gpu_mem_bytes)
    if algorithm == "STANDALONE":
        reserved += 6 * GIB
    elif algorithm not in ("none", "NGRAM"):
        reserved += 2 * GIB
    return round((gpu_mem_bytes - reserved) / gpu_mem_bytes, 3)


def kv_room_bytes(
    engine: EngineSpec, gpu_mem_bytes: float, weight_bytes: float, algorithm: Algorithm
) -> float:
    """Return the bytes of one GPU for the KV cache: mem * mem_fraction_static - weights."""
    return gpu_mem_bytes * mem_fraction_static(engine, gpu_mem_bytes, algorithm) - weight_bytes


def _reserved_bytes(engine: EngineSpec, gpu_mem_bytes: float) -> float:
    """Return what is held back for activations and graphs, no speculation."""
    if engine.parsed_version.before("0.5.4"):
        own, per_rank = (by_memory(engine, gpu_mem_bytes, f"reserve{of}") for of in ("", "_tp"))
        return (own + per_rank * engine.tp + (4 if engine.dp > 1 else 0)) * GIB
    graphs = cuda_graph_max_bs(engine, gpu_mem_bytes)
    chunk = max(chunked_prefill_size(engine, gpu_mem_bytes), 2048)
    reserved = (512 + 1.5 * chunk + 2 * graphs) * MIB + engine.tp / 8 * GIB
    if engine.dp > 1:
        reserved += graphs * engine.dp * (4.5 if graphs > 300 else 3) * MIB
    return max(reserved, 10 * GIB) if gpu_mem_bytes > 60 * GIB else reserved
