"""The delta method: against linear models, and against sampling the posterior."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import llama

from specsim.acceptance import Acceptance, accept_table
from specsim.analytic import solve
from specsim.case import Case
from specsim.profile import FitRecord, Profile, load_profile
from specsim.setting import SpecSetting
from specsim.uncertainty import Z90, Parameter, Spread, each, normal_cdf
from specsim.workload import Load

# Products of a few doubles; differences of doubles over steps of a quarter sd.
ROUNDING, DIFFERENCE = 1e-12, 1e-9


def profile_of(sds: list[float], correlation: np.ndarray, model_error: float = 0.1) -> Profile:
    """A profile whose parameters have these posterior errors, in prior standard deviations."""
    parameters = tuple(
        Parameter(f"p{i}", "linear", 0.0, 2.0, 1.0, 2.0 * sd) for i, sd in enumerate(sds)
    )
    rows = tuple(map(tuple, correlation.tolist()))
    fit = FitRecord(model_error=model_error)
    return Profile("test", llama().setup, parameters, rows, (Acceptance(),), fit)


def random_correlation(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.atleast_2d(np.corrcoef(rng.normal(size=(size, size + 2))))


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 6), rows=st.integers(1, 5))
def test_a_linear_model_is_exact(seed: int, size: int, rows: int) -> None:
    """Central differences of a line are its slopes; then (DELTA) is matrix algebra."""
    rng = np.random.default_rng(seed)
    slopes = rng.normal(size=(rows, size))
    correlation = random_correlation(rng, size)
    sds = rng.uniform(0.05, 2, size)
    errors = profile_of(sds.tolist(), correlation).spread(each(lambda z: slopes @ z + 3.0))
    assert errors.jacobian == pytest.approx(slopes, abs=DIFFERENCE)
    covariance = correlation * np.outer(sds, sds)
    variance = np.diag(slopes @ covariance @ slopes.T)
    assert errors.sd == pytest.approx(np.sqrt(variance + 0.1**2), rel=1e-6)
    difference = slopes[0] - slopes[-1]
    expected = math.sqrt(max(difference @ covariance @ difference, 0.0) + 0.1**2)
    assert errors.ratio_sd(0, rows - 1) == pytest.approx(expected, rel=1e-6)
    for row in range(rows):
        assert errors.shares(row).sum() == pytest.approx(1.0, rel=1e-6)


def test_shared_parameters_cancel_in_a_ratio() -> None:
    """Two rows that move alike: their ratio keeps only the model's error."""
    slopes = np.array([[1.0, 0.5], [1.0, 0.5]])
    errors = profile_of([1.0, 1.0], np.eye(2)).spread(each(lambda z: slopes @ z))
    assert errors.sd == pytest.approx(math.sqrt(1.25 + 0.01), rel=1e-6)
    assert errors.ratio_sd(0, 1) == pytest.approx(0.1, rel=1e-6)


def test_nothing_uncertain_leaves_the_model_error() -> None:
    none = profile_of([], np.zeros((0, 0))).spread(each(lambda z: np.zeros(3)))
    assert none.sd.tolist() == [0.1] * 3
    assert none.jacobian.shape == (3, 0)
    known = profile_of([0.0], np.eye(1)).spread(each(lambda z: np.array([z[0], 0.0])))
    assert known.sd == pytest.approx([0.1, 0.1], rel=ROUNDING)
    assert known.shares(0).tolist() == [0.0]


def test_a_correlation_of_a_file_may_be_slightly_negative() -> None:
    """Four digits can make a variance negative by rounding: it counts as none."""
    errors = Spread(np.array([[1.0, -1.0]]), np.array([[1.0, 1.0001], [1.0001, 1.0]]), 0.05)
    assert errors.sd.tolist() == [0.05]


def test_secants_see_the_bend_of_a_cap() -> None:
    """Steps of a quarter sd: beside a kink the slope is an average, not one side's."""
    errors = profile_of([1.0], np.eye(1)).spread(each(lambda z: np.minimum(z - 0.5, 0.1)))
    # at z = 0.5 the line bends at 0.6: of the step of 0.25 up, 0.1 is seen
    assert errors.jacobian[0, 0] == pytest.approx((0.1 + 0.25) / 0.5, abs=DIFFERENCE)


@given(z=st.floats(-8, 8))
def test_normal_cdf(z: float) -> None:
    assert normal_cdf(z) + normal_cdf(-z) == pytest.approx(1.0, rel=ROUNDING)
    assert 0 <= normal_cdf(z) <= normal_cdf(z + 0.1) <= 1


def test_ninety_percent_lie_within_z90() -> None:
    assert normal_cdf(Z90) - normal_cdf(-Z90) == pytest.approx(0.9, abs=ROUNDING)


def test_a_narrow_posterior_spreads_throughput_to_first_order() -> None:
    """Sampling the founding profile with a tenth of its errors, on all its correlations.

    200 draws know a standard deviation to 5 %, three of which are allowed. At its whole errors
    the comparison says nothing: numbers that only their sum determines (latency and launches,
    with errors of a factor of two) leave the data's ridge along a straight line.
    """
    whole = load_profile()
    profile = replace(whole, parameters=tuple(replace(p, sd=0.1 * p.sd) for p in whole.parameters))
    settings = (SpecSetting.none(), SpecSetting.of(1, 2, scheduler="overlap"))

    def log_output(coordinates: np.ndarray) -> np.ndarray:
        system = profile.system(coordinates)
        acceptance = profile.acceptance(coordinates=coordinates)
        cases = [
            Case.of(
                system,
                system.plan(setting),
                accept_table(acceptance, setting),
                profile.setup.workload,
                Load("closed_loop", c),
            )
            for setting in settings
            for c in (1, 30, 100)
        ]
        return np.log(solve(system.cost, cases, with_limit=False).output_tps)

    exact = replace(profile, fit=replace(profile.fit, model_error=0.0))
    errors = exact.spread(each(log_output))
    values, vectors = np.linalg.eigh(profile.covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    draws = np.random.default_rng(5).normal(size=(200, len(values)))
    sampled = np.array([log_output(profile.coordinates + root @ draw) for draw in draws])
    assert sampled.std(axis=0) == pytest.approx(errors.sd, rel=0.15)
