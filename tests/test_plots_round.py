"""Plots of rounds, acceptance, cost and timelines: what they show, and that it adds up."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from specsim.acceptance import Acceptance
from specsim.analytic import solve
from specsim.calibrate.validate import ValidatedRow, Validation
from specsim.curve import Curve
from specsim.decide.breakeven import gain_map
from specsim.errors import InputError
from specsim.observations import Observation
from specsim.profile import Profile, load_profile
from specsim.question import Question
from specsim.report.figure import drawn, new_figure, profile_caption
from specsim.report.plots import (
    PARTS,
    parts_of,
    plot_gain_map,
    plot_residuals,
    plot_tree,
    rounds_at,
    typical_tree,
)
from specsim.report.timeline import scheduled_plans, timelines
from specsim.report.timeline_views import PAINT, plot_timeline, timeline_figure
from specsim.setting import SpecSetting


@pytest.fixture(scope="module")
def profile() -> Profile:
    return load_profile()


@pytest.fixture(scope="module")
def curve(profile: Profile) -> Curve:
    return profile.predict(topk=2, num_steps=2, concurrency=[1, 30, 100], solver="analytic")


@pytest.fixture
def axes() -> Axes:
    return Figure(layout="constrained").add_subplot()


def units(axes: Axes) -> None:
    """Units stand in brackets, and the file can be written."""
    assert axes.get_xlabel() == "" or "(" in axes.get_xlabel()
    assert axes.get_ylabel() == "" or "(" in axes.get_ylabel()
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    assert drawn(figure, "png").startswith(b"\x89PNG")


def test_parts_add_up_to_the_round(profile: Profile) -> None:
    """Exactly up to rounding: the CPU takes what the others leave, and never less than nothing."""
    plans = [
        profile.system().plan(SpecSetting.none()),
        *scheduled_plans(profile, SpecSetting.of(2, 2)),
    ]
    parts = parts_of(rounds_at(profile, plans, 30))
    point = profile.predict(SpecSetting.of(2, 2), concurrency=[30], solver="analytic")
    asked = point.of("asked")
    assert asked is not None
    assert parts.sum(axis=1)[1] == pytest.approx(asked.points[0].round_time_s, rel=1e-9)
    assert (parts >= 0).all()
    host = list(PARTS).index("host")
    assert parts[1, host] > parts[2, host]  # overlap hides the CPU


@pytest.mark.parametrize("paints", [[p[1:] for p in PARTS.values()], list(PAINT.values())])
def test_neighbours_differ_in_hatch_or_in_grey(paints: list[tuple[str, str]]) -> None:
    """Luminance as in Rec. 709, 0.1 apart; equal hatches must differ in grey."""
    grey = {p: 0.2126 * r + 0.7152 * g + 0.0722 * b for p in paints for r, g, b in [to_rgb(p[0])]}
    for i, one in enumerate(paints):
        for other in paints[i + 1 :]:
            assert one[1] != other[1] or abs(grey[one] - grey[other]) > 0.04


def test_tree_has_the_verified_nodes_and_their_probabilities(axes: Axes) -> None:
    """A calibrated drafter with alpha .8 and no depth decay: the best paths are .8 and .64."""
    plain = Acceptance(accept_prob=(0.8,), decay=1.0, confidence_shift=0.0)
    tree = typical_tree(plain, SpecSetting.of(2, 2, 5))
    assert tree.verified.sum() == 4
    assert tree.beam.p.max() == pytest.approx(0.8, rel=1e-12)
    plot_tree(axes, tree)
    units(axes)
    texts = [text.get_text() for text in axes.texts]
    assert len(texts) == 7
    assert {"root", "80", "64", "6"} <= set(texts)
    assert "5 of 7 nodes verified" in axes.get_title(loc="left")
    with pytest.raises(InputError, match="no draft tree"):
        typical_tree(plain, SpecSetting.none())
    with pytest.raises(InputError, match="crowded"):
        plot_tree(axes, typical_tree(plain, SpecSetting.of(8, 4, 60)))


def test_gain_map_agrees_with_the_curve(axes: Axes, profile: Profile, curve: Curve) -> None:
    plan = profile.system().plan(SpecSetting.of(2, 2))
    gains = gain_map(profile, plan, Question(concurrency=(1, 30, 100)), rows=5)
    middle = gains.gain[2]  # share 0: the drafter as it is
    expected = [c.gain for c in curve.series[2].points]
    assert middle == pytest.approx(expected, abs=1e-9)
    assert (np.diff(gains.gain, axis=0) >= 0).all()  # a better drafter never hurts here
    plot_gain_map(axes, gains)
    units(axes)
    assert any("expected" in t.get_text() for t in axes.texts)


def test_residuals_show_each_cell_once(axes: Axes) -> None:
    cells = [
        Observation(kind="closed_loop", setting=s, concurrency=c, output_tps=100.0 * c)
        for s in (SpecSetting.none(), SpecSetting.of(1, 2))
        for c in (1, 4)
    ]
    rows = tuple(
        ValidatedRow(
            o, "output_tps", o.output_tps or 1.0, 103.0 * (o.concurrency or 1), 80.0, 900.0
        )
        for o in cells
    )
    plot_residuals(axes, Validation(rows))
    units(axes)
    assert axes.get_legend_handles_labels()[1] == ["no speculation", "topk=1 steps=2 tokens=3"]
    assert "mean absolute error 3.0 %" in axes.get_title(loc="left")


def test_gantt_has_a_panel_per_scheduler(axes: Axes, profile: Profile) -> None:
    shown = timelines(profile, SpecSetting.of(2, 2), 40, rounds=3)
    figure = timeline_figure(shown, "Profile p.")
    assert [a.get_title(loc="left") for a in figure.axes] == [t.title for t in shown]
    assert figure.axes[1].get_xlabel() == "time (ms)"
    assert "Profile p." in figure.get_supxlabel()
    assert drawn(figure, "svg") == drawn(timeline_figure(shown, "Profile p."), "svg")
    plot_timeline(axes, shown[0])
    units(axes)


def test_caption_names_profile_and_evidence(profile: Profile) -> None:
    figure, _ = new_figure(profile_caption(profile, "More."))
    assert profile.name in figure.get_supxlabel()
    assert profile.evidence in figure.get_supxlabel()
    assert figure.get_supxlabel().endswith("More.")


def test_parts_of_keeps_the_shape_of_a_solution(profile: Profile) -> None:
    from specsim.acceptance import accept_table
    from specsim.case import Case
    from specsim.workload import Load

    system, setting = profile.system(), SpecSetting.of(1, 2)
    plan = system.plan(setting)
    case = Case.of(
        system,
        plan,
        accept_table(profile.acceptance(), setting),
        profile.setup.workload,
        Load("closed_loop", 8),
    )
    solution = solve(system.cost, [case, case.at(Load("closed_loop", 1))])
    parts = parts_of(solution)
    assert parts.shape == (2, len(PARTS))
    assert parts.sum(axis=1) == pytest.approx(solution.round_s, rel=1e-12)
