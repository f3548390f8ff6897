"""``specsim sweep``: grids over settings, loads and what-ifs to a tidy table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output
from specsim.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from specsim.curve import Solver
    from specsim.setting import Algorithm, SpecSetting

AXES = ("topk", "steps", "tokens")
"""Of a grid of settings."""


@dataclass(frozen=True)
class Options:
    """The grid, how it is computed, and where it goes."""

    target: str
    grid: tuple[str, ...]
    vary: tuple[str, ...]
    concurrency: tuple[int, ...] | None
    solver: Solver
    what_if: bool
    jobs: int | None
    dask: str | None
    seed: int


@opt.command("sweep", opt.Server, opt.Asking, Options)
def sweep_command(server: opt.Server, asked: opt.Asking, how: Options) -> None:
    """Compute a grid of settings, loads and what-ifs; run again, it goes on where it stopped.

    Example: specsim sweep --grid topk=1,2,4 --grid steps=1-6 -o sweep.csv
    """
    from importlib.util import find_spec

    from specsim.decide.sweep import Sweep, append_rows, read_done, run_sweep
    from specsim.question import CONCURRENCY
    from specsim.setting import SpecSetting

    path = Path(how.target)
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        why = "needs pyarrow, which is not installed"
        raise InputError(f"--output {path}", why, "write .csv instead")
    profile, notes = server.load()
    algorithm = profile.default_algorithm
    settings, noted = asked.settings(algorithm)
    grid = grid_settings(how.grid, asked.algorithm or algorithm)
    wanted = (*settings, *(replace(s, scheduler=asked.scheduler) for s in grid))
    if not wanted:
        why = "is asked for"
        raise InputError("no setting", why, "add S,K,N or --grid topk=1,2 --grid steps=1-4")
    sweep = opt.filled(
        Sweep,
        how,
        profile=profile,
        settings=tuple(dict.fromkeys((SpecSetting.none(), *wanted))),
        concurrency=how.concurrency or CONCURRENCY,
        scenarios=scenarios(how.vary),
    )
    table = path if path.suffix == ".csv" else path.with_suffix(".partial.csv")
    failed = count = 0
    with append_rows(table) as append, output.progress_bar("sweeping") as advance:
        done = read_done(table, sweep)
        for rows in run_sweep(sweep, jobs=how.jobs, dask=how.dask, done=done, progress=advance):
            append(rows)
            count += len(rows)
            failed += sum(bool(row.error) for row in rows)
        if path.suffix == ".parquet":
            import pandas as pd

            pd.read_csv(table).to_parquet(path, index=False)
            table.unlink()
    out = output.console(100)
    known = f", {len(done)} known before" if done else ""
    wrong = f"; {failed} failed, see the column error" if failed else ""
    out.print(f"wrote {count} cells to {path}{known}{wrong}")
    for note in (*notes, *noted):
        out.print(f"- {note}")


def scenarios(axes: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return every combination of one override per axis; one empty combination for no axis.

    >>> scenarios(["tp=4,8", "allreduce.latency=*0.5"])
    (('tp=4', 'allreduce.latency=*0.5'), ('tp=8', 'allreduce.latency=*0.5'))
    """
    return tuple(product(*map(_overrides, axes)))


def _overrides(text: str) -> list[str]:
    """Return the overrides of one axis: ``tp=4,8`` is ``tp=4`` and ``tp=8``."""
    from specsim.scenario import parse_override

    key, equals, said = text.partition("=")
    parts = [v.strip() for v in said.split(",") if v.strip()]
    if not equals or not parts:
        raise InputError(f"--vary {text}", "is not KEY=VALUE,...", "write e.g. tp=4,8")
    return [parse_override(f"{key}={value}").label for value in parts]


def grid_settings(texts: Sequence[str], algorithm: Algorithm) -> list[SpecSetting]:
    """Return every setting of axes like ``topk=1,2 steps=1-6 tokens=8,all`` that a tree can have.

    A chain verifies S + 1 tokens. Refuses an axis that is unknown or empty, and no steps.

    >>> [s.label for s in grid_settings(["topk=1,2 steps=2"], "EAGLE3")][:2]
    ['topk=1 steps=2 tokens=3', 'topk=2 steps=2 tokens=4']
    """
    from specsim.decide.outlook import TREE_TOKENS
    from specsim.setting import MOST_DRAFT_TOKENS, SpecSetting
    from specsim.tree import tree_capacity

    axes: dict[str, list[int | None]] = {}
    for part in " ".join(texts).split():
        axis, equals, said = part.partition("=")
        if axis not in AXES:
            raise UnknownNameError("--grid axis", axis, AXES)
        numbers = [n for v in said.split(",") for n in _numbers(f"{axis}={v}", v)]
        if not equals or not numbers:
            raise InputError(f"--grid {part}", "has no values", "write e.g. topk=1,2,4")
        axes[axis] = numbers
    if texts and "steps" not in axes:
        raise InputError("--grid", "has no steps", "add --grid steps=1-6")
    result = []
    for k, s in product(axes.get("topk", [1]), axes.get("steps", ())):
        if k is None or s is None or k < 1 or s < 1:
            raise InputError("--grid topk, steps", "must be at least 1", "write e.g. 1-6")
        whole = tree_capacity(k, s)
        budgets = axes.get("tokens", [*TREE_TOKENS, None]) if k > 1 else [None]
        sizes = {whole if n is None else n for n in budgets}
        chosen = sorted(n for n in sizes if s < n <= min(whole, MOST_DRAFT_TOKENS))
        result += [SpecSetting(algorithm, k, s, n) for n in chosen]
    return result


def _numbers(where: str, text: str) -> list[int | None]:
    """Return the numbers of ``4``, ``1-6`` or ``all`` (None: the whole tree)."""
    if text.strip() == "all":
        return [None]
    match = re.fullmatch(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", text.strip())
    if match is None:
        raise InputError(f"--grid {where}", "is not a number or a range", "write e.g. 1-6")
    first, last = int(match[1]), int(match[2] or match[1])
    return list(range(first, last + 1))
