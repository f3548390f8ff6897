"""``specsim recommend``: what to launch at every load, how sure that is, and the flags for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output
from specsim.cli.options import AnyServer, command, filled, flag, option
from specsim.cli.readers import number, whole

if TYPE_CHECKING:
    from rich.console import Console

    from specsim.cli.output import Columns
    from specsim.decide.recommendation import LoadChoice, Option, Recommendation
    from specsim.decide.slo import Target
    from specsim.setting import SpecSetting
    from specsim.uncertainty import Interval

WIDTH = 120

FULL_WIDTH = 110
"""A narrower terminal gets gains without their intervals."""

SHOWN_TIES = 2


@dataclass(frozen=True)
class Options(opt.Requests):
    """Among which settings, at which loads, and by which measure."""

    concurrency: tuple[int, ...] | None = opt.concurrency()
    max_draft_tokens: int = opt.max_draft_tokens()
    max_steps: int = opt.max_steps()
    max_topk: int = option("K", "Widest tree.", whole(), default="8")
    targets: tuple[Target, ...] | None = opt.slo(
        "tpot=20ms,ttft=2s@p99", "Latency targets: mean, @p50 or @p99."
    )
    any_engine: bool = flag("Later releases of the engine count too.")
    max_running_requests: int | None = opt.max_running_requests()
    mix: tuple[tuple[int, float], ...] | None = opt.mix()
    schedule: bool = flag("Also the best number of steps by running batch.")
    gpu_hour_price: float | None = option("M", "Money per GPU and hour.", number())
    draft_model: str | None = option("PATH", "For the launch flags.")
    measured: tuple[SpecSetting, ...] | None = opt.measured()
    seed: int = opt.seed()
    as_json: bool = opt.as_json("specsim.recommendation/1")


@command("recommend", AnyServer, Options)
def recommend_command(server: AnyServer, how: Options) -> None:
    """Say which setting to launch at every load, by how much it wins, and how sure that is.

    Compares no speculation, chains and trees, whatever the engine's version runs.

    Example: specsim recommend --concurrency 1,30,100
    """
    from specsim.decide.candidates import Limits
    from specsim.decide.recommend import recommend
    from specsim.decide.recommendation import SCHEMA
    from specsim.decide.wish import Wish

    profile, notes = server.load()
    limits = Limits(how.max_draft_tokens, how.max_steps, how.max_topk)
    wish = filled(Wish, server, how, limits=limits)
    with output.status("comparing settings"):
        answer = recommend(profile, wish)
    answer = replace(answer, notes=(*notes, *answer.notes))
    if how.as_json:
        output.print_document(SCHEMA, answer)
        return
    out = _show(answer)
    if how.schedule:
        from specsim.decide.schedule import best_schedule, schedule_lines

        for line in schedule_lines(best_schedule(profile, wish)):
            out.print(line, soft_wrap=True)


def _show(answer: Recommendation) -> Console:
    """Print the table, sentences, flags and what they rest on."""
    from shlex import quote

    out = output.titled(f"{answer.profile}: the best setting by load", WIDTH)
    out.print(output.table(_columns(out.width >= FULL_WIDTH), answer.loads))
    if any(choice.tied for choice in answer.loads):
        out.print("~ tied: another setting is not surely slower")
    output.print_sentences(out, _sentences(answer))
    for launch in answer.launch:
        env = [f"{name}={value}" for name, value in launch.env.items()]
        words = " ".join([*env, *(quote(flag) for flag in launch.flags)])
        out.print(f"\n{launch.label} ({launch.engine} {launch.engine_version}):")
        out.print(f"  {words or 'no flags'}", soft_wrap=True)
    out.print()
    output.print_notes(out, answer.notes)
    return out


def _columns(wide: bool) -> Columns[LoadChoice]:
    """Return the columns, with intervals if there is room."""

    def rate(tps: Interval) -> str:
        return f"{tps.value:.0f}" + (f" ({tps.low:.0f}..{tps.high:.0f})" if wide else "")

    def gain(option: Option) -> str:
        return output.percent(option.gain, wide) if option.plan.setting.speculates else ""

    def today(load: LoadChoice) -> str:
        if load.current is not None and load.current.plan == load.choice.plan:
            return "today's"
        gain = load.choice.gain_against_current
        return "" if gain is None else output.percent(gain, wide)

    return (
        ("clients", lambda load: str(load.concurrency)),
        ("choose", lambda load: load.choice.label + (" ~" if load.tied else "  ")),
        ("tok/s (90 %)", lambda load: rate(load.choice.output_tps)),
        ("vs none", lambda load: gain(load.choice)),
        ("vs today", today),
        ("fastest", lambda load: f"{100 * load.choice.probability_fastest:.0f} %"),
        ("regret", lambda load: f"{100 * load.choice.regret:.1f} %"),
    )


def _sentences(answer: Recommendation) -> list[str]:
    """Say bands, ties, mix and advice."""
    lines = []
    for band in answer.bands:
        first, last = band.from_concurrency, band.to_concurrency
        where = f"{first} to {last}" if first < last else f"{first}"
        lines.append(f"{where} clients: {band.label}{_ties(band.choices)}.")
    option = answer.loads[-1].choice
    rate = (
        f"At {answer.loads[-1].concurrency} clients {option.output_tps_per_gpu:.1f} tok/s per GPU"
    )
    money = option.tokens_per_money
    lines.append(rate + ("." if money is None else f", {money:.4g} tokens per unit of money."))
    if answer.mix is not None:
        mix = answer.mix
        lines.append(
            f"One setting for the mix: {mix.label}, {mix.output_tps:.0f} tok/s, "
            f"{output.percent(mix.gain)} against no speculation; the fastest with "
            f"{100 * mix.probability_fastest:.0f} %, regret {100 * mix.regret:.1f} %."
        )
    lines += [advice.text[0].upper() + advice.text[1:] + "." for advice in answer.advice]
    return lines


def _ties(choices: tuple[LoadChoice, ...]) -> str:
    """Name the settings that are as good somewhere in the band, the best two."""
    tied: dict[str, Option] = {}
    for choice in choices:
        for other in choice.tied:  # the same setting under another scheduler is no news
            if other.plan.setting.key != choice.choice.plan.setting.key:
                tied.setdefault(other.label, other)
    if not tied:
        return ""
    names = list(tied)[:SHOWN_TIES]
    more = f" and {len(tied) - len(names)} more" if len(tied) > len(names) else ""
    return f"; not surely slower somewhere: {'; '.join(names)}{more}"
