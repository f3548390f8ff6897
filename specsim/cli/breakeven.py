"""``specsim breakeven``: the accept length that speculation needs, and where it stops paying."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from specsim.cli import options as opt
from specsim.cli import picture as pic
from specsim.cli import what_if

if TYPE_CHECKING:
    from specsim.decide.breakeven import BreakEvenCurve
    from specsim.profile import Profile
    from specsim.workload import Workload

WIDTH = 100


def breakeven_command(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="S,K,N|FILE", help="Settings. Default: what runs today."),
    ] = None,
    profile: what_if.ServerOption = None,
    topk: opt.TopkOption = None,
    steps: opt.StepsOption = None,
    draft_tokens: opt.DraftTokensOption = None,
    scheduler: opt.SchedulerOption = "auto",
    engine_version: opt.EngineVersionOption = None,
    concurrency: opt.ConcurrencyOption = None,
    input_len: opt.InputLenOption = None,
    output_len: opt.OutputLenOption = None,
    dataset: opt.DatasetOption = None,
    temperature: opt.TemperatureOption = None,
    round_ms: Annotated[
        float | None,
        typer.Option("--round-ms", metavar="MS", help="Without a profile: time of one round."),
    ] = None,
    step_ms: Annotated[
        float | None,
        typer.Option("--step-ms", metavar="MS", help="And of one step without speculation."),
    ] = None,
    overrides: what_if.SetOption = None,
    plot: pic.PlotOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print specsim.breakeven/1.")] = False,
) -> None:
    """Say which accept length equals no speculation, and at which load speculation stops paying.

    Example: specsim breakeven --topk 1 --steps 3

    Example: specsim breakeven --steps 1 --round-ms 98.7 --step-ms 37.7
    """
    import sys

    from specsim.cli.settings import Defaults, asked_settings
    from specsim.decide.breakeven import break_even
    from specsim.decide.candidates import algorithm_of
    from specsim.errors import InputError
    from specsim.question import CONCURRENCY

    pic.check_plot(plot)
    if round_ms is not None or step_ms is not None:
        if plot is not None:
            raise InputError(f"--plot {plot}", "needs a profile", "drop --round-ms and --step-ms")
        _without_profile(round_ms, step_ms, steps)
        return
    server = what_if.load_server(profile, overrides)
    loaded = server.profile
    defaults = Defaults(algorithm_of(loaded) or "EAGLE3", opt.parse_scheduler(scheduler))
    asked = asked_settings(defaults, (topk, steps, draft_tokens), [], settings or [], [])
    current = loaded.setup.current
    wanted = asked.settings or ((current,) if current is not None else ())
    if not wanted:
        raise InputError("no setting", "is asked about", "add e.g. --topk 1 --steps 3")
    loads = CONCURRENCY if concurrency is None else opt.parse_concurrency(concurrency)
    workload = what_if.asked_workload(loaded.setup.workload.workload, input_len, output_len)
    curves = [
        break_even(
            loaded,
            loaded.system().plan(setting, engine_version=engine_version),
            loads,
            workload,
            dataset,
            temperature,
        )
        for setting in wanted
    ]
    if plot is not None:
        _draw(loaded, curves, plot, workload, (dataset, temperature))
    if as_json:
        sys.stdout.write(_document(loaded.name, curves))
        return
    _show(loaded.name, curves, (*server.notes, *asked.notes))


def _draw(
    profile: Profile,
    curves: list[BreakEvenCurve],
    plot: str,
    workload: Workload | None,
    acceptance: tuple[str | None, float | None],
) -> None:
    """Map the gain of one setting over accept length and load."""
    from specsim.errors import InputError
    from specsim.report.figure import new_figure, profile_caption
    from specsim.report.plots_cost import gain_map, plot_gain_map

    if len(curves) > 1:
        raise InputError(f"--plot with {len(curves)} settings", "shows one", "ask about one")
    loads = [point.concurrency for point in curves[0].points]
    plan, (dataset, temperature) = curves[0].plan, acceptance
    gains = gain_map(profile, plan, loads, workload, dataset=dataset, temperature=temperature)
    note = "Shaded: slower than no speculation; darker: by more than a fifth."
    about = f"{plan.engine} {plan.version}, closed form."
    figure, axes = new_figure(profile_caption(profile, about, note))
    plot_gain_map(axes, gains)
    pic.write_plot(plot, figure)


def _without_profile(round_ms: float | None, step_ms: float | None, steps: int | None) -> None:
    """Answer from two times alone."""
    from specsim.cli.console import console
    from specsim.decide.breakeven import breakeven_accept_length, most_accept_length
    from specsim.errors import InputError

    if round_ms is None or step_ms is None:
        raise InputError(
            "--round-ms and --step-ms", "belong together", "give both, in milliseconds"
        )
    length = breakeven_accept_length(1e-3 * round_ms, 1e-3 * step_ms)
    text = f"Break-even at {length:.2f} tokens per round (bonus token included)"
    if steps is not None and steps >= 1:
        most = most_accept_length(steps)
        reach = "unreachable: above" if length > most else "within"
        text += f"; {reach} the {most} that {steps} step{'s' * (steps > 1)} can yield"
    console(piped_width=WIDTH).print(text + ".", soft_wrap=True)


def _show(name: str, curves: list[BreakEvenCurve], notes: tuple[str, ...]) -> None:
    from textwrap import fill

    from specsim.cli.console import console, table
    from specsim.decide.recommendation import plan_name

    out = console(piped_width=WIDTH)
    out.print(f"{name}: break-even accept length by load", style="bold")
    for curve in curves:
        out.print(f"\n{plan_name(curve.plan)}, {curve.plan.engine} {curve.plan.version}")
        grid = table("clients", "needed", "expected", "possible", "gain", "limit")
        for p in curve.points:
            needed = f"{p.accept_length:.2f}" if p.reachable else "unreachable"
            grid.add_row(
                str(p.concurrency),
                needed,
                f"{p.expected:.2f}",
                f"{p.most:.0f}",
                f"{100 * p.gain:+.0f} %",
                p.limit,
            )
        out.print(grid)
        for sentence in _sentences(curve):
            out.print(fill(sentence, out.width), soft_wrap=True)
    for note in notes:
        out.print(fill(note, out.width, initial_indent="- ", subsequent_indent="  "))


def _sentences(curve: BreakEvenCurve) -> list[str]:
    """Say where it pays, where it cannot, and what binds there."""
    points = curve.points
    lines = []
    for crossing in curve.crossovers:
        verb = "stops paying" if crossing.pays_below else "starts to pay"
        lines.append(
            f"It {verb} at about {crossing.concurrency:.0f} clients; "
            f"what binds above: {crossing.limit}."
        )
    if not curve.crossovers:
        pays = points[0].gain > 0
        where = f"{points[0].concurrency} to {points[-1].concurrency} clients"
        lines.append(f"It {'pays' if pays else 'does not pay'} at any load, {where}.")
    lost = [p.concurrency for p in points if not p.reachable]
    if lost:
        lines.append(
            f"Unreachable at {', '.join(map(str, lost))} clients: even a perfect drafter loses "
            f"(more than {points[0].most:.0f} tokens per round would be needed)."
        )
    return lines


def _document(name: str, curves: list[BreakEvenCurve]) -> str:
    """Write ``specsim.breakeven/1``; null where a break-even is out of reach."""
    import json

    from specsim.decide.document import setting_fields

    def short(x: float) -> float:
        return float(f"{x:.10g}")

    rows = [
        {
            **setting_fields(curve.plan),
            "points": [
                {
                    "concurrency": p.concurrency,
                    "breakeven_accept_length": short(p.accept_length) if p.reachable else None,
                    "expected_accept_length": short(p.expected),
                    "most_accept_length": p.most,
                    "reachable": p.reachable,
                    "gain": short(p.gain),
                    "limit": p.limit,
                }
                for p in curve.points
            ],
            "crossovers": [
                {
                    "concurrency": short(c.concurrency),
                    "pays_below": c.pays_below,
                    "limit": c.limit,
                }
                for c in curve.crossovers
            ],
        }
        for curve in curves
    ]
    document = {"schema": "specsim.breakeven/1", "profile": name, "settings": rows}
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
