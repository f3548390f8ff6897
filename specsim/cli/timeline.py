"""``specsim timeline``: where the time of a round goes, drawn as lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from specsim.cli import options as opt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specsim.profile import Profile
    from specsim.report.timeline import Timeline
    from specsim.setting import SpecSetting

WIDTH = 110
"""Columns when piped and COLUMNS is not set."""

SKETCHED = 4
"""Rounds of the sketch; files hold all."""


def timeline_command(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="S,K,N", help="The setting. Default: what runs today."),
    ] = None,
    profile: opt.ProfileOption = None,
    topk: opt.TopkOption = None,
    steps: opt.StepsOption = None,
    draft_tokens: opt.DraftTokensOption = None,
    algorithm: opt.AlgorithmOption = None,
    scheduler: Annotated[
        str,
        typer.Option(
            "--scheduler", metavar="auto|sequential|overlap", help="auto shows both, one below."
        ),
    ] = "auto",
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="C", help="Clients in flight.")
    ] = 30,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", help="Rounds in the files; 4 are sketched.")
    ] = 4,
    input_len: opt.InputLenOption = None,
    output_len: opt.OutputLenOption = None,
    seed: opt.SeedOption = 0,
    plot: Annotated[
        str | None,
        typer.Option("--plot", "--png", metavar="FILE", help="Draw to .png, .svg or .pdf."),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option("--trace", metavar="FILE", help="Write a Chrome trace for Perfetto."),
    ] = None,
) -> None:
    """Show the phases of simulated rounds on CPU, GPU and link, sequential beside overlap.

    Example: specsim timeline --topk 2 --steps 2 --concurrency 30 --trace trace.json
    """
    import sys
    from pathlib import Path

    from specsim.cli.settings import Defaults
    from specsim.cli.what_if import asked_workload
    from specsim.errors import InputError
    from specsim.profile import load_profile, write_bytes, write_text
    from specsim.report.timeline import timelines
    from specsim.setting import parse_algorithm

    if not 1 <= concurrency <= 20_000:
        raise InputError(f"concurrency {concurrency}", "must lie in 1..20000", "give clients")
    if not 0 <= seed < 2**63:
        raise InputError(f"seed {seed}", "must lie in 0..2^63 - 1", "give a whole number, e.g. 0")
    if plot is not None:
        from specsim.report.figure import plot_format

        plot_format(plot)
    loaded = load_profile(profile)
    defaults = Defaults(
        parse_algorithm(algorithm) if algorithm else loaded.default_algorithm,
        opt.parse_scheduler(scheduler),
    )
    setting = _setting(loaded, defaults, (topk, steps, draft_tokens), settings or [])
    workload = asked_workload(loaded.setup.workload.workload, input_len, output_len)
    shown = timelines(loaded, setting, concurrency, rounds=rounds, workload=workload, seed=seed)
    if plot is not None:
        from specsim.report.figure import drawn, plot_format
        from specsim.report.plots_timeline import timeline_figure

        figure = timeline_figure(shown, f"Profile {loaded.name}, simulated (seed {seed}).")
        write_bytes(Path(plot), drawn(figure, plot_format(plot)))
        sys.stderr.write(f"wrote {plot}\n")
    if trace is not None:
        from specsim.report.chrome import chrome_trace

        write_text(Path(trace), chrome_trace(shown))
        sys.stderr.write(f"wrote {trace}\n")
    sketched = shown
    if rounds > SKETCHED:
        sketched = timelines(
            loaded, setting, concurrency, rounds=SKETCHED, workload=workload, seed=seed
        )
    _show(loaded.name, sketched, shown)


def _setting(
    loaded: Profile,
    defaults: object,
    numbers: tuple[int | None, int | None, int | None],
    words: list[str],
) -> SpecSetting:
    """Return the one setting that is asked about, or what runs today.

    Raises
    ------
    InputError
        If there are several, or none.
    """
    from specsim.cli.settings import Defaults, asked_settings
    from specsim.errors import InputError
    from specsim.setting import SpecSetting as Setting

    assert isinstance(defaults, Defaults)
    if defaults.algorithm == "none":
        return Setting.none(defaults.scheduler)
    asked = asked_settings(defaults, numbers, [], words, []).settings
    if len(asked) > 1:
        raise InputError(f"{len(asked)} settings", "are too many to show", "ask for one")
    if asked:
        return asked[0]
    current = loaded.setup.current
    if current is None or not current.speculates:
        raise InputError("no setting", "is asked about", "add e.g. --topk 2 --steps 2")
    return current.with_scheduler(defaults.scheduler)


def _show(name: str, sketched: Sequence[Timeline], shown: Sequence[Timeline]) -> None:
    """Print the sketch and the means of all rounds."""
    from specsim.cli.console import console, table
    from specsim.report.sketch import sketch
    from specsim.report.timeline import PHASES

    out = console(piped_width=WIDTH)
    out.print(f"{name}: simulated rounds", style="bold")
    out.print()
    out.print(sketch(sketched, out.width), soft_wrap=True)
    count = len(shown[0].rounds)
    names = [t.title.split(", ")[1] for t in shown]
    grid = table(f"ms per round, {count} rounds", *names)
    means = [t.mean_ms() for t in shown]
    for phase, (_, words) in PHASES.items():
        if any(phase in m for m in means):
            grid.add_row(words, *(f"{m.get(phase, 0.0):.2f}" for m in means))
    whole = [t.rounds for t in shown]
    lengths = [float((r["end_ns"] - r["start_ns"]).mean()) / 1e6 for r in whole]
    grid.add_row("a round, start to end", *(f"{x:.2f}" for x in lengths))
    accepted = [float(1 + r["accepted"].sum() / max(1, r["batch"].sum())) for r in whole]
    grid.add_row("tokens per request and round", *(f"{x:.2f}" for x in accepted))
    out.print()
    out.print(grid)
