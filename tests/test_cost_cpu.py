"""A CPU as hardware: reading and computing add up, nothing is launched; drafts of llama.cpp."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from servers import with_prices

from specsim.architecture import load_draft, load_model
from specsim.cost.forward import (
    DRAFTING_PER_REQUEST_S,
    OVERHEAD_S,
    draft_forward_s,
    overhead_s,
    target_time,
)
from specsim.cost.model import MATRIX_READS, CostModel
from specsim.errors import InputError, UnknownNameError
from specsim.parameters import COST, cost_priors
from specsim.server import Setup, setup_from_mapping
from specsim.server.system import System, assemble
from specsim.setting import SpecSetting

BANDWIDTH, RATE = 1.9e10, 1.0e11


def server(target: str = "q4_1", **draft: object) -> System:
    return assemble(setup(target, **draft))


def setup(target: str = "q4_1", **draft: object) -> Setup:
    return setup_from_mapping(
        {
            "schema": "specsim.setup/1",
            "hardware": {
                "gpu": {
                    "name": "two cores",
                    "is_cpu": True,
                    "mem_bytes": 2.5e10,
                    "mem_bandwidth": 2.5e10,
                    "read_bandwidth": BANDWIDTH,
                    "flops_bf16": 1.3e11,
                    "gemm_flops_bf16": RATE,
                }
            },
            "model": {"id": "smollm2-135m", "quantisation": target},
            "draft": {"id": "smollm2-135m"} | draft,
            "engine": {"name": "llama.cpp", "version": "11434", "max_running_requests": 16},
            "workload": {"input_len": 55, "output_len": 96, "dataset": "d"},
        }
    )


def test_reading_and_computing_add_up_on_a_cpu() -> None:
    cost: CostModel = server().cost
    assert float(cost.operation_s(3.0, 4.0)) == 7.0


@pytest.mark.parametrize(
    ("quantisation", "measured_ms"),
    [
        ("q4_1", {1: 11, 2: 17, 4: 25, 6: 34, 8: 42, 16: 91, 32: 159}),
        ("f16", {1: 21.5, 2: 31, 4: 36, 6: 40, 8: 46, 16: 67, 32: 96}),
        ("f32", {1: 29.5, 2: 37, 4: 47, 6: 52, 8: 57, 16: 72, 32: 109}),
    ],
)
def test_steps_of_a_small_model_on_two_cores(
    quantisation: str, measured_ms: dict[int, float]
) -> None:
    """llama-bench, build 11434, SmolLM2-135M on two threads of an AMD EPYC with AVX2 (own data).

    One bandwidth and one rate for three weight formats, whose kernels differ by a factor of two:
    55 % either way (F16 at two tokens), where a maximum is a factor of two low.
    """
    tokens = np.array(list(measured_ms), dtype=np.float64)
    seconds = target_time(server(quantisation).cost, tokens, 1.0, 0.0).target_s
    if quantisation == "q4_1":  # its kernels reach half the rate of the others
        rate = with_prices(server(quantisation).cost, compute=0.5)
        seconds = target_time(rate, tokens, 1.0, 0.0).target_s
    ratio = seconds * 1e3 / np.array(list(measured_ms.values()))
    assert (np.abs(np.log(ratio)) < np.log(1.55)).all(), ratio


def test_two_tokens_take_other_kernels_than_one() -> None:
    """A jump between one token and two, in times of reading the weights; a mean is a mixture."""
    cost = server("f16").cost
    steps = [target_time(cost, t, 1.0, 0.0) for t in (1.0, 2.0, 3.0)]
    one, two, three = (float(s.dense_s + s.head_s) for s in steps)
    read = (cost.target.dense_bytes + cost.target.head_bytes) / BANDWIDTH
    assert (two - one) - (three - two) == pytest.approx(MATRIX_READS * read, rel=1e-9)
    twice = target_time(with_prices(cost, matrix=2.0), 2.0, 1.0, 0.0)
    assert float(twice.dense_s + twice.head_s) - two == pytest.approx(MATRIX_READS * read, rel=1e-9)


def test_a_lookup_that_finds_nothing_keeps_the_kernel_of_one_token() -> None:
    """One request: the mean round is a mixture of rounds of one token and of six."""
    cost, share = server("f16").cost, 0.3

    def products_s(batch: float, width: float, draft_share: float = 1.0) -> float:
        time = target_time(cost, batch, width, 0.0, draft_share=draft_share)
        return float(time.dense_s + time.head_s)

    mixed = products_s(1.0, 1.0 + 5 * share, share)
    assert mixed == pytest.approx((1 - share) * products_s(1.0, 1.0) + share * products_s(1.0, 6.0))
    # of several requests there are always several tokens
    assert products_s(4.0, 2.5, share) == products_s(4.0, 2.5)


@pytest.mark.parametrize(
    ("context", "shared_ms", "apart_ms"), [(112, 74.7, 63.6), (460, 141.1, 92.3)]
)
def test_a_shared_cache_is_walked_by_every_row(
    context: int, shared_ms: float, apart_ms: float
) -> None:
    """llama-batched-bench, eight sequences of SmolLM2-135M in F16, with and without --kv-unified.

    MASKED_SHARE is from these four numbers, so their agreement shows that one share meets both
    contexts: differences within a third, whose errors are 5 % of the steps that they are between.
    """
    apart = server("f16").cost
    shared = replace(apart, kv_unified=True)
    steps = [target_time(c, 8.0, 1.0, 8.0 * context).target_s for c in (shared, apart)]
    difference = 1e3 * float(steps[0] - steps[1])
    assert difference == pytest.approx(shared_ms - apart_ms, rel=0.33)
    assert float(shared.walked(1.0)) == 1.0
    gpu = replace(apart, gpu=replace(apart.gpu, is_cpu=False), kv_unified=True)
    assert float(gpu.walked(8.0)) == 1.0  # CUDA kernels skip what is masked: not modelled


def test_another_cpu_or_weight_format_resets_what_it_changes() -> None:
    """Every cost number of a CPU is in the table of what a changed setup makes of it."""
    assert "matrix" in {p.name for p in cost_priors(server().facts)}
    assert COST["matrix"].resets == "gpu quantisation"


def test_a_cpu_launches_nothing() -> None:
    cost = server().cost
    assert overhead_s(cost, 1, False) == pytest.approx(OVERHEAD_S + DRAFTING_PER_REQUEST_S)
    draft = cost.draft
    assert draft is not None
    bytes_s = (draft.step_bytes + draft.part.head_bytes) / BANDWIDTH
    flops_s = (draft.flops_per_token + draft.part.head_flops_per_token) / RATE
    step = float(draft_forward_s(cost, 1.0, 0.0, 1.0))
    assert step == pytest.approx(bytes_s + flops_s, rel=0.02)  # the floor is 0.2 ms of 17


def test_a_drafter_cut_short_is_shorter() -> None:
    """Ten of thirty layers under the whole head: a third of the layers' bytes."""
    target = load_model("smollm2-135m")
    whole, cut = load_draft("smollm2-135m", target), load_draft("smollm2-135m", target, 10)
    head = target.vocab * target.hidden
    assert cut.shape.layers == 10
    assert (cut.shape.active_params - head) * 3 == pytest.approx(
        whole.shape.active_params - head, rel=1e-3
    )
    short = server("f16", quantisation="q4_0", layers=10).cost.draft
    assert short is not None
    # 37.7 MB file: ten layers in 18 bytes per 32 weights, embedding and head one tensor
    assert short.step_bytes + short.part.head_bytes == pytest.approx(37.7e6, rel=0.15)


@pytest.mark.parametrize(
    ("name", "layers"), [("smollm2-135m", 31), ("eagle3", 1), ("qwen3-30b-a3b", 4)]
)
def test_what_cannot_be_cut_is_refused(name: str, layers: int) -> None:
    with pytest.raises((InputError, UnknownNameError), match="layers"):
        load_draft(name, load_model("smollm2-135m"), layers)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_llama_cpp_drafts_all_slots_at_once(steps: int) -> None:
    """S forwards, the first on the last token; then the verified batch once more (build 11434)."""
    plan = server().plan(SpecSetting.of(1, steps, algorithm="STANDALONE"))
    assert plan.draft_forwards == steps
    assert plan.extend_tokens_per_request(1.5) == steps + 1
    assert plan.timeline == "sequential"
