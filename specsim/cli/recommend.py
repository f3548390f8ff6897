"""``specsim recommend``: what to launch at every load, how sure that is, and the flags for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from specsim.cli import options as opt
from specsim.cli import output, values
from specsim.cli.server import AnyServer

if TYPE_CHECKING:
    from rich.console import Console

    from specsim.decide.recommendation import LoadChoice, Option, Range, Recommendation
    from specsim.decide.slo import Target

WIDTH = 120
"""Columns when piped and COLUMNS is not set."""

FULL_WIDTH = 110
"""A narrower terminal gets gains without their intervals."""

SHOWN_TIES = 2


@click.command("recommend")
@opt.takes(server=AnyServer, requests=opt.Requests)
@opt.concurrency
@opt.max_draft_tokens
@opt.max_steps
@click.option(
    "--max-topk", metavar="K", default="8", callback=values.whole(), help="Widest tree."
)
@click.option(
    "--slo",
    "targets",
    metavar="tpot=20ms,ttft=2s@p99",
    callback=values.parsed("specsim.decide.slo", "parse_slo"),
    help="Latency targets: mean, @p50 or @p99.",
)
@click.option("--any-engine", is_flag=True, help="Later releases of the engine count too.")
@opt.max_running_requests
@opt.mix
@click.option(
    "--schedule", is_flag=True, help="Also the best number of steps by running batch."
)
@click.option(
    "--gpu-hour-price", metavar="M", callback=values.number(), help="Money per GPU and hour."
)
@click.option("--draft-model", metavar="PATH", help="For the launch flags.")
@opt.measured
@opt.seed
@opt.as_json("specsim.recommendation/1")
def recommend_command(
    server: AnyServer,
    requests: opt.Requests,
    concurrency: tuple[int, ...] | None,
    max_draft_tokens: int,
    max_steps: int,
    max_topk: int,
    targets: tuple[Target, ...] | None,
    any_engine: bool,
    max_running_requests: int | None,
    mix: tuple[tuple[int, float], ...],
    schedule: bool,
    gpu_hour_price: float | None,
    draft_model: str | None,
    observations: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Say which setting to launch at every load, by how much it wins, and how sure that is.

    Compares no speculation, chains and trees, whatever the engine's version runs.

    Example: specsim recommend --concurrency 1,30,100
    """
    from dataclasses import replace

    from specsim.decide.candidates import Limits
    from specsim.decide.recommend import Wish, recommend
<<<<<<< HEAD
    from specsim.question import CONCURRENCY
=======
    from specsim.decide.slo import parse_slo
    from specsim.question import CONCURRENCY
>>>>>>> main

    profile, notes = server.load()
    wish = Wish(
        limits=Limits(max_draft_tokens, max_steps, max_topk),
        targets=targets or (),
        engine_version=server.engine_version,
        any_engine=any_engine,
        max_running_requests=max_running_requests,
        workload=requests.workload(profile.setup.workload.workload),
        dataset=requests.dataset,
        temperature=requests.temperature,
        mix=mix,
        measured=opt.measured_settings(observations),
        gpu_hour_price=gpu_hour_price,
        draft_model=draft_model,
        seed=seed,
    )
    with output.status("comparing settings"):
        answer = recommend(profile, concurrency or CONCURRENCY, wish)
    answer = replace(answer, notes=(*notes, *answer.notes))
    if as_json:
        sys.stdout.write(answer.to_json())
        return
    out = output.console(WIDTH)
    _show(answer, out)
    if schedule:
        from specsim.decide.schedule import best_schedule, schedule_lines

        for line in schedule_lines(best_schedule(profile, wish)):
            out.print(line, soft_wrap=True)


def _show(answer: Recommendation, out: Console) -> None:
    """Print the table, sentences, flags and what they rest on."""
    from shlex import quote

    from specsim.decide.recommendation import plan_name

    out.print(f"{answer.profile}: the best setting by load", style="bold")
    grid = output.table("clients", "choose", "tok/s (90 %)", "vs none", "vs today", "fastest", "regret")
    for choice in answer.loads:
        grid.add_row(*_row(choice, out.width >= FULL_WIDTH))
    out.print(grid)
    if any(choice.tied for choice in answer.loads):
        out.print("~ tied: another setting is not surely slower")
    output.print_sentences(out, _sentences(answer))
    for launch in answer.launch:
        env = [f"{name}={value}" for name, value in launch.env]
        words = " ".join([*env, *(quote(flag) for flag in launch.flags)])
        out.print(f"\n{plan_name(launch.plan)} ({launch.plan.engine} {launch.plan.version}):")
        out.print(f"  {words or 'no flags'}", soft_wrap=True)
    out.print()
    output.print_notes(out, answer.notes)


def _row(choice: LoadChoice, wide: bool) -> tuple[str, ...]:
    option = choice.choice
    today = option.against_current
    same = choice.current is not None and choice.current.plan == option.plan
    tps = option.output_tps
    return (
        str(choice.concurrency),
        option.label + (" ~" if choice.tied else "  "),
        f"{tps.value:.0f}" + (f" ({tps.low:.0f}..{tps.high:.0f})" if wide else ""),
        _gain(option.gain, wide) if option.plan.setting.speculates else "",
        "today's" if same else "" if today is None else _gain(today, wide),
        f"{100 * option.probability:.0f} %",
        f"{100 * option.regret:.1f} %",
    )


def _gain(gain: Range, wide: bool = True) -> str:
    text = f"{100 * gain.value:+.0f} %"
    return text + f" ({100 * gain.low:+.0f}..{100 * gain.high:+.0f})" if wide else text


def _sentences(answer: Recommendation) -> list[str]:
    """Say bands, ties, mix and advice."""
    lines = []
    for band in answer.bands:
        where = f"{band.first} to {band.last}" if band.first < band.last else f"{band.first}"
        first = band.choices[0].choice
        lines.append(f"{where} clients: {first.label}{_ties(band.choices)}.")
    option = answer.loads[-1].choice
    rate = (
        f"At {answer.loads[-1].concurrency} clients {answer.tps_per_gpu(option):.1f} tok/s per GPU"
    )
    money = answer.tokens_per_money(option)
    lines.append(rate + ("." if money is None else f", {money:.4g} tokens per unit of money."))
    if answer.mix is not None:
        from specsim.decide.recommendation import plan_name

        mix = answer.mix
        lines.append(
            f"One setting for the mix: {plan_name(mix.plan)}, {mix.output_tps:.0f} tok/s, "
            f"{_gain(mix.gain)} against no speculation; the fastest with "
            f"{100 * mix.probability:.0f} %, regret {100 * mix.regret:.1f} %."
        )
    lines += [advice.text[0].upper() + advice.text[1:] + "." for advice in answer.advice]
    return lines


def _ties(choices: tuple[LoadChoice, ...]) -> str:
    """Name the settings that are as good somewhere in the band, the best two."""
    tied: dict[str, Option] = {}
    for choice in choices:
        for option in choice.tied:  # the same setting under another scheduler is no news
            if option.plan.setting.key != choice.choice.plan.setting.key:
                tied.setdefault(option.label, option)
    if not tied:
        return ""
    names = list(tied)[:SHOWN_TIES]
    more = f" and {len(tied) - len(names)} more" if len(tied) > len(names) else ""
    return f"; not surely slower somewhere: {'; '.join(names)}{more}"
