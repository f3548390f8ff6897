"""A prompt's beginning that all requests share: read once, held once; in workloads and rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.acceptance import Acceptance, accept_table
from specsim.analytic import solve
from specsim.case import Case
from specsim.cost.rounds import L2_SHARE, read_once, round_time
from specsim.engine import EngineSpec
from specsim.errors import InputError
from specsim.observations import observations_from_rows
from specsim.server import DraftSpec, HardwareSpec, ModelSpec, Setup, workload_of
from specsim.server.system import System, assemble
from specsim.setting import SpecSetting
from specsim.simulate import simulate
from specsim.workload import Load

PREFIX = 6000.0


def box(**engine: object) -> System:
    return assemble(
        Setup(
            HardwareSpec("h100-sxm"),
            ModelSpec("llama-3.1-8b"),
            EngineSpec("vllm", "0.33.0", **engine),  # type: ignore[arg-type]
            DraftSpec("eagle3"),
        )
    )


def case(
    system: System, shared: float, clients: int, steps: int = 0, num: int | None = None
) -> Case:
    setting = SpecSetting.of(1, steps) if steps else SpecSetting.none()
    work = workload_of(8000, 256, input_cached=7000, shared_prefix_len=shared)
    plan = system.plan(setting)
    table = accept_table(Acceptance(), setting)
    return Case.of(system, plan, table, work, Load("closed_loop", clients))


@given(st.floats(0, 1e6), st.integers(1, 256), st.floats(0, 1e6))
def test_reads_lie_between_one_copy_and_all(each: float, batch: int, shared: float) -> None:
    tokens = float(read_once(each * batch, batch, shared))
    common = min(shared, each)
    least = each * batch - (batch - 1) * common
    assert least - 1e-6 <= tokens <= each * batch + 1e-6
    assert float(read_once(each, 1, shared)) == each
    assert float(read_once(each * batch, batch, 0.0)) == each * batch


@pytest.mark.parametrize("batch", [8, 16, 32])
def test_qwen_at_128k_pays_a_third_for_each_further_request(batch: int) -> None:
    """0.65 ms per step for one request, 0.15-0.22 for each of eight and more: 0.23-0.34."""
    cost = assemble(
        Setup(
            HardwareSpec("rtx-pro-6000", 4, "pcie5-x16"),
            ModelSpec("qwen3.5-397b-a17b"),
            EngineSpec("vllm", "0.33.0", tp=4),
        )
    ).cost
    prefix = 131072.0

    def attention(requests: int) -> float:
        tokens = read_once(requests * prefix, requests, prefix)
        time = [round_time(cost, requests, 1, kv).attention_s for kv in (tokens, 0.0)]
        return float(time[0] - time[1]) / requests

    assert 0.20 <= attention(batch) / attention(1) <= 0.37


def test_the_pool_holds_a_prefix_once() -> None:
    system = box(kv_tokens=60_000)
    alone, shared = (case(system, length, 64) for length in (0.0, PREFIX))
    assert shared.request_kv_tokens == alone.request_kv_tokens - PREFIX
    assert shared.pool_tokens == alone.pool_tokens - PREFIX
    one, other = solve(system.cost, [alone, shared]).batch_size
    assert other > 2 * one


@pytest.mark.parametrize(("clients", "steps"), [(1, 0), (4, 3), (16, 0), (48, 3)])
def test_both_solvers_agree(clients: int, steps: int) -> None:
    system = box(kv_tokens=90_000)
    one = case(system, PREFIX, clients, steps)
    closed = solve(system.cost, [one]).output_tps[0]
    played = simulate(system.cost, one, rng=np.random.default_rng(1), record_rounds=False)
    assert played.output_tps == pytest.approx(closed, rel=0.03)


def test_steady_decode_shares_its_context_too() -> None:
    system = box()
    plan, table = system.plan(SpecSetting.none()), accept_table(Acceptance(), SpecSetting.none())
    load = Load("steady_decode", 16, context_len=8192)
    works = [workload_of(8192, shared_prefix_len=s) for s in (0.0, 8192.0)]
    cases = [Case.of(system, plan, table, w, load) for w in works]
    slow, fast = solve(system.cost, cases).round_s
    assert fast < slow
    played = [
        simulate(system.cost, c, rng=np.random.default_rng(1), record_rounds=False).round_s
        for c in cases
    ]
    assert played == pytest.approx([slow, fast], rel=1e-6)


def test_rows_and_workloads_are_checked() -> None:
    row = {"kind": "closed_loop", "algorithm": "none", "concurrency": 4, "output_tps": 300.0}
    row |= {"input_len": 4000, "shared_prefix_len": 3000}
    (good,) = observations_from_rows([row]).rows
    assert good.shared_prefix_len == 3000
    assert good.to_row()["shared_prefix_len"] == 3000
    with pytest.raises(InputError, match="shared_prefix_len"):
        observations_from_rows([row | {"shared_prefix_len": 5000}])
    with pytest.raises(InputError, match="shared prefix 3000"):
        workload_of(2000, shared_prefix_len=3000)
    assert replace(workload_of(4000), shared_prefix_len=10).shared_prefix_len == 10
    assert 0 < L2_SHARE < 1
