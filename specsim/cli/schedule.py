"""``specsim schedule``: draft steps by running batch, under a load that changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output
from specsim.cli.options import AnyServer, command, option

if TYPE_CHECKING:
    from rich.console import Console

    from specsim.decide.load_answer import LoadAnswer, Outcome
    from specsim.decide.slo import Target
    from specsim.simulate import Trace
    from specsim.workload import VaryingLoad

WIDTH = 120

FULL_WIDTH = 105
"""A narrower terminal gets fewer columns."""

SCORES = {
    "goodput": "requests per second that meet the targets",
    "throughput": "tokens per second",
    "request_time": "1 / mean time of a request, from arrival to its last token",
}


@dataclass(frozen=True)
class Options(opt.Requests):
    """Under which load, among which depths, by which measure."""

    load: VaryingLoad | Trace = option(
        "--load",
        "ramp:A..B@T|burst:A..B,D/P@T|trace:FILE",
        "Clients (or arrivals/s, with /s) over time; a CSV of arrival_s, input_len, output_len.",
        opt.library("specsim.simulate", "parse_load"),
        default="ramp:1..64@600s",
    )
    max_draft_tokens: int = opt.max_draft_tokens()
    max_steps: int = opt.max_steps()
    targets: tuple[Target, ...] | None = opt.slo(
        "tpot=40ms,ttft=2s", "Latency targets of a request: goodput."
    )
    max_running_requests: int | None = opt.max_running_requests()
    repeats: int = option(
        "--repeats", "R", "Runs with other random numbers.", opt.whole(), default="4"
    )
    seed: int = opt.seed()
    plot: str | None = opt.plot()
    as_json: bool = opt.as_json("specsim.schedule/1")


@command("schedule", AnyServer, Options)
def schedule_command(server: AnyServer, how: Options) -> None:
    """Say which draft steps to run at which batch, and whether that beats one setting for all.

    Simulates the load with the best table, no speculation, the best fixed settings and the
    engine's own adaptive table.

    Example: specsim schedule --engine-version 0.5.23 --load ramp:1..64@600s

    Example: specsim schedule --load burst:0.1..2/s,30s/300s@1200s --slo tpot=40ms
    """
    from specsim.decide.adaptive import schedule_under_load
    from specsim.decide.candidates import Limits
    from specsim.decide.load_answer import SCHEMA
    from specsim.decide.wish import Wish

    output.check_plot(how.plot)
    profile, notes = server.load()
    wish = Wish(
        limits=Limits(how.max_draft_tokens, how.max_steps),
        targets=how.targets or (),
        engine_version=server.engine_version,
        max_running_requests=how.max_running_requests,
        input_len=how.input_len,
        output_len=how.output_len,
        dataset=how.dataset,
        temperature=how.temperature,
        seed=how.seed,
    )
    with output.progress_bar("simulating") as progress:
        answer = schedule_under_load(
            profile, how.load, wish, repeats=how.repeats, progress=progress
        )
    answer = replace(answer, notes=(*notes, *answer.notes))
    if how.plot is not None:
        from specsim.report.plots_load import outcomes_figure

        output.write_plot(how.plot, outcomes_figure(answer))
    if how.as_json:
        output.print_document(SCHEMA, answer)
        return
    _show(answer, output.console(WIDTH))


def _show(answer: LoadAnswer, out: Console) -> None:
    times = f"{answer.repeats} time{'s' * (answer.repeats > 1)}"
    out.print(f"{answer.profile}: {answer.load}, simulated {times}", style="bold")
    good = "good/s" if answer.targets else "requests/s"
    names = ("", "tok/s", "TPOT", "TTFT", "request", good, "switches", "vs best fixed")
    shown = [i for i in range(len(names)) if out.width >= FULL_WIDTH or i not in (3, 4, 6)]
    rows = [_row(answer, outcome) for outcome in answer.outcomes]
    cells = [[row[i] for i in shown] for row in rows]
    out.print(output.table(*(names[i] for i in shown), rows=cells))
    out.print(f"compared by {SCORES[answer.score]}; ± is one standard error")
    output.print_sentences(out, _sentences(answer))
    out.print(f"\nBest table ({answer.engine} {answer.engine_version}, by running requests):")
    for step in answer.table:
        depth = f"{step.num_steps} steps" if step.num_steps else "no drafts"
        out.print(f"  from {step.from_batch_size}: {depth}")
    for line in answer.config_lines:
        out.print(f"  {line}", soft_wrap=True)
    out.print()
    output.print_notes(out, answer.notes)


def _row(answer: LoadAnswer, outcome: Outcome) -> tuple[str, ...]:
    tps, error = outcome.output_tps, outcome.output_tps_se
    return (
        outcome.name,
        f"{tps:.0f}" + ("" if error != error else f" ± {error:.0f}"),
        f"{1e3 * outcome.tpot_s:.1f} ms",
        f"{outcome.ttft_s:.2f} s",
        f"{outcome.request_time_s:.1f} s",
        f"{outcome.goodput_rps:.3g}",
        f"{outcome.switches:.0f}" if outcome.policy is not None else "",
        "best fixed"
        if outcome.name == answer.best_static
        else _gain(outcome.gain, outcome.gain_se),
    )


def _gain(gain: float, error: float) -> str:
    if gain != gain:  # nothing to compare with: no request of the other meets the targets
        return "undefined"
    text = f"{100 * gain:+.1f}"
    return text + (" %" if error != error else f" ± {100 * error:.1f} %")


def _sentences(answer: LoadAnswer) -> list[str]:
    """Say what to launch, and what the engine's table and the loaded drafter would do."""
    from specsim.decide.load_answer import paired_gain

    table, static, default = answer.of("table"), answer.best_fixed, answer.of("default")
    assert table is not None
    gain = _gain(table.gain, table.gain_se)
    none = static.role == "none"
    lines = []
    if static.score == 0.0:
        return ["No request meets the targets without a table: ask for looser ones, or less load."]
    if answer.worth_it:
        over = "no speculation" if none else f"the best fixed setting, {static.name}"
        lines.append(f"Adapt: the table brings {gain} against {over}.")
    elif none:
        lines.append(
            f"Adapting is not worth it here: no speculation is as good or better (table {gain}). "
            "Launch without a drafter."
        )
    else:
        lines.append(f"Adapting is not worth it here: {static.name} is as good (table {gain}).")
    if default is not None:
        lines.append(f"{default.name} would bring {_gain(default.gain, default.gain_se)}.")
    if len(table.steps) > 1:
        parts = (f"{100 * s.time_share:.0f} % with {s.num_steps}" for s in table.steps)
        lines.append(f"Under this load the table decodes {', '.join(parts)} steps.")
    idle, plain = answer.of("idle"), answer.of("none")
    if idle is not None and plain is not None:
        brings = _gain(*paired_gain(idle.runs, plain.runs))
        lines.append(f"A drafter that is loaded and drafts nothing: {brings} against none loaded.")
    return lines
