"""TensorRT-LLM and llama.cpp: the few rules that bear on throughput; their defaults are assumed."""

from __future__ import annotations

from specsim.engine.plan import RunPlan
from specsim.engine.ruling import Ruling, as_chain, judge, scheduler_default
from specsim.engine.setup import EngineSetup
from specsim.setting import SpecSetting

TRTLLM_MAX_BATCH = 2048
TRTLLM_GRAPH_MAX = 128
TRTLLM_MAX_TOKENS = 8192
LLAMACPP_SLOTS = 4
LLAMACPP_BATCH_TOKENS = 2048


def plan_tensorrt_llm(setting: SpecSetting, engine: EngineSetup, what_if: bool) -> RunPlan:
    """Return what TensorRT-LLM does: overlap by default, the finish seen a round late."""
    verdict = judge(setting, engine, (_overlap_by_default,), what_if)
    setting = verdict.setting
    overlap = setting.scheduler == "overlap"
    most = engine.max_running_requests or TRTLLM_MAX_BATCH
    graph_max = min(most, engine.cuda_graph_max_bs or TRTLLM_GRAPH_MAX)
    sizes = {size for size in (1, 2, 4, *range(8, graph_max + 1, 8)) if size <= graph_max}
    notes = ["defaults of TensorRT-LLM are assumed: batch and graph sizes, tokens per step"]
    return RunPlan(
        setting=setting,
        engine=engine.name,
        version=engine.version,
        allowed=verdict.reason is None,
        reason=verdict.reason,
        notes=(*verdict.notes, *notes),
        max_running_requests=most,
        alloc_tokens=setting.num_draft_tokens,
        reserved_tokens_per_request=setting.num_draft_tokens,
        draft_extend="verify" if setting.speculates and setting.algorithm != "NGRAM" else "none",
        extend_eager=False,
        graph_batch_sizes=tuple(sorted(sizes | {graph_max})),
        graph_unit="requests",
        prefill="mixed",
        chunked_prefill_size=engine.chunked_prefill_size or TRTLLM_MAX_TOKENS,
        finish_lag_rounds=1 if overlap else 0,
        timeline="run_ahead" if overlap else "sequential",
        ranks=engine.dp,
    )


def plan_llama_cpp(setting: SpecSetting, engine: EngineSetup, what_if: bool) -> RunPlan:
    """Return what llama.cpp's server does: slots, chains, everything in turn.

    Read in build 11434 (``common/speculative.cpp``, ``tools/server/server-context.cpp``): all slots
    draft in one batch, S forwards of one token each; the target verifies all slots in one batch;
    the drafter computes that batch once more. Older builds drafted and verified slot by slot.
    """
    verdict = judge(setting, engine, (_slot_chains, _slot_tokens, _no_overlap), what_if)
    setting = verdict.setting
    overlap = setting.scheduler == "overlap"
    most = engine.max_running_requests or LLAMACPP_SLOTS
    notes = list(verdict.notes)
    if engine.max_running_requests is None:
        notes.append(f"{most} slots assumed (older builds: 1); see --parallel")
    return RunPlan(
        setting=setting,
        engine=engine.name,
        version=engine.version,
        allowed=verdict.reason is None,
        reason=verdict.reason,
        notes=tuple(notes),
        max_running_requests=most,
        alloc_tokens=setting.num_draft_tokens,
        reserved_tokens_per_request=setting.num_draft_tokens,
        draft_extend="verify" if setting.speculates and setting.algorithm != "NGRAM" else "none",
        extend_eager=False,
        graph_batch_sizes=(),
        graph_unit="none",
        prefill="mixed",
        chunked_prefill_size=engine.chunked_prefill_size or LLAMACPP_BATCH_TOKENS,
        finish_lag_rounds=1 if overlap else 0,
        timeline="overlap" if overlap else "sequential",
        ranks=engine.dp,
        first_draft="forward",
    )


def _overlap_by_default(setting: SpecSetting, engine: EngineSetup) -> Ruling | None:
    return Ruling("", scheduler_default(setting, overlap=True))


def _slot_chains(setting: SpecSetting, engine: EngineSetup) -> Ruling | None:
    if setting.topk == 1:
        return None
    return Ruling("llama.cpp's server drafts one chain per slot", remedy="use topk 1, or SGLang")


def _slot_tokens(setting: SpecSetting, engine: EngineSetup) -> Ruling | None:
    chain = as_chain(setting)
    if setting.topk > 1 or not setting.speculates or setting == chain:
        return None
    return Ruling(f"a draft of {setting.num_steps} is verified with its root", chain)


def _no_overlap(setting: SpecSetting, engine: EngineSetup) -> Ruling | None:
    if setting.scheduler == "overlap":
        return Ruling("llama.cpp has no overlap scheduler", remedy="use --scheduler sequential")
    return Ruling("", scheduler_default(setting, overlap=False))
