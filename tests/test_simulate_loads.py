"""The simulator under each kind of load, and arguments that it refuses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from simulation_cases import (
    CHAIN,
    NONE,
    PLAIN,
    case_of,
    kimi,
    llama,
    llama_sglang,
)
from test_simulate import OPEN, run

from specsim.errors import InputError
from specsim.server.system import System
from specsim.setting import SpecSetting
from specsim.simulate import Trace
from specsim.workload import Load

# --- Loads


@pytest.mark.parametrize("system", [llama(), llama_sglang()])
@pytest.mark.parametrize("setting", [NONE, PLAIN, CHAIN])
@pytest.mark.parametrize("input_len", [0, 1, 300])
def test_single_token_answers_come_from_the_prefill(
    system: System, setting: SpecSetting, input_len: int
) -> None:
    load = Load(concurrency=3, num_requests=9)
    case = case_of(system, setting, input_len=input_len, output_len=1, load=load)
    result = run(system, case)
    assert (result.requests["tokens"] == 1).all()
    assert (result.requests["rounds"] == 0).all()
    assert result.rounds["tokens"].sum() == 0
    assert math.isnan(result.tpot_s)


def test_a_finite_run_counts_ramp_and_drain() -> None:
    system = llama_sglang()
    load = Load(concurrency=10, num_requests=25)
    result = run(system, case_of(system, CHAIN, load=load, output_len=100))
    assert len(result.requests) == 25
    makespan = result.requests["finished_s"].max()
    assert result.window_s == (0.0, makespan)
    assert result.output_tps == pytest.approx(2500 / makespan)
    assert math.isnan(result.output_tps_se)  # one sample


def test_fewer_requests_than_clients() -> None:
    system = llama_sglang()
    result = run(system, case_of(system, CHAIN, load=Load(concurrency=50, num_requests=3)))
    assert len(result.requests) == 3


def test_a_trace_is_replayed_as_it_is() -> None:
    system = llama()
    arrival, inputs, outputs = [0.5, 0.5, 2.0, 900.0], [10, 2000, 300, 40], [5, 50, 1, 7]
    result = run(system, case_of(system, CHAIN), trace=Trace.of(arrival, inputs, outputs))
    requests = result.requests
    np.testing.assert_allclose(requests["arrival_s"], arrival)
    assert requests["input_len"].tolist() == inputs
    assert requests["tokens"].tolist() == outputs
    assert requests["admitted_s"][3] == pytest.approx(900.0)  # an idle server starts at once
    assert result.window_s == (0.5, requests["finished_s"].max())


def test_open_loop_rate_is_that_of_the_load() -> None:
    system = llama_sglang()
    result = run(system, case_of(system, CHAIN, load=OPEN), requests=2000)
    gaps = np.diff(result.measured["arrival_s"])
    assert gaps.mean() == pytest.approx(1 / 30, rel=4 / math.sqrt(2000))
    assert result.output_tps == pytest.approx(30 * 64, abs=4 * result.output_tps_se)


def test_an_overrun_open_loop_is_bounded_and_measured_at_its_capacity() -> None:
    """A million arrivals per second took gigabytes, and were measured before the batch was full."""
    system = llama_sglang()
    load = Load("open_loop", request_rate=1e6)
    case = case_of(system, CHAIN, load=load, cap=8)
    result = run(system, case, requests=300)
    assert len(result.requests) <= 2 * 330 + 4 * 8
    full = run(system, case_of(system, CHAIN, 20, cap=8), requests=300)
    assert result.output_tps == pytest.approx(full.output_tps, rel=0.03)


def test_an_open_loop_of_known_length_is_played_to_its_end() -> None:
    system = llama_sglang()
    load = Load("open_loop", request_rate=30.0, num_requests=40)
    result = run(system, case_of(system, CHAIN, load=load))
    assert len(result.requests) == len(result.measured) == 40
    assert result.window_s[1] == result.requests["finished_s"].max()


def test_steady_decode_holds_the_batch_and_grows_the_cache() -> None:
    system = kimi()
    load = Load("steady_decode", concurrency=8, context_len=16_384.0, window_s=5.0)
    result = run(system, case_of(system, CHAIN, load=load))
    rounds = result.rounds
    assert set(rounds["batch"].tolist()) == {8}
    assert rounds["kv_tokens"].min() == 8 * 16_384
    grows = np.diff(rounds["kv_tokens"]) == rounds["tokens"][:-1]
    assert grows.mean() > 0.9  # all but where a new window starts
    assert result.tpot_s == pytest.approx(8 / result.output_tps)
    assert math.isnan(result.ttft_s)
    held = replace(load, window_s=None)
    flat = run(system, case_of(system, CHAIN, load=held)).rounds
    assert set(flat["kv_tokens"].tolist()) == {8 * 16_384}


# --- Bad input


def test_bad_arguments_are_refused() -> None:
    system = llama()
    case = case_of(system, NONE)
    with pytest.raises(InputError, match="requests 0"):
        run(system, case, requests=0)
    with pytest.raises(InputError, match="warmup -1"):
        run(system, case, warmup=-1)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (([], [], []), "one length"),
        (([0.0, 1.0], [5], [5]), "one length"),
        (([1.0, 0.5], [5, 5], [5, 5]), "rising"),
        (([math.nan], [5], [5]), "finite"),
        (([-1.0], [5], [5]), "finite"),
        (([0.0], [-1], [5]), "lengths"),
        (([0.0], [5], [0]), "lengths"),
    ],
)
def test_bad_traces_are_refused(
    columns: tuple[list[float], list[int], list[int]], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        Trace.of(*columns)
