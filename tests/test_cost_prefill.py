"""A prefill step: limits, what a mixed step spares, and a published rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import kimi, llama, with_prices

from specsim.cost.allreduce import AllReduce
from specsim.cost.forward import draft_forward_s
from specsim.cost.model import EAGER_LAYER_S
from specsim.cost.rounds import PREFILL_EFFICIENCY, host_s, prefill_s

# Sums and products of a dozen doubles.
ROUNDING = 1e-12

MODELS = pytest.mark.parametrize("server", [kimi, llama])


def test_rate_of_kimi_on_the_founding_box() -> None:
    """7.2-7.9 thousand tok/s at prompts of 5-20 thousand tokens (Kimi-K2.6, [@rtx6kpro-wiki]).

    Nothing is fitted; the prior on the prefill multiplier is 0.35 in log, one sd here.
    """
    tokens = 8192.0
    rate = tokens / float(prefill_s(kimi().cost, tokens, 6000.0))
    assert abs(math.log(rate / 7500)) < 0.35


def test_a_long_prompt_computes_at_the_prefill_rate() -> None:
    """A dense model on one GPU: FLOPs over 0.7 of the GEMM rate; overheads are under 3 %."""
    cost, tokens = llama().cost, 65_536.0
    target = cost.target
    rate = cost.flops(target.dense_dtype) * PREFILL_EFFICIENCY
    seconds = float(prefill_s(cost, tokens, 0.0))
    assert seconds == pytest.approx(target.flops_per_token * tokens / rate, rel=0.03)


def test_a_short_prompt_reads_the_weights_once() -> None:
    cost = llama().cost
    one = float(prefill_s(cost, 1.0, 0.0))
    assert one > cost.target.dense_bytes / cost.bandwidth
    # 16 tokens compute for 2 % of that time
    assert float(prefill_s(cost, 16.0, 0.0)) == pytest.approx(one, rel=0.02)


def test_attention_grows_with_the_pairs() -> None:
    cost = llama().cost
    base, near, far = (float(prefill_s(cost, 4096.0, c)) for c in (0.0, 1e4, 2e4))
    pairs = 4096 * 1e4
    rate = cost.flops(cost.target.dense_dtype) * PREFILL_EFFICIENCY
    assert near - base == pytest.approx(cost.target.attention_work(1)[1] * pairs / rate)
    assert far - base == pytest.approx(2 * (near - base))


@MODELS
@given(tokens=st.floats(1, 16_384), context=st.floats(0, 1e5), more=st.floats(1, 1e4))
def test_more_prompt_never_takes_less_time(
    server: Callable[[], object], tokens: float, context: float, more: float
) -> None:
    """In tokens and context; without links, whose protocol switches are not monotone."""
    cost = replace(server().cost, allreduce=AllReduce())
    base = float(prefill_s(cost, tokens, context)) * (1 - ROUNDING)
    assert prefill_s(cost, tokens + more, context) >= base
    assert prefill_s(cost, tokens, context + more) >= base


@MODELS
@given(tokens=st.floats(1, 16_384), context=st.floats(0, 1e5), beside=st.floats(1, 4096))
def test_prompts_that_join_a_round_spare_what_it_pays_anyway(
    server: Callable[[], object], tokens: float, context: float, beside: float
) -> None:
    """MIXED: more than launching the layers, and no more than that and a step of their own."""
    cost = replace(server().cost, allreduce=AllReduce())
    alone, mixed = (float(prefill_s(cost, tokens, context, beside=d)) for d in (None, beside))
    launches = cost.target.model.depth * EAGER_LAYER_S
    own = alone - float(cost.layers_s) - float(host_s(cost, 1.0))
    assert launches < mixed <= (launches + own) * (1 + ROUNDING)


def test_prompts_cost_all_their_flops_beside_a_wide_verification_alone() -> None:
    """MIXED on Llama-3.1-8B: 128 prompt tokens beside 8 that decode, and beside 4096."""
    cost = llama().cost
    target = cost.target
    rate = cost.flops(target.dense_dtype) * PREFILL_EFFICIENCY
    flops_s = target.flops_per_token * 128 / rate
    launches = target.model.depth * EAGER_LAYER_S
    few, many = (float(prefill_s(cost, 128.0, 0.0, beside=d)) - launches for d in (8.0, 4096.0))
    assert few < 0.25 * flops_s
    assert many == pytest.approx(flops_s, rel=1e-3)


@MODELS
@given(tokens=st.floats(1, 16_384))
def test_the_drafter_extends_over_the_prompt(server: Callable[[], object], tokens: float) -> None:
    cost = server().cost
    plain, drafted = (float(prefill_s(cost, tokens, 100.0, s)) for s in (False, True))
    extend = float(draft_forward_s(cost, tokens, 0.0, 1.0, extend=True))
    # a difference of two sums that are up to 1000 times larger
    assert drafted - plain == pytest.approx(extend, rel=1e-9)


def test_no_tokens_no_step() -> None:
    """A prompt that is cached whole needs no step, whoever drafts."""
    assert prefill_s(kimi().cost, [0.0, 0.0], 1000.0, [False, True]).tolist() == [0.0, 0.0]


@given(factor=st.floats(0.1, 10), tokens=st.floats(1, 1e4))
def test_the_multiplier_acts_on_the_whole_step(factor: float, tokens: float) -> None:
    base = float(prefill_s(kimi().cost, tokens, 10.0, True))
    scaled = float(prefill_s(with_prices(kimi().cost, prefill=factor), tokens, 10.0, True))
    assert scaled == pytest.approx(factor * base, rel=ROUNDING)


def test_arrays_are_priced_like_single_steps() -> None:
    tokens, context = np.array([1.0, 100.0, 8192.0]), np.array([[0.0], [5e4]])
    grid = prefill_s(kimi().cost, tokens, context)
    assert grid.shape == (2, 3)
    for row, c in enumerate((0.0, 5e4)):
        for column, t in enumerate(tokens.tolist()):
            one = float(prefill_s(kimi().cost, t, c))
            assert grid[row, column] == pytest.approx(one, rel=ROUNDING)
