"""``specsim sweep``: grids over settings, loads and what-ifs to a tidy table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.cli import options as opt
from specsim.cli import output
from specsim.cli.options import Server, command, file, filled, option
from specsim.cli.readers import whole
from specsim.errors import InputError

if TYPE_CHECKING:
    from specsim.curve import Solver


@dataclass(frozen=True)
class Options:
    """The grid, how it is computed, and where it goes."""

    target: str = file(
        ".csv or .parquet; resumed.",
        read=output.writable(".csv", ".parquet"),
        default="sweep.csv",
        names="--output -o",
    )
    grid: tuple[str, ...] = option(
        "AXIS=V,...",
        "topk=1,2,4 steps=1-8 tokens=8,16,all: every combination. Repeatable.",
        multiple=True,
    )
    vary: tuple[str, ...] = option(
        "KEY=V,...",
        "What-ifs: allreduce.latency=*0.5,*1,*2; several: every combination.",
        multiple=True,
    )
    concurrency: tuple[int, ...] | None = opt.concurrency()
    solver: Solver = opt.solver(default="analytic")
    what_if: bool = opt.what_if()
    jobs: int | None = option("N", "Processes. Default: as it pays.", whole(1))
    dask: str | None = option("ADDRESS", "A Dask scheduler; needs specsim-llm[dask].")
    seed: int = opt.seed()


@command("sweep", Server, opt.Asking, Options)
def sweep_command(server: Server, asked: opt.Asking, how: Options) -> None:
    """Compute a grid of settings, loads and what-ifs; run again, it goes on where it stopped.

    Example: specsim sweep --grid topk=1,2,4 --grid steps=1-6 -o sweep.csv
    """
    from specsim.decide.sweep import Sweep, grid_settings, scenarios
    from specsim.decide.sweep_run import append_rows, read_done, run_sweep
    from specsim.question import CONCURRENCY
    from specsim.setting import SpecSetting

    if how.jobs is not None and how.dask is not None:
        raise InputError("--jobs --dask", "exclude each other", "choose one")
    path = _path(how.target)
    profile, notes = server.load()
    algorithm = profile.default_algorithm
    settings = asked.settings(algorithm)
    grid = grid_settings(how.grid, asked.algorithm or algorithm)
    wanted = (*settings.asked, *(replace(s, scheduler=asked.scheduler) for s in grid))
    if not wanted:
        raise InputError(
            "no setting", "is asked for", "add S,K,N or --grid topk=1,2 --grid steps=1-4"
        )
    sweep = filled(
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
    for note in (*notes, *settings.notes):
        out.print(f"- {note}")


def _path(target: str) -> Path:
    """Return the file to write, checked before anything is computed."""
    from importlib.util import find_spec

    if target.endswith(".parquet") and find_spec("pyarrow") is None:
        raise InputError(
            f"--output {target}", "needs pyarrow, which is not installed", "write .csv instead"
        )
    return Path(target)
