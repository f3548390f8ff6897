"""``specsim compare``: two profiles or scenarios side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output
from specsim.cli.options import Changes, Server, argument, command, filled
from specsim.errors import InputError

if TYPE_CHECKING:
    from specsim.cli.output import Columns
    from specsim.decide.compare import BestPair, Pair, ServerComparison
    from specsim.uncertainty import Interval

WIDTH = 110


@dataclass(frozen=True)
class Options(Changes):
    """Which two, and at which loads."""

    first: str = argument("A", shell_complete=opt.profiles)
    second: str | None = argument("[B]", required=False, shell_complete=opt.profiles)
    concurrency: tuple[int, ...] | None = opt.concurrency()
    as_json: bool = opt.as_json("specsim.comparison/1")


@command("compare", opt.Asked, Options)
def compare_command(asked: opt.Asked, how: Options) -> None:
    """Show two profiles or scenarios side by side, for the same settings and loads.

    A and B are shipped names or TOML files; without B, A is compared with itself under --set.

    Example: specsim compare today.toml faster-link.toml

    Example: specsim compare kimi-k2.5-int4-8x-rtx-pro-6000 --set allreduce.latency=*0.5
    """
    from specsim.decide.candidates import algorithm_of
    from specsim.decide.compare import SCHEMA, compare
    from specsim.question import Question

    if how.second is None and not how.overrides:
        raise InputError("one server", "is compared with nothing", "give a second one, or --set")
    one, one_notes = Server(how.first, ()).load()
    two, two_notes = Server(how.second or how.first, how.overrides).load()
    settings = asked.settings(algorithm_of(one))
    result = compare(one, two, filled(Question, how, settings=settings.asked))
    if how.as_json:
        output.print_document(SCHEMA, result)
        return
    _show(result, (*one_notes, *two_notes, *settings.notes))


def _show(result: ServerComparison, notes: tuple[str, ...]) -> None:
    out = output.titled(f"A: {result.first}", WIDTH)
    out.print(f"B: {result.second}", style="bold")
    for setting in dict.fromkeys(pair.setting for pair in result.rows):
        out.print(f"\n{'no speculation' if not setting.speculates else setting.label}")
        out.print(output.table(RATES, (row for row in result.rows if row.setting == setting)))
    out.print("\nfastest expected setting by load")
    out.print(output.table(FASTEST, result.best))
    output.print_notes(out, notes)


def _tps(value: Interval | None) -> str:
    if value is None:
        return "refused"
    return f"{value.value:.0f} ({value.low:.0f}..{value.high:.0f})"


RATES: Columns[Pair] = (
    ("clients", lambda row: str(row.concurrency)),
    ("A tok/s (90 %)", lambda row: _tps(row.first_output_tps)),
    ("B tok/s (90 %)", lambda row: _tps(row.second_output_tps)),
    ("B against A", lambda row: "" if row.change is None else output.percent(row.change)),
    ("limits", lambda row: f"{row.first_limit or ''} / {row.second_limit or ''}"),
)

FASTEST: Columns[BestPair] = (
    ("clients", lambda best: str(best.concurrency)),
    ("A", lambda best: best.first.label),
    ("tok/s", lambda best: f"{best.first.output_tps:.0f}"),
    ("B", lambda best: best.second.label),
    ("tok/s", lambda best: f"{best.second.output_tps:.0f}"),
)
