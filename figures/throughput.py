"""Throughput of the founding server over load, with intervals and what was measured."""

from founding import EVIDENCE, LOADS, Rows, founding, save
from matplotlib.figure import Figure

from specsim.curve import Curve
from specsim.observations import read_observations
from specsim.report.plots_curve import throughput_figure
from specsim.setting import SpecSetting

HEADER = ("setting", "scheduler", "clients", "output_tps", "low", "high")


def curve() -> Curve:
    """Chains and trees of two steps."""
    settings = (SpecSetting.of(2, 2), SpecSetting.of(4, 2, 16))
    return founding().predict(*settings, concurrency=LOADS, solver="analytic")


def rows() -> Rows:
    """Return the numbers of the figure."""
    return [
        (s.label, p.scheduler, p.concurrency, p.output_tps, p.output_tps_low, p.output_tps_high)
        for s in curve().series
        for p in s.points
    ]


def figure() -> Figure:
    """Draw it."""
    cells = read_observations(EVIDENCE / founding().name / "observations.csv")
    return throughput_figure(curve(), measured=cells.rows)


if __name__ == "__main__":
    save(__file__, HEADER, rows(), figure())
