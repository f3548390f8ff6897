"""Engines on a GPU, as the tests of the rules launch them."""

from __future__ import annotations

import dataclasses
from typing import Any

from specsim import engine
from specsim.engine import EngineSpec, RunPlan
from specsim.engine import sglang as limits
from specsim.setting import Algorithm, Scheduler, SpecSetting

GIB = 2**30
FOUNDING_GPU_BYTES = 97_887 * 2**20  # RTX PRO 6000, as its driver reports it

CHAIN = SpecSetting.of(topk=1, num_steps=2)
TREE = SpecSetting.of(topk=4, num_steps=2, num_draft_tokens=16)


@dataclasses.dataclass(frozen=True)
class Server:
    """An engine and the memory of one GPU: what the rules look at."""

    spec: EngineSpec
    gpu_mem_bytes: float

    @property
    def rules(self) -> engine.Engine:
        return engine.engine_named(self.spec.name)

    def but(self, **changes: Any) -> Server:
        memory = changes.pop("gpu_mem_bytes", self.gpu_mem_bytes)
        return Server(dataclasses.replace(self.spec, **changes), memory)

    def plan(self, setting: SpecSetting, *, what_if: bool = False) -> RunPlan:
        return self.rules.plan(setting, self.spec, self.gpu_mem_bytes, what_if)

    def flags(self, plan: RunPlan, draft_model: str | None = None) -> list[str]:
        return self.rules.launch_flags(plan, self.spec, draft_model)

    def capacity(self, weights: float, kv: float) -> int:
        return engine.kv_capacity(self.spec, self.gpu_mem_bytes, weights, kv)

    def fraction(self, algorithm: Algorithm) -> float:
        return limits.mem_fraction_static(self.spec, self.gpu_mem_bytes, algorithm)

    @property
    def graph_max(self) -> int:
        return limits.cuda_graph_max_bs(self.spec, self.gpu_mem_bytes)


def server(name: str, version: str, gpu_mem_bytes: float, **kwargs: Any) -> Server:
    return Server(EngineSpec(name, version, **kwargs), gpu_mem_bytes)


def sglang(version: str = "0.5.9", **kwargs: Any) -> Server:
    """SGLang on the founding GPU, TP8, unless said otherwise."""
    memory = kwargs.pop("gpu_mem_bytes", FOUNDING_GPU_BYTES)
    return server(
        "sglang", version, memory, **{"tp": 8, "attention_backend": "flashinfer"} | kwargs
    )


def spec(topk: int, scheduler: Scheduler, algorithm: Algorithm = "EAGLE3") -> SpecSetting:
    base = CHAIN if topk == 1 else TREE
    return dataclasses.replace(base, scheduler=scheduler, algorithm=algorithm)
