"""Profiles: files and back, what is refused, priors, coordinates and covariance."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import kimi, llama

from specsim.acceptance.prior import default_acceptance
from specsim.errors import InputError, SpecsimError, UnknownNameError
from specsim.parameters import (
    acceptance_priors,
    cost_priors,
)
from specsim.profile import (
    DEFAULT_PROFILE,
    FitRecord,
    Profile,
    acceptance_name,
    load_profile,
    profile_from_toml,
    profile_names,
    profile_to_toml,
    save_profile,
)
from specsim.server import Setup, setup_from_mapping, setup_to_mapping
from specsim.server.system import System, assemble
from specsim.uncertainty import Parameter

# exp and ln of one double each.
ROUNDING = 1e-12
# A file keeps eight digits of a value and four of a correlation.
FILE_DIGITS, FILE_CORRELATION = 1e-7, 1e-4

SHIPPED = pytest.mark.parametrize("name", profile_names())


def prior_profile(system: System, setup: Setup | None = None) -> Profile:
    """A profile before anything is fitted."""
    acceptance = default_acceptance(system.engine.name, "EAGLE3", "chat", 0.0)
    parameters = (*cost_priors(system.facts), *acceptance_priors((acceptance_name(acceptance),)))
    correlation = tuple(map(tuple, np.eye(len(parameters)).tolist()))
    return Profile("prior", setup or system.setup, parameters, correlation, (acceptance,))


def parameter(**changes: object) -> Parameter:
    values = {"prior_median": 2.0, "prior_sd": 0.5, "value": 3.0, "sd": 0.2}
    return Parameter("host", **({"scale": "log"} | values | changes))


# --- files


@SHIPPED
def test_a_shipped_profile_survives_its_file_byte_for_byte(name: str) -> None:
    profile = load_profile(name)
    text = profile_to_toml(profile)
    again = profile_from_toml(text, name)
    assert again == profile
    assert profile_to_toml(again) == text


def test_the_default_is_the_founding_server() -> None:
    assert load_profile().name == DEFAULT_PROFILE
    assert load_profile() == load_profile(DEFAULT_PROFILE)


def test_any_setup_survives_the_file(tmp_path: Path) -> None:
    """A GPU and an all-reduce of one's own; infinite bounds are left out and come back."""
    mapping = setup_to_mapping(kimi().setup)
    mapping["hardware"]["gpu"] = {"name": "x", "mem_bytes": 1e11, "mem_bandwidth": 2e12} | {
        "flops_bf16": {"value": 5e14, "evidence": "published", "source": "sheet"}
    }
    mapping["hardware"]["allreduce"] = {"16384": 2.7e-5, "65536": 3.4e-5, "1048576": 1.3e-4}
    setup = setup_from_mapping(mapping, "test")
    profile = prior_profile(assemble(setup))
    path = tmp_path / "mine.toml"
    save_profile(profile, path)
    again = load_profile(path)
    assert again.setup == setup
    unbounded = next(p for p in again.parameters if p.name.startswith("accept_level"))
    assert (unbounded.low, unbounded.high) == (-6.0, 6.0)
    assert next(p for p in again.parameters if p.name == "expert_sharing").high == 1.2
    assert profile_to_toml(again) == path.read_text(encoding="utf-8")


@settings(max_examples=15)  # writing TOML takes a while
@given(
    value=st.floats(1e-3, 1e3),
    sd=st.floats(1e-6, 10),
    model_error=st.floats(0, 1),
    text=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30),
)
def test_numbers_and_texts_survive_to_eight_digits(
    value: float, sd: float, model_error: float, text: str
) -> None:
    base = prior_profile(llama())
    changed = replace(base.parameters[0], value=value, sd=sd, low=0.0, high=2e3, source=text)
    profile = replace(
        base,
        parameters=(changed, *base.parameters[1:]),
        fit=FitRecord(3, 0.02, model_error, "abc", text),
    )
    again = profile_from_toml(profile_to_toml(profile), "test")
    first = again.parameters[0]
    assert (first.value, first.sd) == pytest.approx((value, sd), rel=FILE_DIGITS)
    assert again.fit.model_error == pytest.approx(model_error, rel=FILE_DIGITS)
    assert (first.source, again.fit.source) == (text, text)


def test_correlations_survive_to_four_digits() -> None:
    base = prior_profile(llama())
    size = len(base.parameters)
    noise = np.random.default_rng(0).normal(size=(size, 3 * size))
    correlation = np.corrcoef(noise)
    profile = replace(base, correlation=tuple(map(tuple, correlation.tolist())))
    again = profile_from_toml(profile_to_toml(profile), "test")
    assert np.abs(np.array(again.correlation) - correlation).max() <= FILE_CORRELATION
    assert np.array_equal(np.array(again.correlation).T, again.correlation)


def sub(pattern: str, replacement: str) -> Callable[[str], str]:
    return lambda text: re.sub(pattern, replacement, text, count=1, flags=re.M)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (sub("profile/1", "profile/2"), "newer specsim; upgrade"),
        (sub('^schema = "specsim.profile', 'schema = "other'), "make a profile with specsim"),
        (lambda _: "", "is empty"),
        (lambda _: "x = 1", "schema: is missing"),
        (lambda text: text + "=", "is not TOML"),
        (lambda text: text + "\n[extra]\n", "section 'extra'"),
        (sub("^name = .*", ""), "no complete profile.*name"),
        (sub("^prior_sd = .*", ""), "has no 'prior_sd'"),
        (sub("^prior_sd = .*", "prior_sd = 0.0"), "parameter bandwidth"),
        (sub("^prior_sd = .*", "prior_sd = nan"), "prior_sd = nan: must be finite"),
        (sub("^prior_sd = .*", 'prior_sd = "0.1"'), "prior_sd = '0.1': is not a number"),
        (sub("^fitted = .*", "fitted = 1"), "fitted = 1: is not true or false"),
        (
            sub("^observations = .*", "observations = 1.5"),
            "is not an integer; write a whole number",
        ),
        (sub("^prior_sd", "prior_sdd"), "key 'prior_sdd'.*did you mean 'prior_sd'"),
        (sub("^value = .*", "value = -1.0"), "must be positive on a log scale"),
        (sub("^value = .*", "value = 1e9"), "must lie in"),
        (sub('^scale = "log"', 'scale = "cubic"'), "scale 'cubic'"),
        (sub("^decay = .*", "decay = 9.0"), "decay 9.0: must lie in"),
        (sub("^accept_prob = .*", "accept_prob = [2.0]"), "accept probability 2.0"),
        (sub("^accept_prob = .*", "accept_prob = 0.5"), "accept_prob = 0.5: is not a list"),
        (sub('^evidence = "assumed"\nsource = "prior', 'evidence = "x"\nsource = "p'), "evidence"),
        (sub("^correlation = .*", "correlation = [[1.0]]\nx = ["), "section 'x'"),
        (sub(r"    \[1\.0\],\n", ""), "correlation of another size"),
        (sub(r"\[0\.0, 0\.0, 1\.0\]", "[1.0]"), "no complete profile.*IndexError"),
        (sub(r"    \[1\.0\],", "    [nan],"), "correlation outside"),
        (sub(r"    \[1\.0\],", "    [2.0],"), "correlation outside"),
        (sub("^model_error = .*", "model_error = inf"), "model_error.*must be finite"),
        (sub('^gpu = "rtx', 'gpu = 7 # "rtx'), "gpu"),
    ],
)
def test_a_damaged_file_is_one_clear_line(
    damage: Callable[[str], str], message: str, tmp_path: Path
) -> None:
    text = profile_to_toml(prior_profile(kimi()))
    damaged = damage(text)
    assert damaged != text
    path = tmp_path / "damaged.toml"
    path.write_text(damaged, encoding="utf-8")
    with pytest.raises(SpecsimError, match=message) as caught:
        load_profile(path)
    assert "\n" not in str(caught.value)


def test_unknown_profiles_name_those_that_ship(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=DEFAULT_PROFILE):
        load_profile("kimi-k9")
    with pytest.raises(InputError, match="does not exist"):
        load_profile(tmp_path / "none.toml")
    with pytest.raises(InputError, match="is a directory"):
        load_profile(tmp_path)


def test_saving_fails_without_a_trace(tmp_path: Path) -> None:
    """A folder that is not there, and one where a file stands: nothing is overwritten."""
    with pytest.raises(InputError, match="cannot be written"):
        save_profile(prior_profile(llama()), tmp_path / "no" / "p.toml")
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        save_profile(prior_profile(llama()), tmp_path / "taken")
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


# --- parameters


@given(
    scale=st.sampled_from(["log", "linear"]),
    median=st.floats(0.1, 10),
    prior_sd=st.floats(0.01, 2),
    coordinate=st.floats(-3, 3),
)
def test_coordinates_are_prior_standard_deviations(
    scale: str, median: float, prior_sd: float, coordinate: float
) -> None:
    one = parameter(scale=scale, prior_median=median, prior_sd=prior_sd, value=median, sd=prior_sd)
    assert one.coordinate == 0
    value = one.at(coordinate)
    expected = (
        median * math.exp(coordinate * prior_sd)
        if scale == "log"
        else (median + coordinate * prior_sd)
    )
    assert value == pytest.approx(expected, rel=ROUNDING, abs=ROUNDING)
    moved = one.moved(coordinate, 0.5, True)
    assert moved.coordinate == pytest.approx(coordinate, abs=1e-9)  # a difference of logarithms
    assert moved.sd == pytest.approx(0.5 * prior_sd)


def test_values_stay_within_their_bounds() -> None:
    bounded = parameter(low=1.0, high=4.0)
    assert (bounded.at(-1e9), bounded.at(1e9)) == (1.0, 4.0)
    assert bounded.moved(100.0, 1.0, True).value == 4.0
    with pytest.raises(InputError, match=r"must lie in 1.0..4.0"):
        parameter(low=1.0, high=4.0, value=5.0)


def test_a_stated_interval_is_its_own_or_what_the_error_says() -> None:
    plain = parameter()
    assert plain.stated == pytest.approx((3.0 * math.exp(-0.329), 3.0 * math.exp(0.329)), rel=1e-3)
    assert plain.prior_interval == pytest.approx(
        (2.0 * math.exp(-0.8224), 2.0 * math.exp(0.8224)), rel=1e-3
    )
    moved = plain.moved(1.0, 0.4, True, (0.5, 0.2))
    assert (moved.value, moved.sd) == pytest.approx((2.0 * math.exp(0.5), 0.2))
    half = 1.6449 * 0.1
    assert moved.stated == pytest.approx(
        (2.0 * math.exp(0.25 - half), 2.0 * math.exp(0.25 + half)), rel=1e-4
    )
    assert plain.moved(1.0, 0.4, True).interval is None


@pytest.mark.parametrize("interval", [(2.0, 1.0), (float("nan"), 1.0), (0.0, 1.0), (1.0, math.inf)])
def test_an_interval_is_two_numbers_in_order(interval: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="interval"):
        parameter(interval=interval)


def test_an_interval_survives_its_file() -> None:
    profile = load_profile("kimi-k2.5-int4-8x-rtx-pro-6000")
    first = replace(profile.parameters[0], interval=(0.5, 1.5))
    changed = replace(profile, parameters=(first, *profile.parameters[1:]))
    again = profile_from_toml(profile_to_toml(changed), "again")
    assert again.parameters[0].interval == (0.5, 1.5)
    for wrong in ("1.5", "[1.5]", '["a", "b"]', "[1.0, 2.0, 3.0]"):
        text = profile_to_toml(changed).replace("[0.5, 1.5]", wrong)
        with pytest.raises(InputError):
            profile_from_toml(text, "again")


def test_a_parameter_is_data_driven_once_its_variance_is_halved() -> None:
    assert parameter(sd=0.5 * 0.70).driven == "data"
    assert parameter(sd=0.5 * 0.72).driven == "prior"
    assert parameter(sd=0.5 * 0.70).evidence == "fitted"
    assert parameter(sd=0.5).evidence == "assumed"


@SHIPPED
def test_shipped_parameters_are_inside_their_bounds_and_within_four_sd(name: str) -> None:
    """Physical: no multiplier had to leave its prior behind."""
    profile = load_profile(name)
    for p in profile.parameters:
        assert p.low <= p.value <= p.high
        assert abs(p.coordinate) < 4
        assert p.sd <= p.prior_sd * (1 + FILE_DIGITS)
    assert all(abs(p.coordinate) < 0.1 for p in profile.parameters if not p.fitted)


@SHIPPED
def test_covariance_is_a_covariance(name: str) -> None:
    """Symmetric, and not negative beyond what four digits of a correlation may do."""
    profile = load_profile(name)
    covariance = profile.covariance
    sd = np.array([p.sd / p.prior_sd for p in profile.parameters])
    assert np.array_equal(covariance, covariance.T)
    assert np.diag(covariance) == pytest.approx(sd**2, rel=FILE_DIGITS)
    assert np.linalg.eigvalsh(np.array(profile.correlation)).min() > -len(sd) * FILE_CORRELATION


def test_profile_refuses_what_does_not_fit_together() -> None:
    profile = prior_profile(llama())
    with pytest.raises(InputError, match="correlation of another size"):
        replace(profile, correlation=profile.correlation[:-1])
    with pytest.raises(InputError, match="no acceptance"):
        replace(profile, acceptances=())
