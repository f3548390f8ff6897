"""What all plots share: a frame with a title, units and a caption below."""

from __future__ import annotations

import io
from pathlib import PurePath
from textwrap import fill
from typing import TYPE_CHECKING

from specsim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from specsim.profile import Profile

FORMATS = ("png", "svg", "pdf")

Style = tuple[str, str | tuple[int, tuple[int, ...]], str]

STYLES: tuple[Style, ...] = (
    ("#000000", "-", "o"),
    ("#0072B2", "--", "s"),
    ("#D55E00", "-.", "^"),
    ("#56B4E9", ":", "D"),
    ("#CC79A7", (0, (5, 1, 1, 1, 1, 1)), "v"),
    ("#009E73", (0, (1, 1)), "P"),
    ("#E69F00", (0, (7, 2)), "X"),
)
"""Colour (Okabe and Ito 2008, seven of eight), line and marker: each alone tells series apart."""

SIZE_INCHES = (7.5, 5.0)
CAPTION_COLUMNS = 125
DPI = 160


def new_figure(caption: str, size: tuple[float, float] = SIZE_INCHES) -> tuple[Figure, Axes]:
    """Return a figure with one Axes and a caption."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    columns = int(CAPTION_COLUMNS * size[0] / SIZE_INCHES[0])
    figure.supxlabel(fill(caption, columns), fontsize="x-small", x=0.01, ha="left")
    return figure, axes


def frame(axes: Axes, title: str, xlabel: str, ylabel: str, grid: str = "both") -> Axes:
    """Name axes with their units, and take away what says nothing."""
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    if grid != "none":
        axes.grid(True, axis=grid, color="0.9", linewidth=0.6)  # type: ignore[arg-type]
        axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def load_ticks(axes: Axes, loads: Sequence[float]) -> None:
    """Logarithmic loads with the loads themselves as ticks, no two too near each other."""
    import math

    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    span = math.log(loads[-1] / loads[0]) if len(loads) > 1 else 1.0
    shown: list[float] = []
    for load in loads:
        if not shown or math.log(load / shown[-1]) >= 0.045 * span:
            shown.append(load)
    axes.set_xticks(shown, [f"{load:g}" for load in shown])
    axes.xaxis.set_minor_locator(NullLocator())


def profile_caption(profile: Profile, *more: str) -> str:
    """Name the profile and its evidence, then what else a reader must know."""
    first = f"Profile {profile.name}, weakest evidence: {profile.evidence}."
    return " ".join([first, *more])


def plot_format(path: str) -> str:
    """Return the format that a file name asks for.

    Raises
    ------
    InputError
        If it is none of png, svg, pdf.
    """
    suffix = PurePath(path).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise InputError(
            f"plot {path}", "is no format that can be drawn", "end the name in .png, .svg or .pdf"
        )
    return suffix


def drawn(figure: Figure, file_format: str) -> bytes:
    """Return the file of a figure; equal figures give equal bytes."""
    import matplotlib as mpl

    stamp = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    target = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "specsim", "savefig.dpi": DPI}):
        figure.savefig(target, format=file_format, metadata=stamp[file_format])
    return target.getvalue()
