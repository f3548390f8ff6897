"""vLLM: chains only, prompt chunks mixed into decode steps.

Read in 0.8.5 to 0.33.0 for drafts and batch-size switches [@vllm-wheels]; the other defaults are
assumed, and noted as such.
"""

import json
from collections.abc import Mapping

from specsim.engine import rules
from specsim.engine.plan import RunPlan
from specsim.engine.rules import Engine, EngineSpec
from specsim.setting import Algorithm, SpecSetting

NEWEST = "0.33.0"

RUN_AHEAD_SPECULATING_FROM = "0.19.0"
"""Release from which async scheduling does not wait for a round's accepted tokens (assumed)."""

EAGLE3_CAPTURED_FROM = "0.11.0"
"""Release from which an EAGLE-3 drafter is taken to run in a captured graph (assumed; in mid-2025
its steps cost twice their bytes, those of EAGLE-1 did not: vllm#20780)."""

TABLES_FROM = "0.24.0"
"""Release from which num_speculative_tokens_per_batch_size is there (not in 0.22.0)."""

REQUEST_SIZES_FROM = "0.30.0"
"""Release from which counts of requests times the verified tokens are captured besides."""

GRAPH_SIZES_TOKENS = (1, 2, 4, *range(8, 256, 8), *range(256, 1025, 16))
"""Captured sizes in tokens, up to the largest: 512, or 1024 on compute capability 10
(0.33.0 ``config/vllm.py:2579-2601``)."""

LARGE, LARGEST = 70 * rules.GIB, 160 * rules.GIB
"""Memory of GPUs with higher defaults: tokens of a step 2048, 8192 and, from 0.28.0, 16384; most
requests 256 and 1024 (0.33.0 ``engine/arg_utils.py:2971-3005``)."""
SMALL = ("a100", "gb10")  # GPUs that count as small whatever they hold
LARGEST_FROM = "0.28.0"
MEMORY_FRACTION = 0.9
ACTIVATION_BYTES = 2 * rules.GIB  # assumed: what vLLM's profiling run leaves out of the KV cache


def plan_vllm(
    setting: SpecSetting, engine: EngineSpec, gpu_mem_bytes: float, what_if: bool
) -> RunPlan:
    """Return what vLLM does with a setting, or raise EngineRefusal."""
    verdict = rules.judge(setting, engine, what_if)
    setting = verdict.setting
    chunk, requests = defaults(engine, gpu_mem_bytes)
    most = engine.max_running_requests or requests
    notes = [*rules.state_notes(engine), *_switch_notes(setting, engine)]
    if engine.max_running_requests is None:
        notes.append(f"max_num_seqs {most} assumed from the GPU's memory")
    waits = setting.speculates and engine.parsed_version.before(RUN_AHEAD_SPECULATING_FROM)
    return rules.mixed_plan(
        verdict,
        engine,
        max_running_requests=most,
        chunked_prefill_size=engine.chunked_prefill_size or chunk,
        graph_sizes=graph_sizes(setting, engine, gpu_mem_bytes, most),
        graph_unit="tokens",
        overlapped="overlap" if waits else "run_ahead",
        notes=notes,
    )


def class_bytes(gpu: str, mem_bytes: float) -> float:
    """Return the memory by which defaults are chosen for a GPU of that name."""
    return min(mem_bytes, LARGE - 1) if any(n in gpu.lower() for n in SMALL) else mem_bytes


def defaults(engine: EngineSpec, gpu_mem_bytes: float) -> tuple[int, int]:
    """Return the tokens of a step and the most requests, where nothing says."""
    if gpu_mem_bytes < LARGE:
        return 2048, 256
    if gpu_mem_bytes >= LARGEST and engine.parsed_version.since(LARGEST_FROM):
        return 16384, 1024
    return 8192, 1024


def graph_sizes(
    setting: SpecSetting, engine: EngineSpec, gpu_mem_bytes: float, most: int
) -> tuple[int, ...]:
    """Return the captured sizes, tokens: those of the list up to the largest.

    GPUs of 160 GiB and more are taken for those of compute capability 10 (B200 and up).
    """
    tokens = setting.num_draft_tokens
    blackwell = gpu_mem_bytes >= LARGEST and engine.parsed_version.since(LARGEST_FROM)
    top = engine.cuda_graph_max_bs or min(1024 if blackwell else 512, 2 * most * tokens)
    sizes = {size for size in GRAPH_SIZES_TOKENS if size <= top}
    if setting.speculates and engine.parsed_version.since(REQUEST_SIZES_FROM):
        sizes |= {size * tokens for size in GRAPH_SIZES_TOKENS if size * tokens <= top}
    return tuple(sorted(sizes))


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
        ranks = "; off under data parallelism" if engine.dp > 1 else ""
        return [
            "num_speculative_tokens_per_batch_size, if set, is modelled by specsim schedule "
            f"only{ranks}"
        ]
    return []


def settings_of(said: Mapping[str, object]) -> dict[str, object]:
    """Return settings from arguments, by the settings of ``flags.csv``.

    GPUs are counted as specsim does, all that hold one copy of the model: with expert parallelism
    the ranks of data parallelism share the experts; without it a dense model is copied (and of a
    MoE model nothing is said that tells).

    >>> settings_of({"tp": 2, "dp_size": 4, "enable_expert_parallel": True})["ep"]
    8
    """
    found = {key: value for key, value in said.items() if value != "auto"}
    if "algorithm" not in found and "num_steps" in found:
        found["algorithm"] = "STANDALONE" if "ngram" not in str(found.get("draft")) else "NGRAM"
    if found.get("algorithm") in ("NGRAM", "SUFFIX"):
        found.pop("draft", None)
    if found.get("rejection_method") in ("standard", "block"):
        found["verification"] = {"standard": "target"}.get(str(found["rejection_method"]), "block")
        del found["rejection_method"]
    if found.pop("parallel_drafting", False):
        found["algorithm"] = "P_EAGLE"
    ranks, tp = found.pop("dp_size", 1), found.get("tp", 1)
    if isinstance(ranks, int) and isinstance(tp, int):
        if found.pop("enable_expert_parallel", False):
            found["tp"] = found["ep"] = tp * ranks
            found |= {"dp": ranks} if ranks > 1 else {}
        elif ranks > 1:
            found["replicas"] = ranks
    return found


def kv_room_bytes(
    engine: EngineSpec, gpu_mem_bytes: float, weight_bytes: float, algorithm: Algorithm
) -> float:
    """Return the bytes of one GPU for the KV cache; the defaults are assumed."""
    fraction = engine.mem_fraction_static or MEMORY_FRACTION
    return gpu_mem_bytes * fraction - weight_bytes - ACTIVATION_BYTES


def drafts_eager(version: rules.EngineVersion, draft_kind: str) -> bool:
    """Whether this release launches a drafter's kernels one by one."""
    return draft_kind == "eagle3" and version.before(EAGLE3_CAPTURED_FROM)


def launch_flags(plan: RunPlan, engine: EngineSpec, draft_model: str | None) -> list[str]:
    """Return the flags of the speculation, the scheduler and the cap."""
    from specsim.engine.flags import flag_words

    setting = plan.setting
    flags: list[str] = []
    if setting.speculates:
        drafter = "EAGLE3" if setting.algorithm == "P_EAGLE" else setting.algorithm
        config: dict[str, str | int | bool] = {
            "method": flag_words("vllm", plan.version, "algorithm", drafter)[1],
            "num_speculative_tokens": setting.num_steps,
        }
        if setting.algorithm == "P_EAGLE":
            config["parallel_drafting"] = True
        if draft_model:
            config["model"] = draft_model
        flags += ["--speculative-config", json.dumps(config)]
    flags += flag_words("vllm", plan.version, "max_running_requests", engine.max_running_requests)
    default = rules.judge(setting.with_scheduler("auto"), engine, what_if=True).setting.scheduler
    if setting.scheduler != default:
        flags += flag_words("vllm", plan.version, "scheduler", setting.scheduler)
    return flags


def _schedule_config(rows: rules.ScheduleRows, batch_max: int) -> str:
    """Return what goes into ``--speculative-config`` beside method and model: (first, last, K)."""
    ends = [batch - 1 for batch, _ in rows[1:]] + [batch_max]
    ranges = [[batch, end, steps] for (batch, steps), end in zip(rows, ends, strict=True)]
    most = max(steps for _, steps in rows)
    return json.dumps(
        {"num_speculative_tokens": most, "num_speculative_tokens_per_batch_size": ranges}
    )


def _schedule_words(rows: rules.ScheduleRows, config: str) -> list[str]:
    return ["--speculative-config", config]


def _schedule_lines(rows: rules.ScheduleRows, config: str) -> list[str]:
    return [f"in --speculative-config: {config[1:-1]}"]


def _schedule_limits(version: str, algorithm: Algorithm, zero: bool) -> list[str]:
    if rules.parse_version(version).before(TABLES_FROM):
        return [f"vLLM {version} cannot: such a table is in {TABLES_FROM}"]
    return []


ENGINE = Engine(
    name="vllm",
    newest=NEWEST,
    program=("vllm", "serve"),
    model_first=True,
    plan=plan_vllm,
    kv_room_bytes=kv_room_bytes,
    launch_flags=launch_flags,
    settings=settings_of,
    class_bytes=class_bytes,
    drafts_eager=drafts_eager,
    schedule=rules.ScheduleSyntax(
        config=_schedule_config,
        words=_schedule_words,
        lines=_schedule_lines,
        limits=_schedule_limits,
    ),
    cap_flag="--max-num-seqs",
)
