"""vLLM: chains only, prompt chunks mixed into decode steps.

Read in 0.8.5 to 0.33.0 for drafts and batch-size switches [@vllm-wheels]; the other defaults are
assumed, and noted as such.
"""

import json
import math
import re
from collections.abc import Mapping
from functools import partial

from specsim.engine import rules, rulings
from specsim.engine.plan import RunPlan
from specsim.engine.rules import Engine, EngineSpec
from specsim.setting import Algorithm, SpecSetting, algorithm_name

NEWEST = "0.33.0"

RUN_AHEAD_SPECULATING_FROM = "0.19.0"
"""Release from which async scheduling does not wait for a round's accepted tokens (assumed)."""

EAGLE3_CAPTURED_FROM = "0.11.0"
"""Release from which an EAGLE-3 drafter is taken to run in a captured graph (assumed; in mid-2025
its steps cost twice their bytes, those of EAGLE-1 did not: vllm#20780)."""

WHOLE_REQUESTS_FROM = "0.12.0"
"""Release from which sizes are rounded up to whole requests of a verification, 16 tokens to 18 of
three (0.24.0 ``config/compilation.py:1463-1502``; the release is assumed, by its issue #28207).
Four requests of three run as six: on RTX PRO 6000 such rounds, alone among those of 1 to 128
clients, were predicted 10 to 14 % too fast without it, and are within 2 % [@public-servers]."""

REQUEST_SIZES_FROM = "0.30.0"
"""Release from which counts of requests times the verified tokens are captured besides."""

SMALL, SMALL_BYTES = ("a100", "gb10"), 64 * rules.GIB
"""GPUs that count as small whatever they hold (0.33.0 ``engine/arg_utils.py:2971-3005``; of the
others the defaults go by memory, ``memory.csv``)."""
MEMORY_FRACTION = 0.9
ACTIVATION_BYTES = 2 * rules.GIB  # assumed: what vLLM's profiling run leaves out of the KV cache


def plan_vllm(
    setting: SpecSetting, engine: EngineSpec, gpu_mem_bytes: float, what_if: bool
) -> RunPlan:
    """Return what vLLM does with a setting, or raise EngineRefusal."""
    verdict = rulings.judge(setting, engine, what_if)
    setting = verdict.setting
    defaults = partial(rules.by_memory, engine, gpu_mem_bytes)
    most = engine.max_running_requests or int(defaults("requests"))
    assumed = f"max_num_seqs {most} assumed from the GPU's memory"
    waits = setting.speculates and engine.parsed_version.before(RUN_AHEAD_SPECULATING_FROM)
    return rulings.run_plan(
        verdict,
        engine,
        max_running_requests=most,
        chunked_prefill_size=engine.chunked_prefill_size or int(defaults("chunk")),
        graph_sizes=graph_sizes(setting, engine, gpu_mem_bytes, most),
        graph_unit="tokens",
        overlapped="overlap" if waits else "run_ahead",
        notes=[assumed] if engine.max_running_requests is None else [],
    )


def class_bytes(gpu: str, mem_bytes: float) -> float:
    """Return the memory by which defaults are chosen for a GPU of that name."""
    return min(mem_bytes, SMALL_BYTES) if any(n in gpu.lower() for n in SMALL) else mem_bytes


def graph_sizes(
    setting: SpecSetting, engine: EngineSpec, gpu_mem_bytes: float, most: int
) -> tuple[int, ...]:
    """Return the captured sizes, tokens.

    Up to 512, or 1024 on compute capability 10, for which GPUs of 160 GiB and more are taken
    (0.33.0 ``config/vllm.py:2579-2601``).
    """
    tokens = setting.num_draft_tokens
    top = engine.cuda_graph_max_bs or min(
        int(rules.by_memory(engine, gpu_mem_bytes, "narrow")), 2 * most * tokens
    )
    sizes = rules.captured_sizes(engine, gpu_mem_bytes, setting.speculates, top)
    version = engine.parsed_version
    by_request = version.since(REQUEST_SIZES_FROM)
    if setting.speculates and version.since(WHOLE_REQUESTS_FROM) and not by_request:
        whole = {math.ceil(size / tokens) * tokens for size in sizes}
        sizes = {size for size in whole if size <= max(sizes)}
    if setting.speculates and by_request:
        sizes |= {size * tokens for size in sizes if size * tokens <= top}
    return tuple(sorted(sizes))


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


_SPECULATORS = re.compile(r"[-_.]speculator[-_.](\w+)$", re.IGNORECASE)


def completed(settings: dict[str, object]) -> dict[str, object]:
    """Return settings with how a drafter's repository drafts that is served as the model itself.

    A checkpoint of the library `speculators` names its target and its tokens in its config, which
    a command does not show.

    >>> completed({"model": "org/Llama-3.1-8B-Instruct-speculator.eagle3"})["algorithm"]
    'EAGLE3'
    """
    model = str(settings.get("model"))
    found = _SPECULATORS.search(model)
    if "algorithm" in settings or found is None:
        return settings
    own = {"algorithm": algorithm_name(found[1]), "draft": model, "of_checkpoint": model}
    return settings | own


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
    default = rulings.judge(setting.with_scheduler("auto"), engine, what_if=True).setting.scheduler
    if setting.scheduler != default:
        flags += flag_words("vllm", plan.version, "scheduler", setting.scheduler)
    return flags


def _written(rows: rules.ScheduleRows, batch_max: int) -> rules.WrittenTable:
    """Return what goes into ``--speculative-config`` beside method and model: (first, last, K)."""
    ends = [batch - 1 for batch, _ in rows[1:]] + [batch_max]
    ranges = [[batch, end, steps] for (batch, steps), end in zip(rows, ends, strict=True)]
    most = max(steps for _, steps in rows)
    config = json.dumps(
        {"num_speculative_tokens": most, "num_speculative_tokens_per_batch_size": ranges}
    )
    return rules.WrittenTable(
        config=config,
        words=("--speculative-config", config),
        lines=(f"in --speculative-config: {config[1:-1]}",),
    )


ENGINE = Engine(
    name="vllm",
    newest=NEWEST,
    program=("vllm", "serve"),
    model_first=True,
    plan=plan_vllm,
    kv_room_bytes=kv_room_bytes,
    launch_flags=launch_flags,
    settings=settings_of,
    completed=completed,
    class_bytes=class_bytes,
    drafts_eager=drafts_eager,
    padding_routes=True,  # taken from the figures: old tokens stand there, by what rounds cost
    schedule=rules.ScheduleSyntax(write=_written, since="0.24.0"),  # not in 0.22.0
)
