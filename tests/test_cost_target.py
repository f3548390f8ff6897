"""The target's forward: coverage, rooflines, attention, padding, and published step times."""

from __future__ import annotations

import math
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import kimi, llama, setup_of, with_prices

from specsim.architecture import load_model, model_from_table
from specsim.cost.allreduce import AllReduce
from specsim.cost.forward import attention_s, target_time
from specsim.cost.model import CostModel, active_experts, correction_factor, cost_values, roofline_s
from specsim.errors import InputError
from specsim.hardware import load_gpu
from specsim.parameters import COST, KNOT, KNOT_OCTAVES
from specsim.server.system import assemble
from specsim.sharding import shard

FIGURES = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "figures_moe.py"))

KNOTS = len(KNOT_OCTAVES[KNOT])

# Sums and products of a dozen doubles.
ROUNDING = 1e-12

MODELS = pytest.mark.parametrize("server", [kimi, llama])
batches = st.floats(1, 500)
widths = st.integers(1, 32)
contexts = st.floats(0, 100_000)


def total(cost: CostModel, batch: float, width: float, context: float) -> float:
    return float(target_time(cost, batch, width, batch * context).target_s)


# --- coverage


@pytest.mark.parametrize(
    ("gpu", "tokens", "seconds"), [pytest.param(*t, id=t[0]) for t in FIGURES["measured"]()]
)
def test_three_numbers_and_coverage_fit_a_moe_layer(
    gpu: str, tokens: np.ndarray, seconds: np.ndarray
) -> None:
    """Issue: on RTX PRO 6000 median <= 5 %, worst <= 12 %.

    The other GPUs show that the mechanism is not one GPU's: their rows hold outliers of 10 to
    20 % against both neighbours, so only the median is held to the same kind of bound.
    """
    error = np.abs(FIGURES["fit"](tokens, seconds)[1])
    judged = gpu == "rtx-pro-6000"
    assert np.median(error) <= (0.05 if judged else 0.06)
    assert error.max() <= (0.12 if judged else 0.25)


def test_without_coverage_the_same_rows_are_not_explained() -> None:
    for _, tokens, seconds in FIGURES["measured"]():
        with_it, without = (
            np.abs(FIGURES["fit"](tokens, seconds, model)[1]) for model in ("coverage", "linear")
        )
        assert np.median(without) > 1.5 * np.median(with_it)
        assert without.max() > 0.5  # a line is half wrong somewhere between 8 and 512 tokens


def test_derived_moe_layer_against_the_measured_one() -> None:
    """Nothing fitted: bytes of INT4 experts over the GPU's bandwidth, and 18 us of fixed time.

    18 us is [@moesd2025]'s on balanced routing. The rows' synthetic skew moves N(t) by up to
    20 % at 48 tokens [@aiconfigurator], hence 25 %.
    """
    _, tokens, seconds = next(FIGURES["measured"]())
    experts = target_time(kimi().cost, tokens, 1, 0.0).experts_s / kimi().cost.target.moe_layers
    assert 18e-6 + experts == pytest.approx(seconds, rel=0.25)


def test_products_of_experts_reach_half_the_rate_of_gemms_and_all_of_a_cpus() -> None:
    """Between what balanced routing and a skewed one leave of it [@aiconfigurator]."""
    cost = kimi().cost
    one, two = target_time(cost, [1e5, 2e5], 1, 0.0).experts_s  # every expert is read
    flops = cost.target.expert_flops_per_token
    assert two - one == pytest.approx(1e5 * flops / (0.5 * cost.flops("bf16")), rel=1e-6)
    cpu = replace(cost, gpu=load_gpu("cpu-generic"))
    assert cpu.grouped_flops == cpu.flops("bf16")


@pytest.mark.parametrize(
    ("tokens", "touched"),
    [(1, 8.0), (16, 109.8), (128, 358.1)],  # 384 experts, top 8: MoESD Eq. 8
)
def test_coverage_of_kimi(tokens: int, touched: float) -> None:
    assert active_experts(tokens, 384, 8) == pytest.approx(touched, abs=0.05)  # printed digits


@pytest.mark.parametrize(("tokens", "touched"), [(4, 22), (8, 36), (16, 56)])
def test_tokens_of_one_request_share_experts(tokens: int, touched: int) -> None:
    """Qwen3.6-35B-A3B, 256 experts, 8 per token: counts of a community [@expert-sharing].

    With the default exponent 0.75 within 3 %; independent tokens would touch 30, 57 and 102.
    """
    shared = tokens ** COST["expert_sharing"].default
    assert active_experts(shared, 256, 8) == pytest.approx(touched, rel=0.03)
    assert active_experts(tokens, 256, 8) > 1.35 * touched


@given(tokens=st.floats(1, 1e5), experts=st.integers(1, 512), data=st.data())
def test_coverage_is_bounded_and_concave(tokens: float, experts: int, data: st.DataObject) -> None:
    per_token = data.draw(st.integers(1, experts))
    touched = active_experts([tokens, tokens + 1, tokens + 2], experts, per_token)
    assert np.all((touched >= 0) & (touched <= experts))
    assert np.all(touched <= (tokens + np.arange(3)) * per_token * (1 + ROUNDING))
    first, second = np.diff(touched)
    assert first >= second - experts * ROUNDING >= -experts * ROUNDING


def test_coverage_of_a_dense_model_is_nothing() -> None:
    assert active_experts([1, 5], 0, 0).tolist() == [0.0, 0.0]


# --- roofline


@given(memory=st.floats(1e-9, 1), compute=st.floats(1e-9, 1))
def test_roofline_lies_above_the_larger_by_at_most_19_percent(
    memory: float, compute: float
) -> None:
    seconds = float(roofline_s(memory, compute))
    sharp = max(memory, compute)
    assert sharp * (1 - ROUNDING) <= seconds <= sharp * 2**0.25 * (1 + ROUNDING)


def test_roofline_of_a_measured_gemm() -> None:
    """65536 x 7168, RTX PRO 6000 [@rtx6kpro-wiki]: 623-650 us to 64 rows, 737 at 256, 1278 at 512.

    Memory 1.878 GB / 1.509 TB/s = 623 us, 512 rows at 398 TFLOP/s = 1208 us; within 5 %.
    """
    gpu = kimi().gpu
    rows = np.array([1, 64, 256, 512])
    weights, flops = 65536 * 7168 * 2, 2 * 65536 * 7168 * rows
    seconds = roofline_s(weights / 1.509e12, flops / gpu.compute("bf16"))
    assert seconds * 1e6 == pytest.approx([623, 650, 737, 1278], rel=0.05)


# --- published step


def test_step_of_llama_8b_on_h100() -> None:
    """7.07 ms per token at batch 1 (vLLM V1, github.com/vllm-project/vllm/issues/20780).

    Nothing is fitted, and the constants of launches are assumed to a factor of 1.6: 25 %.
    """
    assert total(llama().cost, 1, 1, 512) == pytest.approx(7.07e-3, rel=0.25)


def test_step_is_never_faster_than_its_bytes() -> None:
    for server in (kimi, llama):
        target = server().cost.target
        floor = (target.dense_bytes + target.head_bytes) / server().gpu.mem_bandwidth
        assert total(server().cost, 1, 1, 0.0) > floor


# --- monotone, additive


@MODELS
@given(batch=batches, width=widths, context=contexts, more=st.floats(1, 100))
def test_more_work_never_takes_less_time(
    server: Callable[[], object], batch: float, width: int, context: float, more: float
) -> None:
    """In batch, width and KV; without links, whose protocol switches are not monotone."""
    cost = replace(server().cost, allreduce=AllReduce())
    base = total(cost, batch, width, context) * (1 - ROUNDING)
    assert total(cost, batch + more, width, context) >= base
    assert total(cost, batch, width + 1, context) >= base
    assert total(cost, batch, width, context + 100 * more) >= base


@MODELS
def test_parts_add_up_and_broadcast(server: Callable[[], object]) -> None:
    batch, width = np.array([1.0, 8.0, 64.0]), np.array([[1.0], [4.0]])
    parts = target_time(server().cost, batch, width, batch * 1000)
    names = ("dense_s", "experts_s", "attention_s", "head_s", "allreduce_s", "fixed_s")
    assert parts.target_s.shape == (2, 3)
    assert parts.target_s == pytest.approx(sum(getattr(parts, n) for n in names), rel=ROUNDING)
    one = target_time(server().cost, 64.0, 4.0, 64_000.0)
    assert parts.target_s[1, 2] == pytest.approx(float(one.target_s), rel=ROUNDING)


def test_infinite_bandwidth_leaves_what_does_not_read() -> None:
    cost = with_prices(kimi().cost, bandwidth=9e3)
    parts = target_time(cost, 1, 1, 4096)
    slow = target_time(kimi().cost, 1, 1, 4096)
    assert float(parts.dense_s + parts.experts_s + parts.attention_s) < 0.05 * float(
        slow.dense_s + slow.experts_s + slow.attention_s
    )
    assert parts.allreduce_s == slow.allreduce_s
    assert parts.fixed_s == slow.fixed_s


def test_memory_bound_parts_scale_with_bandwidth() -> None:
    """At batch 1 a GPU computes for 2 % of the time it reads: halved bandwidth, twice the time."""
    fast = target_time(kimi().cost, 1, 1, 4096)
    slow = target_time(with_prices(kimi().cost, bandwidth=0.5), 1, 1, 4096)
    for part in ("dense_s", "experts_s", "attention_s", "head_s"):
        assert getattr(slow, part) == pytest.approx(2 * getattr(fast, part), rel=0.02)


def test_a_single_gpu_sends_nothing() -> None:
    parts = target_time(llama().cost, [1, 64], [1, 8], 0.0)
    assert parts.allreduce_s.tolist() == [0.0, 0.0]


def test_all_reduces_are_two_per_layer_of_hidden_states() -> None:
    """14,336 bytes per token of Kimi-K2.5, 122 messages, and the logits' gather."""
    cost = kimi().cost
    expected = 122 * cost.allreduce.time_s(14_336 * 5) + cost.gather_s(5, cost.target.model.vocab)
    parts = target_time(cost, 5, 1, 0.0)
    assert parts.allreduce_s == pytest.approx(float(expected), rel=ROUNDING)


# --- attention


@pytest.mark.parametrize("width", [1, 4, 16])
def test_attention_reads_the_cache_once_or_once_per_row(width: int) -> None:
    """[@kv-reads]: reads per request between 1 (shared) and n (each row a sequence of its own)."""
    shared, each = (
        float(attention_s(with_prices(kimi().cost, kv_reads=r, compute=100.0), 32, width, 1e6))
        for r in (0.0, 1.0)
    )
    # compute is scaled out of the way: memory alone remains, to the roofline's soft corner
    assert each == pytest.approx(width * shared, rel=1e-3)


def test_attention_of_few_rows_cannot_fill_the_gpu() -> None:
    """One row takes up to `attention_fill` times what it takes among many; a soft corner.

    The corner is at most that of a square root of squares, sqrt(2) at rows = fill.
    """
    cost = with_prices(kimi().cost, attention_fill=4.0)
    rows = np.array([1, 2, 4, 8, 256])
    per_row = attention_s(cost, rows, 1, rows * 1e5) / rows
    sharp = np.maximum(1.0, 4.0 / rows)
    slower = per_row / per_row[-1]
    assert np.all(np.diff(per_row) < 0)
    assert np.all((slower >= sharp * 0.999) & (slower <= sharp * 2**0.5))


@given(batch=st.floats(0.01, 100), context=contexts)
def test_attention_is_that_of_the_whole_cache(batch: float, context: float) -> None:
    """Fractions of a request, which open loads have on average, read fractions of a cache."""
    cost = with_prices(llama().cost, attention_fill=1e-3)  # one row fills the GPU, to 5e-7
    whole = float(attention_s(cost, 1.0, 1, context))
    assert attention_s(cost, batch, 1, batch * context) == pytest.approx(batch * whole, rel=1e-6)


def test_a_sliding_window_bounds_what_attention_reads() -> None:
    """gpt-oss: half of the layers see 128 tokens, so the cache of a long context is half read."""
    cost = assemble(setup_of("gpt-oss-20b", "h100-sxm")).cost
    cost = with_prices(cost, attention_fill=1e-3)  # one row fills the GPU
    long = float(attention_s(cost, 1, 1, 100_000))
    whole = cost.target.kv_bytes_per_token * 100_000 / cost.bandwidth
    # 12 of 24 layers read everything, the others 128 tokens of 100,000
    assert long == pytest.approx(whole / 2, rel=0.01)


def test_sparse_attention_stops_growing_but_for_its_index() -> None:
    """DeepSeek-V3.2 reads 2048 entries; the keys of its indexer are an eighth of a dense cache."""
    dense = assemble(setup_of("deepseek-v3", "h200-sxm", tp=8, link="nvlink4")).cost
    index = {"index_topk": 2048, "index_heads": 64, "index_head_dim": 128}
    table = {"same_as": "deepseek-v3", **index}
    sparse = replace(dense, target=shard(model_from_table(table, "v3.2"), tp=8))
    near, far = 50_000.0, 100_000.0
    work = sparse.target.attention_work
    assert work(far)[0] - work(near)[0] == 61 * 132 * 50_000
    whole = float(attention_s(dense, 1, 1, far))
    assert float(attention_s(sparse, 1, 1, 2000)) > float(attention_s(dense, 1, 1, 2000))
    # the indexer's products are whole on every rank, so it grows by more than its bytes
    assert 0.1 * whole < float(attention_s(sparse, 1, 1, far)) < 0.25 * whole


def test_indexers_and_compressors_launch_kernels() -> None:
    """GLM-5.2 shares an indexer among four layers; V4's layers compress and connect otherwise."""

    def floor(model: str) -> float:
        return float(assemble(setup_of(model, "h200-sxm")).cost.layers_s)

    dense = assemble(setup_of("glm-5.1", "h200-sxm")).cost
    no_index = replace(load_model("glm-5.1"), index_topk=0)
    plain = float(replace(dense, target=shard(no_index)).layers_s)
    assert floor("glm-5.1") - plain == pytest.approx(78 * 30e-6)
    owners = sum(group.indexers for group in load_model("glm-5.2").attention_groups)
    assert owners == 21
    assert floor("glm-5.2") - plain == pytest.approx(owners * 30e-6)
    v4 = 43 * (100e-6 + 40e-6) + 21 * 30e-6
    assert floor("deepseek-v4-flash") == pytest.approx(v4)


# --- graphs


@MODELS
@given(batch=st.floats(1, 256), pad=st.floats(0, 64), width=st.integers(1, 16))
def test_padding_costs_dense_work_but_no_experts(
    server: Callable[[], object], batch: float, pad: float, width: int
) -> None:
    cost = replace(server().cost, allreduce=AllReduce())
    exact = target_time(cost, batch, width, 0.0)
    padded = target_time(cost, batch, width, 0.0, batch + pad)
    assert padded.dense_s >= exact.dense_s
    assert padded.experts_s == exact.experts_s
    assert padded.target_s >= exact.target_s
    old = replace(cost, padding_routes=True)  # rows that hold old tokens are requests to experts
    whole = target_time(old, batch + pad, width, 0.0).experts_s
    products = cost.target.expert_flops_per_token * pad * width / cost.grouped_flops
    assert target_time(old, batch, width, 0.0, batch + pad).experts_s == pytest.approx(
        whole - products * correction_factor(cost.parameters, KNOT, np.float64(1.0))
    )


@MODELS
@given(batch=st.floats(1, 2000), width=st.integers(1, 16))
def test_eager_is_never_faster_and_bounded_by_launches(
    server: Callable[[], object], batch: float, width: int
) -> None:
    cost = server().cost
    graph, eager = (
        float(target_time(cost, batch, width, 0.0, None, mode).target_s) for mode in (False, True)
    )
    launches = cost.target.model.layers * 15 * 6e-6  # [@launch-cost]
    assert eager >= graph
    assert eager == pytest.approx(max(graph, launches), rel=0.02)  # attention is not in the floor


# --- correction


def test_correction_interpolates_between_knots() -> None:
    knots = tuple(0.01 * (j - 3) for j in range(KNOTS))
    parameters = cost_values({KNOT: knots})
    at = 2.0 ** np.arange(KNOTS)
    assert np.log(correction_factor(parameters, KNOT, at)) == pytest.approx(knots, abs=ROUNDING)
    middle = correction_factor(parameters, KNOT, 2**3.5)
    assert np.log(middle) == pytest.approx((knots[3] + knots[4]) / 2, abs=ROUNDING)
    ends = np.log(correction_factor(parameters, KNOT, [0.3, 1e6]))
    assert ends == pytest.approx([knots[0], knots[-1]], abs=ROUNDING)


def test_correction_acts_on_all_but_attention() -> None:
    knots = (math.log(1.1),) * KNOTS
    plain = target_time(kimi().cost, 8, 4, 1e5)
    raised = target_time(with_prices(kimi().cost, **{KNOT: knots}), 8, 4, 1e5)
    assert raised.attention_s == plain.attention_s
    others = float(plain.target_s - plain.attention_s)
    assert raised.target_s - raised.attention_s == pytest.approx(1.1 * others, rel=ROUNDING)


@pytest.mark.parametrize(
    "changes",
    [
        {"bandwidth": 0.0},
        {"host": math.inf},
        {"coverage": math.nan},
        {"kv_reads": -0.1},
        {"expert_sharing": 1.6},
        {"corrections": {KNOT: (0.0, 0.1)}},
        {"corrections": {KNOT: (math.nan,) * KNOTS}},
    ],
)
def test_parameters_refuse_what_is_no_multiplier(changes: dict[str, object]) -> None:
    with pytest.raises(InputError, match="must"):
        cost_values(**changes)
