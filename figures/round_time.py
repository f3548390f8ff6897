"""Where the time of a round goes, at one client and at thirty."""

from typing import Any

from founding import Rows, founding, founding_plans, save
from matplotlib.figure import Figure

from specsim.analytic import Solution
from specsim.report import figure as fig
from specsim.report.plots import PARTS, parts_of, rounds_at

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
    """Stack where the time of each round goes, with its length and its price per token."""
    caption = fig.profile_caption(founding(), "Closed form, 30 clients.")
    result, axes = fig.new_figure(caption, (9.5, 5.0))
    solved, names = rounds(30), list(founding_plans())
    places, ms = range(len(names)), 1e3 * parts_of(solved)
    tops, emitted = ms.cumsum(axis=1), solved.accept_length * solved.batch_size
    for column, (words, colour, hatch) in enumerate(PARTS.values()):
        height = ms[:, column]
        if height.max() > 0:
            looks: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "black"}
            bottom = tops[:, column] - height
            axes.bar(places, height, 0.6, bottom, linewidth=0.5, label=words, **looks)
    for place, top, tokens in zip(places, tops[:, -1], emitted, strict=True):
        text = f"{top:.1f} ms\n{tokens:.1f} tokens\n{top / tokens:.2f} ms/token"
        fig.note(axes, text, (place, top), (0, 3), ha="center")
    fig.frame(axes, "One round at 30 clients", "", "one round of the batch (ms)", grid="y")
    axes.set_xticks(places, [name.replace(", ", "\n") for name in names], fontsize="small")
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_ylim(0, 1.22 * float(tops.max()))
    # the legend from top to bottom, as the stack
    fig.legend(axes, reverse=True, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return result


if __name__ == "__main__":
    save(__file__, HEADER, rows(), figure())
