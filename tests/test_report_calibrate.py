"""The report of a calibration: what drives a number, what cannot be told apart, poor trees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specsim.acceptance import Acceptance, accept_table
from specsim.calibrate.bootstrap import bootstrap, runs_of
from specsim.calibrate.fit import FitResult, fit_profile
from specsim.calibrate.report import (
    corrections_described,
    described,
    entangled,
    markdown,
    poor_trees,
    warnings,
)
from specsim.errors import InputError
from specsim.observations import Observation, observations_from_rows
from specsim.profile import FitRecord, Profile
from specsim.server import Setup, setup_from_mapping
from specsim.setting import SpecSetting
from specsim.uncertainty import Parameter

NAMES = ("bandwidth", "draft", "accept_level[default@0]", "correction_0", "correction_1")


def setup() -> Setup:
    return setup_from_mapping(
        {
            "schema": "specsim.setup/1",
            "hardware": {"gpu": "h100-sxm"},
            "model": {"id": "llama-3.1-8b"},
            "draft": {"id": "eagle3"},
            "engine": {"name": "sglang", "version": "0.5.9"},
        }
    )


def rows(*cells: dict[str, object]) -> tuple[Observation, ...]:
    common: dict[str, object] = {"kind": "steady_decode", "concurrency": 1, "context_len": 1000.0}
    return observations_from_rows([common | cell for cell in cells]).rows


PLAIN = {"algorithm": "none", "topk": 1, "num_steps": 0, "num_draft_tokens": 1, "output_tps": 120.0}
CHAIN = {"algorithm": "EAGLE3", "topk": 1, "num_steps": 3, "num_draft_tokens": 4}
TREE = {"algorithm": "EAGLE3", "topk": 4, "num_steps": 3, "num_draft_tokens": 16}
FITTED = Acceptance(accept_prob=(0.6,), confidence_shift=0.9)


def tau(topk: int, steps: int, tokens: int | None = None, shift: float = 0.9) -> float:
    setting = SpecSetting.of(topk, steps, tokens)
    return accept_table(replace(FITTED, confidence_shift=shift), setting).accept_length


def made(observations: tuple[Observation, ...], *pairs: tuple[int, int, float]) -> FitResult:
    """A profile made by hand: bandwidth driven by data, the draft by its prior."""
    parameters = (
        Parameter("bandwidth", "log", 1.0, 0.1, 0.9, 0.02, True, 0.1, 10.0, "datasheet"),
        Parameter("draft", "log", 1.0, 0.6, 1.0, 0.55, False, 0.1, 10.0, "[@draft-cost]"),
        Parameter("accept_level[default@0]", "linear", 0.0, 0.45, 0.0, 0.1, True, -6, 6, "domains"),
        Parameter("correction_0", "linear", 0.0, 0.1, 0.01, 0.05, True, -1.5, 1.5, "smooth"),
        Parameter("correction_1", "linear", 0.0, 0.1, 0.01, 0.05, True, -1.5, 1.5, "smooth"),
    )
    correlation = np.eye(len(parameters))
    for i, j, r in pairs:
        correlation[i, j] = correlation[j, i] = r
    profile = Profile(
        "made",
        setup(),
        parameters,
        tuple(map(tuple, correlation.tolist())),
        (FITTED,),
        FitRecord(observations=len(observations), noise=0.02, model_error=0.05),
    )
    error = np.array([0.01] + [np.nan] * (len(observations) - 1))
    return FitResult(profile, observations, error, 0.0)


def test_entangled_pairs_are_named_strongest_first() -> None:
    result = made(rows(PLAIN), (0, 1, 0.93), (1, 2, -0.97), (0, 2, 0.89), (3, 4, 0.99))
    assert entangled(result.profile) == [
        ("accept_level[default@0]", "draft", -0.97),
        ("draft", "bandwidth", 0.93),
    ]
    first = warnings(result)[0]
    # the measurements that break it are in the sentence
    assert "correlation -0.97" in first
    assert "a log with accept length" in first
    assert "profiler trace of the draft steps" in first


def test_throughput_alone_cannot_tell_acceptance_from_cost() -> None:
    alone = rows(PLAIN, CHAIN | {"output_tps": 200.0})
    assert any("from throughput alone" in line for line in warnings(made(alone)))
    known = rows(PLAIN, CHAIN | {"output_tps": 200.0, "accept_length": 2.2})
    assert warnings(made(known)) == []


def test_what_drives_a_parameter() -> None:
    parameters = made(rows(PLAIN)).profile.parameters
    assert described(parameters[0])[1:4] == (
        "0.9 (0.871 to 0.93)",
        "1 (0.848 to 1.18)",
        "data",
    )
    assert described(parameters[1])[3] == "prior, held"
    assert described(parameters[2])[1] == "0 (-0.164 to 0.164)"


def test_a_correction_is_one_row() -> None:
    result = made(rows(PLAIN))
    (row,) = corrections_described(result.profile)
    assert row[0] == "a step, by its tokens"
    assert row[1] == "1.01 to 1.01"  # both knots at 0.01
    none = replace(
        result.profile,
        parameters=result.profile.parameters[:2],
        correlation=((1.0, 0.0), (0.0, 1.0)),
    )
    assert corrections_described(none) == []


def test_markdown_is_stable() -> None:
    text = markdown(made(rows(PLAIN, CHAIN | {"accept_length": 2.2})))
    assert text == markdown(made(rows(PLAIN, CHAIN | {"accept_length": 2.2})))
    lines = text.splitlines()
    assert lines[0] == "# Profile made"
    assert "2 observations, 2 fitted numbers; noise of a cell 2.0%" in text
    assert "| bandwidth | 0.9 (0.871 to 0.93) | 1 (0.848 to 1.18) | data | datasheet |" in lines
    # a row that has an accept length only has no error of its own
    assert [line for line in lines if line.startswith("| none") or "EAGLE3" in line] == [
        f"| {rows(PLAIN)[0].setting.label} C=1 ctx=1000 | +1.0% |"
    ]
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_a_tree_below_its_chain_points_at_the_engine() -> None:
    bad = rows(PLAIN, TREE | {"accept_length": 0.9 * tau(1, 3)})
    (line,) = poor_trees(made(bad))
    assert "engine defect" in line
    assert "should have" in line
    measured = rows(
        PLAIN,
        CHAIN | {"accept_length": 2.4, "scheduler": "overlap"},
        TREE | {"accept_length": 2.2, "scheduler": "sequential"},
    )
    (line,) = poor_trees(made(measured))
    assert "below the 2.40 that a chain of its depth has" in line
    assert line in warnings(made(measured))


def test_a_tree_between_chain_and_calibrated_tree_points_at_the_drafter() -> None:
    sure = tau(4, 3, 16, 0.0)
    between = max(0.87 * sure, 1.01 * tau(1, 3))
    assert between < 0.9 * sure
    (line,) = poor_trees(made(rows(PLAIN, TREE | {"accept_length": between})))
    assert "miscalibrated" in line
    assert poor_trees(made(rows(PLAIN, TREE | {"accept_length": 0.95 * sure}))) == []


def test_chains_are_never_poor_trees() -> None:
    assert poor_trees(made(rows(PLAIN, CHAIN | {"accept_length": 1.1}))) == []


def test_bootstrap_agrees_with_the_posterior() -> None:
    """Cells with an error of 4 %: errors of what data drive must be of the posterior's size.

    A standard deviation from 12 draws is off by 20 %, and a draw of 14 rows repeats some, so the
    scatter may be larger than the posterior's by half; the prior's pull makes it smaller.
    """
    rng = np.random.default_rng(11)
    cells = []
    for batch in (1, 2, 4, 8, 16, 32, 64):
        plain = 118.0 * batch / (1 + 0.012 * batch)
        for cell, tps in ((PLAIN, plain), (CHAIN | {"accept_length": 2.3}, 1.6 * plain)):
            noisy = tps * float(np.exp(rng.normal(0.0, 0.04)))
            cells.append(cell | {"concurrency": batch, "output_tps": noisy, "source": f"r{batch}"})
    observed = rows(*cells)
    result = fit_profile(setup(), observed)
    found = bootstrap(setup(), observed, 12, np.random.default_rng(2), result)
    assert found.by_run
    assert found.draws == 12
    assert len(runs_of(observed)) == 14  # a source and a setting each
    driven = {p.name for p in result.profile.parameters if p.driven == "data"}
    ratio = [r for name, r in zip(found.names, found.ratio, strict=True) if name in driven]
    assert ratio
    assert 0.15 < float(np.median(ratio)) < 2.0


def test_bootstrap_needs_two_draws() -> None:
    with pytest.raises(InputError, match="no scatter"):
        bootstrap(setup(), rows(PLAIN), 1, np.random.default_rng(0))
