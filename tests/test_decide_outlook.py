"""The outlook's assumptions: what settings and loads share, and what grows with the depth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from specsim.decide.outlook import (
    DEPTH_SD,
    Grid,
    depth_sd,
    load_likeness,
    outlook,
    setting_likeness,
)
from specsim.profile import Profile, load_profile
from specsim.setting import SpecSetting
from specsim.workload import Load


@pytest.fixture(scope="module")
def profile() -> Profile:
    """The founding server; its accept lengths are of one depth."""
    return load_profile()


def test_likeness_falls_with_the_distance(profile: Profile) -> None:
    """(SPECIFIC) by hand: tokens 4 and 8 one octave apart, steps 3 and 7 one of S + 1."""
    settings = (
        SpecSetting.none("overlap"),
        SpecSetting.of(1, 3, scheduler="overlap"),
        SpecSetting.of(1, 7, scheduler="overlap"),
        SpecSetting.of(1, 3, scheduler="sequential"),
    )
    plans = tuple(profile.system().plan(s, what_if=True) for s in settings)
    alike = setting_likeness(plans)
    assert alike == pytest.approx(alike.T)
    assert np.diag(alike) == pytest.approx(1.0)
    assert alike[0, 1:].tolist() == [0.0, 0.0, 0.0]
    assert alike[1, 2] == pytest.approx(math.exp(-0.5 * (1.0 + 0.0 + 1.0)))
    assert alike[1, 3] == pytest.approx(math.exp(-0.5 * 0.25))


def test_loads_are_alike_over_two_octaves() -> None:
    alike = load_likeness([Load(concurrency=c) for c in (1, 4, 16)])
    assert alike[0].tolist() == pytest.approx([1.0, math.exp(-0.5), math.exp(-2.0)])
    rates = load_likeness([Load("open_loop", 1, request_rate=r) for r in (0.5, 2.0)])
    assert rates[0, 1] == pytest.approx(math.exp(-0.5))


def test_the_overhead_may_grow_with_the_depth(profile: Profile) -> None:
    """(DEPTH): at twice the measured depth psi counts as the overhead's own logarithm does.

    The slope is a secant over one posterior error, so 10 % from the tangent is allowed.
    """
    current = profile.setup.current
    assert current is not None
    depth = current.num_steps
    steps = (depth, 2 * depth)
    plans = tuple(
        profile.system().plan(SpecSetting.of(1, s, scheduler="overlap"), what_if=True)
        for s in steps
    )
    grid = Grid(plans, (Load(concurrency=1),), profile.setup.workload)
    column = outlook(profile, grid).jacobian[:, 0, -1]
    at = [p.name for p in profile.parameters].index("round_overhead")
    step = 1e-3 / profile.parameters[at].prior_sd
    up, down = profile.coordinates.copy(), profile.coordinates.copy()
    up[at] += step
    down[at] -= step
    slope = (grid.solve(profile, up).log_tps - grid.solve(profile, down).log_tps)[:, 0] / 2e-3
    assert column[0] == 0.0
    assert column[1] == pytest.approx(slope[1], rel=0.1)
    assert column[1] < 0.0


def test_the_depth_is_known_once_two_were_measured(profile: Profile) -> None:
    plain = replace(
        profile,
        parameters=tuple(
            replace(p, sd=p.prior_sd) if p.name == "draft" else p for p in profile.parameters
        ),
    )
    assert depth_sd(plain) == DEPTH_SD
    assert depth_sd(plain, [SpecSetting.of(1, 5)]) == 0.0
    told = replace(
        profile,
        parameters=tuple(
            replace(p, sd=0.1 * p.prior_sd) if p.name == "draft" else p for p in profile.parameters
        ),
    )
    assert depth_sd(told) == 0.0
    unmeasured = replace(plain, fit=replace(plain.fit, observations=0))
    assert depth_sd(unmeasured) == 0.0
