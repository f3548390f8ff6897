"""Cells that a fit does not honour are named, with what may be behind each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_fit import setup, simulated

from specsim.calibrate.fit import fit_profile
from specsim.calibrate.misfits import misfits, whole_server
from specsim.calibrate.report import warnings
from specsim.observations import Observation, observations_from_rows
from specsim.profile import profile_from_toml, profile_to_toml
from specsim.uncertainty import Parameter, strayed


def cells(*loads: int, weight: float = 1.0) -> tuple[Observation, ...]:
    rows: list[dict[str, object]] = [
        {"kind": "closed_loop", "algorithm": "none", "topk": 1, "num_steps": 0,
         "num_draft_tokens": 1, "concurrency": c, "output_tps": 100.0, "weight": weight}
        for c in loads
    ]  # fmt: skip
    return observations_from_rows(rows).rows


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (10.0, "a typing error?"),
        (1000.0, "ms for s?"),
        (16.0, "one user's rate for all?"),
        (5.0, "5.0 times"),
    ],
)
def test_another_unit_is_suspected(factor: float, said: str) -> None:
    errors = np.array([0.0, np.log(factor), 0.0])
    (misfit,) = misfits(cells(4, 16, 64), errors)
    assert said in misfit.suspicion
    assert misfit.cell == "none C=16"


def test_a_step_is_told_from_an_outlier() -> None:
    (step, _) = misfits(cells(8, 16, 32, 64), np.array([0.0, 0.10, -0.12, 0.0]))
    assert "between 16 and 32 tokens" in step.suspicion
    (alone,) = misfits(cells(16), np.array([0.2]))
    assert "outlier" in alone.suspicion


def test_noise_is_allowed_for() -> None:
    assert misfits(cells(1, 2, 4), np.array([0.04, -0.04, np.nan])) == ()
    assert misfits(cells(1, weight=0.25), np.array([0.09])) == ()


def test_a_server_eight_times_too_slow_is_told() -> None:
    assert whole_server(np.log([8.0, 7.9, 8.2])) is not None
    assert "8 times slower" in str(whole_server(np.log([8.0, 7.9, 8.2])))
    assert whole_server(np.log([1.5, 0.7, 1.1])) is None
    rows = simulated({}, 0.01, np.random.default_rng(3))
    slow = fit_profile(setup(), [replace(o, output_tps=(o.output_tps or 0) / 8) for o in rows])
    assert any("times slower than this hardware" in line for line in warnings(slow))


def test_a_profile_remembers_and_a_prediction_near_it_says_so() -> None:
    rows = list(simulated({}, 0.01, np.random.default_rng(4)))
    rows[4] = replace(rows[4], output_tps=(rows[4].output_tps or 0) * 10)
    result = fit_profile(setup(), rows)
    cell = result.profile.misfits[0]
    assert cell.setting == rows[4].setting.label
    assert any("a typing error?" in line for line in warnings(result))
    again = profile_from_toml(profile_to_toml(result.profile), "again")
    assert again.misfits[0].cell == cell.cell
    load = int(cell.load)
    near = again.predict(concurrency=[load], solver="analytic")
    assert cell.sentence in near.notes or again.misfits[0].sentence in near.notes
    far = again.predict(concurrency=[load * 10], solver="analytic")
    assert again.misfits[0].sentence not in far.notes


def test_a_value_far_outside_its_prior_is_named_first_and_remembered() -> None:
    slow = fit_profile(setup(), simulated({"host": 14.0}, 0.01, np.random.default_rng(4)))
    (said, *_) = warnings(slow)
    assert "far outside its prior" in said
    again = profile_from_toml(profile_to_toml(slow.profile), "again")
    assert said in again.predict(concurrency=[4], solver="analytic").notes
    usual = fit_profile(setup(), simulated({}, 0.01, np.random.default_rng(4)))
    assert not any("far outside" in line for line in warnings(usual))
    host = Parameter("host", "log", 1.0, 0.7, 14.0, 0.1, True, 0.01, 100.0)
    assert "host 14 is far outside its prior, 0.32 to 3.2" in strayed([host])[0]
    assert strayed([replace(host, value=3.0), replace(host, fitted=False)]) == []


def test_a_server_known_by_its_times_alone_is_slower_where_they_are_longer() -> None:
    rows = simulated({}, 0.01, np.random.default_rng(3))
    plain = [o for o in rows if not o.setting.speculates]
    times = [
        replace(o, output_tps=None, itl_s=8.0 * (o.concurrency or 1) / (o.output_tps or 1))
        for o in plain
    ]
    assert "times slower" in str(fit_profile(setup(), times).suspicion)
