"""``specsim plan``: what to measure next, and whether anything would change the choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output

if TYPE_CHECKING:
    from specsim.decide.plan import Measurement, MeasurementPlan
    from specsim.setting import SpecSetting
    from specsim.workload import Workload

WIDTH = 110
SHOWN = 8

COLUMNS: output.Columns[Measurement] = (
    ("measurement", lambda m: m.label),
    ("regret cut by", lambda m: f"{100 * m.regret_cut:.2f} %"),
    ("GPU minutes", lambda m: f"{m.gpu_minutes:.0f}"),
    ("cells", lambda m: str(m.cells or "")),
)


@dataclass(frozen=True)
class Options(opt.Requests):
    """For which loads, and what was measured."""

    concurrency: tuple[int, ...] | None
    mix: tuple[tuple[int, float], ...] | None
    measured: tuple[SpecSetting, ...] | None
    seed: int
    as_json: bool
    target: str | None


@opt.command("plan", opt.AnyServer, Options)
def plan_command(server: opt.AnyServer, how: Options) -> None:
    """Rank the next measurements by how much they should cut the regret of the choice.

    Example: specsim plan --concurrency 1,30,100
    """
    from specsim.decide.plan import LOADS, SCHEMA, plan_measurements
    from specsim.question import Question

    profile, notes = server.load()
    question = opt.filled(Question, server, how, concurrency=how.concurrency or LOADS)
    with output.status("weighing measurements"):
        result = replace(plan_measurements(profile, question), notes=notes)
    if how.target is not None:
        output.write_file(how.target, _loads(result, question.workload(profile.setup.workload)))
    if how.as_json:
        output.print_document(SCHEMA, result, digits=6)
        return
    _show(result)


def _loads(result: MeasurementPlan, work: Workload) -> str:
    """Return what ``specsim measure --plan`` reads: loads, lengths, settings by their worth."""
    import tomlkit

    sweeps = [m.setting for m in result.measurements if m.kind == "sweep" and m.setting]
    return tomlkit.dumps({
        "schema": "specsim.loads/1",
        "profile": result.profile,
        "concurrency": list(result.concurrency),
        "input_len": round(work.input_len.mean),
        "output_len": round(work.output_len.mean),
        "temperature": work.temperature,
        "sweep": [planned.plan.setting.brief for planned in sweeps],
    })  # fmt: skip


def _show(result: MeasurementPlan) -> None:
    loads = ", ".join(map(str, result.concurrency))
    out = output.titled(f"{result.profile}: what to measure next, for {loads} clients", WIDTH)
    out.print(
        f"Choosing now is expected to lose {100 * result.regret:.1f} % of the throughput "
        "against the fastest setting."
    )
    out.print(output.table(COLUMNS, result.measurements[:SHOWN]))
    if not result.worthwhile:
        out.print(
            "No measurement would change the choice: none is expected to bring "
            f"{100 * result.stop_below:.1f} % of the throughput. Take what specsim recommend says."
        )
    else:
        first = result.worthwhile[0]
        cheap = min(result.worthwhile, key=lambda m: m.gpu_minutes / m.regret_cut)
        lines = [f"Measure {first.how}."]
        if cheap is not first:
            lines.append(f"Most per GPU minute: {cheap.how}.")
        output.print_sentences(out, lines)
    output.print_notes(out, result.notes)
