"""specsim calibrate: measurements to a profile."""

from __future__ import annotations

from typing import Annotated

import typer


def calibrate_command(
    sources: Annotated[
        list[str], typer.Argument(help="A directory with setup.toml and observations.csv.")
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="profile.toml to write.")],
    name: Annotated[str | None, typer.Option("--name", help="Name of the profile.")] = None,
    report: Annotated[
        str | None, typer.Option("--report", help="Write the report as Markdown too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the fit as JSON.")] = False,
) -> None:
    """Fit a profile of your own server.

    Example: specsim calibrate calibration/kimi-k2.5-int4-8x-rtx-pro-6000 -o profile.toml
    """
    import sys
    from pathlib import Path

    from specsim.calibrate.fit import fit_profile
    from specsim.calibrate.report import described, markdown, warnings
    from specsim.calibrate.sources import read_directory
    from specsim.cli.console import console, status, table
    from specsim.profile import save_profile, write_text

    setup, observations, notes, default_name = read_directory(sources)
    with status("fitting"):
        result = fit_profile(setup, observations, name or default_name)
    save_profile(result.profile, output)
    if report is not None:
        write_text(Path(report), markdown(result))
    if as_json:
        sys.stdout.write(_as_json(result))
        return
    out = console()
    grid = table("parameter", "value", "prior", "driven by")
    for parameter in result.profile.parameters:
        if parameter.fitted:
            grid.add_row(*described(parameter)[:4])
    out.print(grid)
    cells = table("cell", "error")
    from specsim.calibrate.report import cell_name

    for observation, error in zip(result.observations, result.log_error, strict=True):
        if error == error:  # rows with an accept length only have no error of their own
            cells.add_row(cell_name(observation), f"{error:+.1%}")
    out.print(cells)
    for line in (*warnings(result), *notes):
        out.print(f"note: {line}")
    out.print(f"wrote {output}")


def _as_json(result: object) -> str:
    """Parameters, noise and residuals as JSON."""
    import json
    import math

    from specsim.calibrate.fit import FitResult
    from specsim.calibrate.report import cell_name, warnings

    assert isinstance(result, FitResult)
    profile = result.profile
    return (
        json.dumps(
            {
                "schema": "specsim.fit/1",
                "profile": profile.name,
                "observations": profile.fit.observations,
                "noise": profile.fit.noise,
                "model_error": profile.fit.model_error,
                "parameters": [
                    {
                        "name": p.name,
                        "value": p.value,
                        "sd": p.sd,
                        "scale": p.scale,
                        "prior_median": p.prior_median,
                        "prior_sd": p.prior_sd,
                        "fitted": p.fitted,
                        "driven": p.driven,
                    }
                    for p in profile.parameters
                ],
                "cells": [
                    {"cell": cell_name(o), "error": None if math.isnan(e) else math.expm1(e)}
                    for o, e in zip(result.observations, result.log_error.tolist(), strict=True)
                ],
                "warnings": warnings(result),
            },
            indent=2,
        )
        + "\n"
    )
