"""Where the time of a round goes, at one client and at thirty."""

from founding import Rows, founding, founding_plans, save
from matplotlib.figure import Figure

from specsim.analytic import Solution
from specsim.report.figure import new_figure, profile_caption
from specsim.report.plots_round import PARTS, parts_of, plot_round_parts, rounds_at

HEADER = ("setting", "clients", "part", "ms")
CLIENTS = (1, 30)


def rounds(clients: int) -> Solution:
    """Solve the founding settings at one load."""
    return rounds_at(founding(), list(founding_plans().values()), clients)


def rows() -> Rows:
    """Return the numbers of the figure."""
    return [
        (name, clients, part, 1e3 * float(seconds))
        for clients in CLIENTS
        for name, row in zip(founding_plans(), parts_of(rounds(clients)), strict=True)
        for part, seconds in zip(PARTS, row, strict=True)
    ]


def figure() -> Figure:
    """Draw it."""
    result, axes = new_figure(profile_caption(founding(), "Closed form, 30 clients."), (9.5, 5.0))
    plot_round_parts(axes, rounds(30), list(founding_plans()), "One round at 30 clients")
    return result


if __name__ == "__main__":
    save(__file__, HEADER, rows(), figure())
