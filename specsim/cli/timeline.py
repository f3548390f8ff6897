"""``specsim timeline``: where the time of a round goes, drawn as lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output
from specsim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specsim.profile import Profile
    from specsim.report.timeline import Timeline
    from specsim.setting import SpecSetting

WIDTH = 110
SKETCHED = 4  # rounds of the sketch; files hold all

AVERAGED = 400
"""Rounds of the means, at least: accepted tokens of 30 requests are then known to 1 %."""


@dataclass(frozen=True)
class Options(opt.Lengths):
    """How many rounds of how many clients, and what to write."""

    clients: int
    rounds: int
    seed: int
    plot: str | None
    trace: str | None


@opt.command("timeline", opt.AnyServer, opt.Asking, Options)
def timeline_command(server: opt.AnyServer, asked: opt.Asking, how: Options) -> None:
    """Show the phases of simulated rounds on CPU, GPU and link, sequential beside overlap.

    Of one setting (S,K,N: steps, topk, draft tokens), or of what runs today. --scheduler
    sequential or overlap shows that one alone, below.

    Example: specsim timeline --topk 2 --steps 2 --concurrency 30 --trace trace.json
    """
    from specsim.report.timeline import timelines

    profile, question, notes = server.ask(asked, how)
    setting = _setting(profile, asked, question.settings)
    workload = question.workload(profile.setup.workload)

    def simulated(rounds: int) -> Sequence[Timeline]:
        return timelines(
            profile, setting, how.clients, rounds=rounds, workload=workload, seed=how.seed
        )

    shown = simulated(how.rounds)
    if how.plot is not None:
        from specsim.report.timeline_views import timeline_figure

        caption = f"Profile {profile.name}, simulated (seed {how.seed})."
        output.write_plot(how.plot, timeline_figure(shown, caption))
    if how.trace is not None:
        from specsim.report.timeline_views import chrome_trace

        output.write_file(how.trace, chrome_trace(shown))
    many = shown if how.rounds >= AVERAGED else simulated(AVERAGED)
    _show(profile.name, simulated(SKETCHED) if how.rounds > SKETCHED else shown, many, notes)


def _setting(profile: Profile, asked: opt.Asking, settings: tuple[SpecSetting, ...]) -> SpecSetting:
    """Return the one setting that is asked about, or what runs today."""
    from specsim.setting import SpecSetting

    if asked.algorithm == "none":
        return SpecSetting.none(asked.scheduler)
    if len(settings) > 1:
        raise InputError(f"{len(settings)} settings", "are too many to show", "ask for one")
    if settings:
        return settings[0]
    current = profile.setup.current
    if current is None or not current.speculates:
        raise InputError("no setting", "is asked about", "add e.g. --topk 2 --steps 2")
    return current.with_scheduler(asked.scheduler)


def _show(
    name: str, sketched: Sequence[Timeline], many: Sequence[Timeline], notes: tuple[str, ...]
) -> None:
    from specsim.report.timeline import PHASES
    from specsim.report.timeline_views import sketch

    out = output.titled(f"{name}: simulated rounds", WIDTH)
    out.print()
    out.print(sketch(sketched, out.width), soft_wrap=True)
    means = [t.mean_ms() for t in many]
    rows = {
        words: [m.get(phase, 0.0) for m in means]
        for phase, (_, words) in PHASES.items()
        if any(phase in m for m in means)
    }
    whole = [t.rounds for t in many]
    rows["a round, start to end"] = [(r["end_ns"] - r["start_ns"]).mean() / 1e6 for r in whole]
    rows["tokens per request and round"] = [
        1 + r["accepted"].sum() / max(1, r["batch"].sum()) for r in whole
    ]
    cells = [(words, *(f"{value:.2f}" for value in values)) for words, values in rows.items()]
    schedulers = [t.title.split(", ")[1] for t in many]
    columns = output.headed(f"ms per round, mean of {len(whole[0])}", *schedulers)
    out.print()
    out.print(output.table(columns, cells))
    output.print_notes(out, notes)
