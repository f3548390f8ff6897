"""``specsim recommend``: what to launch at every load, how sure that is, and the flags for it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output

if TYPE_CHECKING:
    from rich.console import Console

    from specsim.decide import LoadChoice, Option
    from specsim.decide.recommend import Recommendation
    from specsim.question import Target
    from specsim.setting import SpecSetting
    from specsim.uncertainty import Interval

WIDTH = 120
FULL_WIDTH = 110  # a narrower terminal gets gains without their intervals
SHOWN_TIES = 2
SHOWN_LAUNCHES = 3
PATHS = "--model-path and --draft-model"


@dataclass(frozen=True)
class Options(opt.Requests):
    """Among which settings, at which loads, and by which measure."""

    url: str | None
    concurrency: tuple[int, ...] | None
    max_draft_tokens: int
    max_steps: int
    max_topk: int
    targets: tuple[Target, ...] | None
    any_engine: bool
    max_running_requests: int | None
    mix: tuple[tuple[int, float], ...] | None
    schedule: bool
    gpu_hour_price: float | None
    model_path: str | None
    draft_model: str | None
    script: str | None
    measured: tuple[SpecSetting, ...] | None
    seed: int
    full: bool
    as_json: bool


@opt.command("recommend", opt.AnyServer, Options)
def recommend_command(server: opt.AnyServer, how: Options) -> None:
    """Say which setting to launch at every load, by how much it wins, and how sure that is.

    Compares no speculation, chains and trees, whatever the engine's version runs.

    With the URL of a running server: for that one, by what it counts now.

    Example: specsim recommend --concurrency 1,30,100

    Example: specsim recommend http://localhost:30000 --gpu h100-sxm
    """
    from specsim.decide.recommend import SCHEMA, recommend
    from specsim.question import CONCURRENCY, Question

    if how.url is None:
        profile, notes = server.load()
    else:
        from specsim.cli.live import profile_of

        profile, notes = profile_of(how.url, server, how)
    loads = how.concurrency or tuple(sorted(load for load, _ in how.mix or ())) or CONCURRENCY
    question = opt.filled(Question, server, how, concurrency=loads)
    with output.status("comparing settings"):
        answer = recommend(profile, question)
    answer = replace(answer, notes=(*notes, *answer.notes))
    if how.script is not None:
        _write(how.script, answer)
    if how.as_json:
        output.print_document(SCHEMA, answer)
        return
    out = _show(answer, how.full)
    if how.schedule:
        from specsim.cli.schedule import print_table
        from specsim.decide.schedule import best_schedule

        best = best_schedule(profile, question)
        print_table(out, best)
        output.print_notes(out, best.notes)


def _show(answer: Recommendation, full: bool) -> Console:
    """Print the question, the verdict, the small table, the flags; with --full what lies behind."""
    from specsim.report import client_axis
    from specsim.report.answer import choice_cells

    out = output.question(f"What to launch? {answer.profile}", WIDTH)
    output.print_verdict(out, _sentences(answer), full)
    cells = choice_cells(answer.loads, client_axis([load.concurrency for load in answer.loads]))
    output.print_choices(out, cells, answer.loads, answer.settings_considered)
    if full:
        out.print()
        out.print(output.table(_columns(out.width >= FULL_WIDTH), answer.loads, left=(1,)))
        output.print_sentences(out, _ties(answer))
    mixed = None if answer.mix is None else answer.mix.plan
    ordered = sorted(answer.launch, key=lambda launch: launch.plan != mixed)  # the mix's first
    launches = ordered if full else ordered[:SHOWN_LAUNCHES]
    for launch in launches:
        out.print(f"\n{launch.label} ({launch.engine} {launch.engine_version}):")
        out.print(launch.command, soft_wrap=True)
        for name, content in launch.files.items():
            out.print(f"with {name}:\n{content.rstrip()}", soft_wrap=True)
    unknown = dict.fromkeys(name for launch in launches for name in launch.missing)
    if unknown:
        output.print_sentences(out, [f"Set {' and '.join(unknown)}, or say {PATHS}."])
    if len(launches) < len(answer.launch):
        out.print(f"{len(answer.launch) - len(launches)} more with --full")
    out.print()
    output.print_grounds(out, answer.notes, full, "says more")
    return out


def _write(script: str, answer: Recommendation) -> None:
    """Write the launch of the mix, else of the setting that is chosen at most loads."""
    known = [launch.plan for launch in answer.launch]
    chosen = [load.choice.plan for load in answer.loads if load.choice.plan in known]
    plan = max(dict.fromkeys(chosen), key=chosen.count) if answer.mix is None else answer.mix.plan
    (launch,) = [one for one in answer.launch if one.plan == plan]
    lines = ["#!/bin/sh", f"# {answer.profile}: {launch.label}"]
    lines += [f': "${{{name}:?set it to a path}}"' for name in launch.missing]
    for name, content in launch.files.items():
        plain = re.sub(r"[\\$`]", r"\\\g<0>", content)  # a name is nothing to run
        text = plain.replace(r'"\$DRAFTER"', '"$DRAFTER"')
        lines += [f"cat > {name} <<END", f"{text}END"]
    output.write_file(script, "\n".join([*lines, launch.command, ""]))


def _columns(wide: bool) -> output.Columns[LoadChoice]:
    def against(gain: Interval | None) -> str:
        return "" if gain is None else output.percent(gain, wide)

    return (
        ("clients", lambda load: str(load.concurrency)),
        ("choice", lambda load: load.choice.plan.setting.brief),
        ("vs today", lambda load: against(load.choice.gain_against_current)),
        ("accepts (90 %)", lambda load: _accepts(load.choice)),
        ("fastest", lambda load: f"{100 * load.choice.probability_fastest:.0f} %"),
        ("regret", lambda load: f"{100 * load.choice.regret:.1f} %"),
    )


def _accepts(option: Option) -> str:
    from specsim.report import spread

    return spread(option.accept_length, option.accept_length_low, option.accept_length_high)


def _sentences(answer: Recommendation) -> list[str]:
    """Say what is best where, what else would help, money and mix."""
    from specsim.report import client_axis, listed, sentence
    from specsim.report.answer import best_by_load

    good = [load for load in answer.loads if load.meets_targets is not False]
    every = len(good) == len(answer.loads)
    axis = client_axis([load.concurrency for load in good])
    lines = [best_by_load(good, axis, lambda o: o.plan.setting.brief, every)] if good else []
    known = [load for load in good if load.baseline.measured]  # else the notes say so of all
    new = dict.fromkeys(c.choice.plan.setting.brief for c in known if not c.choice.measured)
    if new:
        names = f"Not measured here, as far as is known: {listed([*new])}"
        lines.append(f"{names}; specsim plan says what to measure.")
    if answer.mix is not None:
        mix = answer.mix
        gain = f", {output.percent(mix.gain)} against no speculation" if mix.gain.high else ""
        lines.append(
            f"One setting for the mix: {mix.label}, {mix.output_tps:.0f} tok/s{gain}; "
            f"the fastest with {100 * mix.probability_fastest:.0f} %, "
            f"regret {100 * mix.regret:.1f} %."
        )
    if not every:  # what the targets say comes first
        lines = [sentence(a.text) for a in answer.advice if a.kind == "target-missed"] + lines
    told = [a for a in answer.advice if a.kind not in ("measure-first", "target-missed")]
    told += [a for a in answer.advice if a.kind == "measure-first"][:1]
    lines += [sentence(advice.text) for advice in told]
    last = (good or answer.loads)[-1]
    option, where = last.choice, client_axis([last.concurrency]).at(0)
    money = option.money_per_million
    price = "" if money is None else f", {money:.3g} of your money per million output tokens"
    return [*lines, f"A{where[1:]} {option.output_tps_per_gpu:.1f} tok/s per GPU{price}."]


def _ties(answer: Recommendation) -> list[str]:
    """Name the settings that are as good somewhere in a band, the best two."""
    lines = []
    for band in answer.bands:
        tied: dict[str, Option] = {}
        for choice in band.choices:
            for other in choice.tied:  # the same setting under another scheduler is no news
                if other.plan.setting.key != choice.choice.plan.setting.key:
                    tied.setdefault(other.label, other)
        names = list(tied)[:SHOWN_TIES]
        more = f" and {len(tied) - len(names)} more" if len(tied) > len(names) else ""
        first, last = band.from_concurrency, band.to_concurrency
        where = f"{first} to {last}" if first < last else f"{first}"
        if names:
            lines.append(f"{where} clients: not surely slower are {'; '.join(names)}{more}.")
    return lines
