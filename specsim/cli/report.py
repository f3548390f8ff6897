"""``specsim report``: the answer, curves and what they rest on as one HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from specsim.cli import options as opt
from specsim.cli import what_if as wi

if TYPE_CHECKING:
    from specsim.question import Question


def report_command(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="S,K,N|FILE", help="Settings, or JSON files of settings."),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="HTML file to write.")
    ] = "report.html",
    profile: opt.ProfileOption = None,
    topk: opt.TopkOption = None,
    steps: opt.StepsOption = None,
    draft_tokens: opt.DraftTokensOption = None,
    algorithm: opt.AlgorithmOption = None,
    scheduler: opt.SchedulerOption = "auto",
    engine_version: opt.EngineVersionOption = None,
    concurrency: opt.ConcurrencyOption = None,
    input_len: opt.InputLenOption = None,
    output_len: opt.OutputLenOption = None,
    overrides: wi.SetOption = None,
    observations: Annotated[
        str | None,
        typer.Option("--observations", metavar="FILE", help="Measured cells, to show the errors."),
    ] = None,
    solver: opt.SolverOption = "simulate",
    what_if: opt.WhatIfOption = False,
    seed: opt.SeedOption = 0,
) -> None:
    """Write a self-contained report: answer, curves, rounds, trees, calibration, assumptions.

    Example: specsim report --topk 2 --steps 2 -o report.html
    """
    import sys
    from dataclasses import replace
    from pathlib import Path

    from specsim.calibrate.validate import validate
    from specsim.cli.predict import check_simulation
    from specsim.cli.progress import progress_bar
    from specsim.cli.settings import Defaults, asked_settings
    from specsim.errors import InputError
    from specsim.observations import read_observations
    from specsim.predict import predict
    from specsim.profile import load_profile, write_text
    from specsim.question import CONCURRENCY, Question
    from specsim.report.html import report_html
    from specsim.scenario import apply_overrides, parse_overrides
    from specsim.setting import parse_algorithm

    if Path(output).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--output {output}", "is no HTML file", "end the name in .html")
    if not 0 <= seed < 2**63:
        raise InputError(f"seed {seed}", "must lie in 0..2^63 - 1", "give a whole number, e.g. 0")
    measured = load_profile(profile)
    server = apply_overrides(measured, parse_overrides(overrides or ()))
    chosen = opt.parse_solver(solver)
    asked = asked_settings(
        Defaults(
            parse_algorithm(algorithm) if algorithm else server.profile.default_algorithm,
            opt.parse_scheduler(scheduler),
        ),
        (topk, steps, draft_tokens),
        [],
        settings or [],
        [],
    )
    question = Question(
        settings=asked.settings,
        concurrency=CONCURRENCY if concurrency is None else opt.parse_concurrency(concurrency),
        input_len=input_len,
        output_len=output_len,
        engine_version=engine_version,
        what_if=what_if,
    )
    if chosen == "simulate":
        check_simulation(question)
    cells = None if observations is None else read_observations(observations)
    with progress_bar("simulating") as advance:
        curve = predict(server.profile, question, solver=chosen, seed=seed, progress=advance)
    curve = replace(curve, notes=(*server.notes, *asked.notes, *curve.notes))
    # the cells were measured on the server as it is, whatever --set makes of it
    validation = None if cells is None else validate(measured, cells.rows)
    commands = _commands(
        measured.name if profile is None else profile, question, chosen, seed, overrides or []
    )
    workload = wi.asked_workload(server.profile.setup.workload.workload, input_len, output_len)
    write_text(Path(output), report_html(server.profile, curve, commands, validation, workload))
    sys.stdout.write(f"wrote {output}\n")


def _commands(
    profile: str, question: Question, solver: str, seed: int, overrides: list[str]
) -> list[str]:
    """Return the command lines that give the same numbers."""
    from shlex import quote

    triples = [
        f"{s.num_steps},{s.topk},{s.num_draft_tokens}" for s in question.settings if s.speculates
    ]
    server = ["--profile", quote(profile)]
    server += [word for text in overrides for word in ("--set", quote(text))]
    lengths = []
    for flag, length in (
        ("--input-len", question.input_len),
        ("--output-len", question.output_len),
    ):
        lengths += [] if length is None else [flag, f"{length:g}"]
    words = [*server, *triples, "--concurrency", ",".join(map(str, question.concurrency)), *lengths]
    if question.engine_version is not None:
        words += ["--engine-version", quote(question.engine_version)]
    if question.what_if:
        words.append("--what-if")
    words += ["--solver", solver, "--seed", str(seed)]
    line = " ".join(words)
    result = [f"specsim report {line} -o report.html"]
    if not overrides:  # predict and timeline are of a server as it is
        result.insert(0, f"specsim predict {line} --json")
        shown = " ".join([*server, *triples[:1], *lengths])
        result += [f"specsim timeline {shown}"] if triples else []
    return [*result, f"specsim recommend {' '.join([*server, *lengths])}"]
