"""``specsim plan``: what to measure next, and whether anything would change the choice."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output
from specsim.cli.options import command
from specsim.cli.server import AnyServer

if TYPE_CHECKING:
    from specsim.decide.plan import MeasurementPlan

WIDTH = 110

SHOWN = 8


@dataclass(frozen=True)
class Options(opt.Requests):
    """For which loads, and what was measured."""

    concurrency: tuple[int, ...] | None = opt.concurrency()
    mix: tuple[tuple[int, float], ...] | None = opt.mix()
    observations: str | None = opt.measured()
    seed: int = opt.seed()
    as_json: bool = opt.as_json("specsim.plan/1")


@command("plan", AnyServer, Options)
def plan_command(server: AnyServer, how: Options) -> None:
    """Rank the next measurements by how much they should cut the regret of the choice.

    Example: specsim plan --concurrency 1,30,100
    """
    from specsim.decide.plan import LOADS, plan_measurements
    from specsim.decide.recommend import Wish

    profile, notes = server.load()
    wish = Wish(
        engine_version=server.engine_version,
        workload=how.workload(profile.setup.workload.workload),
        dataset=how.dataset,
        temperature=how.temperature,
        mix=how.mix or (),
        measured=opt.measured_settings(how.observations),
        seed=how.seed,
    )
    with output.status("weighing measurements"):
        result = plan_measurements(profile, how.concurrency or LOADS, wish)
    if how.as_json:
        sys.stdout.write(_document(result))
        return
    _show(result, notes)


def _show(result: MeasurementPlan, notes: tuple[str, ...]) -> None:
    from specsim.decide.plan import STOP

    out = output.console(WIDTH)
    loads = ", ".join(map(str, result.concurrency))
    out.print(f"{result.profile}: what to measure next, for {loads} clients", style="bold")
    out.print(
        f"Options now is expected to lose {100 * result.regret:.1f} % of the throughput "
        "against the fastest setting."
    )
    grid = output.table("measurement", "regret cut by", "GPU minutes", "cells")
    for planned in result.ranked[:SHOWN]:
        grid.add_row(
            planned.label,
            f"{100 * planned.worth:.2f} %",
            f"{planned.gpu_minutes:.0f}",
            str(planned.measurement.cells or ""),
        )
    out.print(grid)
    if not result.worthwhile:
        out.print(
            "No measurement would change the choice: none is expected to bring "
            f"{100 * STOP:.1f} % of the throughput. Take what specsim recommend says."
        )
    else:
        first = result.worthwhile[0]
        cheap = min(result.worthwhile, key=lambda m: m.gpu_minutes / m.worth)
        lines = [f"Measure {first.measurement.how}."]
        if cheap is not first:
            lines.append(f"Most per GPU minute: {cheap.measurement.how}.")
        output.print_sentences(out, lines)
    output.print_notes(out, notes)


def _document(result: MeasurementPlan) -> str:
    """Write ``specsim.plan/1``; ranked by the expected cut of the regret."""
    import json

    from specsim.decide.document import setting_fields
    from specsim.decide.plan import STOP

    rows = [
        {
            "kind": m.measurement.kind,
            "setting": None if m.measurement.plan is None else setting_fields(m.measurement.plan),
            "regret_cut": float(f"{m.worth:.6g}"),
            "gpu_minutes": m.gpu_minutes,
            "cells": m.measurement.cells,
            "how": m.measurement.how,
        }
        for m in result.ranked
    ]
    document = {
        "schema": "specsim.plan/1",
        "profile": result.profile,
        "concurrency": list(result.concurrency),
        "regret": float(f"{result.regret:.6g}"),
        "stop_below": STOP,
        "worth_measuring": bool(result.worthwhile),
        "measurements": rows,
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
