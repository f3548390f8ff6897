"""``specsim compare``: two profiles or scenarios side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from specsim.cli import options as opt
from specsim.cli import what_if

if TYPE_CHECKING:
    from specsim.decide.compare import ServerComparison
    from specsim.decide.recommendation import Range

WIDTH = 110


def compare_command(
    first: Annotated[
        str, typer.Argument(metavar="A", help="Profile or scenario: shipped name or TOML file.")
    ],
    second: Annotated[
        str | None,
        typer.Argument(metavar="B", help="The other one; left out, A under --set."),
    ] = None,
    config_list: opt.ConfigListOption = None,
    topk: opt.TopkOption = None,
    steps: opt.StepsOption = None,
    draft_tokens: opt.DraftTokensOption = None,
    concurrency: opt.ConcurrencyOption = None,
    overrides: what_if.SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print specsim.comparison/1.")] = False,
) -> None:
    """Show two profiles or scenarios side by side, for the same settings and loads.

    Example: specsim compare today.toml faster-link.toml

    Example: specsim compare kimi-k2.5-int4-8x-rtx-pro-6000 --set allreduce.latency=*0.5
    """
    import sys

    from specsim.cli.settings import Defaults, asked_settings
    from specsim.decide.candidates import algorithm_of
    from specsim.decide.compare import compare
    from specsim.errors import InputError
    from specsim.question import CONCURRENCY

    if second is None and not overrides:
        raise InputError("one server", "is compared with nothing", "give a second one, or --set")
    one = what_if.load_server(first, None)
    two = what_if.load_server(second or first, overrides)
    defaults = Defaults(algorithm_of(one.profile) or "EAGLE3")
    asked = asked_settings(defaults, (topk, steps, draft_tokens), config_list or [], [], [])
    loads = CONCURRENCY if concurrency is None else opt.parse_concurrency(concurrency)
    result = compare(one.profile, two.profile, asked.settings, loads)
    if as_json:
        sys.stdout.write(_document(result))
        return
    _show(result, (*one.notes, *two.notes, *asked.notes))


def _show(result: ServerComparison, notes: tuple[str, ...]) -> None:
    from textwrap import fill

    from specsim.cli.console import console, table
    from specsim.decide.recommendation import plan_name

    out = console(piped_width=WIDTH)
    out.print(f"A: {result.first}", style="bold")
    out.print(f"B: {result.second}", style="bold")
    for setting in dict.fromkeys(pair.setting for pair in result.pairs):
        out.print(f"\n{'no speculation' if not setting.speculates else setting.label}")
        grid = table("clients", "A tok/s (90 %)", "B tok/s (90 %)", "B against A", "limits")
        for pair in result.pairs:
            if pair.setting != setting:
                continue
            change = pair.change
            grid.add_row(
                str(pair.concurrency),
                _tps(pair.first),
                _tps(pair.second),
                "" if change is None else _percent(change),
                " / ".join(pair.limits),
            )
        out.print(grid)
    out.print("\nfastest expected setting by load")
    grid = table("clients", "A", "tok/s", "B", "tok/s")
    for best in result.best:
        grid.add_row(
            str(best.concurrency),
            plan_name(best.first),
            f"{best.first_tps:.0f}",
            plan_name(best.second),
            f"{best.second_tps:.0f}",
        )
    out.print(grid)
    for note in notes:
        out.print(fill(note, out.width, initial_indent="- ", subsequent_indent="  "))


def _tps(value: Range | None) -> str:
    if value is None:
        return "refused"
    return f"{value.value:.0f} ({value.low:.0f}..{value.high:.0f})"


def _percent(change: Range) -> str:
    return f"{100 * change.value:+.0f} % ({100 * change.low:+.0f}..{100 * change.high:+.0f})"


def _document(result: ServerComparison) -> str:
    """Write ``specsim.comparison/1``; null where an engine refuses a setting."""
    import json

    from specsim.decide.document import setting_fields

    def numbers(value: Range | None) -> dict[str, float] | None:
        if value is None:
            return None
        names = ("value", "low", "high")
        return {name: float(f"{getattr(value, name):.10g}") for name in names}

    rows = [
        {
            "algorithm": pair.setting.algorithm,
            "topk": pair.setting.topk,
            "num_steps": pair.setting.num_steps,
            "num_draft_tokens": pair.setting.num_draft_tokens,
            "concurrency": pair.concurrency,
            "first_output_tps": numbers(pair.first),
            "second_output_tps": numbers(pair.second),
            "change": numbers(pair.change),
            "first_limit": pair.limits[0] or None,
            "second_limit": pair.limits[1] or None,
        }
        for pair in result.pairs
    ]
    best = [
        {
            "concurrency": b.concurrency,
            "first": {**setting_fields(b.first), "output_tps": float(f"{b.first_tps:.10g}")},
            "second": {**setting_fields(b.second), "output_tps": float(f"{b.second_tps:.10g}")},
        }
        for b in result.best
    ]
    document = {
        "schema": "specsim.comparison/1",
        "first": result.first,
        "second": result.second,
        "rows": rows,
        "best": best,
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
