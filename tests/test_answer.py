"""The sentences of the answer, on curves whose answer is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_curves import LOADS, made_curve, made_series, made_verdict

from specsim.curve import Curve
from specsim.decide import bands
from specsim.decide import whole_percent as percent
from specsim.report import View, load_axis, series_names
from specsim.report.answer import answer, evidence_line
from specsim.setting import SpecSetting

CHAIN = SpecSetting.of(1, 2)

DEEP = SpecSetting.of(3, 3)


def text(curve: Curve, request_rate: float | None = None) -> str:
    return " ".join(answer(View.of(curve, made_verdict(curve), request_rate)))


def test_always_wins() -> None:
    told = text(made_curve(made_series("asked", [0.30, 0.20, 0.10])))
    assert "topk=2 steps=2 is worth a GPU hour here" in told
    assert "beats no speculation at every load from 1 to 100 clients" in told
    assert "+30 % at 1, over 99 % sure; +10 % at 100, over 99 % sure" in told
    assert "Best at every load: topk=2 steps=2" in told


def test_always_loses() -> None:
    told = text(made_curve(made_series("asked", [-0.06, -0.15, -0.25], sd=0.05)))
    assert "is not worth a GPU hour here" in told
    assert "loses to no speculation at every load from 1 to 100 clients" in told
    # P(gain < 0) = Phi(0.06 / 0.05) = 0.885
    assert "-6 % at 1, 88 % sure; -25 % at 100, over 99 % sure" in told
    assert "Best at every load: no speculation." in told


def test_crossover() -> None:
    told = text(made_curve(made_series("asked", [-0.20, 0.10, 0.20])))
    assert "is worth a GPU hour only from 10 to 100 clients" in told
    assert "loses at 1 client (-20 %, over 99 % sure)" in told
    assert "wins from 10 to 100 clients (+10 % at 10, over 99 % sure; +20 % at 100" in told
    assert "Best by load: no speculation at 1 client; topk=2 steps=2 from 10 to 100" in told


def test_an_extreme_between_the_ends_is_named() -> None:
    told = text(made_curve(made_series("asked", [0.05, 0.30, 0.06])))
    assert "+5 % at 1" in told
    assert "+30 % at 10" in told
    assert "+6 % at 100" in told


def test_tie() -> None:
    told = text(made_curve(made_series("asked", [0.001, -0.002, 0.003])))
    assert "is not worth a GPU hour here" in told
    assert "is even with no speculation at every load" in told


def test_a_tie_with_a_wide_interval_is_a_toss_up() -> None:
    told = text(made_curve(made_series("asked", [0.01, 0.01, 0.01], sd=0.1)))
    assert "toss-up that only a measurement can decide" in told


def test_what_surely_loses_to_what_runs_today_is_no_toss_up() -> None:
    """Even with no speculation, though its interval is wide: a measurement decides nothing."""
    current = made_series("current", [0.3, 0.3, 0.3], setting=CHAIN, sd=0.1)
    asked = made_series("asked", [0.01, 0.01, 0.01], sd=0.1)
    told = text(made_curve(current, asked))
    assert "topk=2 steps=2 is not worth a GPU hour here" in told
    assert "toss-up" not in told


def test_what_is_not_sure_enough_is_even() -> None:
    # Phi(2 / 3) = 0.748 and Phi(2 / 2.5) = 0.788: three to one lies between
    told = text(made_curve(made_series("asked", [0.02, 0.02, 0.02], sd=0.03)))
    assert "is even with no speculation" in told
    assert "Best at every load: no speculation." in told
    told = text(made_curve(made_series("asked", [0.02, 0.02, 0.02], sd=0.025)))
    assert "beats no speculation at every load" in told
    assert "Best at every load: topk=2 steps=2 (+2 %, 79 % sure)." in told


def test_single_load() -> None:
    told = text(made_curve(made_series("asked", [-0.1], loads=[30])))
    assert "it loses to no speculation at 30 clients (-10 %, over 99 % sure)." in told
    assert "every load" not in told
    assert "What binds: the cost of verifying." in told


def test_one_client_is_no_clients() -> None:
    told = text(made_curve(made_series("asked", [0.1], loads=[1])))
    assert "at 1 client " in told


def test_what_if_says_that_the_engine_does_not_run_it() -> None:
    curve = made_curve(made_series("asked", [0.3, 0.3, 0.3], what_if=True))
    told = text(curve)
    assert "(what-if: sglang 0.5.9 does not run it so)" in told
    assert "Best" not in told  # nothing else than the baseline can be launched


def test_what_if_is_never_the_best() -> None:
    current = made_series("current", [0.1, 0.1, 0.1], setting=CHAIN)
    told = text(made_curve(current, made_series("asked", [0.3, 0.3, 0.3], what_if=True)))
    assert "Best at every load: topk=1 steps=2, what runs today" in told


def test_better_than_nothing_but_worse_than_today() -> None:
    current = made_series("current", [0.3, 0.3, 0.3], setting=CHAIN)
    told = text(made_curve(current, made_series("asked", [0.1, 0.1, 0.1])))
    assert "is not worth a GPU hour here: it beats no speculation at every load" in told
    assert "from 1 to 100 clients it does not surely beat what runs today" in told
    assert "Against what runs today (topk=1 steps=2) it gives -15 % from 1 to 100 clients" in told


def test_of_two_settings_each_is_named() -> None:
    current = made_series("current", [0.3, 0.3, 0.3], setting=CHAIN)
    asked = [made_series("asked", [0.1] * 3), made_series("asked", [0.2] * 3, setting=DEEP)]
    told = text(made_curve(current, *asked))
    assert "it gives" not in told
    assert "Against what runs today (topk=1 steps=2), topk=2 steps=2 gives -15 %" in told
    assert f"Against what runs today (topk=1 steps=2), {DEEP.brief} gives -8 %" in told


def test_nothing_asked_judges_what_runs_today() -> None:
    told = text(made_curve(made_series("current", [-0.1, 0.1, 0.1], setting=CHAIN)))
    assert "What runs today, topk=1 steps=2, pays only from 10 to 100 clients" in told
    assert "Against" not in told


def test_alternative_that_changes_nothing() -> None:
    asked = made_series("asked", [-0.2, -0.2, -0.2], scheduler="sequential")
    other = made_series("alternative", [-0.1, -0.1, -0.1], version="0.5.13")
    told = text(made_curve(asked, other))
    assert "On sglang 0.5.13 it would run under the overlap scheduler" in told
    assert "90.0 instead of 80.0 tok/s at 1 client" in told
    assert "still a loss" in told


def test_alternative_that_turns_a_loss_into_a_gain() -> None:
    asked = made_series("asked", [-0.2, -0.2, -0.2], scheduler="sequential")
    other = made_series("alternative", [-0.1, 0.1, 0.1], version="0.5.13")
    told = text(made_curve(asked, other))
    assert "there, against no speculation it loses at 1 client" in told
    assert "Best at every load: no speculation." in told  # that runs on this release


def test_refused_alternative() -> None:
    asked = made_series("asked", [0.1, 0.1, 0.1], scheduler="sequential")
    other = made_series("alternative", [0.2, 0.2, 0.2], version="0.5.13", what_if=True)
    told = text(made_curve(asked, other))
    assert "On sglang 0.5.13 it is refused: the rule." in told
    assert "Best at every load: topk=2 steps=2 (" in told


def test_what_binds() -> None:
    limits = ["allreduce", "kv", "kv"]
    told = text(made_curve(made_series("asked", [0.1, 0.1, 0.1], limits=limits)))
    assert "What binds: the all-reduce at 1 and the KV pool (48 run) from 10 on." in told


def test_steady_decode_speaks_of_held_requests() -> None:
    told = text(made_curve(made_series("asked", [0.1, 0.1, 0.1], context_len=16384.0)))
    assert "from 1 to 100 held requests" in told


def test_open_loop_below_capacity_compares_latency() -> None:
    asked = made_series("asked", [0.25], loads=[1], limits=["client"])
    told = text(made_curve(asked), request_rate=2.0)
    assert "keeps up at 2 requests/s" in told
    assert "8.00 instead of 10.0 ms (20 % faster)" in told
    assert "Best" not in told


def test_many_settings_get_a_verdict_each() -> None:
    asked = [made_series("asked", [0.1 * k] * 3, setting=SpecSetting.of(k, 2)) for k in (2, 3, 4)]
    curve = made_curve(*asked)
    sentences = answer(View.of(curve, made_verdict(curve)))
    assert len(sentences) == 4  # three verdicts and the best
    assert all(f"topk={k} steps=2" in told for k, told in zip((2, 3, 4), sentences, strict=False))


def test_evidence() -> None:
    assert "assumed" in evidence_line(
        made_curve(made_series("asked", [0.1] * 3, evidence="assumed"))
    )
    assert "fitted" in evidence_line(made_curve(made_series("asked", [0.1] * 3)))


def test_names_tell_series_apart() -> None:
    full, part = SpecSetting.of(4, 2), SpecSetting.of(4, 2, 16)
    curve = made_curve(
        made_series("current", [0.1] * 3, setting=CHAIN),
        made_series("asked", [0.1] * 3, setting=CHAIN, scheduler="sequential"),
        made_series("asked", [0.1] * 3, setting=full),
        made_series("asked", [0.1] * 3, setting=part),
        made_series("alternative", [0.1] * 3, setting=part, version="0.5.13"),
        made_series("asked", [0.1] * 3, setting=SpecSetting.of(2, 2, algorithm="MTP")),
        made_series("asked", [0.1] * 3, setting=SpecSetting.of(2, 2)),
    )
    assert series_names(curve) == (
        "no speculation",
        "topk=1 steps=2, overlap",
        "topk=1 steps=2, sequential",
        "topk=4 steps=2",
        "topk=4 steps=2 tokens=16",
        "topk=4 steps=2 tokens=16 on sglang 0.5.13",
        "topk=2 steps=2, MTP",
        "topk=2 steps=2, EAGLE3",
    )


@given(st.lists(st.sampled_from("abc"), max_size=20))
def test_bands_cover_every_load_once(labels: list[str]) -> None:
    joined = [label for label, first, last in bands(labels) for _ in range(first, last + 1)]
    assert joined == labels


@given(st.floats(-0.99, 10.0))
def test_percent_keeps_the_sign(gain: float) -> None:
    shown = percent(gain)
    assert abs(float(shown.removesuffix(" %")) / 100 - gain) <= 0.00501  # rounded to a per cent
    assert shown[0] in "+-" or shown == "0 %"


@given(
    st.lists(st.floats(-0.6, 0.6), min_size=3, max_size=3),
    st.lists(st.floats(-0.6, 0.6), min_size=3, max_size=3),
    st.floats(0.005, 0.3),
)
def test_every_curve_has_an_answer(asked: list[float], current: list[float], sd: float) -> None:
    """Any gains: a verdict first, each load in it, whole sentences, one best setting per load."""
    curve = made_curve(
        made_series("current", current, setting=CHAIN, sd=sd),
        made_series("asked", asked, sd=sd),
    )
    sentences = answer(View.of(curve, made_verdict(curve)))
    assert sentences[0].startswith("topk=2 steps=2 is ")
    assert all(s.endswith(".") and "  " not in s for s in sentences)
    assert all(load in sentences[0] for load in (" 1 ", " 100 "))
    (best,) = [s for s in sentences if s.startswith("Best")]
    assert ("at every load" in best) == (best.count(" client") <= 0)


@pytest.mark.parametrize("rate", [None, 2.5])
def test_load_axis(rate: float | None) -> None:
    asked = made_series("asked", [0.1] * (1 if rate else 3), loads=LOADS[: 1 if rate else 3])
    axis = load_axis(made_curve(asked), rate)
    assert axis.values == ((rate,) if rate else LOADS)
    assert axis.heading == ("req/s" if rate else "clients")
