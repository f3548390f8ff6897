"""Servers that several test modules price."""

from __future__ import annotations

import functools
from dataclasses import replace

from specsim.cost.model import CostModel
from specsim.server import Setup, setup_from_mapping
from specsim.server.system import System, assemble

Section = dict[str, object]


def setup_of(
    model: str,
    gpu: str,
    tp: int = 1,
    link: str = "none",
    draft: str | None = None,
    **engine: object,
) -> Setup:
    """Return a setup.toml's content; `engine` adds to or replaces keys of its section."""
    sections: dict[str, Section] = {
        "hardware": {"gpu": gpu, "gpu_count": tp, "link": link, "allreduce": "nccl"},
        "model": {"id": model},
        "engine": {"name": "sglang", "version": "0.5.9", "tp": tp} | engine,
    }
    if draft is not None:
        sections["draft"] = {"id": draft}
    return setup_from_mapping({"schema": "specsim.setup/1", **sections}, "test")


@functools.cache
def kimi() -> System:
    """Kimi-K2.5 INT4 on eight RTX PRO 6000 over PCIe, NCCL: MoE with MLA, a drafter."""
    return assemble(
        setup_of("kimi-k2.5", "rtx-pro-6000", 8, "pcie5-x16", "kimi-k2.5-eagle3", kv_tokens=200_000)
    )


@functools.cache
def llama() -> System:
    """Llama-3.1-8B on one H100: dense, grouped-query attention, one GPU, a drafter."""
    return assemble(setup_of("llama-3.1-8b", "h100-sxm", draft="eagle3"))


def with_prices(cost: CostModel, **parameters: object) -> CostModel:
    """Return the same prices but for these parameters."""
    return replace(cost, parameters={**cost.parameters, **parameters})
