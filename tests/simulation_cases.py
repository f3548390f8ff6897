"""Servers and cases that the tests of the two solvers share."""

from __future__ import annotations

from functools import cache
from typing import Any

from specsim.acceptance import Acceptance, accept_table
from specsim.case import Case
from specsim.server import setup_from_mapping
from specsim.server.system import System, assemble
from specsim.setting import SpecSetting
from specsim.workload import Lengths, Load, Workload

NONE = SpecSetting.none()
PLAIN = SpecSetting.none(scheduler="sequential")  # no lag, no overlap
CHAIN = SpecSetting.of(1, 3, scheduler="overlap")
CHAIN_V1 = SpecSetting.of(1, 3, scheduler="sequential")
TREE_V1 = SpecSetting.of(4, 2, 16, scheduler="sequential")


@cache
def kimi(**engine: Any) -> System:
    """Kimi-K2.5 on eight RTX PRO 6000, SGLang 0.5.9: prefill first, overlap timeline."""
    base = {"name": "sglang", "version": "0.5.9", "tp": 8, "attention_backend": "flashinfer"}
    return assemble(
        setup_from_mapping(
            {
                "schema": "specsim.setup/1",
                "hardware": {"gpu": "rtx-pro-6000", "gpu_count": 8, "link": "pcie5-x16"},
                "model": {"id": "kimi-k2.5", "quantisation": "int4-experts"},
                "draft": {"id": "kimi-k2.5-eagle3"},
                "engine": {**base, "mem_fraction_static": 0.88, "cuda_graph_max_bs": 128, **engine},
            }
        )
    )


@cache
def llama(**engine: Any) -> System:
    """Llama-3.1-8B on one H100, vLLM 0.20.2: mixed prefill, run-ahead timeline."""
    return assemble(
        setup_from_mapping(
            {
                "schema": "specsim.setup/1",
                "hardware": {"gpu": "h100-sxm"},
                "model": {"id": "llama-3.1-8b"},
                "draft": {"id": "eagle3"},
                "engine": {"name": "vllm", "version": "0.20.2", **engine},
            }
        )
    )


def llama_sglang(version: str = "0.5.9", **engine: Any) -> System:
    """Return the same under SGLang; from 0.5.18 on it runs ahead while speculating."""
    return llama(name="sglang", version=version, attention_backend="triton", **engine)


def case_of(
    system: System,
    setting: SpecSetting,
    clients: int = 1,
    input_len: float = 256,
    output_len: float = 64,
    cv: float = 0.0,
    *,
    cached: float = 0.0,
    load: Load | None = None,
    acceptance: Acceptance | None = None,
    cap: int | None = None,
) -> Case:
    """Return a closed loop of `clients` unless another load is given."""
    plan = system.plan(setting, max_running_requests=cap, what_if=True)
    return Case.of(
        system,
        plan,
        accept_table(acceptance or Acceptance(), plan.setting),
        Workload(Lengths(input_len, cv / 2), Lengths(output_len, cv), input_cached=cached),
        load or Load(concurrency=clients),
    )
