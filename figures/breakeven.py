"""Break-even map of topk 2: gain over no speculation, by accept length and load."""

from founding import LOADS, Rows, founding, founding_plans, save
from matplotlib.figure import Figure

from specsim.decide.breakeven import GainMap, gain_map
from specsim.question import Question
from specsim.report.figure import new_figure, profile_caption
from specsim.report.plots import plot_gain_map

HEADER = ("clients", "accept_length", "gain")


def gains(rows: int = 25) -> GainMap:
    """Solve topk 2 for drafters from useless to perfect."""
    plan = founding_plans()["topk=2, v1"]
    return gain_map(founding(), plan, Question(concurrency=LOADS), rows)


def rows() -> Rows:
    """Return the numbers of the figure."""
    solved = gains(rows=5)
    return [
        (clients, float(length), float(solved.gain[i, j]))
        for i, length in enumerate(solved.accept_length)
        for j, clients in enumerate(solved.concurrency)
    ]


def figure() -> Figure:
    """Draw it."""
    note = "Closed form. Shaded: slower than no speculation; darker: by more than a fifth."
    result, axes = new_figure(profile_caption(founding(), note))
    plot_gain_map(axes, gains())
    return result


if __name__ == "__main__":
    save(__file__, HEADER, rows(), figure())
