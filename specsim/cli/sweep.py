"""``specsim sweep``: grids over settings, loads and what-ifs to a tidy table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specsim.cli import options as opt
from specsim.cli import what_if

if TYPE_CHECKING:
    from specsim.setting import Algorithm, SpecSetting

AXES = ("topk", "steps", "tokens")

PREVIEW = 12
"""Rows that are shown when the table goes to a file."""


def sweep_command(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="S,K,N|FILE", help="Settings, or JSON files of settings."),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help=".csv or .parquet; resumed.")
    ] = "sweep.csv",
    profile: what_if.ServerOption = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="AXIS=V,...",
            help="topk=1,2,4 steps=1-8 tokens=8,16,all: every combination. Repeatable.",
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="KEY=V,...",
            help="What-ifs: allreduce.latency=*0.5,*1,*2; several: every combination.",
        ),
    ] = None,
    overrides: what_if.SetOption = None,
    concurrency: opt.ConcurrencyOption = None,
    solver: opt.SolverOption = "analytic",
    what_if_too: opt.WhatIfOption = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", help="Processes. Default: as it pays.")
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            "--dask", metavar="ADDRESS", help="A Dask scheduler; needs specsim-llm[dask]."
        ),
    ] = None,
    seed: opt.SeedOption = 0,
) -> None:
    """Compute a grid of settings, loads and what-ifs; run again, it goes on where it stopped.

    Example: specsim sweep --grid topk=1,2,4 --grid steps=1-6 -o sweep.csv
    """
    from specsim.cli.console import console
    from specsim.cli.progress import progress_bar
    from specsim.cli.settings import Defaults, asked_settings
    from specsim.decide.candidates import algorithm_of
    from specsim.decide.sweep import Sweep, product_of
    from specsim.decide.sweep_run import append_rows, read_done, run_sweep
    from specsim.errors import InputError
    from specsim.question import CONCURRENCY
    from specsim.setting import SpecSetting

    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs {jobs}", "must be at least 1", "leave it out")
    target = _target(output)
    server = what_if.load_server(profile, overrides)
    algorithm = algorithm_of(server.profile) or "EAGLE3"
    asked = asked_settings(Defaults(algorithm), (None, None, None), [], settings or [], [])
    wanted = (*asked.settings, *_grid(grid or [], algorithm))
    if not wanted:
        raise InputError(
            "no setting", "is asked for", "add S,K,N or --grid topk=1,2 --grid steps=1-4"
        )
    sweep = Sweep(
        server.profile,
        tuple(dict.fromkeys((SpecSetting.none(), *wanted))),
        CONCURRENCY if concurrency is None else opt.parse_concurrency(concurrency),
        product_of([_values(text) for text in vary or []]),
        opt.parse_solver(solver),
        seed,
        what_if_too,
    )
    table = target if target.suffix == ".csv" else target.with_suffix(".partial.csv")
    done = read_done(table)
    failed = count = 0
    with append_rows(table) as append, progress_bar("sweeping") as advance:
        for rows in run_sweep(sweep, jobs=jobs, dask=dask, done=done, progress=advance):
            append(rows)
            count += len(rows)
            failed += sum(bool(row.error) for row in rows)
    if target.suffix == ".parquet":
        _to_parquet(table, target)
    out = console(piped_width=100)
    known = f", {len(done)} known before" if done else ""
    wrong = f"; {failed} failed, see the column error" if failed else ""
    out.print(f"wrote {count} cells to {target}{known}{wrong}")
    for note in (*server.notes, *asked.notes):
        out.print(f"- {note}")


def _target(output: str) -> Path:
    """Return the file to write, checked before anything is computed."""
    from importlib.util import find_spec

    from specsim.errors import InputError

    path = Path(output)
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"--output {output}", "is neither .csv nor .parquet", "choose one")
    if not path.parent.is_dir() or path.is_dir():
        raise InputError(f"--output {output}", "cannot be written", "give a file in a folder")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise InputError(
            f"--output {output}", "needs pyarrow, which is not installed", "write .csv instead"
        )
    return path


def _to_parquet(table: Path, target: Path) -> None:
    import pandas as pd

    pd.read_csv(table).to_parquet(target, index=False)
    table.unlink()


def _values(text: str) -> list[str]:
    """Return the overrides of one axis: ``tp=4,8`` is ``tp=4`` and ``tp=8``."""
    from specsim.errors import InputError
    from specsim.scenario import parse_override

    key, equals, values = text.partition("=")
    parts = [v.strip() for v in values.split(",") if v.strip()]
    if not equals or not parts:
        raise InputError(f"--vary {text}", "is not KEY=VALUE,...", "write e.g. tp=4,8")
    return [parse_override(f"{key}={value}").label for value in parts]


def _grid(texts: list[str], algorithm: Algorithm) -> list[SpecSetting]:
    """Return every setting of the grid that a tree can have; a chain verifies S + 1."""
    from specsim.decide.candidates import TREE_TOKENS
    from specsim.errors import InputError, UnknownNameError
    from specsim.setting import SpecSetting
    from specsim.tree import tree_capacity

    if not texts:
        return []
    axes: dict[str, list[int | None]] = {}
    for text in texts:
        for part in text.split():
            axis, equals, values = part.partition("=")
            if axis not in AXES:
                raise UnknownNameError("--grid axis", axis, AXES)
            numbers = [n for v in values.split(",") for n in _numbers(f"{axis}={v}", v)]
            if not equals or not numbers:
                raise InputError(f"--grid {part}", "has no values", "write e.g. topk=1,2,4")
            axes[axis] = numbers
    if "steps" not in axes:
        raise InputError("--grid", "has no steps", "add --grid steps=1-6")
    result = []
    for k in axes.get("topk", [1]):
        for s in axes["steps"]:
            if k is None or s is None or k < 1 or s < 1:
                raise InputError("--grid topk, steps", "must be at least 1", "write e.g. 1-6")
            whole = tree_capacity(k, s)
            budgets = axes.get("tokens", [*TREE_TOKENS, None])
            sizes = {whole if n is None else n for n in budgets} if k > 1 else {whole}
            chosen = sorted(n for n in sizes if s < n <= min(whole, 512))
            result += [SpecSetting(algorithm, k, s, n) for n in chosen]
    return result


def _numbers(where: str, text: str) -> list[int | None]:
    """Return the numbers of ``4``, ``1-6`` or ``all`` (None: the whole tree)."""
    from specsim.errors import InputError

    if text.strip() == "all":
        return [None]
    match = re.fullmatch(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", text.strip())
    if match is None:
        raise InputError(f"--grid {where}", "is not a number or a range", "write e.g. 1-6")
    first, last = int(match[1]), int(match[2] or match[1])
    return list(range(first, last + 1))
