"""``specsim report``: the answer, curves and what they rest on as one HTML file."""

from __future__ import annotations

from typing import Annotated

import typer

from specsim.cli import options as opt


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
    from pathlib import Path

    from specsim.calibrate.validate import validate
    from specsim.cli.progress import progress_bar
    from specsim.cli.settings import Defaults, asked_settings
    from specsim.errors import InputError
    from specsim.observations import read_observations
    from specsim.predict import CONCURRENCY, Question, predict
    from specsim.profile import load_profile, write_text
    from specsim.report.html import report_html
    from specsim.setting import parse_algorithm

    if Path(output).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--output {output}", "is no HTML file", "end the name in .html")
    if not 0 <= seed < 2**63:
        raise InputError(f"seed {seed}", "must lie in 0..2^63 - 1", "give a whole number, e.g. 0")
    loaded = load_profile(profile)
    chosen = opt.parse_solver(solver)
    algorithm_ = parse_algorithm(algorithm) if algorithm else loaded.default_algorithm
    asked = asked_settings(
        Defaults(algorithm_, opt.parse_scheduler(scheduler)),
        (topk, steps, draft_tokens),
        [],
        settings or [],
        [],
    )
    question = Question(
        settings=asked.settings,
        concurrency=CONCURRENCY if concurrency is None else opt.parse_concurrency(concurrency),
        engine_version=engine_version,
        what_if=what_if,
    )
    if chosen == "simulate" and max(question.concurrency) > 20_000:
        raise InputError("concurrency", "is too much to simulate", "use --solver analytic")
    cells = None if observations is None else read_observations(observations)
    with progress_bar("simulating") as advance:
        curve = predict(loaded, question, solver=chosen, seed=seed, progress=advance)
    validation = None if cells is None else validate(loaded, cells.rows)
    commands = _commands(loaded.name if profile is None else profile, question, chosen, seed)
    write_text(Path(output), report_html(loaded, curve, commands, validation))
    sys.stdout.write(f"wrote {output}\n")


def _commands(profile: str, question: object, solver: str, seed: int) -> list[str]:
    """Return the command lines that give the same numbers."""
    from shlex import quote

    from specsim.predict import Question

    assert isinstance(question, Question)
    triples = [
        f"{s.num_steps},{s.topk},{s.num_draft_tokens}" for s in question.settings if s.speculates
    ]
    words = ["--profile", quote(profile), *triples]
    words += ["--concurrency", ",".join(map(str, question.concurrency))]
    if question.engine_version is not None:
        words += ["--engine-version", quote(question.engine_version)]
    if question.what_if:
        words.append("--what-if")
    words += ["--solver", solver, "--seed", str(seed)]
    line = " ".join(words)
    result = [f"specsim predict {line} --json", f"specsim report {line} -o report.html"]
    result += [f"specsim timeline --profile {quote(profile)} {triple}" for triple in triples[:1]]
    return [*result, f"specsim recommend --profile {quote(profile)}"]
