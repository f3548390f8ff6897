"""``specsim plan``: what to measure next, and whether anything would change the choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from specsim.cli import options as opt
from specsim.cli import what_if

if TYPE_CHECKING:
    from specsim.decide.plan import MeasurementPlan

WIDTH = 110

SHOWN = 8


def plan_command(
    profile: what_if.ServerOption = None,
    concurrency: opt.ConcurrencyOption = None,
    engine_version: opt.EngineVersionOption = None,
    input_len: opt.InputLenOption = None,
    output_len: opt.OutputLenOption = None,
    dataset: opt.DatasetOption = None,
    temperature: opt.TemperatureOption = None,
    mix: what_if.MixOption = None,
    observations: what_if.MeasuredOption = None,
    overrides: what_if.SetOption = None,
    seed: opt.SeedOption = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print specsim.plan/1.")] = False,
) -> None:
    """Rank the next measurements by how much they should cut the regret of the choice.

    Example: specsim plan --concurrency 1,30,100
    """
    import sys

    from specsim.cli.console import status
    from specsim.decide.plan import LOADS, plan_measurements
    from specsim.decide.wish import Wish
    from specsim.documents import document

    server = what_if.load_server(profile, overrides)
    wish = Wish(
        concurrency=LOADS if concurrency is None else opt.parse_concurrency(concurrency),
        engine_version=engine_version,
        input_len=input_len,
        output_len=output_len,
        dataset=dataset,
        temperature=temperature,
        mix=what_if.parse_mix(mix),
        measured=what_if.measured_settings(observations),
        seed=seed,
    )
    with status("weighing measurements"):
        result = plan_measurements(server.profile, wish)
    if as_json:
        sys.stdout.write(document("specsim.plan/1", result, digits=6))
        return
    _show(result, server.notes)


def _show(result: MeasurementPlan, notes: tuple[str, ...]) -> None:
    from textwrap import fill

    from specsim.cli.console import console, table

    out = console(piped_width=WIDTH)
    loads = ", ".join(map(str, result.concurrency))
    out.print(f"{result.profile}: what to measure next, for {loads} clients", style="bold")
    out.print(
        f"Choosing now is expected to lose {100 * result.regret:.1f} % of the throughput "
        "against the fastest setting."
    )
    grid = table("measurement", "regret cut by", "GPU minutes", "cells")
    for planned in result.measurements[:SHOWN]:
        grid.add_row(
            planned.label,
            f"{100 * planned.regret_cut:.2f} %",
            f"{planned.gpu_minutes:.0f}",
            str(planned.cells or ""),
        )
    out.print(grid)
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
        for line in lines:
            out.print(fill(line, out.width), soft_wrap=True)
    for note in notes:
        out.print(fill(note, out.width, initial_indent="- ", subsequent_indent="  "))
