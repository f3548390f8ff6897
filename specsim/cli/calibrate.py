"""``specsim calibrate``: measurements to a profile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output

if TYPE_CHECKING:
    from specsim.calibrate.bootstrap import Bootstrap
    from specsim.calibrate.fit import FitResult

SCHEMA = "specsim.fit/1"
WIDTH = 110
EXACT = 17  # significant digits that give back every float

PARAMETER_KEYS = {
    **{name: name for name in ("name", "value", "sd")},
    "interval": "stated",
    **{name: name for name in ("scale", "prior_median", "prior_sd", "fitted", "driven")},
}
"""Keys of a parameter in specsim.fit/1, and the attributes that they hold."""


@dataclass(frozen=True)
class Options(opt.Lengths):
    """What is measured, and what to write."""

    sources: tuple[str, ...]
    target: str
    name: str | None
    observations: str | None
    report: str | None
    plot: str | None
    draws: int | None
    as_json: bool


@opt.command("calibrate", opt.Described, opt.Drafting, Options)
def calibrate_command(server: opt.Described, drafting: opt.Drafting, how: Options) -> None:
    """Fit a profile of your own server from its logs, or from a calibration folder.

    A SOURCE is a folder with setup.toml and observations.csv, a log, benchmark result or trace, or
    the URL of a running server.
    The options say what the logs do not: the server, and the setting of those that speculate.

    Example: specsim calibrate server.log --model kimi-k2.5 --gpu rtx-pro-6000 --tp 8 -o my.toml

    Example: specsim calibrate calibration/kimi-k2.5-int4-8x-rtx-pro-6000 -o profile.toml
    """
    from pathlib import Path

    from specsim.calibrate.fit import fit_profile
    from specsim.calibrate.log_setup import Stated
    from specsim.calibrate.report import markdown
    from specsim.calibrate.sources import read_sources
    from specsim.observations import write_observations
    from specsim.profile import save_profile
    from specsim.textfile import write_text

    said = opt.filled(Stated, server, drafting, how)
    with output.status("reading"):
        found = read_sources(how.sources, said, server.setup)
    with output.status("fitting"):
        result = fit_profile(found.setup, found.observations, how.name or found.name)
    if how.plot is not None:
        from specsim.calibrate.validate import validate
        from specsim.cli.validate import draw_residuals

        seen = validate(result.profile, result.observations)
        draw_residuals(how.plot, result.profile, seen, "The fit has seen all of these cells.")
    save_profile(result.profile, how.target)
    if how.report is not None:
        write_text(Path(how.report), markdown(result))
    if how.observations is not None:
        write_observations(how.observations, found.observations)
    check = None if how.draws is None else _bootstrap(result, how.draws)
    if how.as_json:
        output.print_document(SCHEMA, _document(result, check, found.notes), digits=EXACT)
        return
    _show(result, found.notes)
    if check is not None:
        _show_bootstrap(check)
    output.console().print(f"wrote {how.target}")


def _show(result: FitResult, notes: tuple[str, ...]) -> None:
    from specsim.calibrate.report import corrections_described, described, warnings
    from specsim.observations import cell_name

    out = output.console(WIDTH)
    output.print_sentences(out, (f"note: {line}" for line in warnings(result)))
    fitted = [
        described(parameter)[:4]
        for parameter in result.profile.parameters
        if parameter.fitted and not parameter.name.startswith("correction_")
    ]
    rows = [*fitted, *corrections_described(result.profile)]
    headings = ("parameter", "value (90 %)", "prior (90 %)", "driven by")
    out.print(output.table(output.headed(*headings), rows))
    cells = [
        (cell_name(observation), f"{math.expm1(error):+.1%}")
        for observation, error in zip(result.observations, result.log_error.tolist(), strict=True)
        if not math.isnan(error)  # rows with an accept length only have no error of their own
    ]
    out.print(output.table(output.headed("cell", "model / measured - 1"), cells))
    output.print_sentences(out, (f"note: {line}" for line in notes))


def _bootstrap(result: FitResult, draws: int) -> Bootstrap:
    """Fit draws of the runs, with a fixed seed."""
    import numpy as np

    from specsim.calibrate.bootstrap import bootstrap

    with output.status("bootstrap"):
        rng = np.random.default_rng(0)
        return bootstrap(result.profile.setup, result.observations, draws, rng, result)


def _show_bootstrap(check: Bootstrap) -> None:
    unit = "runs" if check.by_run else "rows"
    ratios = zip(check.names, check.ratio.tolist(), strict=True)
    heading = f"error over {check.draws} draws of {unit} / stated error"
    rows = [(name, f"{ratio:.2f}") for name, ratio in ratios]
    output.console().print(output.table(output.headed("parameter", heading), rows))


def _document(
    result: FitResult, check: Bootstrap | None, notes: tuple[str, ...]
) -> dict[str, object]:
    """Return parameters, noise, residuals, and what is to be said of them."""
    from specsim.calibrate.report import warnings
    from specsim.observations import cell_name

    profile = result.profile
    content: dict[str, object] = {
        "profile": profile.name,
        "observations": profile.fit.observations,
        "noise": profile.fit.noise,
        "model_error": profile.fit.model_error,
        "parameters": [
            {key: getattr(p, name) for key, name in PARAMETER_KEYS.items()}
            for p in profile.parameters
        ],
        "cells": [
            {"cell": cell_name(o), "error": math.expm1(error)}
            for o, error in zip(result.observations, result.log_error.tolist(), strict=True)
        ],
        "warnings": [*warnings(result), *notes],
    }
    if check is not None:
        content["bootstrap"] = {
            "draws": check.draws,
            "by": "run" if check.by_run else "row",
            "ratio": dict(zip(check.names, check.ratio.tolist(), strict=True)),
        }
    return content
