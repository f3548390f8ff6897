"""SGLang: what runs with what by version, its limits, and how it is launched.

Read in the released wheels, 0.4.1 to 0.5.23 [@sglang-wheels]. A rule holds from the first release
read that has it. Messages in quotes are the engine's.
"""

from __future__ import annotations

from specsim.engine.plan import RunPlan, Timeline
from specsim.engine.rules import MIB, Engine, EngineSpec, judge
from specsim.engine.sglang import limits
from specsim.engine.sglang.launch import SCHEDULE, launch_env, launch_flags
from specsim.engine.sglang.rulings import RULES, V2_ONLY_FROM, spec_era
from specsim.setting import SpecSetting

NEWEST = "0.5.23"

# Attention backends that do not need sequence lengths on the CPU: first release
# (0.5.23 base_attn_backend.py:163 and the backends beside it).
RUN_AHEAD_BACKENDS = {
    "triton": "0.5.13",
    "trtllm_mla": "0.5.13",
    "trtllm_mha": "0.5.14",
    "gdn": "0.5.14",
    "dsa": "0.5.15",
    "fa3": "0.5.18",
    "flashmla": "0.5.18",
    "kda": "0.5.18",
    "dsv4": "0.5.18",
}

# Backends whose draft extend v2 captures in a CUDA graph: first release read
# (0.5.9 eagle_worker_v2.py:277, 0.5.13 :369, 0.5.23 :567).
EXTEND_GRAPH_BACKENDS = {
    "triton": "0.5.3",
    "trtllm_mla": "0.5.3",
    "trtllm_mha": "0.5.13",
    "flashinfer": "0.5.23",
    "fa3": "0.5.23",
    "flashmla": "0.5.23",
    "dsa": "0.5.23",
    "dsv4": "0.5.23",
}


def plan_sglang(
    setting: SpecSetting, engine: EngineSpec, gpu_mem_bytes: float, what_if: bool
) -> RunPlan:
    """Return what SGLang does with a setting, or raise EngineRefusal."""
    verdict = judge(setting, engine, RULES, what_if)
    setting, version, mem_mib = verdict.setting, engine.parsed_version, gpu_mem_bytes / MIB
    overlap = setting.scheduler == "overlap"
    v2 = setting.speculates and (overlap or spec_era(version) == "v2-only")
    drafts = setting.speculates and setting.algorithm != "NGRAM"
    notes = list(verdict.notes)
    if v2 and drafts and not engine.backend:
        notes.append("attention backend not stated: assumed one that waits and extends eagerly")
    graphs_from = EXTEND_GRAPH_BACKENDS.get(engine.backend)
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
        extend_eager=drafts and v2 and (graphs_from is None or version.before(graphs_from)),
        graph_batch_sizes=limits.graph_batch_sizes(engine, mem_mib, setting.speculates, most),
        graph_unit="requests",
        prefill="first",
        chunked_prefill_size=limits.chunked_prefill_size(engine, mem_mib),
        finish_lag_rounds=1 if overlap else 0,
        timeline=_timeline(setting, engine),
        ranks=engine.dp,
    )


def _timeline(setting: SpecSetting, engine: EngineSpec) -> Timeline:
    """Return who waits for whom.

    Plain decoding always runs ahead under the overlap scheduler: the next lengths are known
    without waiting for the GPU.
    """
    if setting.scheduler != "overlap":
        return "sequential"
    if not setting.speculates:
        return "run_ahead"
    first = RUN_AHEAD_BACKENDS.get(engine.backend)
    ahead = first is not None and engine.parsed_version.since(first)
    return "run_ahead" if ahead else "overlap"


ENGINE = Engine(
    name="sglang",
    newest=NEWEST,
    plan=plan_sglang,
    kv_room_bytes=limits.kv_room_bytes,
    launch_flags=launch_flags,
    launch_env=launch_env,
    schedule=SCHEDULE,
    other_rules=(V2_ONLY_FROM, NEWEST),
    trees_overlap_from=V2_ONLY_FROM,
    cap_flag="--max-running-requests",
    cap_over_ranks=True,
    pins_acceptance="SGLANG_SIMULATE_ACC_LEN",
    lookup_fills_tree=True,
    worker_names=(("sequential", "v1"), ("overlap", "v2")),
)
