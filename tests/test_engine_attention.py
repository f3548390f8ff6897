"""Attention kernels by engine, GPU and KV cache, and what a verification costs with each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import setup_of

from specsim.cost.forward import (
    BLOCK_READ_BPS,
    HOST_PLAN_S,
    OVERHEAD_S,
    RUN_AHEAD_OVERHEAD_S,
    attention_s,
    overhead_s,
)
from specsim.cost.model import CostModel
from specsim.engine import EngineSpec
from specsim.engine.rulings import attention_kernel
from specsim.server.system import assemble
from specsim.setting import SpecSetting

HEAD_BYTES = 512.0  # of Llama-3.1-8B's 16-bit cache: key and value of one token, head and layer


def cost(gpu: str, **engine: object) -> CostModel:
    given_engine = {"name": "vllm", "version": "0.24.0", **engine}
    return assemble(setup_of("llama-3.1-8b", gpu, draft="eagle3", **given_engine)).cost


@pytest.mark.parametrize(
    ("engine", "capability", "latent", "small_kv", "name", "walks", "planned"),
    [
        ("vllm", 8.0, False, False, "fa2", True, False),
        ("vllm", 12.0, False, False, "fa2", True, False),
        ("vllm", 9.0, False, False, "flash_attn", False, False),
        ("vllm", 9.0, False, True, "flash_attn", False, False),  # FlashAttention 3 reads 8 bits
        ("vllm", 8.9, False, True, "flashinfer", False, True),
        ("vllm", 10.0, False, True, "flashinfer", False, False),  # TensorRT-LLM's kernels
        ("vllm", 12.0, True, True, "triton_mla", False, False),
        ("sglang", 9.0, False, False, "fa3", False, False),
        ("sglang", 8.0, False, False, "flashinfer", False, False),
        ("sglang", 12.0, True, False, "triton", False, False),
        ("vllm", None, False, True, "", False, False),
        ("llama.cpp", 8.9, False, False, "", False, False),
    ],
)
def test_defaults(
    engine: str,
    capability: float | None,
    latent: bool,
    small_kv: bool,
    name: str,
    walks: bool,
    planned: bool,
) -> None:
    """As the priorities of vLLM 0.24.0 and SGLang 0.5.9 have it [@attention-kernels]."""
    kernel = attention_kernel(EngineSpec(engine, "0.24.0"), capability, latent, small_kv)
    assert (kernel.name, kernel.walks, kernel.planned) == (name, walks, planned)


def test_what_is_stated_is_taken() -> None:
    stated = EngineSpec("sglang", "0.5.9", attention_backend="Triton")
    assert attention_kernel(stated, 9.0, False, False).walks
    assert not attention_kernel(stated, 9.0, True, False).walks


@pytest.mark.parametrize(("gpu", "ns"), [("a100-sxm", 21.0), ("rtx-pro-6000", 23.5 / 2)])
def test_a_walk_takes_what_was_measured(gpu: str, ns: float) -> None:
    """21 ns per token and layer at 512 B on an A100; 23.5 at 1 kB on an RTX PRO 6000.

    The clocks of the two differ by 1.7 and one rate stands for both: within a factor of 1.5.
    """
    prices = cost(gpu)
    batch, width = np.ones(2), np.full(2, 6.0)
    short, long = attention_s(prices, batch, width, np.array([1e4, 2e4]))
    assert (long - short) / 1e4 / 32 == pytest.approx(ns * 1e-9, rel=0.5)


@given(st.integers(1, 256), st.floats(100, 1e5))
def test_a_walk_is_of_one_sequence_until_the_bandwidth_binds(batch: int, context: float) -> None:
    """(WALK): never below either bound, and without speculation there is none."""
    prices = cost("a100-sxm")
    b, kv = np.array([float(batch)]), np.array([batch * context])
    found = float(attention_s(prices, b, np.array([4.0]), kv)[0])
    walk = 32 * HEAD_BYTES * context / BLOCK_READ_BPS
    split = replace(prices, verify_walks=False)
    assert found >= walk * (1 - 1e-9)
    assert found >= batch * 32 * 8 * HEAD_BYTES * context / float(prices.bandwidth) * (1 - 1e-9)
    plain = (float(attention_s(c, b, np.ones(1), kv)[0]) for c in (prices, split))
    assert next(plain) == next(plain)


def test_a_plan_is_paid_per_forward() -> None:
    """An 8-bit cache on an A100 pays the waiting and a plan for each of six forwards."""
    eight, sixteen = cost("a100-sxm", kv_dtype="fp8"), cost("a100-sxm")
    extra = float(overhead_s(eight, 1, True, 6.0) - overhead_s(sixteen, 1, True, 6.0))
    assert extra == pytest.approx(OVERHEAD_S - RUN_AHEAD_OVERHEAD_S + 6 * HOST_PLAN_S)
    assert 8.4e-3 < extra < 9.2e-3  # 8.4 to 9.0 ms measured at 1 to 64 clients


def test_a_plan_says_what_its_kernel_costs() -> None:
    """Beside what speculates only."""
    setup = setup_of("llama-3.1-8b", "a100-sxm", name="vllm", version="0.24.0", kv_dtype="fp8")
    system = assemble(setup)
    chain, none = (system.plan(s) for s in (SpecSetting.of(1, 3), SpecSetting.none()))
    assert any("16-bit KV cache" in note for note in chain.notes)
    assert not any("KV cache takes" in note for note in none.notes)
