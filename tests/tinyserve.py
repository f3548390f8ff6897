"""A made-up engine, as its one file would describe it (see test_engine_doors.py)."""

from __future__ import annotations

from specsim.engine import Engine, EngineSpec, RunPlan
from specsim.engine.rulings import Ruling, judge, run_plan
from specsim.setting import Algorithm, SpecSetting


def no_trees(setting: SpecSetting, engine: EngineSpec) -> Ruling | None:
    if setting.topk == 1:
        return Ruling("", setting.with_scheduler("sequential"))
    return Ruling("tinyserve drafts no trees", remedy="use topk 1")


def plan(setting: SpecSetting, engine: EngineSpec, gpu_mem_bytes: float, what_if: bool) -> RunPlan:
    return run_plan(
        judge(setting, engine, what_if, [no_trees]),
        engine,
        max_running_requests=engine.max_running_requests or 16,
        chunked_prefill_size=512,
        graph_sizes=(1, 2, 4, 8, 16),
        graph_unit="requests",
        overlapped="run_ahead",
    )


def kv_room_bytes(
    engine: EngineSpec, gpu_mem_bytes: float, weight_bytes: float, algorithm: Algorithm
) -> float:
    return 0.9 * gpu_mem_bytes - weight_bytes


def launch_flags(plan: RunPlan, engine: EngineSpec, draft_model: str | None) -> list[str]:
    return ["--depth", str(plan.setting.num_steps)]


ENGINE = Engine(
    name="tinyserve",
    program=("tinyserve",),
    newest="3.1.4",
    plan=plan,
    kv_room_bytes=kv_room_bytes,
    launch_flags=launch_flags,
)
