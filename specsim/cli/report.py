"""``specsim report``: the answer, curves and what they rest on as one HTML file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

import click

from specsim.cli import options as opt
from specsim.cli import output, values
from specsim.cli.server import AnyServer, Server

if TYPE_CHECKING:
<<<<<<< HEAD
    from specsim.curve import Solver
    from specsim.question import Question
=======
    from specsim.question import Question
>>>>>>> main


@click.command("report")
@opt.words
@click.option(
    "--output",
    "-o",
    "page",
    metavar="FILE",
    default="report.html",
    type=values.FILE,
    help="HTML file to write.",
)
@opt.takes(server=AnyServer, asked=opt.Asked, lengths=opt.Lengths)
@opt.concurrency
@click.option(
    "--observations",
    metavar="FILE",
    type=values.FILE,
    help="Measured cells, to show the errors.",
)
@opt.solver("simulate")
@opt.what_if
@opt.seed
def report_command(
    words: tuple[str, ...],
    page: str,
    server: AnyServer,
    asked: opt.Asked,
    lengths: opt.Lengths,
    concurrency: tuple[int, ...] | None,
    observations: str | None,
    solver: Solver,
    what_if: bool,
    seed: int,
) -> None:
    """Write a self-contained report: answer, curves, rounds, trees, calibration, assumptions.

    Example: specsim report --topk 2 --steps 2 -o report.html
    """
    from specsim.calibrate.validate import validate
    from specsim.cli.predict import assumed_setting, predicted
    from specsim.observations import read_observations
<<<<<<< HEAD
    from specsim.question import CONCURRENCY, Question
    from specsim.profile import write_text
=======
    from specsim.predict import predict
    from specsim.profile import load_profile, write_text
    from specsim.question import CONCURRENCY, Question
>>>>>>> main
    from specsim.report.html import report_html

    output.check_file("--output", page, ".html", ".htm")
    profile, notes = server.load(assumed_setting(asked), asked.algorithm)
    settings = asked.settings(profile.default_algorithm, words)
    question = Question(
        settings=settings.asked,
        concurrency=concurrency or CONCURRENCY,
        input_len=lengths.input_len,
        output_len=lengths.output_len,
        engine_version=server.engine_version,
        what_if=what_if,
    )
    cells = None if observations is None else read_observations(observations)
    curve = predicted(profile, question, solver, seed, (*notes, *settings.notes))
    validation = None
    if cells is not None:  # measured on the server as it is, whatever --set makes of it
        as_it_is = replace(server, overrides=()).load(assumed_setting(asked), asked.algorithm)[0]
        validation = validate(as_it_is, cells.rows)
    if server.profile is None and server.model is None and server.setup is None:
        server = replace(server, profile=profile.name)
    again = _command_lines(server, lengths, question, solver, seed)
    workload = lengths.workload(profile.setup.workload.workload)
    write_text(Path(page), report_html(profile, curve, again, validation, workload))
    sys.stdout.write(f"wrote {page}\n")


def _command_lines(
    server: AnyServer, lengths: opt.Lengths, question: Question, solver: Solver, seed: int
) -> list[str]:
    """Return the command lines that give the same numbers."""
    settings = [s for s in question.settings if s.speculates]
    triples = [f"{s.num_steps},{s.topk},{s.num_draft_tokens}" for s in settings]
    about, requests = list(opt.words_of(server)), list(opt.words_of(lengths))
    loads = ["--concurrency", ",".join(map(str, question.concurrency)), *requests]
    how = ["--what-if"] * question.what_if + ["--solver", solver, "--seed", str(seed)]
    line = join([*about, *triples, *loads, *how])
    result = [f"specsim predict {line} --json", f"specsim report {line} -o report.html"]
    if triples and server.profile is not None:
        measured = opt.words_of(Server(server.profile, server.overrides))
        result.append(f"specsim timeline {join([*measured, *triples[:1], *requests])}")
    any_setting = opt.words_of(replace(server, accept_length=None))
    return [*result, f"specsim recommend {join([*any_setting, *requests])}"]
