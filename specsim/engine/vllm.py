"""vLLM: chains only, prompt chunks mixed into decode steps.

Read in 0.8.5 to 0.33.0 for drafts and batch-size switches [@vllm-wheels]; the other defaults are
assumed, and noted as such.
"""

from __future__ import annotations

import json

from specsim.engine.plan import RunPlan, Timeline
from specsim.engine.rules import (
    GIB,
    Engine,
    EngineSpec,
    EngineVersion,
    Ruling,
    ScheduleRows,
    ScheduleSyntax,
    judge,
    mixed_plan,
    parse_version,
    scheduler_default,
    verifies_its_root,
)
from specsim.setting import Algorithm, SpecSetting

NEWEST = "0.33.0"

ASYNC_DEFAULT_FROM = "0.14.0"
"""Release from which async scheduling is taken as the default (assumed)."""
RUN_AHEAD_SPECULATING_FROM = "0.19.0"
"""Release from which it does not wait for the accepted tokens of a round (assumed)."""

ASYNC_SPECULATES_FROM = "0.12.0"
"""Release from which async scheduling and speculation go together (assumed; 0.11 refuses both)."""

EAGLE3_CAPTURED_FROM = "0.11.0"
"""Release from which an EAGLE-3 drafter is taken to run in a captured graph (assumed; in mid-2025
its steps cost twice their bytes, those of EAGLE-1 did not: vllm#20780)."""

TABLES_FROM = "0.33.0"
"""Release as read that has num_speculative_tokens_per_batch_size."""

GRAPH_SIZES_TOKENS = (1, 2, 4, *range(8, 513, 8))
"""Captured sizes in tokens (assumed: the default list of vLLM's V1 engine)."""

MEMORY_FRACTION = 0.9
ACTIVATION_BYTES = 2 * GIB
"""Assumed: what vLLM's profiling run leaves out of the KV cache."""

_METHODS: dict[Algorithm, str] = {
    "EAGLE": "eagle",
    "EAGLE3": "eagle3",
    "MTP": "mtp",
    "STANDALONE": "draft_model",
    "NGRAM": "ngram",
    "SUFFIX": "suffix",
    "DFLASH": "dflash",
    "DSPARK": "dspark",
    "P_EAGLE": "eagle3",
    "MEDUSA": "medusa",
}


def plan_vllm(
    setting: SpecSetting, engine: EngineSpec, gpu_mem_bytes: float, what_if: bool
) -> RunPlan:
    """Return what vLLM does with a setting, or raise EngineRefusal."""
    verdict = judge(setting, engine, (_chain_only, _chain_tokens, _scheduler), what_if)
    setting = verdict.setting
    large = gpu_mem_bytes >= 70 * GIB
    most = engine.max_running_requests or (1024 if large else 256)
    notes = _switch_notes(setting, engine)
    if engine.max_running_requests is None:
        notes.append(f"max_num_seqs {most} assumed from the GPU's memory")
    graph_max = engine.cuda_graph_max_bs or min(
        GRAPH_SIZES_TOKENS[-1], 2 * most * setting.num_draft_tokens
    )
    return mixed_plan(
        verdict,
        engine,
        max_running_requests=most,
        chunked_prefill_size=engine.chunked_prefill_size or (8192 if large else 2048),
        graph_sizes=tuple(size for size in GRAPH_SIZES_TOKENS if size <= graph_max),
        graph_unit="tokens",
        overlapped=_overlapped(setting, engine),
        notes=notes,
    )


def _overlapped(setting: SpecSetting, engine: EngineSpec) -> Timeline:
    """Whether the CPU waits for the accepted tokens before it prepares the next round."""
    waits = setting.speculates and engine.parsed_version.before(RUN_AHEAD_SPECULATING_FROM)
    return "overlap" if waits else "run_ahead"


def _chain_only(setting: SpecSetting, engine: EngineSpec) -> Ruling | None:
    if setting.topk == 1:
        return None
    version = engine.parsed_version
    rule = "vLLM drafts chains only"
    if version.since("0.11.0") and version.before("0.20.3"):
        rule += (
            "; its speculative_token_tree (0.11.0-0.20.2) takes a fixed tree, which is not modelled"
        )
    return Ruling(rule, remedy="use topk 1, or SGLang")


def _chain_tokens(setting: SpecSetting, engine: EngineSpec) -> Ruling | None:
    steps = setting.num_steps
    return verifies_its_root(
        setting, f"num_speculative_tokens {steps} verifies {steps + 1} tokens, root included"
    )


def _scheduler(setting: SpecSetting, engine: EngineSpec) -> Ruling | None:
    asks = setting.speculates and setting.scheduler == "overlap"
    if asks and engine.parsed_version.before(ASYNC_SPECULATES_FROM):
        rule = "async scheduling and speculation do not go together in this version"
        return Ruling(rule, remedy=f"drop --async-scheduling, or use {ASYNC_SPECULATES_FROM}")
    overlap = engine.parsed_version.since(ASYNC_DEFAULT_FROM)
    definite = scheduler_default(setting, overlap)
    if setting.scheduler == "auto":
        text = "is" if overlap else "is not"
        note = f"{definite.scheduler}: async scheduling {text} the default of this version, assumed"
        return Ruling(note, definite)
    return Ruling("", definite)


def _switch_notes(setting: SpecSetting, engine: EngineSpec) -> list[str]:
    """Return what becomes of switching speculation off by batch size (0.8.5 to 0.33.0)."""
    version = engine.parsed_version
    if not setting.speculates:
        return []
    if version.before("0.10.0"):
        return ["disable_by_batch_size, if set, works in the V0 engine and is not modelled"]
    if version.before("0.20.0"):
        return ["disable_by_batch_size is validated but unused in this version"]
    if version.since(TABLES_FROM):
        return [
            "num_speculative_tokens_per_batch_size, if set, is modelled by specsim schedule only"
        ]
    return []


def kv_room_bytes(
    engine: EngineSpec, gpu_mem_bytes: float, weight_bytes: float, algorithm: Algorithm
) -> float:
    """Return the bytes of one GPU for the KV cache; the defaults are assumed."""
    fraction = engine.mem_fraction_static or MEMORY_FRACTION
    return gpu_mem_bytes * fraction - weight_bytes - ACTIVATION_BYTES


def drafts_eager(version: EngineVersion, draft_kind: str) -> bool:
    """Whether this release launches a drafter's kernels one by one."""
    return draft_kind == "eagle3" and version.before(EAGLE3_CAPTURED_FROM)


def launch_flags(plan: RunPlan, engine: EngineSpec, draft_model: str | None) -> list[str]:
    """Return the flags of the speculation, the scheduler and the cap."""
    setting = plan.setting
    flags: list[str] = []
    if setting.speculates:
        config: dict[str, str | int] = {
            "method": _METHODS[setting.algorithm],
            "num_speculative_tokens": setting.num_steps,
        }
        if draft_model:
            config["model"] = draft_model
        flags += ["--speculative-config", json.dumps(config)]
    if engine.max_running_requests is not None:
        flags += ["--max-num-seqs", str(engine.max_running_requests)]
    default = engine.parsed_version.since(ASYNC_DEFAULT_FROM)
    if setting.scheduler == "overlap" and not default:
        flags.append("--async-scheduling")
    if setting.scheduler == "sequential" and default:
        flags.append("--no-async-scheduling")
    return flags


def _schedule_config(rows: ScheduleRows, batch_max: int) -> str:
    """Return what goes into ``--speculative-config`` beside method and model: (first, last, K)."""
    ends = [batch - 1 for batch, _ in rows[1:]] + [batch_max]
    ranges = [[batch, end, steps] for (batch, steps), end in zip(rows, ends, strict=True)]
    most = max(steps for _, steps in rows)
    return json.dumps(
        {"num_speculative_tokens": most, "num_speculative_tokens_per_batch_size": ranges}
    )


def _schedule_words(rows: ScheduleRows, config: str) -> list[str]:
    return ["--speculative-config", config]


def _schedule_lines(rows: ScheduleRows, config: str) -> list[str]:
    return [f"in --speculative-config: {config[1:-1]}"]


def _schedule_limits(version: str, algorithm: Algorithm, zero: bool) -> list[str]:
    if parse_version(version).before(TABLES_FROM):
        return [f"vLLM {version} cannot: such a table is in {TABLES_FROM}"]
    return []


ENGINE = Engine(
    name="vllm",
    newest=NEWEST,
    plan=plan_vllm,
    kv_room_bytes=kv_room_bytes,
    launch_flags=launch_flags,
    drafts_eager=drafts_eager,
    schedule=ScheduleSyntax(
        config=_schedule_config,
        words=_schedule_words,
        lines=_schedule_lines,
        limits=_schedule_limits,
    ),
    cap_flag="--max-num-seqs",
)
