"""Plots of loads that change: ways to run a server side by side."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from specsim.decide.adaptive import LoadAnswer, Score
from specsim.report import figure as fig

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN: dict[Score, tuple[str, str]] = {
    "throughput": ("output_tps", "output (tokens/s, all requests together)"),
    "goodput": ("goodput_rps", "requests that meet the targets (1/s)"),
    "request_time": ("request_time_s", "mean time of a request, shorter is better (s)"),
}
"""What is drawn where ways are compared by a score: field of a run, words with unit."""

PAINT = {
    "none": ("#FFFFFF", ""),
    "fixed": ("#BBBBBB", ""),
    "table": (fig.BLUE, ""),
    "default": (fig.SKY, "///"),
    "given": ("#CC79A7", "xx"),
    "idle": ("#FFFFFF", "..."),
}
"""Colour and hatch by role."""


def outcomes_figure(answer: LoadAnswer) -> Figure:
    """Draw the ways to run the server, with standard errors, and say what was simulated."""
    targets = "".join(f" Target: {target.label}." for target in answer.targets)
    times = f"{answer.repeats} time{'s' * (answer.repeats > 1)}"
    caption = (
        f"Profile {answer.profile}, {answer.engine} {answer.engine_version}; simulated "
        f"{times} (seed {answer.seed}).{targets} Whiskers: one standard error; all see the same "
        "requests, so differences are surer than that."
    )
    figure, axes = fig.new_figure(caption, (7.5, 1.6 + 0.42 * len(answer.outcomes)))
    plot_outcomes(axes, answer)
    return figure


def plot_outcomes(axes: Axes, answer: LoadAnswer) -> Axes:
    """Draw a bar per way to run the server, by what they are compared by."""
    name, words = SHOWN[answer.score]
    ends, labels = [], []
    for row, outcome in enumerate(answer.outcomes):
        colour, hatch = PAINT[outcome.role]
        value, error = getattr(outcome, name), outcome.error(name)
        error = 0.0 if math.isnan(error) else error
        looks: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "black"}
        axes.barh(row, value, 0.7, xerr=error or None, linewidth=0.6, capsize=3, **looks)
        text = f"{value:.3g}" if value < 1000 else f"{value:.0f}"
        fig.note(axes, text, (value + error, row), (5, 0), va="center")
        ends.append(value + error)
        labels.append(outcome.name + " (best fixed)" * (outcome.name == answer.best_static))
    fig.frame(axes, answer.load, words, "", grid="x")
    fig.name_rows(axes, labels, fontsize="small")
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max(ends) if max(ends) > 0 else 1.0)
    return axes
