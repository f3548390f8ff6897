"""Open loops against what queueing theory knows exactly."""

from __future__ import annotations

import numpy as np
import pytest
from servers import setup_of

from specsim.calibrate.fit import fit_profile
from specsim.calibrate.validate import validate
from specsim.observations import Observation
from specsim.queueing import PROMPTS, Station, stay
from specsim.setting import SpecSetting

PROMPT = np.arange(1.0, PROMPTS + 1.0)


def station(rate: float, **changes: object) -> Station:
    """Rounds of 10 ms, 20 of them a request; a prompt of 1 us; one slot unless changed."""
    values: dict[str, object] = {
        "rate": rate,
        "capacity": 5.0,
        "rounds": 20.0,
        "lag": 0.0,
        "input_cv": 0.0,
        "output_cv": 0.0,
        "round_s": np.full(1, 0.01),
        "prefill_s": 1e-6 * PROMPT,
        "joined_s": None,
        "steps": PROMPT,
    }
    return Station(**values | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("load", [0.2, 0.6, 0.9])
def test_one_slot_is_m_d_1(load: float) -> None:
    """Wq = load S / (2 (1 - load)), S = 0.2 s."""
    found = stay(station(5.0 * load))
    assert found.batch == pytest.approx(load, rel=1e-3)
    assert found.decode_s == pytest.approx(0.2, rel=1e-3)
    # and half a round, for an arrival is looked at when the running round ends
    wait = load * 0.2 / (2 * (1 - load)) + load * 0.005
    assert found.first_s == pytest.approx(wait, rel=2e-3)


def test_one_slot_with_exponential_answers_is_m_m_1() -> None:
    found = stay(station(3.0, output_cv=1.0))
    assert found.first_s == pytest.approx(0.6 * 0.2 / 0.4 + 0.6 * 0.005, rel=2e-3)


def test_enough_slots_are_m_g_infinity() -> None:
    """Nobody waits and nobody slows anybody down: B = rate S."""
    found = stay(station(100.0, capacity=1e4, round_s=np.full(100, 0.01)))
    assert found.batch == pytest.approx(20.0, rel=1e-3)
    assert found.decode_s == pytest.approx(0.2, rel=1e-3)


@pytest.mark.parametrize("load", [0.1, 0.5, 0.8])
def test_prompts_alone_are_m_d_1(load: float) -> None:
    """One token is asked for: a prompt of 0.1 s waits load S / (2 (1 - load)) and takes S."""
    prefill = {"prefill_s": 0.1 * PROMPT, "rounds": 0.0, "round_s": np.full(9, 1e-6)}
    found = stay(station(10.0 * load, capacity=10.0, **prefill))
    assert found.decode_s == 0.0
    assert found.first_s == pytest.approx(0.1 + load * 0.1 / (2 * (1 - load)), rel=0.01)


def test_prompts_of_varied_length_are_m_g_1() -> None:
    """Pollaczek and Khinchine: the wait grows by 1 + cv^2."""
    prefill = {"prefill_s": 0.1 * PROMPT, "rounds": 0.0, "round_s": np.full(9, 1e-6)}
    found = stay(station(5.0, capacity=10.0, input_cv=0.5, **prefill))
    assert found.first_s == pytest.approx(0.1 + 0.5 * 0.1 / (2 * 0.5) * 1.25, rel=0.02)


@pytest.mark.parametrize("joined", [False, True])
def test_sharing_does_not_ask_how_rounds_are_spread(joined: bool) -> None:
    """Rounds that grow with the batch: B is that of M/G/1 processor sharing, load / (1 - load).

    m requests take m ms a round, so one alone takes 20 ms; at 25 arrivals a second the load is 0.5.
    """
    added = 1e-9 * PROMPT if joined else None
    slots = {"round_s": 1e-3 * np.arange(1.0, 201.0), "joined_s": added, "steps": np.ones(PROMPTS)}
    found = stay(station(25.0, capacity=50.0, **slots))
    assert found.batch == pytest.approx(1.0, rel=0.03)


def test_open_cells_with_latencies_calibrate() -> None:
    """TPOT of a light load was negative once, and its logarithm ended the fit."""
    setup = setup_of("llama-3.1-8b", "h100-sxm", draft="eagle3")
    cells = [
        Observation(
            kind="open_loop",
            setting=SpecSetting.none(),
            request_rate=rate,
            input_len=512.0,
            output_len=128.0,
            output_tps=128.0 * rate,
            tpot_s=tpot_s,
            ttft_s=0.03,
        )
        for rate, tpot_s in ((0.1, 0.007), (4.0, 0.0075))
    ]
    fitted = fit_profile(setup, cells).profile
    for row in validate(fitted, cells).rows:
        assert row.predicted == pytest.approx(row.measured, rel=0.1)
