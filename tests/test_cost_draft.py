"""The drafter's part of a round: what it reads, what it adds, and when it is nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import kimi, llama, with_prices

from specsim.cost.allreduce import AllReduce
from specsim.cost.forward import (
    DRAFT_FORWARD_S,
    DRAFTING_PER_REQUEST_S,
    EXTEND_S,
    OVERHEAD_S,
    RUN_AHEAD_OVERHEAD_S,
    TREE_PER_TOKEN_S,
    TREE_S,
    draft_forward_s,
    draft_time,
    overhead_s,
)

# Sums and products of a dozen doubles.
ROUNDING = 1e-12

NOTHING = (0.0, 0.0, 0.0, 0.0)


def phases(parts: tuple[np.ndarray, ...]) -> tuple[float, ...]:
    """Draft, tree, overhead, extend."""
    return tuple(float(part) for part in parts)


def test_a_draft_step_reads_the_drafter_once() -> None:
    """Kimi-K2.5's EAGLE-3: 2.07 GB per step, 173 us over eight GPUs [@draft-cost], and launches.

    2 %: the page rounds 1.04 B parameters; two all-reduces of 14 KB, 48 us, come on top.
    """
    cost = kimi().cost
    draft = cost.draft
    assert draft is not None
    read = (draft.step_bytes + draft.part.head_bytes) / cost.bandwidth
    assert read == pytest.approx(173e-6, rel=0.02)
    messages = float(cost.allreduce_s(1, draft.part.model.hidden, draft.part.model.layers))
    step = float(draft_forward_s(cost, 1, 0.0, 1))
    assert step == pytest.approx(read + DRAFT_FORWARD_S + messages, rel=0.02)


def test_the_extend_projects_the_features_once() -> None:
    """EAGLE-3's fc, 154 M parameters [@draft-cost], whole on every rank."""
    cost = kimi().cost
    step, extend = (float(draft_forward_s(cost, 1, 0.0, 1, extend=e)) for e in (False, True))
    projection = 154e6 * 2 / cost.bandwidth
    # the roofline's soft corner hides up to 1 % of the sum
    assert extend - EXTEND_S - (step - DRAFT_FORWARD_S) == pytest.approx(projection, rel=0.01)


def test_all_drafting_of_a_small_batch_is_launches_and_weights() -> None:
    """Three drafts for Kimi-K2.5 cost about 1.9 ms at batch 1 [@draft-cost], a guess to 30 %.

    The round's overhead, which is waiting and not drafting, is not in that number.
    """
    draft, tree, _, extend = phases(draft_time(kimi().cost, 1, 1, 4, 2, 4, 1000))
    assert draft + tree + extend == pytest.approx(1.9e-3, rel=0.3)


def test_without_speculation_there_is_nothing() -> None:
    assert phases(draft_time(kimi().cost, 64, 1, 1, 0, 0, 1e5)) == NOTHING


def test_one_step_is_drafted_by_the_extend() -> None:
    """S = 1: the extend gives the first tokens, so no draft step is left [@sglang-wheels]."""
    draft, tree, overhead, extend = phases(draft_time(kimi().cost, 4, 2, 3, 0, 12, 1e4))
    assert draft == 0
    assert min(tree, overhead, extend) > 0


def test_a_drafter_without_a_model_only_builds_and_checks() -> None:
    """NGRAM: no forward, no extend, but a tree to verify and a round to wait for."""
    cost = replace(kimi().cost, draft=None)
    draft, tree, overhead, extend = phases(draft_time(cost, 8, 4, 16, 0, 0, 1e4))
    assert draft == extend == 0
    assert tree == pytest.approx(TREE_S + TREE_PER_TOKEN_S * 8 * 16, rel=ROUNDING)
    assert overhead == pytest.approx(OVERHEAD_S + 8 * DRAFTING_PER_REQUEST_S)


def test_multipliers_act_on_their_own_phases() -> None:
    shape = (8, 2, 7, 1, 24, 1e5)
    base = phases(draft_time(kimi().cost, *shape))
    drafted = phases(draft_time(with_prices(kimi().cost, draft=3.0), *shape))
    prices = {"round_overhead": 5.0, "drafting_per_request": 5.0}
    waited = phases(draft_time(with_prices(kimi().cost, **prices), *shape))
    assert drafted == pytest.approx((3 * base[0], 3 * base[1], base[2], 3 * base[3]), rel=ROUNDING)
    assert waited == pytest.approx((base[0], base[1], 5 * base[2], base[3]), rel=ROUNDING)


@given(
    batch=st.floats(1, 500),
    topk=st.integers(1, 8),
    width=st.integers(2, 64),
    forwards=st.integers(0, 10),
    context=st.floats(0, 1e5),
    more=st.integers(1, 10),
)
def test_more_drafting_never_takes_less_time(
    batch: float, topk: int, width: int, forwards: int, context: float, more: int
) -> None:
    """In every count; without links, whose protocol switches are not monotone."""
    cost = replace(llama().cost, allreduce=AllReduce())

    def total(b: float, k: int, n: int, s: int, extend: float, kv: float) -> float:
        return sum(phases(draft_time(cost, b, k, n, s, b * extend, b * kv)))

    base = total(batch, topk, width, forwards, width, context) * (1 - ROUNDING)
    assert total(batch + more, topk, width, forwards, width, context) >= base
    assert total(batch, topk + more, width, forwards, width, context) >= base
    assert total(batch, topk, width + more, forwards, width, context) >= base
    assert total(batch, topk, width, forwards + more, width, context) >= base
    assert total(batch, topk, width, forwards, width + more, context) >= base
    assert total(batch, topk, width, forwards, width, context + more) >= base


@given(forwards=st.integers(1, 10), batch=st.floats(1, 100), topk=st.integers(1, 8))
def test_draft_steps_add_up(forwards: int, batch: float, topk: int) -> None:
    one, many = (
        phases(draft_time(kimi().cost, batch, topk, 8, s, 0, 1e4))[0] for s in (1, forwards)
    )
    assert many == pytest.approx(forwards * one, rel=ROUNDING)


def test_counts_of_any_shape_broadcast() -> None:
    batch, width = np.array([1.0, 8.0, 64.0]), np.array([[1.0], [4.0]])
    time = draft_time(kimi().cost, batch, 1, width, width - 1, batch * width, batch * 1000)
    for row, n in enumerate((1.0, 4.0)):
        for column, b in enumerate(batch.tolist()):
            one = draft_time(kimi().cost, b, 1, n, n - 1, b * n, b * 1000)
            cell = tuple(float(np.broadcast_to(part, (2, 3))[row, column]) for part in time)
            assert cell == pytest.approx(phases(one), rel=ROUNDING)


def test_a_cpu_that_runs_ahead_waits_less() -> None:
    """OVERHEAD, written out once more."""
    cost = kimi().cost
    waits, ahead = (float(overhead_s(cost, 8, mode)) for mode in (False, True))
    assert waits == pytest.approx(OVERHEAD_S + 8 * DRAFTING_PER_REQUEST_S)
    assert ahead == pytest.approx(RUN_AHEAD_OVERHEAD_S + 8 * DRAFTING_PER_REQUEST_S)
