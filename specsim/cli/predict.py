"""``specsim predict``: what a setting would do, over load, and whether it is worth a GPU hour."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from specsim.cli import options as opt
from specsim.cli import output, values
from specsim.cli.server import AnyServer
from specsim.errors import InputError

if TYPE_CHECKING:
    from specsim.curve import Curve, Solver
    from specsim.observations import Observation
<<<<<<< HEAD
    from specsim.question import Question
    from specsim.profile import Profile
=======
    from specsim.question import Question
>>>>>>> main
    from specsim.setting import SpecSetting

WIDTH = 100
"""Columns when piped and COLUMNS is not set."""

MOST_SIMULATED = {"concurrency": 20_000, "request rate": 300, "output length": 100_000}
"""Beyond them a simulation takes minutes and gigabytes."""


@click.command("predict")
@opt.words
@opt.takes(server=AnyServer, asked=opt.Asked, requests=opt.Requests)
@opt.max_running_requests
@opt.concurrency
@click.option(
    "--request-rate",
    metavar="R",
    callback=values.number(),
    help="Poisson arrivals per second instead of clients.",
)
@click.option(
    "--context-len",
    metavar="N",
    callback=values.number(),
    help="Steady decode at this many KV tokens per request.",
)
@opt.solver("simulate")
@opt.what_if
@opt.seed
@opt.as_json("specsim.curve/1")
@click.option("--csv", metavar="FILE", type=values.FILE, help="Write the rows; - is stdout.")
@opt.plot
@click.option(
    "--observations",
    metavar="FILE",
    type=values.FILE,
    help="Measured cells to draw with --plot.",
)
def predict_command(
    words: tuple[str, ...],
    server: AnyServer,
    asked: opt.Asked,
    requests: opt.Requests,
    max_running_requests: int | None,
    concurrency: tuple[int, ...] | None,
    request_rate: float | None,
    context_len: float | None,
    solver: Solver,
    what_if: bool,
    seed: int,
    as_json: bool,
    csv: str | None,
    plot: str | None,
    observations: str | None,
) -> None:
    """Say what a speculation setting would do to throughput, and whether it is worth a GPU hour.

    Shows no speculation, what runs today and the asked settings (as S,K,N: steps, topk, draft
    tokens, or in JSON files) over load, with 90 % intervals.

    Example: specsim predict --topk 2 --steps 2
    """
<<<<<<< HEAD
    from specsim.question import CONCURRENCY, Question
=======
    from dataclasses import replace

    from specsim.cli.progress import progress_bar
    from specsim.cli.settings import Defaults, asked_settings
    from specsim.errors import InputError
    from specsim.predict import predict
    from specsim.profile import load_profile
    from specsim.profile.other_engine import parse_engine, under_engine
    from specsim.question import CONCURRENCY, Question
    from specsim.setting import parse_algorithm
>>>>>>> main

    _check_outputs(as_json, csv, plot, observations)
    _check_loads(concurrency, request_rate, context_len, requests)
    profile, notes = server.load(assumed_setting(asked), asked.algorithm)
    settings = asked.settings(profile.default_algorithm, words)
    if not settings.asked and (asked.scheduler != "auto" or asked.algorithm not in (None, "none")):
        of = "scheduler" if asked.scheduler != "auto" else "algorithm"
        raise InputError(
            f"--{of} {getattr(asked, of)}",
            "is of a setting, and none is asked about",
            "add e.g. --topk 2 --steps 2",
        )
    cells: tuple[Observation, ...] = ()
    if observations is not None:
        from specsim.observations import read_observations

        cells = read_observations(observations).rows
    question = Question(
        settings=settings.asked,
        concurrency=concurrency or CONCURRENCY,
        request_rate=request_rate,
        input_len=requests.input_len,
        output_len=requests.output_len,
        context_len=context_len,
        engine_version=server.engine_version,
        max_running_requests=max_running_requests,
        dataset=requests.dataset,
        temperature=requests.temperature,
        what_if=what_if,
    )
    curve = predicted(profile, question, solver, seed, (*notes, *settings.notes))
    if plot is not None:
        _draw(curve, request_rate, plot, cells)
    if csv is not None and csv != "-":
        output.write_file(csv, curve.to_csv())  # what fails leaves no half answer on stdout
    if as_json:
        sys.stdout.write(curve.to_json())
    elif csv == "-":
        sys.stdout.write(curve.to_csv())
    else:
        _show(curve, request_rate, nothing_asked=not settings.asked)


def predicted(
    profile: Profile, question: Question, solver: Solver, seed: int, notes: tuple[str, ...]
) -> Curve:
    """Answer a question under a progress bar; the notes come before the answer's own.

    Raises
    ------
    InputError
        If the loads would take minutes and gigabytes to simulate.
    """
    from dataclasses import replace

    from specsim.predict import predict

    loads = (max(question.concurrency), question.request_rate, question.output_len)
    for (name, most), value in zip(MOST_SIMULATED.items(), loads, strict=True):
        if solver == "simulate" and value is not None and value > most:
            raise InputError(
                f"{name} {value:g}",
                f"is too much to simulate (at most {most})",
                "use --solver analytic",
            )
    with output.progress_bar("simulating") as advance:
        curve = predict(profile, question, solver=solver, seed=seed, progress=advance)
    return replace(curve, notes=(*notes, *curve.notes))


def assumed_setting(asked: opt.Asked) -> SpecSetting | None:
    """Return the setting that a stated accept length belongs to."""
    from specsim.setting import SpecSetting

    if asked.steps is None:
        return None
    algorithm = asked.algorithm or "EAGLE3"
    return SpecSetting.of(asked.topk, asked.steps, asked.draft_tokens, algorithm)


def _check_outputs(
    as_json: bool, csv: str | None, plot: str | None, observations: str | None
) -> None:
    """Refuse outputs that contradict each other, and what cannot be written."""
    if as_json and csv is not None:
        raise InputError("--json --csv", "exclude each other", "choose one")
    if observations is not None and plot is None:
        raise InputError(
            f"--observations {observations}", "is drawn, and no picture is asked for", "add --plot"
        )
    output.check_plot(plot)
    output.check_file("--csv", None if csv == "-" else csv)


def _check_loads(
    concurrency: tuple[int, ...] | None,
    request_rate: float | None,
    context_len: float | None,
    requests: opt.Requests,
) -> None:
    """Refuse loads that contradict each other, which one of them would silently win."""
    if request_rate is not None and concurrency is not None:
        raise InputError("--request-rate with --concurrency", "are two kinds of load", "choose one")
    if request_rate is not None and context_len is not None:
        raise InputError("--request-rate with --context-len", "are two kinds of load", "choose one")
    if context_len is not None and (requests.input_len, requests.output_len) != (None, None):
        raise InputError(
            "--context-len with --input-len or --output-len",
            "contradict each other: a steady decode has no requests",
            "drop one of them",
        )


def _draw(curve: Curve, request_rate: float | None, plot: str, cells: tuple[Observation, ...]) -> None:
    """Draw the curve, and over it the cells that were measured under the same question."""
<<<<<<< HEAD
    from specsim.report.plots_curve import measured_cells, throughput_figure
=======
    import sys

    from specsim.report.plots_curve import measured_cells, throughput_figure
>>>>>>> main

    output.write_plot(plot, throughput_figure(curve, request_rate, cells))
    if cells and not any(measured_cells(curve, cells, request_rate)):
        sys.stderr.write(
            f"none of the {len(cells)} measured cells is of these settings, requests and loads\n"
        )


def _show(curve: Curve, request_rate: float | None, nothing_asked: bool) -> None:
    """Print tables, the answer and what it rests on."""
    from specsim.report.answer import answer, evidence_line
    from specsim.report.tables import batch_tables, throughput_tables
    from specsim.report.words import described_requests

    out = output.console(WIDTH)
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
    output.print_sentences(out, answer(curve, request_rate))
    out.print()
    out.print(evidence_line(curve))
    output.print_notes(out, curve.notes)
