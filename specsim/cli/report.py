"""``specsim report``: the answer, curves and what they rest on as one HTML file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import date
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

from specsim.cli import options as opt

if TYPE_CHECKING:
    from specsim.curve import Solver
    from specsim.question import Question


@dataclass(frozen=True)
class Shown(opt.Lengths):
    """At which loads, and how it is computed."""

    concurrency: tuple[int, ...] | None
    observations: str | None
    solver: Solver
    what_if: bool
    seed: int


@dataclass(frozen=True)
class Options(Shown):
    """What is shown, and where it goes."""

    page: str


@opt.command("report", opt.AnyServer, opt.Asking, Options)
def report_command(server: opt.AnyServer, asked: opt.Asking, how: Options) -> None:
    """Write a self-contained report: answer, curves, rounds, trees, calibration, assumptions.

    Example: specsim report --topk 2 --steps 2 -o report.html
    """
    from specsim.textfile import write_text

    write_text(Path(how.page), page_of(server, asked, how))
    sys.stdout.write(f"wrote {how.page}\n")


def page_of(server: opt.AnyServer, asked: opt.Asked, how: Shown) -> str:
    """Return the report, as HTML."""
    from specsim.calibrate.validate import validate
    from specsim.cli.predict import predicted
    from specsim.decide.contest import verdict
    from specsim.decide.launch import launches_of
    from specsim.observations import read_observations
    from specsim.report.html import report_html

    profile, question, notes = server.ask(asked, how)
    cells = None if how.observations is None else read_observations(how.observations)
    curve = predicted(profile, question, how.solver, notes)
    validation = None
    if cells is not None:  # measured on the server as it is, whatever --set makes of it
        as_it_is, _ = replace(server, overrides=()).load(asked)
        validation = validate(as_it_is, cells.rows)
    again = _command_lines(server, question, how)
    workload = question.workload(profile.setup.workload)
    decision = verdict(profile, question)
    chosen = [load.choice.plan for load in decision.loads]
    return report_html(
        profile,
        curve,
        decision,
        again,
        validation,
        workload,
        launches=launches_of(profile, chosen, question),
        date=date.today().isoformat(),
    )


def _command_lines(server: opt.AnyServer, question: Question, how: Shown) -> list[str]:
    """Return the opt.command lines that give the same numbers; they name the default profile."""
    from specsim.profile import DEFAULT_PROFILE

    if (server.profile, server.model, server.setup) == (None, None, None):
        server = replace(server, profile=DEFAULT_PROFILE)
    settings = [s for s in question.settings if s.speculates]
    triples = [f"{s.num_steps},{s.topk},{s.num_draft_tokens}" for s in settings]
    lengths = list(_words(opt.Lengths(how.input_len, how.output_len)))
    loads = ["--concurrency", ",".join(map(str, question.concurrency)), *lengths]
    run = ["--what-if"] * how.what_if + ["--solver", how.solver, "--seed", str(how.seed)]
    line = join([*_words(server), *triples, *loads, *run])
    result = [f"specsim predict {line} --json", f"specsim report {line} -o report.html"]
    if triples and server.profile is not None:
        measured = _words(opt.Server(server.profile, server.overrides))
        result.append(f"specsim timeline {join([*measured, *triples[:1], *lengths])}")
    any_setting = _words(replace(server, accept_length=None))
    return [*result, f"specsim recommend {join([*any_setting, *lengths])}"]


def _words(group: Any) -> Iterator[str]:
    """Yield the opt.command line that fills a group so: option, value, option, value."""
    for part in fields(group):
        said = getattr(group, part.name)
        for value in said if isinstance(said, tuple) else (said,):
            if value is not None:
                yield opt.names_of(type(group), part.name)[0]
                yield f"{value:g}" if isinstance(value, float) else str(value)
