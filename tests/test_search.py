"""What physics misses (`find`): there where it is, absent where not; what rows may not change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from test_fit import setup, simulated

from specsim.acceptance import accept_table
from specsim.calibrate.fit import FitResult, fit_profile
from specsim.calibrate.rows import Rows, table_near
from specsim.calibrate.validate import validate
from specsim.observations import Observation
from specsim.parameters import KNOT, SPECULATING_KNOT, acceptance_priors
from specsim.profile import acceptance_name, moved_acceptance
from specsim.profile.uncalibrated import default_acceptance
from specsim.setting import SpecSetting


def tokens(o: Observation) -> int:
    return o.setting.num_draft_tokens * (o.concurrency or 1)


def slower(rows: Sequence[Observation], where: object, factor: float) -> list[Observation]:
    """Rows with a round that many times as long where `where` says so."""
    return [
        replace(o, output_tps=(o.output_tps or 0.0) / factor) if where(o) else o  # type: ignore[operator]
        for o in rows
    ]


def predicted(result: FitResult, rows: Sequence[Observation]) -> np.ndarray:
    return np.array([r.predicted for r in validate(result.profile, rows).rows])


@pytest.fixture(scope="module")
def rows() -> tuple[Observation, ...]:
    return simulated({}, 0.01, np.random.default_rng(11))


@pytest.fixture(scope="module")
def plain(rows: tuple[Observation, ...]) -> FitResult:
    return fit_profile(setup(), rows)


def test_where_physics_is_right_the_discrepancy_is_small(plain: FitResult) -> None:
    """Half-normal priors of 10 and 20 % shrink to the noise of the cells, 1 %, and a little."""
    assert plain.spread[KNOT] < 0.05
    assert plain.profile.misfits == ()


def test_a_step_between_two_token_counts_is_followed(rows: tuple[Observation, ...]) -> None:
    """Beyond 16 tokens everything takes twice as long: no parameter does that, GLM-5.1 does."""
    stepped = slower(rows, lambda o: tokens(o) > 16, 2.0)
    result = fit_profile(setup(), stepped)
    assert result.spread[KNOT] > 0.1
    known = result.log_error[~np.isnan(result.log_error)]
    named = {m.cell for m in result.profile.misfits}
    assert len(named) == (np.abs(np.expm1(known)) > 0.05).sum()  # none is passed over
    assert np.median(np.abs(known)) < 0.015


def test_what_only_speculation_pays_is_followed(rows: tuple[Observation, ...]) -> None:
    dear = slower(rows, lambda o: o.setting.speculates, 1.6)
    result = fit_profile(setup(), dear)
    assert np.nanmax(np.abs(np.expm1(result.log_error))) < 0.05


@pytest.mark.parametrize("seed", [1, 2])
def test_the_order_of_rows_is_nothing(
    rows: tuple[Observation, ...], plain: FitResult, seed: int
) -> None:
    mixed = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    other = fit_profile(setup(), mixed)
    assert predicted(other, rows) == pytest.approx(predicted(plain, rows), rel=2e-3)


def test_a_row_given_twice_is_a_repeat_of_its_cell(rows: tuple[Observation, ...]) -> None:
    twice = fit_profile(setup(), (*rows, rows[3]))
    heavy = fit_profile(setup(), [replace(o, weight=2.0) if o is rows[3] else o for o in rows])
    assert predicted(twice, rows) == pytest.approx(predicted(heavy, rows), rel=0.01)


def test_a_given_cell_draws_the_prediction_to_itself(rows: tuple[Observation, ...]) -> None:
    for i in (5, 9, 12):
        cell = replace(rows[i], output_tps=(rows[i].output_tps or 0.0) * 0.8)
        without = [o for o in rows if o is not rows[i]]
        before = predicted(fit_profile(setup(), without), [cell])[0]
        after = predicted(fit_profile(setup(), [*without, cell]), [cell])[0]
        assert cell.output_tps is not None
        assert abs(after - cell.output_tps) < abs(before - cell.output_tps)


def test_a_row_of_another_drafter_moves_no_acceptance(
    rows: tuple[Observation, ...], plain: FitResult
) -> None:
    lookup = replace(
        rows[1],
        setting=SpecSetting("NGRAM", 1, 3, 4),
        dataset="code",
        accept_length=1.2,
        output_tps=None,
    )
    other = fit_profile(setup(), (*rows, lookup))
    own = [accept_table(r.profile.acceptance(), SpecSetting.of(1, 3)) for r in (plain, other)]
    assert own[1].accept_length == pytest.approx(own[0].accept_length, rel=5e-3)


@pytest.mark.parametrize("tree", [SpecSetting.of(4, 7, 16), SpecSetting.of(3, 3, 8)])
def test_a_tree_near_a_grid_point_is_its_series(tree: SpecSetting) -> None:
    """Within 1 % of the tree itself, a third of what an accept length is known to."""
    acceptance = default_acceptance("sglang", "EAGLE3", "", 0.0)
    priors = acceptance_priors((acceptance_name(acceptance),))
    for z in np.random.default_rng(0).normal(0.0, 0.6, (6, len(priors))):
        near = table_near(acceptance, tree, priors, z).accept_length
        exact = accept_table(moved_acceptance(acceptance, priors, z), tree).accept_length
        assert near == pytest.approx(exact, rel=0.01)


def test_all_speeds_by_one_factor_leave_the_ratios(
    rows: tuple[Observation, ...], plain: FitResult
) -> None:
    """A slow driver: every cell divided by two is met, and so the gains stay."""
    half = fit_profile(setup(), [replace(o, output_tps=(o.output_tps or 0.0) / 2) for o in rows])
    ratio = predicted(half, rows) / predicted(plain, rows)
    assert ratio == pytest.approx(0.5, rel=0.05)


def test_the_corrections_belong_to_what_they_correct(rows: tuple[Observation, ...]) -> None:
    dear = slower(rows, lambda o: o.setting.speculates, 1.5)
    profile = fit_profile(setup(), dear).profile
    parameters = profile.parameters
    index = [i for i, p in enumerate(parameters) if p.name.startswith(SPECULATING_KNOT)]
    moved = profile.coordinates.copy()
    moved[index] += 1.0
    found = Rows(setup(), rows, profile.acceptances).predict(
        parameters, np.stack([profile.coordinates, moved])
    )["output_tps"]
    same = np.array([not o.setting.speculates for o in rows])
    assert found[1][same] == pytest.approx(found[0][same])
    assert (found[1][~same] < found[0][~same]).all()
