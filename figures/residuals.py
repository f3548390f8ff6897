"""Errors of the shipped profiles on the cells that they were fitted to."""

from founding import EVIDENCE, Rows, save
from matplotlib.figure import Figure

from specsim.calibrate.report import cell_name
from specsim.calibrate.validate import Validation, validate
from specsim.observations import read_observations
from specsim.profile import load_profile
from specsim.report.figure import new_figure, profile_caption
from specsim.report.plots import plot_residuals

HEADER = ("cell", "measured", "predicted", "low", "high")
NAME = "kimi-k2.6-8x-rtx-pro-6000"


def validation() -> Validation:
    """Compare the profile with all its cells."""
    cells = read_observations(EVIDENCE / NAME / "observations.csv")
    return validate(load_profile(NAME), cells.rows)


def rows() -> Rows:
    """Return the numbers of the figure."""
    return [
        (cell_name(row.observation), row.measured, row.predicted, row.low, row.high)
        for row in validation().rows
    ]


def figure() -> Figure:
    """Draw it."""
    note = "All cells were fitted; bars are central 90 %."
    result, axes = new_figure(profile_caption(load_profile(NAME), note))
    plot_residuals(axes, validation())
    return result


if __name__ == "__main__":
    save(__file__, HEADER, rows(), figure())
