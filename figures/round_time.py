"""Where the time of a round goes, at one client and at thirty."""

from founding import Rows, founding, founding_plans, save
from matplotlib.figure import Figure

from specsim.report.figure import new_figure, profile_caption
from specsim.report.plots_round import PARTS, RoundParts, plot_round_parts, round_parts

HEADER = ("setting", "clients", "part", "ms")
CLIENTS = (1, 30)


def parts(clients: int) -> RoundParts:
    """Solve the founding settings at one load."""
    return round_parts(founding(), list(founding_plans().values()), clients)


def rows() -> Rows:
    """Return the numbers of the figure."""
    return [
        (name, clients, part, 1e3 * float(seconds))
        for clients in CLIENTS
        for name, row in zip(founding_plans(), parts(clients).seconds, strict=True)
        for part, seconds in zip(PARTS, row, strict=True)
    ]


def figure() -> Figure:
    """Draw it."""
    result, axes = new_figure(profile_caption(founding(), "Closed form, 30 clients."), (9.5, 5.0))
    plot_round_parts(axes, parts(30), list(founding_plans()), "One round at 30 clients")
    return result


if __name__ == "__main__":
    save(__file__, HEADER, rows(), figure())
