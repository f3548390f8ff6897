"""specsim validate: predictions beside measurements."""

from __future__ import annotations

from typing import Annotated

import typer

from specsim.cli import options as opt
from specsim.cli import picture as pic


def validate_command(
    observations: Annotated[str, typer.Argument(help="observations.csv: measured cells.")],
    profile: opt.ProfileOption = None,
    leave_out: Annotated[
        str | None,
        typer.Option("--leave-out", help="setting | concurrency: refit without each in turn."),
    ] = None,
    plot: pic.PlotOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print specsim.validation/1.")] = False,
) -> None:
    """Compare a profile with measured cells: error, interval, coverage, sign of the gain.

    Example: specsim validate calibration/kimi-k2.6-8x-rtx-pro-6000/observations.csv
    --profile kimi-k2.6-8x-rtx-pro-6000 --leave-out concurrency
    """
    import sys

    from specsim.calibrate.validate import validate
    from specsim.cli.progress import progress_bar
    from specsim.errors import InputError
    from specsim.observations import read_observations
    from specsim.profile import load_profile

    pic.check_plot(plot)
    if leave_out is not None and leave_out not in ("setting", "concurrency"):
        raise InputError(
            f"--leave-out {leave_out}", "is neither setting nor concurrency", "use one of the two"
        )
    loaded = load_profile(profile)
    rows = read_observations(observations)
    with progress_bar("fitting") as advance:
        result = validate(
            loaded,
            rows.rows,
            "setting" if leave_out == "setting" else "concurrency" if leave_out else None,
            advance,
        )
    if plot is not None:
        held_out = [f"Each {leave_out} is predicted from a fit without it."] if leave_out else []
        pic.draw_residuals(plot, loaded, result, *held_out)
    if as_json:
        sys.stdout.write(result.to_json())
        return
    from specsim.calibrate.report import cell_name
    from specsim.cli.console import console, table

    grid = table("cell", "measured", "predicted", "90 % interval", "error", "inside")
    units = {"output_tps": 1.0, "tpot_s": 1e3, "round_time_s": 1e3}
    for row in result.rows:
        scale = units[row.quantity]
        grid.add_row(
            cell_name(row.observation),
            f"{row.measured * scale:.1f}",
            f"{row.predicted * scale:.1f}",
            f"{row.low * scale:.1f} .. {row.high * scale:.1f}",
            f"{row.error:+.1%}",
            "yes" if row.inside else "no",
        )
    out = console()
    out.print(grid)
    worst = result.rows[result.worst]
    sign = result.sign_accuracy
    out.print(
        f"mean absolute error {result.mape:.1%}, median {result.median_ape:.1%}, worst "
        f"{worst.error:+.1%} ({cell_name(worst.observation)}); {result.coverage:.0%} of "
        f"{len(result.rows)} cells inside their 90 % interval; sign of speculation's gain right "
        + ("in no cell to judge by" if sign is None else f"in {sign:.0%}")
    )
    for note in (*rows.notes, *result.notes):
        out.print(f"note: {note}")
