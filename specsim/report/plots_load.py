"""Plots of loads that change: ways to run a server side by side."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from specsim.decide.load_answer import LoadAnswer, Score
from specsim.report.figure import frame, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN: dict[Score, tuple[str, str]] = {
    "throughput": ("output_tps", "output (tokens/s, all requests together)"),
    "goodput": ("good_rps", "requests that meet the targets (1/s)"),
    "request_time": ("request_s", "mean time of a request, shorter is better (s)"),
}
"""What is drawn where ways are compared by a score: field of a run, words with unit."""

PAINT = {
    "none": ("#FFFFFF", ""),
    "fixed": ("#BBBBBB", ""),
    "table": ("#0072B2", ""),
    "default": ("#56B4E9", "///"),
    "idle": ("#FFFFFF", "..."),
}
"""Colour (Okabe and Ito 2008) and hatch by role."""


def outcomes_figure(answer: LoadAnswer) -> Figure:
    """Draw the ways to run the server, with standard errors, and say what was simulated.

    Parameters
    ----------
    answer
        From :func:`specsim.decide.adaptive.schedule_under_load`.
    """
    targets = "".join(f" Target: {target.label}." for target in answer.targets)
    times = f"{answer.repeats} time{'s' * (answer.repeats > 1)}"
    caption = (
        f"Profile {answer.profile}, {answer.schedule.engine} {answer.schedule.version}; simulated "
        f"{times} (seed {answer.seed}).{targets} Whiskers: one standard error; all see the same "
        "requests, so differences are surer than that."
    )
    figure, axes = new_figure(caption, (7.5, 1.6 + 0.42 * len(answer.outcomes)))
    plot_outcomes(axes, answer)
    return figure


def plot_outcomes(axes: Axes, answer: LoadAnswer) -> Axes:
    """Draw a bar per way to run the server, by what they are compared by.

    Parameters
    ----------
    axes
        Where.
    answer
        Outcomes of a changing load.
    """
    name, words = SHOWN[answer.score]
    ends = []
    for row, outcome in enumerate(answer.outcomes):
        colour, hatch = PAINT[outcome.contender.role]
        value, error = outcome.mean(name), outcome.error(name)
        error = 0.0 if math.isnan(error) else error
        axes.barh(
            row, value, 0.7, xerr=error or None, color=colour, hatch=hatch, edgecolor="black",
            linewidth=0.6, capsize=3,
        )  # fmt: skip
        axes.annotate(
            f"{value:.3g}" if value < 1000 else f"{value:.0f}", (value + error, row), (5, 0),
            textcoords="offset points", va="center", fontsize=8,
        )  # fmt: skip
        ends.append(value + error)
    best = answer.best_static
    labels = [
        f"{o.contender.name} (best fixed)" if o is best else o.contender.name
        for o in answer.outcomes
    ]
    frame(axes, answer.load, words, "", grid="x")
    axes.set_yticks(range(len(labels)), labels, fontsize="small")
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max(ends) if max(ends) > 0 else 1.0)
    axes.tick_params(axis="y", length=0)
    return axes
