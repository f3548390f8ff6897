"""Gain of the founding server's settings over no speculation, by load."""

from founding import LOADS, Rows, founding, save
from matplotlib.figure import Figure

from specsim.curve import Curve
from specsim.report.figure import new_figure
from specsim.report.plots_curve import caption, plot_speedup

HEADER = ("setting", "clients", "gain", "low", "high", "probability")


def curve() -> Curve:
    """Predict what runs today, and topk 2 on both schedulers."""
    return founding().predict(topk=2, num_steps=2, concurrency=LOADS, solver="analytic")


def rows() -> Rows:
    """Return the numbers of the figure."""
    return [
        (s.label, c.concurrency, c.gain, c.gain_low, c.gain_high, c.probability)
        for s in curve().series[1:]
        for c in s.points
    ]


def figure() -> Figure:
    """Draw it."""
    shown = curve()
    result, axes = new_figure(caption(shown))
    plot_speedup(axes, shown)
    return result


if __name__ == "__main__":
    save(__file__, HEADER, rows(), figure())
