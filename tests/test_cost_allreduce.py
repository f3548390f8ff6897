"""All-reduce curves against measured tables, and the fit against curves that are known."""

from __future__ import annotations

import math
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import kimi

from specsim.cost.allreduce import AllReduce, fit_allreduce
from specsim.cost.forward import target_time
from specsim.errors import InputError
from specsim.hardware import AllReducePiece
from specsim.server.system import assemble
from specsim.setting import SpecSetting

FIGURES = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "figures_allreduce.py"))

MEASURED = dict(FIGURES["measured"]())
SIZES = 2.0 ** np.arange(9, 25)

# One rounding per operation; the fit's normal equations lose half the digits.
ROUNDING, FITTED = 1e-12, 1e-6


def two_protocols(at: float = 2.0**18) -> AllReduce:
    low = AllReducePiece(at, 10e-6, 5e9)
    return AllReduce((low, AllReducePiece(math.inf, 30e-6, 20e9)))


# --- measured tables (issue: at most three pieces, median <= 8 %, worst <= 20 %)


@pytest.mark.parametrize("name", MEASURED)
def test_held_out_sizes_of_a_measured_table(name: str) -> None:
    error = np.abs(FIGURES["held_out"](MEASURED[name], start=0))
    assert error.size >= 4
    assert np.median(error) <= 0.08
    assert error.max() <= 0.20


def test_the_tables_are_the_six_that_the_figure_is_about() -> None:
    assert sorted(MEASURED) == [
        f"{n}x {gpu} {path}"
        for n in (2, 4, 8)
        for gpu, path in (("h100-sxm", "custom"), ("rtx-pro-6000", "nccl"))
    ]


def test_one_piece_for_all_sizes_is_worse() -> None:
    """The mechanism counts: without protocols the same sizes are at least twice as wrong."""
    three, one = (
        np.concatenate([np.abs(FIGURES["held_out"](t, 0, p)) for t in MEASURED.values()])
        for p in (3, 1)
    )
    assert np.median(one) > 2 * np.median(three)
    assert one.max() > 2 * three.max()


def test_the_other_half_of_the_sizes_shows_what_a_coarse_table_misses() -> None:
    """Fitted from the second size on, the switch of RTX PRO 6000 falls between two fitted sizes.

    512 KiB is then the only size of its protocol's steep end: no fit can know it. The figure
    is reported beside the other one; here it must only not get worse than it is (36 %).
    """
    errors = [np.abs(FIGURES["held_out"](table, start=1)) for table in MEASURED.values()]
    assert np.median(np.concatenate(errors)) <= 0.08
    assert max(error.max() for error in errors) <= 0.40


# --- the fit


def test_fit_finds_two_protocols_and_their_switch() -> None:
    truth = two_protocols()
    fitted = fit_allreduce(SIZES, truth.time_s(SIZES))
    assert len(fitted.pieces) == 2
    assert fitted.time_s(SIZES) == pytest.approx(truth.time_s(SIZES), rel=FITTED)
    # the truth switches at 256 KiB, where the lines do not cross: known to one measured gap
    assert 2.0**17 < fitted.pieces[0].max_bytes <= 2.0**18


def test_switch_at_the_crossing_where_there_is_one() -> None:
    crossing = 20e-6 / (1 / 5e9 - 1 / 20e9)
    truth = two_protocols(crossing)
    fitted = fit_allreduce(SIZES, truth.time_s(SIZES))
    assert fitted.pieces[0].max_bytes == pytest.approx(crossing, rel=FITTED)


@settings(max_examples=25)  # each fit searches a hundred pairs of cuts
@given(
    latency=st.floats(1e-6, 1e-3),
    rate=st.floats(1e8, 1e12),
    order=st.permutations(range(len(SIZES))),
)
def test_fit_returns_a_line_as_it_is(latency: float, rate: float, order: list[int]) -> None:
    """Rows in any order; one protocol needs one piece."""
    seconds = latency + SIZES / rate
    fitted = fit_allreduce(SIZES[order], seconds[order])
    assert len(fitted.pieces) == 1
    assert fitted.time_s(SIZES) == pytest.approx(seconds, rel=FITTED)


def test_a_single_wild_row_does_not_bend_a_line() -> None:
    """One launch that took ten times as long, among 16 sizes, moves the rest by under 3 %."""
    seconds = 5e-6 + SIZES / 20e9
    wild = seconds.copy()
    wild[7] *= 10
    fitted = fit_allreduce(SIZES, wild, max_pieces=1)
    assert np.abs(fitted.time_s(SIZES) / seconds - 1).max() < 0.03


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_at_most_the_pieces_that_are_allowed(pieces: int) -> None:
    for table in MEASURED.values():
        fitted = fit_allreduce(table["bytes"], table["latency_s"], pieces)
        assert 1 <= len(fitted.pieces) <= pieces
        assert all(p.latency_s >= 0 and p.bytes_per_s > 0 for p in fitted.pieces)


def test_rows_of_one_size_are_kept_together() -> None:
    sizes = np.repeat(SIZES, 3)
    seconds = two_protocols().time_s(sizes) * np.tile([0.99, 1.0, 1.01], len(SIZES))
    fitted = fit_allreduce(sizes, seconds)
    # scatter of 1 % in, at most 1 % out
    assert fitted.time_s(SIZES) == pytest.approx(two_protocols().time_s(SIZES), rel=0.01)


@pytest.mark.parametrize(
    ("sizes", "seconds", "reason"),
    [
        ([1024], [1e-5], "fewer than two sizes"),
        ([1024, 1024], [1e-5, 1e-5], "fewer than two sizes"),
        ([1024, 2048], [1e-5], "fewer than two sizes"),
        ([1024, 2048], [1e-5, math.nan], "not positive"),
        ([1024, 2048], [1e-5, 0.0], "not positive"),
        ([-1, 2048], [1e-5, 1e-5], "not positive"),
    ],
)
def test_fit_refuses_what_is_no_table(
    sizes: list[float], seconds: list[float], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        fit_allreduce(sizes, seconds)


# --- the curve


def test_no_pieces_is_a_single_gpu() -> None:
    assert AllReduce().time_s([[0.0, 1e9]]).tolist() == [[0.0, 0.0]]


def test_a_piece_ends_before_its_bound() -> None:
    curve = two_protocols(at=1000.0)
    below, at = curve.time_s([999.0, 1000.0])
    assert below == pytest.approx(10e-6 + 999 / 5e9, rel=ROUNDING)
    assert at == pytest.approx(30e-6 + 1000 / 20e9, rel=ROUNDING)


@given(size=st.floats(0, 1e9), latency=st.floats(0.1, 10), bandwidth=st.floats(0.1, 10))
def test_scales_act_on_latency_and_bandwidth(size: float, latency: float, bandwidth: float) -> None:
    curve = two_protocols()
    piece = curve.pieces[0 if size < curve.pieces[0].max_bytes else 1]
    expected = piece.latency_s * latency + size / piece.bytes_per_s / bandwidth
    assert curve.time_s(size, latency, bandwidth) == pytest.approx(expected, rel=ROUNDING)


def test_switched_hands_over_at_the_size() -> None:
    """vLLM's PCIe kernel hands over to NCCL; pieces of both that lie beyond are dropped."""
    one_shot = AllReduce((AllReducePiece(math.inf, 7e-6, 3e9),))
    curve = one_shot.switched(56 * 1024, two_protocols())
    small, middle, large = 1024.0, 100_000.0, 2.0**20
    assert curve.time_s(small) == one_shot.time_s(small)
    assert (
        curve.time_s([middle, large]).tolist() == two_protocols().time_s([middle, large]).tolist()
    )
    assert [p.max_bytes for p in curve.pieces] == [56 * 1024, 2.0**18, math.inf]
    beyond = one_shot.switched(2.0**20, two_protocols())
    assert [p.max_bytes for p in beyond.pieces] == [2.0**20, math.inf]


@given(at=st.floats(1, 1e8), size=st.floats(0, 1e8))
def test_switching_to_itself_changes_nothing(at: float, size: float) -> None:
    curve = two_protocols()
    assert curve.switched(at, curve).time_s(size) == curve.time_s(size)


@pytest.mark.parametrize("bounds", [(2e6, 1e6, math.inf), (1e6, 2e6)])
def test_pieces_must_rise_and_end_at_infinity(bounds: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="rising order"):
        AllReduce(tuple(AllReducePiece(bound, 1e-5, 1e10) for bound in bounds))


def test_non_monotone_over_pcie() -> None:
    """On eight RTX PRO 6000, 1 MiB is faster than 512 KiB: the pieces keep that."""
    table = MEASURED["8x rtx-pro-6000 nccl"]
    fitted = fit_allreduce(table["bytes"], table["latency_s"])
    small, large = fitted.time_s([2.0**19, 2.0**20])
    assert large < small


def test_ranks_that_share_a_context_exchange_queries_and_outputs() -> None:
    """DCP: less to read at a long context, two exchanges more in each layer."""
    alone = kimi()
    shared = assemble(replace(alone.setup, engine=replace(alone.setup.engine, dcp=4)))
    one, four = (target_time(s.cost, 8, 1, 8 * 60_000.0) for s in (alone, shared))
    assert four.attention_s < 0.5 * one.attention_s
    law = alone.cost.allreduce
    each = law.time_s(8 * 2 * 576 * 32) + 0.5 * law.time_s(0.0)
    assert four.allreduce_s - one.allreduce_s == pytest.approx(61 * each)
    plan = shared.plan(SpecSetting.none())
    assert shared.kv_pool_tokens(plan) >= alone.kv_pool_tokens(plan)
