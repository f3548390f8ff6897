"""``specsim predict``: what a setting would do, over load, and whether it is worth a GPU hour."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specsim.cli import options as opt

if TYPE_CHECKING:
    from specsim.curve import Curve
    from specsim.profile import Profile
    from specsim.setting import Algorithm

WIDTH = 100
"""Columns when piped and COLUMNS is not set."""


def predict_command(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[S,K,N|FILE]...", help="Settings, or JSON files of settings."),
    ] = None,
    profile: opt.ProfileOption = None,
    topk: opt.TopkOption = None,
    steps: opt.StepsOption = None,
    draft_tokens: opt.DraftTokensOption = None,
    config_list: opt.ConfigListOption = None,
    settings_file: opt.SettingsOption = None,
    algorithm: opt.AlgorithmOption = None,
    scheduler: opt.SchedulerOption = "auto",
    engine: opt.EngineOption = None,
    engine_version: opt.EngineVersionOption = None,
    max_running_requests: opt.MaxRunningOption = None,
    concurrency: opt.ConcurrencyOption = None,
    request_rate: opt.RequestRateOption = None,
    input_len: opt.InputLenOption = None,
    output_len: opt.OutputLenOption = None,
    context_len: opt.ContextLenOption = None,
    dataset: opt.DatasetOption = None,
    temperature: opt.TemperatureOption = None,
    solver: opt.SolverOption = "simulate",
    what_if: opt.WhatIfOption = False,
    seed: opt.SeedOption = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print specsim.curve/1 only.")] = False,
    csv: Annotated[
        str | None, typer.Option("--csv", metavar="FILE", help="Write the rows; - is stdout.")
    ] = None,
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="FILE", help="Draw to .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Say what a speculation setting would do to throughput, and whether it is worth a GPU hour.

    Shows no speculation, what runs today and the asked settings over load, with 90 % intervals.

    Example: specsim predict --topk 2 --steps 2
    """
    from dataclasses import replace

    from specsim.cli.progress import progress_bar
    from specsim.cli.settings import Defaults, asked_settings
    from specsim.predict import CONCURRENCY, Question, predict
    from specsim.profile import load_profile
    from specsim.profile.other_engine import parse_engine, under_engine
    from specsim.setting import parse_algorithm

    _check_outputs(as_json, csv, plot)
    _check_loads(concurrency, request_rate, context_len, input_len, output_len, seed)
    chosen_solver = opt.parse_solver(solver)
    loaded, notes = load_profile(profile), ()
    if engine is not None:
        loaded, notes = under_engine(loaded, parse_engine(engine), engine_version)
    asked = asked_settings(
        Defaults(
            parse_algorithm(algorithm) if algorithm else default_algorithm(loaded),
            opt.parse_scheduler(scheduler),
        ),
        (topk, steps, draft_tokens),
        config_list or [],
        settings or [],
        settings_file or [],
    )
    question = Question(
        settings=asked.settings,
        concurrency=CONCURRENCY if concurrency is None else opt.parse_concurrency(concurrency),
        request_rate=request_rate,
        input_len=input_len,
        output_len=output_len,
        context_len=context_len,
        engine_version=engine_version,
        max_running_requests=max_running_requests,
        dataset=dataset,
        temperature=temperature,
        what_if=what_if,
    )
    with progress_bar("simulating") as advance:
        curve = predict(loaded, question, solver=chosen_solver, seed=seed, progress=advance)
    curve = replace(curve, notes=(*notes, *asked.notes, *curve.notes))
    _emit(curve, request_rate, as_json, csv, plot, nothing_asked=not asked.settings)
