"""SGLang: what runs with what by version, its limits, and how it is launched.

Read in the released wheels, 0.4.1 to 0.5.23 [@sglang-wheels]. A rule holds from the first release
read that has it. Messages in quotes are the engine's; lines are of ``sglang/srt`` (S/).
"""

import json
import re
from collections.abc import Mapping
from typing import Literal

from specsim.engine import rules, rulings
from specsim.engine.plan import RunPlan
from specsim.engine.rules import Engine, EngineSpec
from specsim.setting import Algorithm, SpecSetting, algorithm_name, chain_settings

NEWEST = "0.5.23"
WHOLE_FORWARDS = "0.5.23"
"""Release whose forward metrics have all of a speculating round; not 0.5.19."""

ADAPTIVE_TABLES: tuple[tuple[str, dict[int, tuple[int, ...]]], ...] = (
    # from this release on: candidates of draft steps by batch (``adaptive_spec_params.py``)
    ("0.5.20", {1: (1, 3, 5, 7), 8: (0, 1, 3), 32: (0, 1), 64: (0,)}),
    ("0.5.14", {1: (1, 3, 7), 8: (0, 1, 3), 32: (0, 1), 64: (0,)}),
    ("0", {1: (1, 3, 7), 8: (1, 3), 32: (1,)}),
)
BLOCK_DRAFTERS = ("DFLASH", "DSPARK")
"""They say num_steps 1 and verify a block: a chain of all drafted tokens (0.5.23
``speculative_hook.py``: DFLASH verifies its block, DSPARK gamma + 1 tokens)."""


SpecEra = Literal["v1", "beta-flag", "env", "default", "v2-only"]

V2_ONLY_FROM = "0.5.13"
"""Release in which the v1 worker is gone and v2, which overlaps, takes trees."""


def spec_era(version: rules.EngineVersion) -> SpecEra:
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


def plan_sglang(
    setting: SpecSetting, engine: EngineSpec, gpu_mem_bytes: float, what_if: bool
) -> RunPlan:
    """Return what SGLang does with a setting, or raise EngineRefusal."""
    verdict = rulings.judge(setting, engine, what_if)
    setting, version = verdict.setting, engine.parsed_version
    v2 = setting.speculates and (setting.scheduler == "overlap" or spec_era(version) == "v2-only")
    # plain decoding runs ahead: it knows the next lengths
    ahead = not setting.speculates or _backend_has("run_ahead_from", engine)
    taken = rulings.listed(setting, engine, "mixed chunks")  # by a ruling with words
    mixed = engine.mixed_chunk and (taken is None or not taken.rule)
    most = max_running_requests(engine, setting.speculates)
    alloc = alloc_tokens(setting, engine)
    assumed = "attention backend not stated: assumed one that waits and extends eagerly"
    return rulings.run_plan(
        verdict,
        engine,
        max_running_requests=most,
        alloc_tokens=alloc,
        reserved_tokens=2 * alloc if v2 else alloc,
        draft_extend="verify" if v2 else "accepted",
        extend_eager=v2 and not _backend_has("extend_graph_from", engine),
        graph_sizes=graph_batch_sizes(engine, gpu_mem_bytes, setting.speculates, most),
        graph_unit="requests",
        prefill="mixed" if mixed else "first",
        chunked_prefill_size=chunked_prefill_size(engine, gpu_mem_bytes),
        overlapped="run_ahead" if ahead else "overlap",
        notes=[assumed] if v2 and setting.follows_text and not engine.backend else [],
    )


def _backend_has(ability: str, engine: EngineSpec) -> bool:
    """Whether the attention backend has an ability in this release (``backends.csv``).

    To run ahead it must not need sequence lengths on the CPU (0.5.23 ``base_attn_backend.py:163``
    and the backends beside it); v2 captures the draft extend of some in a CUDA graph (0.5.9
    ``eagle_worker_v2.py:277``, 0.5.13 :369, 0.5.23 :567). Each from the first release read.
    """
    firsts = {row["backend"]: row[ability] for row in rules.table("backends")}
    first = firsts.get(engine.backend)
    return bool(first) and engine.parsed_version.since(str(first))


# --- limits and defaults: caps, captured sizes, chunks, reserved memory

_WIDE_TP = 4


def chunked_prefill_size(engine: EngineSpec, gpu_mem_bytes: float) -> int:
    """Return the most prompt tokens of a prefill step (0.5.9 ``server_args.py:940-998``)."""
    return engine.chunked_prefill_size or int(rules.by_memory(engine, gpu_mem_bytes, "chunk"))


def cuda_graph_max_bs(engine: EngineSpec, gpu_mem_bytes: float) -> int:
    """Return the largest captured batch, requests."""
    size = "wide" if engine.tp >= _WIDE_TP else "narrow"
    return engine.cuda_graph_max_bs or int(rules.by_memory(engine, gpu_mem_bytes, size))


def graph_batch_sizes(
    engine: EngineSpec, gpu_mem_bytes: float, speculates: bool, max_running_requests: int
) -> tuple[int, ...]:
    """Return the captured batch sizes, requests, no larger than the most that can run.

    0.5.9 ``server_args.py:1079-1107`` and ``cuda_graph_runner.py:190-222``: a cap below the
    largest size is captured itself; from 0.5.12 the asked maximum always is.
    """
    most = cuda_graph_max_bs(engine, gpu_mem_bytes)
    kept = rules.captured_sizes(engine, gpu_mem_bytes, speculates, most)
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
        asked = 48 if version > rules.parse_version("0.4.4") else 32
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
        reserved += 6 * rules.GIB
    elif algorithm not in ("none", "NGRAM"):
        reserved += 2 * rules.GIB
    return round((gpu_mem_bytes - reserved) / gpu_mem_bytes, 3)


def kv_room_bytes(
    engine: EngineSpec, gpu_mem_bytes: float, weight_bytes: float, algorithm: Algorithm
) -> float:
    """Return the bytes of one GPU for the KV cache: mem * mem_fraction_static - weights."""
    return gpu_mem_bytes * mem_fraction_static(engine, gpu_mem_bytes, algorithm) - weight_bytes


def _reserved_bytes(engine: EngineSpec, gpu_mem_bytes: float) -> float:
    """Return what is held back for activations and graphs, no speculation."""
    if engine.parsed_version.before("0.5.4"):
        own, per_rank = (
            rules.by_memory(engine, gpu_mem_bytes, f"reserve{of}") for of in ("", "_tp")
        )
        return (own + per_rank * engine.tp + (4 if engine.dp > 1 else 0)) * rules.GIB
    graphs = cuda_graph_max_bs(engine, gpu_mem_bytes)
    chunk = max(chunked_prefill_size(engine, gpu_mem_bytes), 2048)
    reserved = (512 + 1.5 * chunk + 2 * graphs) * rules.MIB + engine.tp / 8 * rules.GIB
    if engine.dp > 1:
        reserved += graphs * engine.dp * (4.5 if graphs > 300 else 3) * rules.MIB
    return max(reserved, 10 * rules.GIB) if gpu_mem_bytes > 60 * rules.GIB else reserved


# --- how it is launched, and what its arguments say


def launch_flags(plan: RunPlan, engine: EngineSpec, draft_model: str | None) -> list[str]:
    """Return the flags of the speculation, the scheduler and the caps."""
    from specsim.engine.flags import flags_for

    setting, version = plan.setting, plan.version
    lookup = setting.algorithm == "NGRAM"
    # NEXTN is another name for EAGLE: SGLang replaces it (0.5.9 server_args.py).
    algorithm = "EAGLE" if setting.algorithm == "MTP" else setting.algorithm
    block = setting.family == "block"
    said: dict[str, object] = {}
    if setting.speculates:
        said = {
            "algorithm": algorithm,
            "draft": draft_model,
            "ngram_breadth": setting.topk if lookup else None,
            "num_steps": None if lookup or block else setting.num_steps,
            "topk": None if lookup or block else setting.topk,
            "num_draft_tokens": setting.num_draft_tokens,
        }
        if spec_era(rules.parse_version(version)) == "beta-flag" and setting.scheduler == "overlap":
            said["scheduler"] = "overlap"
    if setting.scheduler == "sequential" and _overlap_is_a_flag(plan):
        said["scheduler"] = "sequential"
    said["max_running_requests"] = engine.max_running_requests
    said["cuda_graph_max_bs"] = engine.cuda_graph_max_bs
    return flags_for("sglang", version, said)


def adaptive_table(version: str = NEWEST) -> dict[int, tuple[int, ...]]:
    """Return what ``--speculative-adaptive`` tries at each batch, unless a file says otherwise."""
    return next(t for first, t in ADAPTIVE_TABLES if rules.parse_version(version).since(first))


def _overlap_is_a_flag(plan: RunPlan) -> bool:
    """Whether --disable-overlap-schedule decides; in the eras between, the worker does."""
    version = rules.parse_version(plan.version)
    if plan.setting.speculates:
        return spec_era(version) == "v2-only"
    return version.since("0.4.0")


def launch_env(plan: RunPlan) -> dict[str, str]:
    """Return `SGLANG_ENABLE_SPEC_V2` from 0.5.4.post1 to 0.5.12 (0.5.9 ``server_args.py:2381``)."""
    setting = plan.setting
    if not setting.speculates or setting.algorithm == "NGRAM":
        return {}
    era = spec_era(rules.parse_version(plan.version))
    if era == "env" and setting.scheduler == "overlap":
        return {"SGLANG_ENABLE_SPEC_V2": "True"}
    if era == "default" and setting.scheduler == "sequential" and setting.topk == 1:
        return {"SGLANG_ENABLE_SPEC_V2": "False"}
    return {}


def settings_of(said: Mapping[str, object]) -> dict[str, object]:
    """Return settings from arguments, which are named as ``flags.csv`` names them.

    >>> settings_of({"tp": 8, "dp_size": 4, "enable_dp_attention": True})["dp"]
    4
    """
    found = {key: value for key, value in said.items() if value not in ("auto", "null", "none")}
    _drafting(found, said)
    _parallel(found)
    backend = found.pop("decode_attention_backend", None)
    if backend is not None:
        found["attention_backend"] = backend
    return found


def _drafting(found: dict[str, object], said: Mapping[str, object]) -> None:
    """Put in the algorithm and its numbers as specsim counts them."""
    if "algorithm" in said:
        found["algorithm"] = algorithm_name(str(said["algorithm"]))
        draft = str(found.get("draft", ""))
        own = draft and (draft == found.get("model") or re.search("nextn|-mtp", draft.lower()))
        if found["algorithm"] == "EAGLE" and own:  # layers of the target's, in its checkpoint
            found["algorithm"] = "MTP"
    breadth, depth = found.pop("ngram_breadth", None), found.pop("ngram_depth", None)
    gamma, block = found.pop("gamma", None), found.pop("block_size", None)
    tokens = found.get("num_draft_tokens")
    if isinstance(gamma, int):
        tokens = gamma + 1
    elif isinstance(block, int):
        tokens = block
    if not isinstance(tokens, int) or tokens < 2:
        return
    if found.get("algorithm") in BLOCK_DRAFTERS:
        found.update(chain_settings(tokens - 1))
    elif found.get("algorithm") == "NGRAM":
        deepest = min(depth, tokens - 1) if isinstance(depth, int) else tokens - 1
        found.setdefault("num_steps", deepest)
        if isinstance(breadth, int):
            found.setdefault("topk", breadth)


_DEEP = re.compile(r"llama[-_ ]?[23]|vicuna|grok-?1", re.IGNORECASE)
_OTHERS = re.compile(
    r"deepseek|glm|gpt-?oss|qwen|kimi|mi[sx]tral|gemma|mimo|minimax|llama-?4", re.I
)


def completed(settings: dict[str, object]) -> dict[str, object]:
    """Return settings with what SGLang takes where a command does not say.

    EAGLE without a drafter's path drafts with the target's own layers for it, as NEXTN does.
    Numbers of a draft: 5 steps, topk 4, 8 tokens for models of the architecture of Llama 2 and 3
    and Grok-1; 3, 1, 4 for all others and for STANDALONE (0.5.9 ``server_args.py``,
    ``auto_choose_speculative_params``); none where the name does not tell which.

    >>> completed({"algorithm": "EAGLE3", "model": "org/Llama-3.1-8B", "draft": "d"})["topk"]
    4
    """
    found = dict(settings)
    if found.get("algorithm") == "EAGLE" and "draft" not in found:
        found["algorithm"] = "MTP"
    algorithm, model = found.get("algorithm"), str(found.get("model"))
    if algorithm not in ("EAGLE", "EAGLE3", "MTP", "STANDALONE") or "num_steps" in found:
        return found
    deep = algorithm != "STANDALONE" and _DEEP.search(model)
    if deep or algorithm == "STANDALONE" or _OTHERS.search(model):
        steps, topk, tokens = (5, 4, 8) if deep else (3, 1, 4)
        found |= {"num_steps": steps, "topk": topk, "num_draft_tokens": tokens}
        found["chosen"] = f"{steps} steps, topk {topk}, {tokens} tokens"
    return found


def _parallel(found: dict[str, object]) -> None:
    """Tell data-parallel attention from replicas, and fill the degree of expert parallelism.

    From 0.5.22 ``--dp-size N --enable-dp-attention`` is resolved to ``attn_dp_size`` N and
    ``dp_size`` 1 (``parallel_hook.py``).
    """
    attention, ranks = found.pop("attn_dp", 1), found.pop("dp_size", 1)
    if isinstance(attention, int) and attention > 1:
        found["dp"] = attention
    elif found.get("enable_dp_attention"):
        found["dp"] = ranks
    elif isinstance(ranks, int) and ranks > 1:
        found["replicas"] = ranks
    by_tokens = found.get("a2a_backend") is not None or found.pop("enable_ep_moe", False)
    if by_tokens and found.get("ep") in (None, 1) and "tp" in found:
        found["ep"] = found["tp"]  # SGLang sets it so for all-to-all experts


def _written(rows: rules.ScheduleRows, batch_max: int) -> rules.WrittenTable:
    """Return ``--speculative-adaptive-config``: depths to choose from, here one, by batch."""
    config = json.dumps({str(batch): {"candidate_steps": [steps]} for batch, steps in rows})
    first = rows[0][1] or max(steps for _, steps in rows)
    adaptive = ("--speculative-adaptive", "--speculative-adaptive-config", "adaptive.json")
    words = ("--speculative-num-steps", str(first), *adaptive)
    return rules.WrittenTable(
        config=config, words=words, lines=(f"adaptive.json: {config}", " ".join(words))
    )


ENGINE = Engine(
    name="sglang",
    newest=NEWEST,
    program=("python", "-m", "sglang.launch_server"),
    plan=plan_sglang,
    kv_room_bytes=kv_room_bytes,
    launch_flags=launch_flags,
    launch_env=launch_env,
    settings=settings_of,
    completed=completed,
    schedule=rules.ScheduleSyntax(
        write=_written,
        padded=True,
        since=V2_ONLY_FROM,  # by batch size
        zero_since="0.5.14",
        algorithms=("EAGLE", "EAGLE3"),
    ),
    other_rules=(V2_ONLY_FROM, NEWEST),
    trees_overlap_from=V2_ONLY_FROM,
    pins_acceptance="SGLANG_SIMULATE_ACC_LEN",
    lookup_fills_tree=True,
    cpu_backend="intel_amx",
    worker_names=(("sequential", "v1"), ("overlap", "v2")),
)
