"""specsim calibrate: measurements to a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from specsim.cli import picture as pic

if TYPE_CHECKING:
    from specsim.calibrate.bootstrap import Bootstrap
    from specsim.calibrate.fit import FitResult


def calibrate_command(
    sources: Annotated[
        list[str],
        typer.Argument(help="A folder with setup.toml and observations.csv; or logs, traces, ..."),
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="profile.toml to write.")],
    name: Annotated[str | None, typer.Option("--name", help="Name of the profile.")] = None,
    setup: Annotated[
        str | None, typer.Option("--setup", help="setup.toml, instead of the logs' own words.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Library id, or path of a config.json.")
    ] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="Library id of the GPU.")] = None,
    gpu_count: Annotated[int | None, typer.Option("--gpu-count", help="GPUs.")] = None,
    tp: Annotated[int | None, typer.Option("--tp", help="Tensor-parallel ranks.")] = None,
    link: Annotated[str | None, typer.Option("--link", help="Library id of the link.")] = None,
    allreduce: Annotated[
        str | None, typer.Option("--allreduce", help="nccl, custom, fused or symmetric.")
    ] = None,
    quantisation: Annotated[
        str | None, typer.Option("--quantisation", help="Weight format, e.g. fp8.")
    ] = None,
    draft: Annotated[str | None, typer.Option("--draft", help="Library id of the drafter.")] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", help="sglang, vllm, tensorrt-llm, llama.cpp.")
    ] = None,
    engine_version: Annotated[
        str | None, typer.Option("--engine-version", help="E.g. 0.5.9.")
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", help="EAGLE3, MTP, ... of the speculating logs.")
    ] = None,
    topk: Annotated[int | None, typer.Option("--topk", help="Of the speculating logs.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Of the speculating logs.")] = None,
    draft_tokens: Annotated[
        int | None, typer.Option("--draft-tokens", help="Of the speculating logs, root included.")
    ] = None,
    input_len: Annotated[
        float | None, typer.Option("--input-len", "--isl", help="Mean prompt tokens.")
    ] = None,
    output_len: Annotated[
        float | None, typer.Option("--output-len", "--osl", help="Mean output tokens.")
    ] = None,
    observations_out: Annotated[
        str | None,
        typer.Option("--observations", help="Write what was read as observations.csv too."),
    ] = None,
    report: Annotated[
        str | None, typer.Option("--report", help="Write the report as Markdown too.")
    ] = None,
    plot: pic.PlotOption = None,
    draws: Annotated[
        int | None,
        typer.Option(
            "--bootstrap",
            min=2,
            help="Check the stated errors against fits to this many draws of the runs, e.g. 50.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the fit as JSON.")] = False,
) -> None:
    """Fit a profile of your own server from its logs, or from a calibration folder.

    Examples: specsim calibrate server.log --model kimi-k2.5 --gpu rtx-pro-6000 --tp 8 -o my.toml;
    specsim calibrate calibration/kimi-k2.5-int4-8x-rtx-pro-6000 -o profile.toml
    """
    import sys
    from pathlib import Path

    from specsim.calibrate.fit import fit_profile
    from specsim.calibrate.log_setup import Stated
    from specsim.calibrate.report import markdown
    from specsim.calibrate.sources import read_sources
    from specsim.cli.console import status
    from specsim.observations import write_observations
    from specsim.profile import save_profile
    from specsim.textfile import write_text

    pic.check_plot(plot)
    stated = Stated(
        model=model,
        gpu=gpu,
        link=link,
        draft=draft,
        engine=engine,
        engine_version=engine_version,
        gpu_count=gpu_count,
        tp=tp,
        algorithm=algorithm,
        topk=topk,
        num_steps=steps,
        num_draft_tokens=draft_tokens,
        input_len=input_len,
        output_len=output_len,
        quantisation=quantisation,
        allreduce=allreduce,
    )
    with status("reading"):
        found = read_sources(sources, stated, setup)
    with status("fitting"):
        result = fit_profile(found.setup, found.observations, name or found.name)
    if plot is not None:
        _draw(result, plot)
    save_profile(result.profile, output)
    if report is not None:
        write_text(Path(report), markdown(result))
    if observations_out is not None:
        write_observations(observations_out, found.observations)
    check = None if draws is None else _bootstrap(result, draws)
    if as_json:
        sys.stdout.write(_as_json(result, check))
        return
    _show(result, found.notes)
    if check is not None:
        _show_bootstrap(check)
    from specsim.cli.console import console

    console().print(f"wrote {output}")


def _draw(result: FitResult, plot: str) -> None:
    """Draw the errors of the cells that were fitted."""
    from specsim.calibrate.validate import validate

    seen = validate(result.profile, result.observations)
    pic.draw_residuals(plot, result.profile, seen, "The fit has seen all of these cells.")


def _show(result: FitResult, notes: tuple[str, ...]) -> None:
    """Print parameters, cells and warnings."""
    import math

    from specsim.calibrate.report import cell_name, correction_described, described, warnings
    from specsim.cli.console import console, table

    out = console()
    grid = table("parameter", "value (90 %)", "prior (90 %)", "driven by")
    for parameter in result.profile.parameters:
        if parameter.fitted and not parameter.name.startswith("correction_"):
            grid.add_row(*described(parameter)[:4])
    if (smooth := correction_described(result.profile)) is not None:
        grid.add_row(*smooth)
    out.print(grid)
    cells = table("cell", "model / measured - 1")
    for observation, error in zip(result.observations, result.log_error.tolist(), strict=True):
        if not math.isnan(error):  # rows with an accept length only have no error of their own
            cells.add_row(cell_name(observation), f"{math.expm1(error):+.1%}")
    out.print(cells)
    for line in (*warnings(result), *notes):
        out.print(f"note: {line}")


def _bootstrap(result: FitResult, draws: int) -> Bootstrap:
    """Fit draws of the runs, with a fixed seed."""
    import numpy as np

    from specsim.calibrate.bootstrap import bootstrap
    from specsim.cli.console import status

    with status("bootstrap"):
        rng = np.random.default_rng(0)
        return bootstrap(result.profile.setup, result.observations, draws, rng, result)


def _show_bootstrap(check: Bootstrap) -> None:
    """Print bootstrap error over stated error of each fitted parameter."""
    from specsim.cli.console import console, table

    unit = "runs" if check.by_run else "rows"
    grid = table("parameter", f"error over {check.draws} draws of {unit} / stated error")
    for name, ratio in zip(check.names, check.ratio.tolist(), strict=True):
        grid.add_row(name, f"{ratio:.2f}")
    console().print(grid)


def _as_json(result: FitResult, check: Bootstrap | None = None) -> str:
    """Parameters, noise and residuals as JSON."""
    import json
    import math

    from specsim.calibrate.report import cell_name, warnings

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
                        "interval": p.stated,
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
                **(
                    {}
                    if check is None
                    else {
                        "bootstrap": {
                            "draws": check.draws,
                            "by": "run" if check.by_run else "row",
                            "ratio": dict(zip(check.names, check.ratio.tolist(), strict=True)),
                        }
                    }
                ),
            },
            indent=2,
        )
        + "\n"
    )
