"""The picture of a changing load: a bar per way, by what they are compared by."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.figure import Figure
from policy_cases import with_workload

from specsim.decide.adaptive import LoadAnswer, schedule_under_load
from specsim.decide.slo import parse_slo
from specsim.profile import load_profile
from specsim.question import Question
from specsim.report.figure import drawn
from specsim.report.plots import ROLE_PAINT, SHOWN, outcomes_figure, plot_outcomes
from specsim.workload import Lengths, VaryingLoad, Workload

SHORT = Workload(Lengths(200, 0.3), Lengths(60, 0.5), evidence="measured")


@pytest.fixture(scope="module")
def answer() -> LoadAnswer:
    wish = Question(max_draft_tokens=5, max_steps=2, max_topk=2, engine_version="0.5.23")
    return schedule_under_load(
        with_workload(load_profile(), SHORT), VaryingLoad.ramp((1, 8), 20), wish, repeats=2
    )


def test_a_bar_per_way_with_its_error(answer: LoadAnswer) -> None:
    figure = outcomes_figure(answer)
    (axes,) = figure.axes
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == [outcome.output_tps for outcome in answer.outcomes]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(labels) == len(answer.outcomes)
    assert sum(label.endswith("(best fixed)") for label in labels) == 1
    for word in ("Profile kimi", "simulated 2 times (seed 0)", "one standard error"):
        assert word in " ".join(figure.get_supxlabel().split())
    assert drawn(figure, "svg") == drawn(outcomes_figure(answer), "svg")


@pytest.mark.parametrize("score", SHOWN)
def test_the_axis_is_what_they_are_compared_by(answer: LoadAnswer, score: str) -> None:
    asked = replace(answer, score=score, targets=parse_slo("tpot=40ms"))
    axes = plot_outcomes(Figure().add_subplot(), asked)
    assert axes.get_xlabel() == SHOWN[asked.score][1]
    field = SHOWN[asked.score][0]
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == [getattr(outcome, field) for outcome in answer.outcomes]
    assert "tpot <= 40 ms" in outcomes_figure(asked).get_supxlabel()


def test_a_single_run_has_no_error(answer: LoadAnswer) -> None:
    once = replace(
        answer,
        repeats=1,
        outcomes=tuple(replace(o, runs=o.runs[:1]) for o in answer.outcomes),
    )
    axes = plot_outcomes(Figure().add_subplot(), once)
    assert not axes.collections  # whiskers
    assert "simulated 1 time " in " ".join(outcomes_figure(once).get_supxlabel().split())


def test_roles_differ_in_colour_or_hatch() -> None:
    assert len(set(ROLE_PAINT.values())) == len(ROLE_PAINT)
