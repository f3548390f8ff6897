"""``specsim predict``: what a setting would do, over load, and whether it is worth a GPU hour."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specsim.cli import options as opt
from specsim.cli import picture as pic
from specsim.cli import unmeasured as un

if TYPE_CHECKING:
    from specsim.curve import Curve
    from specsim.observations import Observation
    from specsim.question import Question
    from specsim.setting import SpecSetting

WIDTH = 100
"""Columns when piped and COLUMNS is not set."""

MOST_SIMULATED = {"concurrency": 20_000, "request rate": 300, "output length": 100_000}
"""Beyond them a simulation takes minutes and gigabytes."""


def predict_command(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="S,K,N|FILE", help="Settings, or JSON files of settings."),
    ] = None,
    profile: opt.ProfileOption = None,
    model: un.ModelOption = None,
    gpu: un.GpuOption = None,
    tp: un.TpOption = None,
    link: un.LinkOption = None,
    quantisation: un.QuantisationOption = None,
    draft: un.DraftOption = None,
    setup: un.SetupOption = None,
    assume_accept_length: un.AcceptLengthOption = None,
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
    plot: pic.PlotOption = None,
    observations: Annotated[
        str | None,
        typer.Option("--observations", metavar="FILE", help="Measured cells to draw with --plot."),
    ] = None,
) -> None:
    """Say what a speculation setting would do to throughput, and whether it is worth a GPU hour.

    Shows no speculation, what runs today and the asked settings over load, with 90 % intervals.

    Example: specsim predict --topk 2 --steps 2
    """
    from dataclasses import replace

    from specsim.cli.progress import progress_bar
    from specsim.cli.settings import Defaults, asked_settings
    from specsim.errors import InputError
    from specsim.predict import predict
    from specsim.profile import load_profile
    from specsim.profile.other_engine import under_engine
    from specsim.question import CONCURRENCY, Question
    from specsim.setting import parse_algorithm

    _check_outputs(as_json, csv, plot, observations)
    _check_loads(concurrency, request_rate, context_len, (input_len, output_len), seed)
    chosen_solver = opt.parse_solver(solver)
    said = un.Unmeasured(
        model,
        gpu,
        tp,
        link,
        quantisation,
        draft,
        setup,
        assume_accept_length,
        algorithm,
        engine,
        engine_version,
    )
    un.refuse_stray(said)
    notes: tuple[str, ...] = ()
    if said.wanted:
        if profile is not None:
            raise InputError(
                f"--profile {profile}", "excludes --model and --setup", "choose one of them"
            )
        of = _setting_of(topk, steps, draft_tokens, algorithm)
        loaded, notes = un.unmeasured_profile(said, of)
    else:
        loaded = load_profile(profile)
    if engine is not None and not said.wanted:
        loaded, notes = under_engine(loaded, engine, engine_version)
    asked = asked_settings(
        Defaults(
            parse_algorithm(algorithm) if algorithm else loaded.default_algorithm,
            opt.parse_scheduler(scheduler),
        ),
        (topk, steps, draft_tokens),
        config_list or [],
        settings or [],
        settings_file or [],
    )
    if not asked.settings and (scheduler != "auto" or algorithm not in (None, "none")):
        raise InputError(
            f"--scheduler {scheduler}" if scheduler != "auto" else f"--algorithm {algorithm}",
            "is of a setting, and none is asked about",
            "add e.g. --topk 2 --steps 2",
        )
    cells = _measured(observations)
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
    if chosen_solver == "simulate":
        check_simulation(question)
    with progress_bar("simulating") as advance:
        curve = predict(loaded, question, solver=chosen_solver, seed=seed, progress=advance)
    curve = replace(curve, notes=(*notes, *asked.notes, *curve.notes))
    if plot is not None:
        _draw(curve, request_rate, plot, cells)
    _emit(curve, request_rate, as_json, csv, nothing_asked=not asked.settings)


def _setting_of(
    topk: int | None, steps: int | None, draft_tokens: int | None, algorithm: str | None
) -> SpecSetting | None:
    """Return the setting that a stated accept length belongs to."""
    from specsim.setting import SpecSetting, parse_algorithm

    if steps is None:
        return None
    name = parse_algorithm(algorithm) if algorithm else "EAGLE3"
    return SpecSetting.of(topk, steps, draft_tokens, name)


def _check_outputs(
    as_json: bool, csv: str | None, plot: str | None, observations: str | None
) -> None:
    """Refuse what cannot be written before anything is computed.

    Raises
    ------
    InputError
        If two outputs contradict each other, or a file cannot be written.
    """
    from specsim.errors import InputError

    if as_json and csv is not None:
        raise InputError("--json --csv", "exclude each other", "choose one")
    if observations is not None and plot is None:
        raise InputError(
            f"--observations {observations}", "is drawn, and no picture is asked for", "add --plot"
        )
    pic.check_plot(plot)
    if csv is not None and csv != "-":
        pic.check_file("--csv", csv)


def _check_loads(
    concurrency: str | None,
    request_rate: float | None,
    context_len: float | None,
    lengths: tuple[float | None, float | None],
    seed: int,
) -> None:
    """Refuse loads that contradict each other, which one of them would silently win.

    Raises
    ------
    InputError
        Names both.
    """
    from specsim.errors import InputError

    if request_rate is not None and concurrency is not None:
        raise InputError("--request-rate with --concurrency", "are two kinds of load", "choose one")
    if request_rate is not None and context_len is not None:
        raise InputError("--request-rate with --context-len", "are two kinds of load", "choose one")
    if context_len is not None and lengths != (None, None):
        raise InputError(
            "--context-len with --input-len or --output-len",
            "contradict each other: a steady decode has no requests",
            "drop one of them",
        )
    if not 0 <= seed < 2**63:
        raise InputError(f"seed {seed}", "must lie in 0..2^63 - 1", "give a whole number, e.g. 0")


def check_simulation(question: Question) -> None:
    """Refuse loads that take minutes and gigabytes to simulate, and not to solve.

    Raises
    ------
    InputError
        If a number is beyond `MOST_SIMULATED`.
    """
    from specsim.errors import InputError

    asked = {
        "concurrency": max(question.concurrency),
        "request rate": question.request_rate,
        "output length": question.output_len,
    }
    for name, value in asked.items():
        if value is not None and value > MOST_SIMULATED[name]:
            raise InputError(
                f"{name} {value:g}",
                f"is too much to simulate (at most {MOST_SIMULATED[name]})",
                "use --solver analytic",
            )


def _measured(observations: str | None) -> tuple[Observation, ...]:
    """Read the cells that are drawn beside the curve."""
    if observations is None:
        return ()
    from specsim.observations import read_observations

    return read_observations(observations).rows


def _draw(
    curve: Curve, request_rate: float | None, plot: str, cells: tuple[Observation, ...]
) -> None:
    """Draw the curve, and over it the cells that were measured under the same question."""
    import sys

    from specsim.report.plots_curve import measured_cells, throughput_figure

    pic.write_plot(plot, throughput_figure(curve, request_rate, cells))
    if cells and not any(measured_cells(curve, cells, request_rate)):
        sys.stderr.write(
            f"none of the {len(cells)} measured cells is of these settings, requests and loads\n"
        )


def _emit(
    curve: Curve,
    request_rate: float | None,
    as_json: bool,
    csv: str | None,
    nothing_asked: bool,
) -> None:
    """Write the file first: what cannot be written leaves no half answer on stdout."""
    import sys

    from specsim.profile import write_text

    if csv is not None and csv != "-":
        write_text(Path(csv), curve.to_csv())
        sys.stderr.write(f"wrote {csv}\n")
    if as_json:
        sys.stdout.write(curve.to_json())
    elif csv == "-":
        sys.stdout.write(curve.to_csv())
    else:
        _show(curve, request_rate, nothing_asked)


def _show(curve: Curve, request_rate: float | None, nothing_asked: bool) -> None:
    """Print tables, the answer and what it rests on."""
    from textwrap import fill

    from specsim.cli.console import console
    from specsim.report.answer import answer, evidence_line
    from specsim.report.tables import batch_tables, throughput_tables
    from specsim.report.words import described_requests

    out = console(piped_width=WIDTH)
    head = curve.series[0].points[0]
    title = f"{curve.profile}: {head.engine} {head.engine_version}, {described_requests(curve)}"
    out.print(title, style="bold")
    out.print("\nOutput tokens/s (90 % interval) and gain over no speculation")
    for table in throughput_tables(curve, out.width, request_rate):
        out.print(table)
    out.print("\nRunning requests, time per output token, and what limits")
    for table in batch_tables(curve, out.width, request_rate):
        out.print(table)
    out.print()
    if nothing_asked:
        out.print("No setting was asked about; ask with e.g. --topk 2 --steps 2.")
    for sentence in answer(curve, request_rate):
        out.print(fill(sentence, out.width), soft_wrap=True)
    out.print()
    out.print(evidence_line(curve))
    for note in curve.notes:
        lines = fill(note, out.width, initial_indent="- ", subsequent_indent="  ")
        out.print(lines, soft_wrap=True)
