"""SGLang: what runs with what by version, its limits, and how it is launched.

Read in the released wheels, 0.4.1 to 0.5.23 [@sglang-wheels]. A rule holds from the first release
read that has it. Messages in quotes are the engine's.
"""

import json
from collections.abc import Mapping

from specsim.engine import rules
from specsim.engine.plan import RunPlan, Timeline
from specsim.engine.rules import Engine, EngineSpec
from specsim.engine.sglang import limits
from specsim.engine.sglang.limits import V2_ONLY_FROM, mixes, spec_era
from specsim.setting import Algorithm, SpecSetting, algorithm_name, chain_settings

NEWEST = "0.5.23"
TABLES_FROM, ZERO_FROM = V2_ONLY_FROM, "0.5.14"  # tables by batch size; step 0 in them

WHOLE_FORWARDS = "0.5.23"
"""Release whose forward metrics have all of a speculating round; not 0.5.19."""

ADAPTIVE_TABLES: tuple[tuple[str, dict[int, tuple[int, ...]]], ...] = (
    # from this release on: candidates of draft steps by batch (``adaptive_spec_params.py``)
    ("0.5.20", {1: (1, 3, 5, 7), 8: (0, 1, 3), 32: (0, 1), 64: (0,)}),
    ("0.5.14", {1: (1, 3, 7), 8: (0, 1, 3), 32: (0, 1), 64: (0,)}),
    ("0", {1: (1, 3, 7), 8: (1, 3), 32: (1,)}),
)
ADAPTIVE_ALGORITHMS = ("EAGLE", "EAGLE3")


BLOCK_DRAFTERS = ("DFLASH", "DSPARK")
"""They say num_steps 1 and verify a block: a chain of all drafted tokens (0.5.23
``speculative_hook.py``: DFLASH verifies its block, DSPARK gamma + 1 tokens)."""


def plan_sglang(
    setting: SpecSetting, engine: EngineSpec, gpu_mem_bytes: float, what_if: bool
) -> RunPlan:
    """Return what SGLang does with a setting, or raise EngineRefusal."""
    verdict = rules.judge(setting, engine, what_if)
    setting, version, mem_mib = verdict.setting, engine.parsed_version, gpu_mem_bytes / rules.MIB
    overlap = setting.scheduler == "overlap"
    v2 = setting.speculates and (overlap or spec_era(version) == "v2-only")
    drafts = setting.follows_text
    notes = [*rules.state_notes(engine), *verdict.notes]
    if v2 and drafts and not engine.backend:
        notes.append("attention backend not stated: assumed one that waits and extends eagerly")
    most = limits.max_running_requests(engine, setting.speculates)
    alloc = limits.alloc_tokens(setting, engine)
    return RunPlan(
        setting=setting,
        engine=engine.name,
        version=engine.version,
        allowed=verdict.reason is None,
        reason=verdict.reason,
        notes=tuple(notes),
        max_running_requests=most,
        alloc_tokens=alloc,
        reserved_tokens_per_request=2 * alloc if v2 else alloc,
        draft_extend="none" if not drafts else "verify" if v2 else "accepted",
        extend_eager=drafts and v2 and not _backend_has("extend_graph_from", engine),
        graph_batch_sizes=(
            ()
            if engine.disable_cuda_graph
            else limits.graph_batch_sizes(engine, mem_mib, setting.speculates, most)
        ),
        graph_unit="requests",
        prefill=rules.elsewhere(engine, "mixed" if mixes(setting, engine) else "first"),
        chunked_prefill_size=limits.chunked_prefill_size(engine, mem_mib),
        finish_lag_rounds=1 if overlap else 0,
        timeline=_timeline(setting, engine),
        ranks=engine.dp,
    )


def _timeline(setting: SpecSetting, engine: EngineSpec) -> Timeline:
    """Return who waits for whom; plain decoding runs ahead: it knows the next lengths."""
    if setting.scheduler != "overlap":
        return "sequential"
    if not setting.speculates:
        return "run_ahead"
    return "run_ahead" if _backend_has("run_ahead_from", engine) else "overlap"


def _backend_has(ability: str, engine: EngineSpec) -> bool:
    """Whether the attention backend has an ability in this release (``sglang/backends.csv``).

    To run ahead it must not need sequence lengths on the CPU (0.5.23 ``base_attn_backend.py:163``
    and the backends beside it); v2 captures the draft extend of some in a CUDA graph (0.5.9
    ``eagle_worker_v2.py:277``, 0.5.13 :369, 0.5.23 :567). Each from the first release read.
    """
    firsts = {row["backend"]: row[ability] for row in rules.table("sglang/backends")}
    first = firsts.get(engine.backend)
    return bool(first) and engine.parsed_version.since(str(first))


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


def _schedule_config(rows: rules.ScheduleRows, batch_max: int) -> str:
    return json.dumps({str(batch): {"candidate_steps": [steps]} for batch, steps in rows})


def _schedule_words(rows: rules.ScheduleRows, config: str) -> list[str]:
    first = rows[0][1] or max(steps for _, steps in rows)
    words = ["--speculative-num-steps", str(first), "--speculative-adaptive"]
    return [*words, "--speculative-adaptive-config", "adaptive.json"]


def _schedule_lines(rows: rules.ScheduleRows, config: str) -> list[str]:
    return [f"adaptive.json: {config}", " ".join(_schedule_words(rows, config))]


def _schedule_limits(version: str, algorithm: Algorithm, zero: bool) -> list[str]:
    notes = []
    if algorithm not in ADAPTIVE_ALGORITHMS:
        notes.append(f"SGLang adapts EAGLE and EAGLE3 only, not {algorithm}")
    needed = ZERO_FROM if zero else TABLES_FROM
    if rules.parse_version(version).before(needed):
        notes.append(f"SGLang {version} cannot: such a table needs {needed} or later")
    return notes


ENGINE = Engine(
    name="sglang",
    newest=NEWEST,
    program=("python", "-m", "sglang.launch_server"),
    plan=plan_sglang,
    kv_room_bytes=limits.kv_room_bytes,
    launch_flags=launch_flags,
    launch_env=launch_env,
    settings=settings_of,
    schedule=rules.ScheduleSyntax(
        config=_schedule_config,
        words=_schedule_words,
        lines=_schedule_lines,
        limits=_schedule_limits,
        padded=True,
    ),
    other_rules=(V2_ONLY_FROM, NEWEST),
    trees_overlap_from=V2_ONLY_FROM,
    cap_flag="--max-running-requests",
    graph_flag="--cuda-graph-max-bs",
    pins_acceptance="SGLANG_SIMULATE_ACC_LEN",
    lookup_fills_tree=True,
    worker_names=(("sequential", "v1"), ("overlap", "v2")),
)
