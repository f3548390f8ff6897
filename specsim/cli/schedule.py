"""``specsim schedule``: draft steps by running batch, under a load that changes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output

if TYPE_CHECKING:
    from rich.console import Console

    from specsim.decide.adaptive import LoadAnswer, Outcome
    from specsim.decide.schedule import Schedule
    from specsim.question import Target
    from specsim.simulate import Policy, Trace
    from specsim.workload import VaryingLoad

WIDTH = 120
FULL_WIDTH = 105
WIDE = ("TTFT", "request", "switches")  # a narrower terminal does without these columns

SCORES = {
    "goodput": "requests per second that meet the targets",
    "throughput": "tokens per second",
    "request_time": "1 / mean time of a request, from arrival to its last token",
}


@dataclass(frozen=True)
class Options(opt.Requests):
    """Under which load, among which depths, by which measure."""

    load: VaryingLoad | Trace
    given: Policy | None
    max_draft_tokens: int
    max_steps: int
    targets: tuple[Target, ...] | None
    max_running_requests: int | None
    repeats: int
    seed: int
    plot: str | None
    sps_table: str | None
    as_json: bool


@opt.command("schedule", opt.AnyServer, Options)
def schedule_command(server: opt.AnyServer, how: Options) -> None:
    """Say which draft steps to run at which batch, and whether that beats one setting for all.

    Simulates the load with the best table, no speculation, the best fixed settings and the
    engine's own adaptive table.

    Example: specsim schedule --engine-version 0.5.23 --load ramp:1..64@600s

    Example: specsim schedule --load burst:0.1..2/s,30s/300s@1200s --slo tpot=40ms
    """
    from specsim.decide.adaptive import SCHEMA, schedule_under_load
    from specsim.question import Question
    from specsim.simulate import Trace

    if isinstance(how.load, Trace):
        opt.refuse_given(
            "is said by the trace", "drop it", opt.Lengths(how.input_len, how.output_len)
        )
    profile, notes = server.load()
    question = opt.filled(Question, server, how)
    if how.sps_table is not None:
        from specsim.decide.schedule import sps_table

        output.write_file(how.sps_table, sps_table(profile, question))
    with output.progress_bar("simulating") as progress:
        answer = schedule_under_load(
            profile, how.load, question, repeats=how.repeats, given=how.given, progress=progress
        )
    answer = replace(answer, notes=(*notes, *answer.notes))
    if how.plot is not None:
        from specsim.report.plots import outcomes_figure

        output.write_plot(how.plot, outcomes_figure(answer))
    if how.as_json:
        output.print_document(SCHEMA, answer)
        return
    _show(answer)


def _show(answer: LoadAnswer) -> None:
    times = f"{answer.repeats} time{'s' * (answer.repeats > 1)}"
    out = output.titled(f"{answer.profile}: {answer.load}, simulated {times}", WIDTH)
    out.print(output.table(_columns(answer, out.width >= FULL_WIDTH), answer.outcomes))
    out.print(f"compared by {SCORES[answer.score]}; ± is one standard error")
    output.print_sentences(out, _sentences(answer))
    print_table(out, answer)
    out.print()
    output.print_notes(out, answer.notes)


def print_table(out: Console, best: Schedule) -> None:
    """Print draft steps by running batch, for people and in the engine's syntax."""
    from specsim.decide import whole_percent

    out.print(f"\nBest table ({best.engine} {best.engine_version}, chains, gains of decoding):")
    for step in best.table:
        depth = f"{step.num_steps} steps" if step.num_steps else "no drafts"
        out.print(
            f"  from {step.from_batch_size} running: {depth}, {whole_percent(step.gain)} against "
            f"no drafter (K = 0 here: {whole_percent(step.gain_idle_drafter)})",
            soft_wrap=True,
        )
    share = 100 * best.kv_pool_share_of_drafter
    out.print(f"  the drafter takes {share:.0f} % of the KV pool's tokens")
    for line in best.config_lines:
        out.print(f"  {line}", soft_wrap=True)


def _columns(answer: LoadAnswer, wide: bool) -> output.Columns[Outcome]:
    def rate(o: Outcome) -> str:
        error = "" if math.isnan(o.output_tps_se) else f" ± {o.output_tps_se:.0f}"
        return f"{o.output_tps:.0f}{error}"

    def gain(o: Outcome) -> str:
        return "best fixed" if o.name == answer.best_static else _gain(o.gain, o.gain_se)

    columns: output.Columns[Outcome] = (
        ("", lambda o: o.name),
        ("tok/s", rate),
        ("TPOT", lambda o: f"{1e3 * o.tpot_s:.1f} ms"),
        ("TTFT", lambda o: f"{o.ttft_s:.2f} s"),
        ("request", lambda o: f"{o.request_time_s:.1f} s"),
        ("good/s" if answer.targets else "requests/s", lambda o: f"{o.goodput_rps:.3g}"),
        ("switches", lambda o: "" if o.policy is None else f"{o.switches:.0f}"),
        ("vs best fixed", gain),
    )
    return [column for column in columns if wide or column[0] not in WIDE]


def _gain(gain: float, error: float) -> str:
    if gain != gain:  # nothing to compare with: no request of the other meets the targets
        return "undefined"
    text = f"{100 * gain:+.1f}"
    return text + (" %" if error != error else f" ± {100 * error:.1f} %")


def _sentences(answer: LoadAnswer) -> list[str]:
    """Say what to launch, and what the engine's table and the loaded drafter would do."""
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
    given = answer.of("given")
    if given is not None:
        lines.append(f"The given table brings {_gain(given.gain, given.gain_se)}.")
    if default is not None:
        lines.append(f"{default.name} would bring {_gain(default.gain, default.gain_se)}.")
    if len(table.steps) > 1:
        parts = (f"{100 * s.time_share:.0f} % with {s.num_steps}" for s in table.steps)
        lines.append(f"Under this load the table decodes {', '.join(parts)} steps.")
    idle, error = answer.idle_drafter_gain, answer.idle_drafter_gain_se
    if idle is not None and error is not None:
        brings = _gain(idle, error)
        lines.append(f"A drafter that is loaded and drafts nothing: {brings} against none loaded.")
    return lines
