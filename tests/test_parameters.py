"""The registry of parameters: what a row says holds everywhere, and a new row is enough."""

from __future__ import annotations

import numpy as np
import pytest
from servers import kimi, llama, setup_of

import specsim.cost.rounds as rounds
from specsim.cost.model import cost_values
from specsim.errors import InputError, UnknownNameError
from specsim.hardware import load_gpu
from specsim.parameters import ACCEPTANCE, CORRECTIONS, COST, Row, cost_priors, row_of
from specsim.profile import Profile, load_profile, profile_from_toml, profile_to_toml
from specsim.profile.uncalibrated import uncalibrated_profile
from specsim.scenario import apply_overrides, override_keys, parse_overrides
from specsim.scenario.apply import PARTS
from specsim.server.system import System, assemble


def changed(profile: Profile, *texts: str) -> Profile:
    return apply_overrides(profile, parse_overrides(texts)).profile


def value(profile: Profile, name: str) -> float:
    return next(p.value for p in profile.parameters if p.name == name)


def seconds_per_token(profile: Profile) -> float:
    curve = profile.predict(concurrency=[1], solver="analytic")
    return 1.0 / curve.rows[0].output_tps


def test_a_new_cost_parameter_is_a_row_and_its_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row, and a formula that reads it: priors, profiles, --set and resets know it."""
    row = Row((1.0, 0.2), resets="gpu", source="made up", set_as=("moon",))
    monkeypatch.setitem(COST, "moonlight", row)
    host_s = rounds.host_s
    monkeypatch.setattr(
        rounds,
        "host_s",
        lambda cost, *of: host_s(cost, *of) + 1e-3 * cost.parameters["moonlight"],
    )
    profile = uncalibrated_profile(llama().setup)
    assert value(profile, "moonlight") == 1.0
    doubled = changed(profile, "moonlight=*2")
    assert value(changed(profile, "moon=2"), "moonlight") == value(doubled, "moonlight") == 2.0
    assert seconds_per_token(doubled) > seconds_per_token(profile)
    text = profile_to_toml(doubled)
    assert value(profile_from_toml(text, "test"), "moonlight") == 2.0
    assert value(changed(doubled, "gpu=a100-sxm"), "moonlight") == 1.0
    assert value(changed(doubled, "max_running_requests=8"), "moonlight") == 2.0
    assert seconds_per_token(load_profile()) > 0  # a profile from before the row


def test_every_row_names_parts_of_a_setup_and_a_source() -> None:
    for row in (*COST.values(), *ACCEPTANCE.values(), *CORRECTIONS.values()):
        assert row.reset_by <= set(PARTS)
        assert row.source


def test_keys_of_set_are_one_parameters_own() -> None:
    keys = [key for row in (*COST.values(), *ACCEPTANCE.values()) for key in row.set_as]
    assert len(keys) == len(set(keys))
    assert set(keys) <= set(override_keys())


@pytest.mark.parametrize("server", [kimi(), llama()])
def test_priors_stand_where_the_defaults_do(server: System) -> None:
    """But for what the backend and the kind of attention say."""
    for parameter in cost_priors(server.facts):
        if parameter.name not in ("kv_reads", "attention_fill"):
            assert parameter.value == COST[parameter.name].default


def test_rows_are_found_by_the_names_of_a_profile() -> None:
    assert row_of("correction_11") is CORRECTIONS["correction_"]
    assert row_of("accept_level[chat@0]") is ACCEPTANCE["accept_level"]
    assert row_of("host") is COST["host"]


def test_what_cannot_be_a_parameter_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'host'"):
        cost_values(hots=1.0)
    with pytest.raises(InputError, match="positive and finite"):
        cost_values(host=0.0)


def test_stacked_sets_follow_one_another() -> None:
    host = COST["host"].parameter("host", (1.0, 1.0))
    knots = CORRECTIONS["correction_"].parameter("correction_1", (0.0, 0.1))
    at = np.array([[0.0, 0.0], [np.log(2.0), 1.0]])
    columns = kimi().cost.stacked((host, knots), at, 2).parameters
    assert columns["host"] == pytest.approx([1.0, 1.0, 2.0, 2.0])
    assert columns["correction_"].shape == (4, 12)
    assert columns["correction_"][:, 1] == pytest.approx([0.0, 0.0, 0.1, 0.1])


def test_a_measured_rate_is_trusted_more_than_a_specified_one() -> None:
    """GEMMs cannot beat the data sheet: its peak is 1.26 times the measured rate of an A100."""
    spread = {
        (p.name, gpu): p.prior_sd
        for gpu in ("a100-sxm", "mi300x")
        for p in cost_priors(assemble(setup_of("llama-3.1-8b", gpu)).facts)
    }
    assert load_gpu("mi300x").gemm_flops_bf16 is None
    assert spread["compute", "a100-sxm"] == 0.5 * spread["compute", "mi300x"]
