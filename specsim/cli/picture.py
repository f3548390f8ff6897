"""``--plot FILE`` of the commands that have a picture: the option, its check, the writing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from specsim.calibrate.validate import Validation
    from specsim.profile import Profile

PlotOption = Annotated[
    str | None, typer.Option("--plot", metavar="FILE", help="Draw to .png, .svg or .pdf.")
]


def check_plot(plot: str | None) -> None:
    """Refuse a picture that cannot be drawn or written, before anything is computed.

    Raises
    ------
    InputError
        If the name has no format, or no file can have it.
    """
    if plot is not None:
        from specsim.report.figure import plot_format

        plot_format(plot)
        check_file("--plot", plot)


def check_file(flag: str, name: str) -> None:
    """Refuse the name of a file that cannot be written.

    Raises
    ------
    InputError
        If its folder does not exist, or it is a folder.
    """
    from specsim.errors import InputError

    path = Path(name)
    if not path.parent.is_dir():
        raise InputError(
            f"{flag} {name}", "is in a folder that does not exist", "make it, or choose another"
        )
    if path.is_dir():
        raise InputError(f"{flag} {name}", "is a directory", "give the name of a file")


def write_plot(plot: str, figure: Figure) -> None:
    """Write a figure in the format of the file's name, and say so on stderr."""
    import sys

    from specsim.profile import write_bytes
    from specsim.report.figure import drawn, plot_format

    write_bytes(Path(plot), drawn(figure, plot_format(plot)))
    sys.stderr.write(f"wrote {plot}\n")


def draw_residuals(plot: str, profile: Profile, validation: Validation, *notes: str) -> None:
    """Draw the error of each measured cell with its interval."""
    from specsim.report.figure import new_figure, profile_caption
    from specsim.report.plots_cost import plot_residuals

    figure, axes = new_figure(profile_caption(profile, *notes, "Bars: central 90 %."))
    plot_residuals(axes, validation)
    write_plot(plot, figure)
