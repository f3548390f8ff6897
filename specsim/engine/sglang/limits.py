"""SGLang's rules: which settings it runs, refuses or bends, and defaults that bend curves.

Caps, captured sizes, chunks, reserved memory. The release in which a rule was read is named with
it; a rule holds from the first release read that has it. Line numbers are of ``sglang/srt`` (S/).
"""

from typing import Literal

from specsim.engine.rules import MIB, EngineSpec, EngineVersion, listed, parse_version, rows
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


GIB_MIB = 1024
_WIDE_TP = 4


def _by_memory(engine: EngineSpec, mem_mib: float, what: str) -> int:
    """Return a default by release and memory of a GPU, as ``memory.csv`` has it.

    The prompt tokens of a prefill step (`chunk`), the largest captured batch below tp 4 (`narrow`)
    and from there on (`wide`); 0.5.9 ``server_args.py:940-998``. Of 0.4.9 and 0.5.2 the list of
    sizes bounds it above 35 GiB.
    """
    fits = (r for r in rows("memory", "sglang") if engine.parsed_version.since(r["since"]))
    return int(next(r[what] for r in fits if mem_mib < float(r["below_gib"]) * GIB_MIB))


def chunked_prefill_size(engine: EngineSpec, mem_mib: float) -> int:
    """Return the most prompt tokens of a prefill step."""
    return engine.chunked_prefill_size or _by_memory(engine, mem_mib, "chunk")


def cuda_graph_max_bs(engine: EngineSpec, mem_mib: float) -> int:
    """Return the largest captured batch, requests."""
    size = "wide" if engine.tp >= _WIDE_TP else "narrow"
    return engine.cuda_graph_max_bs or _by_memory(engine, mem_mib, size)


def graph_batch_sizes(
    engine: EngineSpec, mem_mib: float, speculates: bool, max_running_requests: int
) -> tuple[int, ...]:
    """Return the captured batch sizes, requests, no larger than the most that can run.

    0.5.9 ``server_args.py:1079-1107`` and ``cuda_graph_runner.py:190-222``: a cap below the
    largest size is captured itself; from 0.5.12 the asked maximum always is.
    """
    most = cuda_graph_max_bs(engine, mem_mib)
    if engine.parsed_version.before("0.5.4"):
        sizes = _sizes_to_0_5_2(engine, mem_mib, speculates, most)
    elif speculates:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8)]
        sizes += range(272, most + 1, 16)
    else:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16)]
        sizes += range(512, most + 1, 32)
    kept = {size for size in sizes if size <= most}
    if engine.parsed_version.since("0.5.12"):
        kept.add(most)
    if max(kept) > max_running_requests:
        kept.add(max_running_requests)
    return tuple(sorted(size for size in kept if size <= max_running_requests))


def _sizes_to_0_5_2(engine: EngineSpec, mem_mib: float, speculates: bool, most: int) -> list[int]:
    """Return the sizes as 0.5.2 lists them (``cuda_graph_runner.py``); earlier ones are alike."""
    if speculates:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 64, 8), *range(80, 161, 16)]
    else:
        sizes = [1, 2, 4, 8, *range(16, 161, 8)]
    if mem_mib > 90 * GIB_MIB:
        sizes += range(160, 257, 8)
    if mem_mib > 160_000:
        sizes += range(256, 513, 16)
    if engine.cuda_graph_max_bs is not None and max(sizes) < most:
        sizes += range(max(sizes), most + 1, 16)
    return sizes


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


def mem_fraction_static(engine: EngineSpec, mem_mib: float, algorithm: Algorithm) -> float:
    """Return the fraction of GPU memory for weights and KV cache.

    (mem - reserved) / mem, 0.5.9 ``server_args.py:1020-1063``; to 0.5.2 the reserve is by class
    of GPU. Multimodal models get a few per cent less, which is not modelled.
    """
    if engine.mem_fraction_static is not None:
        return engine.mem_fraction_static
    if engine.parsed_version.before("0.5.4"):
        reserved = _reserved_mib_to_0_5_2(engine, mem_mib)
    else:
        reserved = _reserved_mib(engine, mem_mib)
    if algorithm == "STANDALONE":
        reserved += 6 * GIB_MIB
    elif algorithm not in ("none", "NGRAM"):
        reserved += 2 * GIB_MIB
    return round((mem_mib - reserved) / mem_mib, 3)


def kv_room_bytes(
    engine: EngineSpec, gpu_mem_bytes: float, weight_bytes: float, algorithm: Algorithm
) -> float:
    """Return the bytes of one GPU for the KV cache: mem * mem_fraction_static - weights."""
    fraction = mem_fraction_static(engine, gpu_mem_bytes / MIB, algorithm)
    return gpu_mem_bytes * fraction - weight_bytes


def _reserved_mib(engine: EngineSpec, mem_mib: float) -> float:
    graphs = cuda_graph_max_bs(engine, mem_mib)
    reserved = 512 + 1.5 * max(chunked_prefill_size(engine, mem_mib), 2048) + 2 * graphs
    reserved += engine.tp / 8 * GIB_MIB
    if engine.dp > 1:
        reserved += graphs * engine.dp * (4.5 if graphs > 300 else 3)
    return max(reserved, 10 * GIB_MIB) if mem_mib > 60 * GIB_MIB else reserved


def _reserved_mib_to_0_5_2(engine: EngineSpec, mem_mib: float) -> float:
    if mem_mib < 35 * GIB_MIB:
        reserved = 2.8 + engine.tp / 10
    elif mem_mib < 160 * GIB_MIB:
        reserved = (9.5 if mem_mib < 90 * GIB_MIB else 12) + engine.tp / 2
    else:
        reserved = 32.0
    return (reserved + (4 if engine.dp > 1 else 0)) * GIB_MIB
