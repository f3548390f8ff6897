"""The choice at every load, on the founding server and in corner cases."""

from __future__ import annotations

import functools
import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from specsim.decide.contest import contest_of, wins
from specsim.decide.outlook import outlook, root
from specsim.decide.recommend import Recommendation, recommend
from specsim.decide.slo import parse_slo
from specsim.documents import document
from specsim.errors import InputError, UnknownNameError
from specsim.predict import Grid, predict
from specsim.profile import load_profile, profile_names
from specsim.question import Question
from specsim.scenario import apply_overrides, parse_overrides
from specsim.setting import SpecSetting
from specsim.uncertainty import SURE, beats, normal_cdf
from specsim.workload import Load

SMALL = {"max_draft_tokens": 8, "max_steps": 3, "max_topk": 2}


@functools.cache
def founding() -> Recommendation:
    return recommend(load_profile(), Question(concurrency=(1, 30, 100)))


@functools.cache
def small(concurrency: tuple[int, ...] = (1, 30, 100)) -> Recommendation:
    return recommend(load_profile(), Question(concurrency=concurrency, **SMALL))


def test_founding_case_as_measured() -> None:
    """Measured: none at C=1 (93 against 87), topk=1 overlap at 30 (759 to 689), a tie at 100."""
    answer = founding()
    one, thirty, hundred = answer.loads
    assert not one.choice.plan.setting.speculates
    assert (thirty.choice.plan.setting.topk, thirty.choice.plan.setting.scheduler) == (1, "overlap")
    assert thirty.choice.gain.value > 0.03
    tied = {o.plan.setting.topk for o in (hundred.choice, *hundred.tied)}
    speculates = {o.plan.setting.speculates for o in (hundred.choice, *hundred.tied)}
    assert speculates == {True, False}
    assert tied == {1}


def test_no_tree_pays_on_the_founding_server_at_any_load() -> None:
    answer = recommend(load_profile(), Question(concurrency=(1, 5, 20, 50, 200)))
    assert all(c.choice.plan.setting.topk == 1 for c in answer.loads)
    assert all(c.fastest.plan.setting.topk == 1 for c in answer.loads)


@pytest.mark.parametrize("version", [None, "0.5.13"])
def test_topk_2_pays_in_neither_engine_generation(version: str | None) -> None:
    """The founding question: sequential on 0.5.9, overlap from 0.5.13."""
    curve = predict(
        load_profile(),
        Question((SpecSetting.of(2, 2),), (1, 30, 100), engine_version=version),
        solver="analytic",
    )
    asked = curve.of("asked")
    assert asked is not None
    assert asked.points[0].scheduler == ("overlap" if version else "sequential")
    assert all(c.gain < 0 for c in asked.points)
    assert asked.points[1].probability < 0.05
    assert asked.points[2].probability < 0.05


def test_bands_cover_the_loads_in_order() -> None:
    answer = founding()
    assert [c.concurrency for band in answer.bands for c in band.choices] == [1, 30, 100]
    plans = [band.plan for band in answer.bands]
    assert all(a != b for a, b in itertools.pairwise(plans))


def test_probabilities_and_regrets_are_of_one_contest() -> None:
    for choice in small().loads:
        options = {o.label: o for o in (choice.choice, choice.fastest, *choice.tied)}
        assert sum(o.probability_fastest for o in options.values()) <= 1.0 + 1e-9
        for option in options.values():
            assert 0 <= option.regret < 1
            assert option.regret <= option.regret_if_not_fastest + 1e-12
        assert choice.fastest.output_tps.value >= choice.choice.output_tps.value


def test_gains_are_those_of_predict() -> None:
    current = load_profile().setup.current
    assert current is not None
    curve = predict(load_profile(), Question(concurrency=(1, 30, 100)), solver="analytic")
    series = curve.of("current")
    assert series is not None
    for choice, comparison in zip(small().loads, series.points, strict=True):
        assert choice.current is not None
        gain = choice.current.gain
        assert gain.value == pytest.approx(comparison.gain, abs=1e-9)
        # psi (DEPTH) is zero at the measured depth, so that the interval is (DELTA)'s
        assert gain.low == pytest.approx(comparison.gain_low, abs=1e-6)
        assert gain.high == pytest.approx(comparison.gain_high, abs=1e-6)


def test_the_same_seed_gives_the_same_bytes_and_the_document_is_complete() -> None:
    again = recommend(load_profile(), Question(concurrency=(1, 30, 100), **SMALL))
    text = document("specsim.recommendation/1", small())
    assert document("specsim.recommendation/1", again) == text
    content = json.loads(text)
    assert content["schema"] == "specsim.recommendation/1"
    assert [row["concurrency"] for row in content["loads"]] == [1, 30, 100]
    choice = content["loads"][0]["choice"]
    assert choice["output_tps_per_gpu"] == pytest.approx(choice["output_tps"]["value"] / 8)
    assert set(choice) == set(content["loads"][0]["baseline"])
    assert list(choice)[:3] == ["algorithm", "topk", "num_steps"]


def test_flags_are_those_of_the_engine() -> None:
    by_topk = {launch.plan.setting.label: launch for launch in founding().launch}
    chain = by_topk["topk=1 steps=2 tokens=3"]
    text = " ".join(chain.flags)
    assert "--speculative-algorithm EAGLE3 --speculative-num-steps 2" in text
    assert chain.env == {"SGLANG_ENABLE_SPEC_V2": "True"}
    assert by_topk["none"].env == {}


def test_vllm_gets_a_speculative_config() -> None:
    wish = Question(concurrency=(2,), **SMALL, draft_model="drafter")
    answer = recommend(load_profile("kimi-k2.6-8x-rtx-pro-6000"), wish)
    (launch,) = answer.launch
    config = json.loads(launch.flags[launch.flags.index("--speculative-config") + 1])
    assert config["method"] == "eagle3"
    assert config["model"] == "drafter"
    assert config["num_speculative_tokens"] == launch.plan.setting.num_steps


def test_do_not_speculate_where_the_drafter_is_of_no_use() -> None:
    bad = apply_overrides(load_profile(), parse_overrides(["accept_length=1.05"])).profile
    answer = recommend(bad, Question(concurrency=(1, 30), **SMALL))
    assert all(not c.choice.plan.setting.speculates for c in answer.loads)
    assert answer.advice[0].kind == "do-not-speculate"
    assert "every setting is expected to be slower" in answer.advice[0].text


def test_speculate_where_the_drafter_is_perfect() -> None:
    good = apply_overrides(load_profile(), parse_overrides(["accept_length=2.98"])).profile
    answer = recommend(good, Question(concurrency=(1,), **SMALL))
    assert answer.loads[0].choice.plan.setting.speculates
    assert answer.loads[0].choice.gain.low > 0


def test_raise_the_cap_where_it_binds_and_the_pool_has_room() -> None:
    roomy = apply_overrides(load_profile(), parse_overrides(["kv_tokens=900000"])).profile
    answer = recommend(roomy, Question(concurrency=(100,), **SMALL))
    advice = [a for a in answer.advice if a.kind == "raise-max-running-requests"]
    assert advice
    assert "--max-running-requests 128" in advice[0].text  # SGLang's default is 48 when speculating
    assert "GB more KV cache per GPU" in advice[0].text
    (flag,) = [f for f in answer.free if f.kind == "raise-cap"]
    assert flag.gain_with > flag.gain + 0.03
    assert 48 < flag.batch_size_with <= 100
    # 61 layers of 576 latent numbers in bf16 on every rank, 70 KB a token, and the drafter's 4 KB;
    # 4,096 tokens of prompt and most of 1,024 of answer
    assert 74e3 * 4800 < flag.memory_bytes / (flag.batch_size_with - 48) < 75e3 * 5120


def test_latency_targets_by_the_mean_and_by_a_percentile() -> None:
    profile = load_profile()

    def meeting(slo: str, *concurrency: int) -> Recommendation:
        return recommend(
            profile, Question(concurrency=concurrency, **SMALL, targets=parse_slo(slo))
        )

    loose = meeting("tpot=10s", 1, 30)
    assert [c.choice.plan for c in loose.loads] == [c.choice.plan for c in small((1, 30)).loads]
    tight = meeting("tpot=1us", 1, 30)
    assert [c.meets_targets for c in tight.loads] == [False, False]
    assert any(a.kind == "target-missed" for a in tight.advice)
    assert tight.largest_load is None
    assert all(c.latency is not None and c.latency.good_share == 0.0 for c in tight.loads)
    # at C=30 a token takes about 40 ms with the chain and 43 ms without: only the chain passes
    current = small((1, 30)).loads[1].current
    assert current is not None
    between = (current.tpot_s + small((1, 30)).loads[1].baseline.tpot_s) / 2
    only = meeting(f"tpot={1e3 * between:.3f}ms", 30).loads[0]
    assert only.choice.plan.setting.speculates
    assert only.meets_targets
    both = meeting(f"tpot={1e3 * between:.3f}ms", 30, 100)
    assert both.largest_load is not None
    assert 30 <= both.largest_load < 100  # at 100 the batch is the pool's, and tokens slower
    assert "are met up to about" in next(a.text for a in both.advice if a.kind == "target-missed")
    tail = meeting("tpot=50ms@p99", 1)
    assert tail.loads[0].meets_targets
    assert any("simulated" in note for note in tail.notes)


def test_one_setting_for_a_mix() -> None:
    wish = Question(concurrency=(1, 30), **SMALL, mix=((1, 0.1), (30, 0.9)))
    mix = recommend(load_profile(), wish).mix
    assert mix is not None
    assert mix.plan.setting.topk == 1
    one = recommend(load_profile(), replace(wish, concurrency=(30,), mix=((30, 1.0),)))
    assert one.mix is not None
    assert one.mix.output_tps == pytest.approx(
        next(
            o.output_tps.value
            for o in (one.loads[0].choice, *one.loads[0].tied)
            if o.plan == one.mix.plan
        )
    )


def test_another_release_is_another_question() -> None:
    wish = Question(concurrency=(1, 30), **SMALL, engine_version="0.5.13")
    answer = recommend(load_profile(), wish)
    assert all(launch.plan.version == "0.5.13" for launch in answer.launch)
    assert all(not launch.env for launch in answer.launch)
    assert any("other releases" in note for note in answer.notes)


def test_what_the_engine_refuses_is_shown_and_never_chosen() -> None:
    """EAGLE3 came with 0.4.4.post1: what runs today cannot run on 0.4.4."""
    older = apply_overrides(load_profile(), parse_overrides(["engine.version=0.4.4"])).profile
    answer = recommend(older, Question(concurrency=(1, 30), **SMALL))
    assert all(not c.choice.plan.setting.speculates for c in answer.loads)
    assert all(c.current is not None and not c.current.plan.allowed for c in answer.loads)
    assert all(not option.plan.what_if for c in answer.loads for option in c.tied)


def test_a_server_without_a_drafter() -> None:
    profile = load_profile()
    bare = replace(profile, setup=replace(profile.setup, draft=None, current=None))
    answer = recommend(bare, Question(concurrency=(1,), mix=((1, 1.0),)))
    assert (answer.settings_considered, answer.settings_compared) == (1, 1)
    assert answer.mix is not None
    assert "no setting of this server drafts" in answer.advice[0].text


def test_money_and_gpus() -> None:
    wish = Question(concurrency=(1,), **SMALL, gpu_hour_price=2.0)
    option = recommend(load_profile(), wish).loads[0].choice
    assert option.tokens_per_money == pytest.approx(option.output_tps.value * 3600 / 16)
    assert option.money_per_million == pytest.approx(16e6 / (option.output_tps.value * 3600))
    assert small().loads[0].choice.tokens_per_money is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("tpot", InputError),
        ("tpot=20", InputError),
        ("tpot=0ms", InputError),
        ("tpt=20ms", UnknownNameError),
        ("tpot=20m", UnknownNameError),
        ("tpot=20ms@p95", UnknownNameError),
    ],
)
def test_targets_that_cannot_be_read(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_slo(text)


def test_loads_and_wishes_are_checked() -> None:
    with pytest.raises(InputError):
        Question(concurrency=())
    with pytest.raises(InputError):
        Question(concurrency=(0,))
    with pytest.raises(InputError):
        Question(mix=((1, 0.0),))
    with pytest.raises(InputError):
        Question(gpu_hour_price=-1.0)


def test_points_have_the_stated_covariance_but_for_what_is_common() -> None:
    """Kronecker factors and parameters give (OUTLOOK)'s covariance of all differences.

    But for 2 % of a standard deviation's square: the lattice's coordinates are not quite
    independent.
    """
    profile = load_profile()
    plans = tuple(profile.system().plan(s) for s in (SpecSetting.none(), SpecSetting.of(1, 3)))
    grid = Grid(plans, (Load(concurrency=1), Load(concurrency=30)), profile.setup.workload)
    view = outlook(profile, grid)
    points = view.points(0, 1)
    j = view.flat_jacobian
    stated = j @ view.covariance @ j.T + view.specific()
    differences = np.eye(4) - np.eye(4)[0]
    seen, meant = (differences @ c @ differences.T for c in (np.cov(points.T), stated))
    np.testing.assert_allclose(seen, meant, atol=0.02 * meant.max())
    alone = view.points(0)
    ratio = alone[:, 1] - alone[:, 0]
    assert ratio.mean() == pytest.approx(float(view.mean[1, 0] - view.mean[0, 0]), abs=1e-6)
    assert ratio.std() == pytest.approx(view.ratio_sd(0)[1, 0], rel=0.02)


@pytest.mark.parametrize("name", profile_names())
def test_points_say_who_wins_as_many_draws_do(name: str) -> None:
    """The stated accuracy: 1.5 % of a probability, 0.07 % of a regret, and 3 standard errors."""
    contest = contest_of(load_profile(name), Question(concurrency=(1, 30, 100)))
    rng = np.random.default_rng(5)
    for j in range(3):
        view = contest.outlook
        everything = np.ones(len(contest.plans), dtype=np.bool_)
        draws = rng.multivariate_normal(view.mean[:, j], view.together(j), 40_000, method="eigh")
        for seen, meant, most in zip(
            wins(view.points(j), everything), wins(draws, everything), (0.015, 0.0007), strict=True
        ):
            assert np.abs(seen - meant).max() < most + 3 * 0.5 / 40_000**0.5


def test_a_root_of_a_singular_covariance() -> None:
    covariance = np.array([[1.0, 1.0], [1.0, 1.0]])
    np.testing.assert_allclose(root(covariance) @ root(covariance).T, covariance, atol=1e-12)


def test_the_probability_to_win_between_two_is_the_normal_one() -> None:
    """P(best) by Monte Carlo against the normal's; 3 standard errors of 40,000 draws."""
    rng = np.random.default_rng(3)
    drawn = rng.normal([0.02, 0.0], 0.03, (40_000, 2))
    probability, regret = wins(drawn, np.array([True, True]))
    assert probability[0] == pytest.approx(normal_cdf(0.02 / (0.03 * math.sqrt(2))), abs=0.0075)
    assert regret[1] > regret[0] > 0
    alone, _ = wins(drawn, np.array([False, True]))
    assert alone.tolist() == [0.0, 1.0]


def test_twins_are_even() -> None:
    assert beats(0.0, 0.0) == 0.5
    assert beats(0.1, 0.0) == 1.0
    assert beats(0.67449, 1.0) == pytest.approx(SURE, abs=1e-5)
