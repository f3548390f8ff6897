"""``specsim validate``: predictions beside measurements."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specsim.cli import output
from specsim.cli.options import Measured, command

if TYPE_CHECKING:
    from specsim.calibrate.validate import LeaveOut, ValidatedRow, Validation
    from specsim.profile import Profile

WIDTH = 110

UNITS = {"output_tps": 1.0, "tpot_s": 1e3, "round_time_s": 1e3}
"""What a quantity is multiplied with to be shown: tokens/s, and milliseconds."""


@dataclass(frozen=True)
class Options:
    """The measured cells, and how they are compared."""

    observations: str
    leave_out: LeaveOut | None
    plot: str | None
    as_json: bool


@command("validate", Measured, Options)
def validate_command(server: Measured, how: Options) -> None:
    """Compare a profile with measured cells: error, interval, coverage, sign of the gain.

    Example: specsim validate calibration/kimi-k2.6-8x-rtx-pro-6000/observations.csv
    --profile kimi-k2.6-8x-rtx-pro-6000 --leave-out concurrency
    """
    from specsim.calibrate.validate import validate
    from specsim.observations import read_observations
    from specsim.profile import load_profile

    left_out = how.leave_out
    profile = load_profile(server.profile)
    cells = read_observations(how.observations)
    with output.progress_bar("fitting") as advance:
        result = validate(profile, cells.rows, left_out, advance)
    result = replace(result, notes=(*cells.notes, *result.notes))
    if how.plot is not None:
        held_out = [f"Each {left_out} is predicted from a fit without it."] if left_out else []
        draw_residuals(how.plot, profile, result, *held_out)
    if how.as_json:
        sys.stdout.write(result.to_json())
        return
    _show(result)


def draw_residuals(plot: str, profile: Profile, validation: Validation, *notes: str) -> None:
    """Draw the error of each measured cell with its interval."""
    from specsim.report.figure import new_figure, profile_caption
    from specsim.report.plots import plot_residuals

    figure, axes = new_figure(profile_caption(profile, *notes, "Bars: central 90 %."))
    plot_residuals(axes, validation)
    output.write_plot(plot, figure)


def _number(row: ValidatedRow, value: float) -> str:
    return f"{UNITS[row.quantity] * value:.1f}"


def _show(result: Validation) -> None:
    from specsim.observations import cell_name

    out = output.console(WIDTH)
    columns: output.Columns[ValidatedRow] = (
        ("cell", lambda row: cell_name(row.observation)),
        ("measured", lambda row: _number(row, row.measured)),
        ("predicted", lambda row: _number(row, row.predicted)),
        ("90 % interval", lambda row: f"{_number(row, row.low)} .. {_number(row, row.high)}"),
        ("error", lambda row: f"{row.error:+.1%}"),
        ("inside", lambda row: "yes" if row.inside else "no"),
    )
    out.print(output.table(columns, result.rows))
    worst = result.rows[result.worst]
    sign = result.sign_accuracy
    summary = (
        f"mean absolute error {result.mape:.1%}, median {result.median_ape:.1%}, worst "
        f"{worst.error:+.1%} ({cell_name(worst.observation)}); {result.coverage:.0%} of "
        f"{len(result.rows)} cells inside their 90 % interval; sign of speculation's gain right "
        + ("in no cell to judge by" if sign is None else f"in {sign:.0%}")
    )
    output.print_sentences(out, (summary, *(f"note: {note}" for note in result.notes)))
