"""TensorRT-LLM: the few rules that bear on throughput; its defaults are assumed [@trtllm-docs]."""

import json
from collections.abc import Mapping

from specsim.engine import rules, rulings
from specsim.engine.plan import RunPlan
from specsim.engine.rules import Engine, EngineSpec
from specsim.setting import Algorithm, SpecSetting

MAX_BATCH = 2048
GRAPH_MAX = 128
MAX_TOKENS = 8192
FREE_FRACTION = 0.9


def plan_tensorrt_llm(
    setting: SpecSetting, engine: EngineSpec, gpu_mem_bytes: float, what_if: bool
) -> RunPlan:
    """Return what TensorRT-LLM does: overlap by default, the finish seen a round late."""
    most = engine.max_running_requests or MAX_BATCH
    graph_max = min(most, engine.cuda_graph_max_bs or GRAPH_MAX)
    sizes = rules.captured_sizes(engine, gpu_mem_bytes, setting.speculates, graph_max)
    return rulings.run_plan(
        rulings.judge(setting, engine, what_if),
        engine,
        max_running_requests=most,
        chunked_prefill_size=engine.chunked_prefill_size or MAX_TOKENS,
        graph_sizes=tuple(sorted(sizes | {graph_max})),
        graph_unit="requests",
        overlapped="run_ahead",
        notes=["defaults of TensorRT-LLM are assumed: batch and graph sizes, tokens per step"],
    )


def kv_room_bytes(
    engine: EngineSpec, gpu_mem_bytes: float, weight_bytes: float, algorithm: Algorithm
) -> float:
    """Return the bytes of one GPU for the KV cache: a share of what the weights leave."""
    return (gpu_mem_bytes - weight_bytes) * (engine.mem_fraction_static or FREE_FRACTION)


def settings_of(said: Mapping[str, object]) -> dict[str, object]:
    """Return settings from arguments, by the settings of ``flags.csv``.

    >>> settings_of({"tp": 8, "enable_dp_attention": True})["dp"]
    8
    """
    found = {key: value for key, value in said.items() if value != "auto"}
    total = found.pop("max_total_draft_tokens", None)
    if found.pop("dynamic_tree", False) and isinstance(total, int):
        found["num_draft_tokens"] = total + 1
    if found.pop("enable_dp_attention", False):
        found["dp"] = found.get("tp", 1)
    return found


def _written(rows: rules.ScheduleRows, batch_max: int) -> rules.WrittenTable:
    """Return ``draft_len_schedule``: the last batch of each length; beyond them nothing is drafted.

    Read in the pages to 1.4.0rc4; the first release that has it is not known.
    """
    ends = [batch - 1 for batch, _ in rows[1:]] + [batch_max]
    config = json.dumps({e: steps for e, (_, steps) in zip(ends, rows, strict=True) if steps})
    table, most = config.replace('"', ""), max(steps for _, steps in rows)
    inner = f"max_draft_len: {most}, draft_len_schedule: {table}"
    line = f"in the file of --config: speculative_config: {{{inner}}}"
    return rules.WrittenTable(config=config, lines=(line,))


_DECODING: dict[Algorithm, str] = {
    "EAGLE": "Eagle",
    "EAGLE3": "Eagle3",
    "MTP": "MTP",
    "STANDALONE": "DraftTarget",
}


def launch_files(plan: RunPlan, draft_model: str | None) -> dict[str, str]:
    """Return the YAML file that sets the speculation."""
    setting = plan.setting
    if setting.algorithm not in _DECODING:
        return {}
    depth = "num_nextn_predict_layers" if setting.algorithm == "MTP" else "max_draft_len"
    lines = ["speculative_config:", f"  decoding_type: {_DECODING[setting.algorithm]}"]
    lines.append(f"  {depth}: {setting.num_steps}")
    if setting.topk > 1:
        lines += ["  use_dynamic_tree: true", f"  dynamic_tree_max_topK: {setting.topk}"]
        lines.append(f"  max_total_draft_tokens: {setting.num_draft_tokens - 1}")
    if draft_model is not None:
        lines.append(f"  speculative_model_dir: {draft_model}")
    return {"extra.yml": "\n".join(lines) + "\n"}


ENGINE = Engine(
    name="tensorrt-llm",
    newest="main",
    program=("trtllm-serve",),
    model_first=True,
    launch_files=launch_files,
    launch_file_flag="--extra_llm_api_options",
    plan=plan_tensorrt_llm,
    kv_room_bytes=kv_room_bytes,
    settings=settings_of,
    schedule=rules.ScheduleSyntax(write=_written),
)
