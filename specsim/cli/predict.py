"""``specsim predict``: what a setting would do, over load, and whether it is worth a GPU hour."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output
from specsim.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from specsim.curve import Curve, CurvePoint, Solver
    from specsim.decide import Verdict
    from specsim.observations import Observation
    from specsim.profile import Profile
    from specsim.question import Question
    from specsim.report import View

WIDTH = 100
WIDE = 76  # from here on the small table has room for the asked setting

MOST_SIMULATED = {"concurrency": 20_000, "output length": 100_000}
"""Beyond them a simulation takes minutes and gigabytes."""


@dataclass(frozen=True)
class Options(opt.Requests):
    """Under which loads, and what to write."""

    max_running_requests: int | None
    concurrency: tuple[int, ...] | None
    request_rate: float | None
    context_len: float | None
    solver: Solver
    what_if: bool
    seed: int
    full: bool
    as_json: bool
    csv: str | None
    plot: str | None
    observations: str | None


@opt.command("predict", opt.AnyServer, opt.Asking, Options)
def predict_command(server: opt.AnyServer, asked: opt.Asking, how: Options) -> None:
    """Say what a speculation setting would do to throughput, and whether it is worth a GPU hour.

    Shows no speculation, what runs today and the asked settings (as S,K,N: steps, topk, draft
    tokens, or in JSON files) over load, with 90 % intervals.

    Example: specsim predict --topk 2 --steps 2
    """
    from specsim.curve import SCHEMA
    from specsim.decide.contest import verdict

    profile, question, notes = server.ask(asked, how)
    if not question.settings and (
        asked.scheduler != "auto" or asked.algorithm not in (None, "none")
    ):
        of = "scheduler" if asked.scheduler != "auto" else "algorithm"
        why = "is of a setting, and none is asked about"
        raise InputError(f"--{of} {getattr(asked, of)}", why, "add e.g. --topk 2 --steps 2")
    if any(not setting.speculates for setting in question.settings):
        output.remark(["no speculation, which was asked about, is what all else is compared with"])
    cells: tuple[Observation, ...] = ()
    if how.observations is not None:
        from specsim.calibrate.report import doubts
        from specsim.observations import read_observations

        read = read_observations(how.observations)
        doubtful = (*read.notes, *doubts(profile.setup, read.rows))
        output.remark(doubtful)
        cells, notes = read.rows, (*notes, *doubtful)
    curve = predicted(profile, question, how.solver, notes)
    if how.plot is not None:
        _draw(curve, how.request_rate, how.plot, cells)
    if how.csv is not None and how.csv != "-":
        output.write_file(how.csv, curve.to_csv())  # what fails leaves no half answer on stdout
    if how.csv == "-" and not how.as_json:
        sys.stdout.write(curve.to_csv())
        return
    decision = verdict(profile, question)
    if how.as_json:
        content = {field.name: getattr(curve, field.name) for field in fields(curve)}
        output.print_document(SCHEMA, content | {"verdict": decision})
    else:
        _show(curve, decision, how)


def predicted(
    profile: Profile, question: Question, solver: Solver, notes: tuple[str, ...]
) -> Curve:
    """Answer a question under a progress bar; the notes come before the answer's own."""
    from specsim.predict import predict

    loads = (max(question.concurrency), question.output_len)
    for (name, most), value in zip(MOST_SIMULATED.items(), loads, strict=True):
        if solver == "simulate" and value is not None and value > most:
            why = f"is too much to simulate (at most {most})"
            raise InputError(f"{name} {value:g}", why, "use --solver analytic")
    with output.progress_bar("simulating") as advance:
        curve = predict(
            profile,
            question,
            solver=solver,
            seed=question.seed,
            jobs=os.cpu_count() or 1,
            progress=advance,
        )
    return replace(curve, notes=(*notes, *curve.notes))


def _draw(
    curve: Curve, request_rate: float | None, plot: str, cells: tuple[Observation, ...]
) -> None:
    """Draw the curve, and over it the cells that were measured under the same question."""
    from specsim.report.plots_curve import measured_cells, throughput_figure

    output.write_plot(plot, throughput_figure(curve, request_rate, cells))
    if cells and not any(measured_cells(curve, cells, request_rate)):
        sys.stderr.write(
            f"none of the {len(cells)} measured cells is of these settings, requests and loads\n"
        )


def _show(curve: Curve, verdict: Verdict, how: Options) -> None:
    """Print the question, the verdict and a small table; with --full everything else too."""
    from specsim.report import View, curve_title
    from specsim.report.answer import answer, choice_cells, evidence_line

    view = View.of(curve, verdict, how.request_rate)
    asked = view.having("asked")
    about = f"Is {view.names[asked[0]]} worth a GPU hour? " if len(asked) == 1 else ""
    out = output.question(f"{about}{curve_title(curve)}", WIDTH)
    if not asked:
        out.print("No setting was asked about; ask with e.g. --topk 2 --steps 2.")
    output.print_verdict(out, answer(view, verdict.free), how.full)
    beside = view.series[asked[0]] if len(asked) == 1 and out.width >= WIDE else None
    cells = choice_cells(view.loads, view.axis, beside)
    output.print_choices(out, cells, view.loads, verdict.settings_considered)
    out.print(evidence_line(curve))
    if how.full:
        _show_all(out, view)
    output.print_grounds(out, curve.notes, how.full, "says more, and shows every setting")


def _show_all(out: Console, view: View) -> None:
    from specsim.decide import whole_percent
    from specsim.report import amount, described, spread

    columns: output.Columns[tuple[int, CurvePoint]] = (
        (view.axis.heading, lambda row: view.axis.number(row[0])),
        (
            "tok/s (90 %)",
            lambda row: spread(row[1].output_tps, row[1].output_tps_low, row[1].output_tps_high),
        ),
        ("gain", lambda row: whole_percent(row[1].gain) if row[1].role != "baseline" else ""),
        ("run", lambda row: f"{row[1].batch_size:.1f}"),
        ("TPOT ms", lambda row: amount(1e3 * row[1].tpot_s)),
        ("limit", lambda row: row[1].limit),
    )
    out.print("\nOutput tokens/s, gain over no speculation, running requests, what limits")
    for i, series in enumerate(view.series):
        output.print_sentences(out, ["", described(view, i)])
        out.print(output.table(columns, enumerate(series.points), left=()))
    out.print()
