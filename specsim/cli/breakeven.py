"""``specsim breakeven``: the accept length that speculation needs, and where it stops paying."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output
from specsim.errors import InputError

if TYPE_CHECKING:
    from specsim.decide.breakeven import BreakEven, BreakEvenCurve
    from specsim.profile import Profile
    from specsim.question import Question


WIDTH = 100

COLUMNS: output.Columns[BreakEven] = (
    ("clients", lambda p: str(p.concurrency)),
    ("needed", lambda p: f"{p.breakeven_accept_length:.2f}" if p.reachable else "unreachable"),
    ("expected", lambda p: f"{p.expected_accept_length:.2f}"),
    ("possible", lambda p: f"{p.most_accept_length:.0f}"),
    ("gain", lambda p: f"{100 * p.gain:+.0f} %"),
    ("limit", lambda p: p.limit),
)


@dataclass(frozen=True)
class Options(opt.Requests):
    """At which loads, or from two times alone."""

    concurrency: tuple[int, ...] | None
    round_ms: float | None
    step_ms: float | None
    plot: str | None
    as_json: bool


@opt.command("breakeven", opt.AnyServer, opt.Asking, Options)
def breakeven_command(server: opt.AnyServer, asked: opt.Asking, how: Options) -> None:
    """Say which accept length equals no speculation, and at which load speculation stops paying.

    Of the asked settings (S,K,N: steps, topk, draft tokens), or of what runs today.

    Example: specsim breakeven --topk 1 --steps 3

    Example: specsim breakeven --steps 1 --round-ms 98.7 --step-ms 37.7
    """
    from specsim.decide.breakeven import SCHEMA, BreakEvens, break_even

    if how.round_ms is not None or how.step_ms is not None:
        used = ("round_ms", "step_ms", "num_steps")
        why = "means nothing beside --round-ms and --step-ms, which need no server"
        opt.refuse_given(why, "drop one or the other", server, asked, how, but=used)
        _without_profile(how.round_ms, how.step_ms, asked.num_steps)
        return
    profile, question, notes = server.ask(asked, how)
    current = profile.setup.current
    wanted = question.settings or ((current,) if current is not None else ())
    if not wanted:
        raise InputError("no setting", "is asked about", "add e.g. --topk 1 --steps 3")
    version = question.engine_version
    plans = [profile.system().plan(setting, engine_version=version) for setting in wanted]
    curves = [break_even(profile, plan, question) for plan in plans]
    if how.plot is not None:
        _draw(profile, curves, how.plot, question)
    if how.as_json:
        output.print_document(SCHEMA, BreakEvens(profile.name, tuple(curves), notes))
    else:
        _show(profile.name, curves, notes)


def _draw(profile: Profile, curves: list[BreakEvenCurve], plot: str, question: Question) -> None:
    """Map the gain of one setting over accept length and load."""
    from specsim.decide.breakeven import gain_map
    from specsim.report.figure import new_figure, profile_caption
    from specsim.report.plots import plot_gain_map

    if len(curves) > 1:
        raise InputError(f"--plot with {len(curves)} settings", "shows one", "ask about one")
    plan = curves[0].plan
    note = "Shaded: slower than no speculation; darker: by more than a fifth."
    about = f"{plan.engine} {plan.version}, closed form."
    figure, axes = new_figure(profile_caption(profile, about, note))
    plot_gain_map(axes, gain_map(profile, plan, question))
    output.write_plot(plot, figure)


def _without_profile(round_ms: float | None, step_ms: float | None, steps: int | None) -> None:
    from specsim.decide.breakeven import breakeven_accept_length

    if round_ms is None or step_ms is None:
        why = "belong together"
        raise InputError("--round-ms and --step-ms", why, "give both, in milliseconds")
    length = breakeven_accept_length(1e-3 * round_ms, 1e-3 * step_ms)
    text = f"Break-even at {length:.2f} tokens per round (bonus token included)"
    if steps is not None and steps >= 1:
        most = steps + 1
        reach = "unreachable: above" if length > most else "within"
        text += f"; {reach} the {most} that {steps} step{'s' * (steps > 1)} can yield"
    output.console(WIDTH).print(text + ".", soft_wrap=True)


def _show(name: str, curves: list[BreakEvenCurve], notes: tuple[str, ...]) -> None:
    out = output.titled(f"{name}: break-even accept length by load", WIDTH)
    for curve in curves:
        out.print(f"\n{curve.label}, {curve.plan.engine} {curve.plan.version}")
        out.print(output.table(COLUMNS, curve.points))
        output.print_sentences(out, _sentences(curve))
    output.print_notes(out, notes)


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
        verb = "is expected to pay" if pays else "is not expected to pay"
        lines.append(f"It {verb} at any load, {where}; predict says how surely.")
    lost = [p.concurrency for p in points if not p.reachable]
    if lost:
        lines.append(
            f"Unreachable at {', '.join(map(str, lost))} clients: even a perfect drafter loses "
            f"(more than {points[0].most_accept_length:.0f} tokens per round would be needed)."
        )
    return lines
