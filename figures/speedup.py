"""Gain of the founding server's settings over no speculation, by load."""

from founding import LOADS, Rows, founding, save
from matplotlib.figure import Figure

from specsim.curve import Curve
from specsim.report import figure as fig
from specsim.report import load_axis, series_labels
from specsim.report.plots_curve import caption

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
    """Draw the gain in per cent, with 90 % bands; no speculation is the zero line."""
    shown = curve()
    result, axes = fig.new_figure(caption(shown))
    axis = load_axis(shown)
    axes.axhline(0.0, color="black", linewidth=1.2)
    for i, (label, series) in enumerate(zip(series_labels(shown), shown.series, strict=True)):
        if series.role != "baseline":
            rows = [(p.gain, p.gain_low, p.gain_high) for p in series.points]
            gain, low, high = ([100 * x for x in column] for column in zip(*rows, strict=True))
            fig.draw_line(axes, axis.values, gain, fig.Style.of(i), label, (low, high))
    fig.frame(axes, shown.profile, axis.label, "tokens/s against no speculation (%)")
    fig.load_ticks(axes, axis.values)
    fig.legend(axes)
    return result


if __name__ == "__main__":
    save(__file__, HEADER, rows(), figure())
