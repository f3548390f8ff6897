"""``specsim compare``: two profiles or scenarios side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from specsim.cli import options as opt
from specsim.cli import output
from specsim.errors import InputError

if TYPE_CHECKING:
    from specsim.decide.compare import Pair, ServerComparison
    from specsim.uncertainty import Interval

WIDTH = 110

VARIED = ("model", "gpu", "draft", "engine", "quantisation")
"""Options that take several values: a server for each."""

MOST_SERVERS = 12


@dataclass(frozen=True)
class Options:
    """Which servers besides, at which loads."""

    first: str | None
    second: str | None
    concurrency: tuple[int, ...] | None
    full: bool
    as_json: bool


@opt.command("compare", opt.AnyServer, opt.Asked, Options)
def compare_command(server: opt.AnyServer, asked: opt.Asked, how: Options) -> None:
    """Show servers side by side: the choice on each at every load.

    A and B are profiles or scenarios; without B, A is compared with itself under --set. --engine,
    --draft, --gpu, --model and --quantisation take several values, parted by commas.

    Example: specsim compare today.toml faster-link.toml

    Example: specsim compare --model llama-3.1-8b --gpu h100-sxm --engine sglang,vllm

    Example: specsim compare kimi-k2.5-int4-8x-rtx-pro-6000 --set allreduce.latency=*0.5
    """
    from specsim.decide.compare import SCHEMA, compare
    from specsim.question import Question

    loaded = list(_servers(server, asked, how))
    if len(loaded) < 2:
        remedy = "give a second one, several values (--engine sglang,vllm), or --set"
        raise InputError("one server", "is compared with nothing", remedy)
    profiles, notes = zip(*loaded, strict=True)
    settings, noted = asked.settings(profiles[0].default_algorithm)
    question = opt.filled(Question, how, settings=settings)
    said = dict.fromkeys(note for some in (*notes, noted) for note in some)
    result = compare(profiles[0], profiles[1], question, profiles[2:])
    result = replace(result, notes=tuple(said))
    if how.as_json:
        output.print_document(SCHEMA, result)
    else:
        _show(result, how.full)


def _servers(server: opt.AnyServer, asked: opt.Asked, how: Options) -> Iterator[opt.Loaded]:
    if how.first is not None:
        server = replace(server, profile=how.first)
    several: dict[str, list[str]] = {}
    for name in VARIED:
        values = str(getattr(server, name) or "").split(",")
        several |= {name: values} if len(values) > 1 else {}
    if several:
        variants = list(product(*several.values()))
        if len(variants) > MOST_SERVERS:
            why = f"are more than {MOST_SERVERS}"
            raise InputError(f"{len(variants)} servers", why, "give fewer values")
        for chosen in variants:
            said: dict[str, Any] = dict(zip(several, chosen, strict=True))
            profile, notes = replace(server, **said).load(asked)
            yield replace(profile, name=f"{profile.name} ({', '.join(chosen)})"), notes
    else:
        yield replace(server, overrides=()).load(asked)
    if how.second is not None:
        yield opt.Server(profile=how.second, overrides=server.overrides).load()
    elif server.overrides and not several:
        yield server.load(asked)


def _show(result: ServerComparison, full: bool) -> None:
    from specsim.decide import whole_percent

    letters = [chr(ord("A") + i) for i in range(len(result.servers))]
    out = output.console(WIDTH)
    for letter, one in zip(letters, result.servers, strict=True):
        out.print(f"{letter}: {one.name}", style="bold", soft_wrap=True)
    out.print()
    rows: list[tuple[str, ...]] = []
    for at_load in zip(*(one.loads for one in result.servers), strict=True):
        first, *others = (load.choice.output_tps for load in at_load)
        clients = [str(at_load[0].concurrency), *("" for _ in others)]
        change = ["", *(whole_percent(tps.value / first.value - 1) for tps in others)]
        choices = [load.choice.plan.setting.brief for load in at_load]
        rates = map(_tps, (first, *others))
        rows += zip(clients, letters, choices, rates, change, strict=True)
    columns = output.headed("clients", "server", "choice", "tok/s (90 %)", "vs A")
    out.print(output.table(columns, rows, left=(1, 2)))
    out.print()
    if full:
        for setting in dict.fromkeys(pair.setting for pair in result.rows):
            out.print("no speculation" if not setting.speculates else setting.label)
            out.print(output.table(RATES, (row for row in result.rows if row.setting == setting)))
            out.print()
    output.print_grounds(out, result.notes, full, "shows the settings one by one")


def _tps(value: Interval | None) -> str:
    from specsim.report import spread

    return "refused" if value is None else spread(value.value, value.low, value.high)


RATES: output.Columns[Pair] = (
    ("clients", lambda row: str(row.concurrency)),
    ("A tok/s (90 %)", lambda row: _tps(row.first_output_tps)),
    ("B tok/s (90 %)", lambda row: _tps(row.second_output_tps)),
    ("B against A", lambda row: "" if row.change is None else output.percent(row.change)),
    ("limits", lambda row: f"{row.first_limit or ''} / {row.second_limit or ''}"),
)
