"""vLLM's rules: chains only, prompt chunks mixed into decode steps.

Read in 0.8.5 to 0.33.0 for drafts and batch-size switches; the other defaults are assumed, and
noted as such.
"""

from __future__ import annotations

from specsim.engine.plan import RunPlan
from specsim.engine.ruling import Ruling, as_chain, judge, scheduler_default
from specsim.engine.setup import EngineSetup
from specsim.engine.version import EngineVersion
from specsim.setting import SpecSetting

ASYNC_DEFAULT_FROM = "0.14.0"
"""Release from which async scheduling is taken as the default (assumed)."""

EAGLE3_CAPTURED_FROM = "0.11.0"
"""Release from which an EAGLE-3 drafter is taken to run in a captured graph (assumed; in mid-2025
its steps cost twice their bytes, those of EAGLE-1 did not: vllm#20780)."""

GRAPH_SIZES_TOKENS = (1, 2, 4, *range(8, 513, 8))
"""Captured sizes in tokens (assumed: the default list of vLLM's V1 engine)."""


def drafts_eager(version: EngineVersion, draft_kind: str) -> bool:
    """Whether this release launches a drafter's kernels one by one."""
    return draft_kind == "eagle3" and version.before(EAGLE3_CAPTURED_FROM)


def plan_vllm(setting: SpecSetting, engine: EngineSetup, what_if: bool) -> RunPlan:
    """Return what vLLM does with a setting, or raise EngineRefusal."""
    verdict = judge(setting, engine, (_chain_only, _chain_tokens, _scheduler), what_if)
    setting = verdict.setting
    overlap = setting.scheduler == "overlap"
    large = engine.gpu_mem_mib >= 70 * 1024
    most = engine.max_running_requests or (1024 if large else 256)
    notes = [*verdict.notes, *_notes(setting, engine)]
    if engine.max_running_requests is None:
        notes.append(f"max_num_seqs {most} assumed from the GPU's memory")
    tokens = setting.num_draft_tokens
    graph_max = engine.cuda_graph_max_bs or min(GRAPH_SIZES_TOKENS[-1], 2 * most * tokens)
    return RunPlan(
        setting=setting,
        engine=engine.name,
        version=engine.version,
        allowed=verdict.reason is None,
        reason=verdict.reason,
        notes=tuple(notes),
        max_running_requests=most,
        alloc_tokens=tokens,
        reserved_tokens_per_request=tokens,
        draft_extend="verify" if setting.speculates and setting.algorithm != "NGRAM" else "none",
        extend_eager=False,
        graph_batch_sizes=tuple(size for size in GRAPH_SIZES_TOKENS if size <= graph_max),
        graph_unit="tokens",
        prefill="mixed",
        chunked_prefill_size=engine.chunked_prefill_size or (8192 if large else 2048),
        finish_lag_rounds=1 if overlap else 0,
        timeline="run_ahead" if overlap else "sequential",
        ranks=engine.dp,
    )


def _chain_only(setting: SpecSetting, engine: EngineSetup) -> Ruling | None:
    if setting.topk == 1:
        return None
    version = engine.parsed_version
    rule = "vLLM drafts chains only"
    if version.since("0.11.0") and version.before("0.20.3"):
        rule += (
            "; its speculative_token_tree (0.11.0-0.20.2) takes a fixed tree, which is not modelled"
        )
    return Ruling(rule, remedy="use topk 1, or SGLang")


def _chain_tokens(setting: SpecSetting, engine: EngineSetup) -> Ruling | None:
    chain = as_chain(setting)
    if setting.topk > 1 or not setting.speculates or setting == chain:
        return None
    return Ruling(
        f"num_speculative_tokens {setting.num_steps} verifies {chain.num_draft_tokens} tokens, "
        "root included",
        chain,
    )


def _scheduler(setting: SpecSetting, engine: EngineSetup) -> Ruling | None:
    overlap = engine.parsed_version.since(ASYNC_DEFAULT_FROM)
    definite = scheduler_default(setting, overlap)
    if setting.scheduler == "auto":
        text = "is" if overlap else "is not"
        note = f"{definite.scheduler}: async scheduling {text} the default of this version, assumed"
        return Ruling(note, definite)
    return Ruling("", definite)


def _notes(setting: SpecSetting, engine: EngineSetup) -> list[str]:
    """Return what becomes of switching speculation off by batch size (0.8.5 to 0.33.0)."""
    version = engine.parsed_version
    if not setting.speculates:
        return []
    if version.before("0.10.0"):
        return ["disable_by_batch_size, if set, works in the V0 engine and is not modelled"]
    if version.before("0.20.0"):
        return ["disable_by_batch_size is validated but unused in this version"]
    if version.since("0.33.0"):
        return [
            "num_speculative_tokens_per_batch_size, if set, is modelled by specsim schedule only"
        ]
    return []
