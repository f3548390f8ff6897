"""Rounds of topk 2 at thirty clients: the sequential beside the overlap scheduler."""

from founding import Rows, founding, save
from matplotlib.figure import Figure

from specsim.report.figure import profile_caption
from specsim.report.timeline import Timeline, timelines
from specsim.report.timeline_views import timeline_figure
from specsim.setting import SpecSetting

HEADER = ("timeline", "phase", "ms_per_round")


def shown() -> tuple[Timeline, ...]:
    """Simulate both with one seed."""
    return timelines(founding(), SpecSetting.of(2, 2), 30, rounds=3)


def rows() -> Rows:
    """Return the numbers of the figure."""
    return [(t.title, phase, ms) for t in shown() for phase, ms in t.mean_ms().items()]


def figure() -> Figure:
    """Draw it."""
    return timeline_figure(shown(), profile_caption(founding(), "Simulated, seed 0."))


if __name__ == "__main__":
    save(__file__, HEADER, rows(), figure())
