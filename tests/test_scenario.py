"""Overrides: what they change, what goes back to its prior, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.acceptance import accept_table
from specsim.errors import FormatError, InputError, UnknownNameError
from specsim.predict import predict
from specsim.profile import Profile, load_profile
from specsim.question import Question
from specsim.scenario import (
    apply_overrides,
    load_server,
    override_keys,
    parse_override,
    parse_overrides,
)
from specsim.setting import SpecSetting


def changed(*texts: str, base: Profile | None = None) -> Profile:
    return apply_overrides(base or load_profile(), parse_overrides(texts)).profile


def value(profile: Profile, name: str) -> float:
    return next(p.value for p in profile.parameters if p.name == name)


def sd(profile: Profile, name: str) -> float:
    return next(p.sd for p in profile.parameters if p.name == name)


def tps(profile: Profile, concurrency: int = 1) -> float:
    curve = predict(profile, Question(concurrency=(concurrency,)), solver="analytic")
    return curve.series[0].points[0].output_tps


def test_half_the_latency_of_the_all_reduce_is_faster_and_as_sure() -> None:
    before, after = load_profile(), changed("allreduce.latency=*0.5")
    assert value(after, "allreduce_latency") == pytest.approx(
        0.5 * value(before, "allreduce_latency")
    )
    assert sd(after, "allreduce_latency") == sd(before, "allreduce_latency")
    np.testing.assert_allclose(after.coordinates, before.coordinates, atol=1e-12)
    assert tps(after) > 1.02 * tps(before)


def test_a_factor_of_one_changes_nothing() -> None:
    assert tps(changed("allreduce.latency=*1", "draft.cost=*1")) == pytest.approx(
        tps(load_profile()), rel=1e-12
    )


@settings(max_examples=20, deadline=None)
@given(factor=st.floats(0.2, 5.0))
def test_a_slower_draft_never_helps(factor: float) -> None:
    profile = changed(f"draft.cost=*{factor:.6g}")
    curve = predict(profile, Question((SpecSetting.of(1, 4),), concurrency=(8,)), solver="analytic")
    base = predict(
        load_profile(), Question((SpecSetting.of(1, 4),), concurrency=(8,)), solver="analytic"
    )
    mine, theirs = (c.series[-1].points[0].output_tps for c in (curve, base))
    assert (mine - theirs) * (factor - 1.0) <= 1e-9 * theirs


def test_numbers_fitted_on_pcie_say_nothing_about_nvlink() -> None:
    before = load_profile()
    result = apply_overrides(before, parse_overrides(["link=nvlink4"]))
    after = result.profile
    assert sd(after, "allreduce_bandwidth") > sd(before, "allreduce_bandwidth")
    assert value(after, "allreduce_bandwidth") == 1.0
    assert value(after, "coverage") == value(before, "coverage")  # routing is the model's
    assert value(after, "round_overhead") == value(before, "round_overhead")
    assert after.fit.observations == 0
    assert after.fit.model_error > before.fit.model_error
    assert any("allreduce_bandwidth" in note for note in result.notes)


def test_another_gpu_keeps_the_overhead_but_not_its_error() -> None:
    before, after = load_profile(), changed("gpu=h200-sxm", "link=nvlink4")
    assert value(after, "round_overhead") == value(before, "round_overhead")
    assert sd(after, "round_overhead") > 2 * sd(before, "round_overhead")
    assert value(after, "bandwidth") == 1.0
    assert tps(after) > tps(before)


def test_the_correlation_of_what_is_kept_is_kept_and_positive() -> None:
    before, after = load_profile(), changed("gpu=h200-sxm", "link=nvlink4")
    names = [p.name for p in after.parameters]
    old = [p.name for p in before.parameters]
    i, j = names.index("coverage"), names.index("expert_sharing")
    k, m = old.index("coverage"), old.index("expert_sharing")
    assert after.correlation[i][j] == before.correlation[k][m]
    host = names.index("host")
    assert sum(abs(c) for c in after.correlation[host]) == 1.0
    assert np.linalg.eigvalsh(after.covariance).min() > -1e-9


def test_the_accept_length_of_what_runs_today_is_what_was_said() -> None:
    profile = changed("accept_length=2.4")
    current = profile.setup.current
    assert current is not None
    table = accept_table(profile.acceptance(), current)
    assert table.accept_length == pytest.approx(2.4, abs=1e-6)  # bisection over 60 steps
    assert sd(profile, "accept_level[coding/agentic@0]") == 0.0


def test_a_setup_change_and_its_consequences() -> None:
    assert changed("context=*2").setup.workload.input_cached == pytest.approx(2 * 3584)
    assert changed("engine.version=0.5.13").setup.engine.version == "0.5.13"
    after = changed("tp=4", "gpu=b200-sxm", "link=nvlink5")
    assert (after.setup.engine.tp, after.setup.hardware.gpu_count) == (4, 4)
    assert changed("quantisation=int4-experts").setup.model.weight_bytes is None
    assert value(changed("kv_tokens=400000"), "kv_pool") == 1.0
    assert changed("engine=vllm").setup.engine.name == "vllm"


def test_another_model_takes_its_own_drafter_and_acceptance() -> None:
    after = changed("model=llama-3.1-8b", "gpu=h100-sxm", "gpus=1", "link=none")
    assert after.setup.draft is not None
    assert after.setup.draft.id == "eagle3"
    assert "coverage" not in [p.name for p in after.parameters]
    assert after.acceptances[0].source.startswith("prior")
    assert tps(after) > 0


@pytest.mark.parametrize(
    ("text", "needle"),
    [
        ("allreduce.latncy=*2", "did you mean 'allreduce.latency'"),
        ("gpu=h300", "is not known"),
        ("link=nvlink9", "did you mean"),
        ("model=kimi", "did you mean"),
        ("gpu=*2", "multiplies a text"),
        ("tp", "is not KEY=VALUE"),
        ("tp=2.5", "whole number"),
        ("kv_tokens=*2", "multiplies a number that is not set"),
        ("draft.cost=x", "needs a number"),
        ("draft.cost=*-1", "needs a number"),
        ("draft.cost=*0", "must be positive"),
        ("accept_length=5", "must lie between 1 and 3"),
        ("tp=4", "do not fit"),
        ("rank_scale=*1e9", "0.0..2.0"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(text: str, needle: str) -> None:
    with pytest.raises(InputError) as caught:
        tps(changed(text))
    assert needle in str(caught.value)


def test_a_parameter_that_the_server_does_not_have() -> None:
    one_gpu = changed("model=llama-3.1-8b", "gpu=h100-sxm", "gpus=1", "link=none")
    with pytest.raises(InputError, match="was not fitted with"):
        changed("allreduce.latency=*2", base=one_gpu)


@given(key=st.sampled_from(override_keys()), text=st.text(max_size=12))
def test_whatever_is_typed_is_an_override_or_an_input_error(key: str, text: str) -> None:
    try:
        override = parse_override(f"{key}={text}")
    except InputError:
        return
    assert parse_override(override.label) == override


def test_a_scenario_file(tmp_path: Path) -> None:
    path = tmp_path / "link.toml"
    path.write_text(
        'schema = "specsim.scenario/1"\ndescription = "a switch"\n'
        'set = ["allreduce.latency=*0.5", "parameter host=*0.9"]\n'
    )
    plain = load_server(str(path)).profile
    changed = {p.name for p in plain.parameters if p.source.startswith("--set")}
    assert (plain.name, changed) == ("link", {"allreduce_latency", "host"})
    server = load_server(str(path), ["accept_length=2.2"])
    assert server.profile.name.startswith("link")
    assert "a switch" in server.notes[0]
    assert tps(server.profile) > tps(load_profile())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('schema = "specsim.scenario/2"', FormatError),
        ('schema = "specsim.scenario/1"\nsets = []', UnknownNameError),
        ('schema = "specsim.scenario/1"\nset = "tp=4"', InputError),
        ('schema = "specsim.scenario/1"\nname = 3', InputError),
        ("schema =", FormatError),
    ],
)
def test_broken_scenarios(tmp_path: Path, text: str, error: type[Exception]) -> None:
    path = tmp_path / "broken.toml"
    path.write_text(text)
    with pytest.raises(error):
        load_server(str(path))


def test_profiles_load_as_before() -> None:
    assert load_server(None).profile == load_profile()
    with pytest.raises(UnknownNameError):
        load_server("kimi-k3")
