"""``specsim recommend``: what to launch at every load, how sure that is, and the flags for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from specsim.cli import options as opt
from specsim.cli import what_if

if TYPE_CHECKING:
    from rich.console import Console

    from specsim.decide.recommendation import LoadChoice, Option, Range, Recommendation

WIDTH = 120
"""Columns when piped and COLUMNS is not set."""

FULL_WIDTH = 110
"""A narrower terminal gets gains without their intervals."""

SHOWN_TIES = 2


def recommend_command(
    profile: what_if.ServerOption = None,
    concurrency: opt.ConcurrencyOption = None,
    max_draft_tokens: Annotated[
        int, typer.Option("--max-draft-tokens", metavar="N", help="Most tokens verified per round.")
    ] = 64,
    max_steps: Annotated[int, typer.Option("--max-steps", metavar="S", help="Deepest draft.")] = 8,
    max_topk: Annotated[int, typer.Option("--max-topk", metavar="K", help="Widest tree.")] = 8,
    slo: Annotated[
        str | None,
        typer.Option(
            "--slo", metavar="tpot=20ms,ttft=2s@p99", help="Latency targets: mean, @p50 or @p99."
        ),
    ] = None,
    engine_version: opt.EngineVersionOption = None,
    any_engine: Annotated[
        bool, typer.Option("--any-engine", help="Later releases of the engine count too.")
    ] = False,
    max_running_requests: opt.MaxRunningOption = None,
    input_len: opt.InputLenOption = None,
    output_len: opt.OutputLenOption = None,
    dataset: opt.DatasetOption = None,
    temperature: opt.TemperatureOption = None,
    mix: what_if.MixOption = None,
    schedule: Annotated[
        bool,
        typer.Option("--schedule", help="Also the best number of steps by running batch."),
    ] = False,
    gpu_hour_price: Annotated[
        float | None,
        typer.Option("--gpu-hour-price", metavar="M", help="Money per GPU and hour."),
    ] = None,
    draft_model: Annotated[
        str | None, typer.Option("--draft-model", metavar="PATH", help="For the launch flags.")
    ] = None,
    observations: what_if.MeasuredOption = None,
    overrides: what_if.SetOption = None,
    seed: opt.SeedOption = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print specsim.recommendation/1 only.")
    ] = False,
) -> None:
    """Say which setting to launch at every load, by how much it wins, and how sure that is.

    Compares no speculation, chains and trees, whatever the engine's version runs.

    Example: specsim recommend --concurrency 1,30,100
    """
    import sys
    from dataclasses import replace

    from specsim.cli.console import console, status
    from specsim.decide.candidates import Limits
    from specsim.decide.recommend import Wish, recommend
    from specsim.decide.slo import parse_slo
    from specsim.question import CONCURRENCY

    server = what_if.load_server(profile, overrides)
    wish = Wish(
        limits=Limits(max_draft_tokens, max_steps, max_topk),
        targets=parse_slo(slo) if slo else (),
        engine_version=engine_version,
        any_engine=any_engine,
        max_running_requests=max_running_requests,
        workload=what_if.asked_workload(
            server.profile.setup.workload.workload, input_len, output_len
        ),
        dataset=dataset,
        temperature=temperature,
        mix=what_if.parse_mix(mix),
        measured=what_if.measured_settings(observations),
        gpu_hour_price=gpu_hour_price,
        draft_model=draft_model,
        seed=seed,
    )
    loads = CONCURRENCY if concurrency is None else opt.parse_concurrency(concurrency)
    with status("comparing settings"):
        answer = recommend(server.profile, loads, wish)
    answer = replace(answer, notes=(*server.notes, *answer.notes))
    if as_json:
        sys.stdout.write(answer.to_json())
        return
    out = console(piped_width=WIDTH)
    _show(answer, out)
    if schedule:
        from specsim.decide.schedule import best_schedule, schedule_lines

        for line in schedule_lines(best_schedule(server.profile, wish)):
            out.print(line, soft_wrap=True, markup=False)


def _show(answer: Recommendation, out: Console) -> None:
    """Print the table, sentences, flags and what they rest on."""
    from textwrap import fill

    from specsim.cli.console import table

    out.print(f"{answer.profile}: the best setting by load", style="bold", markup=False)
    grid = table("clients", "choose", "tok/s (90 %)", "vs none", "vs today", "fastest", "regret")
    for choice in answer.loads:
        grid.add_row(*_row(choice, out.width >= FULL_WIDTH))
    out.print(grid)
    if any(choice.tied for choice in answer.loads):
        out.print("~ tied: another setting is not surely slower")
    for sentence in _sentences(answer):
        out.print(fill(sentence, out.width), soft_wrap=True, markup=False)
    for launch in answer.launch:
        from specsim.decide.recommendation import plan_name

        env = [f"{name}={value}" for name, value in launch.env]
        words = " ".join([*env, *(_quoted(flag) for flag in launch.flags)])
        out.print(f"\n{plan_name(launch.plan)} ({launch.plan.engine} {launch.plan.version}):")
        out.print(f"  {words or 'no flags'}", soft_wrap=True, markup=False)
    out.print()
    for note in answer.notes:
        lines = fill(note, out.width, initial_indent="- ", subsequent_indent="  ")
        out.print(lines, soft_wrap=True, markup=False)


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


def _quoted(flag: str) -> str:
    import shlex

    return shlex.quote(flag)
