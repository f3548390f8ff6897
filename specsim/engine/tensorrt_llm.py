"""TensorRT-LLM: the few rules that bear on throughput; its defaults are assumed [@trtllm-docs]."""

from __future__ import annotations

from specsim.engine.plan import RunPlan
from specsim.engine.rules import Engine, EngineSpec, Ruling, judge, mixed_plan, scheduler_default
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
    sizes = {size for size in (1, 2, 4, *range(8, graph_max + 1, 8)) if size <= graph_max}
    return mixed_plan(
        judge(setting, engine, (_overlap_by_default,), what_if),
        engine,
        max_running_requests=most,
        chunked_prefill_size=engine.chunked_prefill_size or MAX_TOKENS,
        graph_sizes=tuple(sorted(sizes | {graph_max})),
        graph_unit="requests",
        overlapped="run_ahead",
        notes=["defaults of TensorRT-LLM are assumed: batch and graph sizes, tokens per step"],
    )


def _overlap_by_default(setting: SpecSetting, engine: EngineSpec) -> Ruling | None:
    return Ruling("", scheduler_default(setting, overlap=True))


def kv_room_bytes(
    engine: EngineSpec, gpu_mem_bytes: float, weight_bytes: float, algorithm: Algorithm
) -> float:
    """Return the bytes of one GPU for the KV cache: a share of what the weights leave."""
    return (gpu_mem_bytes - weight_bytes) * (engine.mem_fraction_static or FREE_FRACTION)


ENGINE = Engine(
    name="tensorrt-llm",
    newest="main",
    plan=plan_tensorrt_llm,
    kv_room_bytes=kv_room_bytes,
    cap_flag="max_batch_size",
)
