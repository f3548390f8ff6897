"""``specsim timeline``: where the time of a round goes, drawn as lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output
from specsim.cli.options import Server, command, file, option
from specsim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specsim.profile import Profile
    from specsim.report.timeline import Timeline
    from specsim.setting import SpecSetting

WIDTH = 110
"""Columns when piped and COLUMNS is not set."""

SKETCHED = 4
"""Rounds of the sketch; files hold all."""


@dataclass(frozen=True)
class Options(opt.Lengths):
    """How many rounds of how many clients, and what to write."""

    words: tuple[str, ...] = opt.words()
    concurrency: int = option(
        "--concurrency", "C", "Clients in flight.", opt.whole(1, 20_000), default="30"
    )
    rounds: int = option(
        "--rounds", "N", "Rounds in the files; 4 are sketched.", opt.whole(), default="4"
    )
    seed: int = opt.seed()
    plot: str | None = file("--plot --png", "Draw to .png, .svg or .pdf.")
    trace: str | None = file("--trace", "Write a Chrome trace for Perfetto.")


@command("timeline", Server, opt.Asked, Options)
def timeline_command(server: Server, asked: opt.Asked, how: Options) -> None:
    """Show the phases of simulated rounds on CPU, GPU and link, sequential beside overlap.

    Of one setting (S,K,N: steps, topk, draft tokens), or of what runs today. --scheduler
    sequential or overlap shows that one alone, below.

    Example: specsim timeline --topk 2 --steps 2 --concurrency 30 --trace trace.json
    """
    from specsim.report.timeline import timelines

    output.check_plot(how.plot)
    output.check_file("--trace", how.trace)
    profile, notes = server.load()
    setting = _setting(profile, asked, how.words)
    workload = how.workload(profile.setup.workload)

    def simulated(rounds: int) -> Sequence[Timeline]:
        return timelines(
            profile, setting, how.concurrency, rounds=rounds, workload=workload, seed=how.seed
        )

    shown = simulated(how.rounds)
    if how.plot is not None:
        from specsim.report.plots_timeline import timeline_figure

        caption = f"Profile {profile.name}, simulated (seed {how.seed})."
        output.write_plot(how.plot, timeline_figure(shown, caption))
    if how.trace is not None:
        from specsim.report.chrome import chrome_trace

        output.write_file(how.trace, chrome_trace(shown))
    _show(profile.name, simulated(SKETCHED) if how.rounds > SKETCHED else shown, shown, notes)


def _setting(profile: Profile, asked: opt.Asked, words: tuple[str, ...]) -> SpecSetting:
    """Return the one setting that is asked about, or what runs today.

    Raises
    ------
    InputError
        If there are several, or none.
    """
    from specsim.setting import SpecSetting

    if asked.algorithm == "none":
        return SpecSetting.none(asked.scheduler)
    settings = asked.settings(profile.default_algorithm, words).asked
    if len(settings) > 1:
        raise InputError(f"{len(settings)} settings", "are too many to show", "ask for one")
    if settings:
        return settings[0]
    current = profile.setup.current
    if current is None or not current.speculates:
        raise InputError("no setting", "is asked about", "add e.g. --topk 2 --steps 2")
    return current.with_scheduler(asked.scheduler)


def _show(
    name: str, sketched: Sequence[Timeline], shown: Sequence[Timeline], notes: tuple[str, ...]
) -> None:
    """Print the sketch and the means of all rounds."""
    from specsim.report.sketch import sketch
    from specsim.report.timeline import PHASES

    out = output.console(WIDTH)
    out.print(f"{name}: simulated rounds", style="bold")
    out.print()
    out.print(sketch(sketched, out.width), soft_wrap=True)
    count = len(shown[0].rounds)
    grid = output.table(f"ms per round, {count} rounds", *(t.title.split(", ")[1] for t in shown))
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
    output.print_notes(out, notes)
