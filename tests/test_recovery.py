"""From logs of simulated servers back to their numbers: what a calibration is for.

`benchmarks/figures_recovery.py` makes the figures on 50 servers of each engine; here a few servers
of each show that nothing on the way from a log line to an interval has broken.
"""

from __future__ import annotations

import math
import sys
from functools import lru_cache
from pathlib import Path

import log_writers as writers
import numpy as np
import pytest

from specsim.calibrate.report import warnings
from specsim.logs import Source
from specsim.logs.formats import sglang, vllm
from specsim.setting import SpecSetting
from specsim.uncertainty import Z90

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import figures_recovery as figures

SYSTEMS = 2
CHAIN = SpecSetting.of(1, figures.STEPS)


@lru_cache(maxsize=4)
def recovered(engine: str) -> tuple[figures.Recovered, ...]:
    drawn = figures.truths(figures.ENGINES[engine], SYSTEMS, seed=3)
    return tuple(figures.recover(truth, 40 + i) for i, truth in enumerate(drawn))


@pytest.mark.parametrize("engine", figures.ENGINES)
def test_stated_intervals_contain_the_truth(engine: str) -> None:
    """All numbers of all servers together.

    19 numbers of 2 servers, each inside with probability 0.9: fewer than 28 of 38 has
    probability 1e-3 if they were independent.
    """
    errors = np.array([list(r.errors().values()) for r in recovered(engine)])
    assert errors.size == 18 * SYSTEMS
    assert (np.abs(errors) <= Z90).sum() >= 28, np.round(errors, 1)


@pytest.mark.parametrize("engine", figures.ENGINES)
def test_settings_never_shown_are_predicted(engine: str) -> None:
    """The figure is a mean error below 8 % over 50 servers; of two, the mean may be twice that."""
    errors = [abs(math.expm1(e)) for r in recovered(engine) for e in r.unseen().values()]
    assert float(np.mean(errors)) < 0.16, np.round(errors, 3)


def test_a_profile_from_logs_explains_the_logs() -> None:
    for engine in ("sglang", "vllm"):
        for r in recovered(engine):
            error = r.result.log_error[~np.isnan(r.result.log_error)]
            assert np.abs(error).max() < 0.05  # windows are off by 2 % each, cells by less
            assert not any("from throughput alone" in line for line in warnings(r.result))


@lru_cache(maxsize=2)
def level(engine: str, clients: int = 4) -> writers.Level:
    truth = figures.truths(figures.ENGINES[engine], SYSTEMS, seed=3)[1]
    case = truth.case(CHAIN, clients)
    result = figures.simulate(
        truth.system.cost, case, rng=np.random.default_rng(1), requests=15 * clients
    )
    return writers.Level(case, result)


def test_sglang_log_says_what_the_simulation_did() -> None:
    text = writers.sglang_log([level("sglang")], np.random.default_rng(2))
    (entry,) = sglang.parse(Source("log", [text.encode()]))
    told = level("sglang").result
    assert not entry.unread
    assert entry.settings["num_steps"] == figures.STEPS
    assert entry.settings["scheduler"] == "overlap"
    (row,) = entry.rows
    assert row.batch_size == 4
    # accept lengths are printed to 0.01 and of a hundred windows; requests differ in both alike
    assert row.accept_length == pytest.approx(told.accept_length, rel=0.03)
    # windows of pure decoding last as their rounds: 2 % noise over tens of windows
    assert row.round_time_s == pytest.approx(told.round_s, rel=0.03)


def test_vllm_log_says_what_the_simulation_did() -> None:
    busy = level("vllm", 32)  # prompts in every window
    text = writers.vllm_log([busy], np.random.default_rng(2))
    (entry,) = vllm.parse(Source("log", [text.encode()]))
    told = busy.result
    assert not entry.unread
    assert entry.engine_version == "0.20.2"
    (row,) = entry.rows
    assert row.mixed
    # few windows of ten seconds, each 2 % off, with whole requests beginning and ending in them
    assert row.output_tps == pytest.approx(told.output_tps, rel=0.06)
    assert row.survival is not None
    assert 1 + sum(row.survival) == pytest.approx(told.accept_length, rel=0.03)


def test_noise_of_windows_has_the_stated_size_and_memory() -> None:
    # 20 000 windows: standard errors of 0.5 % in the size and of 0.007 in the memory
    noise = np.log(writers.errors(np.random.default_rng(3), 20_000))
    assert noise.std() == pytest.approx(writers.NOISE, rel=0.03)
    assert np.corrcoef(noise[:-1], noise[1:])[0, 1] == pytest.approx(writers.MEMORY, abs=0.03)
