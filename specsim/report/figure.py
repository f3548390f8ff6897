"""What all pictures share: frame, palette, lines, labels, legend, caption, and the file."""

from __future__ import annotations

import io
import math
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from specsim.profile import Profile

DPI = 160
SIZE_INCHES = (7.5, 5.0)
CAPTION_COLUMNS = 125  # of a caption below a figure of that width
TICK_GAP = 0.045  # loads nearer to each other than this share of the axis are not both labelled
BACKING = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.9}  # of words on lines
BLACK, BLUE, VERMILION, SKY = "#000000", "#0072B2", "#D55E00", "#56B4E9"
PURPLE, GREEN, ORANGE, YELLOW = "#CC79A7", "#009E73", "#E69F00", "#F0E442"
"""Colours that the colour-blind tell apart (Okabe and Ito 2008)."""


class Style(NamedTuple):
    """How a series is drawn; each of the three alone tells it from the others."""

    colour: str
    line: str | tuple[int, tuple[int, ...]]
    marker: str

    @classmethod
    def of(cls, index: int) -> Style:
        """Return the style of a series by its place."""
        return STYLES[index % len(STYLES)]


STYLES = (
    Style(BLACK, "-", "o"),
    Style(BLUE, "--", "s"),
    Style(VERMILION, "-.", "^"),
    Style(SKY, ":", "D"),
    Style(PURPLE, (0, (5, 1, 1, 1, 1, 1)), "v"),
    Style(GREEN, (0, (1, 1)), "P"),
    Style(ORANGE, (0, (7, 2)), "X"),
)


def new_figure(caption: str, size: tuple[float, float] = SIZE_INCHES) -> tuple[Figure, Axes]:
    """Return a figure with one Axes and a caption below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    columns = int(CAPTION_COLUMNS * size[0] / SIZE_INCHES[0])
    put_caption(figure, "\n".join(fill(line, columns) for line in caption.splitlines()))
    return figure, axes


def put_caption(figure: Figure, words: str) -> None:
    """Write below a figure what it rests on."""
    figure.supxlabel(words, fontsize="x-small", x=0.01, ha="left")


def profile_caption(profile: Profile, *more: str) -> str:
    """Name the profile and its evidence, then what else a reader must know."""
    first = f"Profile {profile.name}, weakest evidence: {profile.evidence}."
    return " ".join([first, *more])


def frame(
    axes: Axes,
    title: str,
    xlabel: str,
    ylabel: str,
    grid: Literal["both", "x", "y", "none"] = "both",
) -> Axes:
    """Name axes with their units, and take away what says nothing."""
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    if grid != "none":
        axes.grid(True, axis=grid, color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def draw_line(
    axes: Axes,
    x: Sequence[float],
    y: Sequence[float],
    style: Style,
    label: str,
    band: tuple[Sequence[float], Sequence[float]] | None = None,
) -> None:
    """Draw a line with a marker at every point, over its band if it has one."""
    colour, line, marker = style
    if band is not None:
        axes.fill_between(x, *band, color=colour, alpha=0.12, linewidth=0)
        for edge in band:
            axes.plot(x, edge, color=colour, linestyle=line, linewidth=0.6)
    axes.plot(x, y, color=colour, linestyle=line, marker=marker, markersize=4, label=label)


def note(
    axes: Axes, words: str, place: tuple[float, float], offset: tuple[float, float], **looks: Any
) -> None:
    """Write small words some points beside a place."""
    axes.annotate(words, place, offset, textcoords="offset points", fontsize=8, **looks)


def legend(axes: Axes, **place: Any) -> None:
    """Explain the labelled artists, if there are any."""
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize="small", **place)


def load_ticks(axes: Axes, loads: Sequence[float], logarithmic: bool = True) -> None:
    """Put the loads themselves as ticks, no two too near each other."""
    from matplotlib.ticker import NullLocator

    if logarithmic:
        axes.set_xscale("log")
    places = [math.log(load) if logarithmic else load for load in loads]
    shown, last = [], -math.inf
    for load, place in zip(loads, places, strict=True):
        if place - last >= TICK_GAP * (places[-1] - places[0]):
            shown.append(load)
            last = place
    axes.set_xticks(shown, [f"{load:g}" for load in shown])
    axes.xaxis.set_minor_locator(NullLocator())


def name_rows(axes: Axes, names: Sequence[str], **looks: Any) -> None:
    """Name the rows of a plot whose vertical axis only lists them."""
    axes.set_yticks(range(len(names)), names, **looks)
    axes.tick_params(axis="y", length=0)


def drawn(figure: Figure, file_format: str) -> bytes:
    """Return the file of a figure; equal figures give equal bytes."""
    import matplotlib as mpl

    stamp = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    target = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "specsim", "savefig.dpi": DPI}):
        figure.savefig(target, format=file_format, metadata=stamp[file_format])
    return target.getvalue()
