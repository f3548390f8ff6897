"""Running a sweep: here, on all cores or on a Dask cluster; rows to a CSV that can be resumed."""

from __future__ import annotations

import csv
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO

from specsim.decide.sweep import COLUMNS, KEY, Sweep, SweepRow, solve_task
from specsim.errors import FormatError, InputError

POOL_FROM = 2000
"""Settings from which a closed-form sweep is worth a pool of processes."""

Progress = Callable[[int, int], None]


def run_sweep(
    sweep: Sweep,
    *,
    jobs: int | None = None,
    dask: str | None = None,
    done: frozenset[tuple[str, ...]] = frozenset(),
    progress: Progress | None = None,
) -> Iterator[list[SweepRow]]:
    """Compute a sweep, task by task, in a fixed order.

    Parameters
    ----------
    sweep
        What to compute.
    jobs
        Processes; by default all cores for simulations and large sweeps, else this one.
    dask
        Address of a Dask scheduler to run on instead (needs ``specsim-llm[dask]``).
    done
        Keys of cells that are known already (`read_done`).
    progress
        Called with (tasks done, tasks in all).

    Raises
    ------
    InputError
        If Dask is asked for and not installed.
    """
    tasks = sweep.tasks(done)
    small = sweep.solver == "analytic" and len(sweep.settings) * len(sweep.scenarios) < POOL_FROM
    workers = jobs if jobs is not None else 1 if small else os.cpu_count() or 1
    with _runner(min(workers, max(len(tasks), 1)), dask) as run:
        for number, rows in enumerate(run(tasks), start=1):
            yield [row for row in rows if row.key not in done]
            if progress is not None:
                progress(number, len(tasks))


@contextmanager
def _runner(
    workers: int, dask: str | None
) -> Iterator[Callable[[Sequence[Sweep]], Iterator[list[SweepRow]]]]:
    """Yield what maps `solve_task` over tasks, in their order."""
    if dask is not None:
        try:
            distributed = import_module("distributed")
        except ImportError as error:
            raise InputError(
                f"--dask {dask}",
                "needs Dask, which is not installed",
                "pip install 'specsim-llm[dask]'",
            ) from error
        with distributed.Client(dask) as client:
            yield lambda tasks: (f.result() for f in client.map(solve_task, tasks, pure=False))
    elif workers <= 1:
        yield lambda tasks: map(solve_task, tasks)
    else:
        from concurrent.futures import ProcessPoolExecutor

        # spawned: a forked child of a process with threads may hang, and Python says so
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            yield lambda tasks: pool.map(solve_task, tasks)


def read_done(path: Path, sweep: Sweep) -> frozenset[tuple[str, ...]]:
    """Return the keys of the cells in a partial CSV; a torn last line is cut off.

    Raises
    ------
    FormatError
        If the file is not the table of a sweep, or of another one: its cells have another profile,
        seed or version of specsim.
    """
    if not path.exists() or path.stat().st_size == 0:
        return frozenset()
    whole = path.read_bytes()
    end = whole.rfind(b"\n") + 1
    lines: list[list[str]] = []
    with suppress(csv.Error):
        lines = list(csv.reader(whole[:end].decode("utf-8", "replace").splitlines()))
    if not lines or tuple(lines[0]) != COLUMNS or any(len(x) != len(COLUMNS) for x in lines):
        raise FormatError(path, "is not the table of a sweep", "choose another file")
    seed, name, run = (COLUMNS.index(column) for column in ("seed", "profile", "run"))
    for number, line in enumerate(lines[1:], start=2):
        if (line[seed], line[name], line[run]) != (str(sweep.seed), sweep.profile.name, sweep.run):
            of = f"holds another sweep: of {line[name]}, seed {line[seed]}, run {line[run]}"
            why = "another profile, an edited one, another seed or version of specsim"
            raise FormatError(f"{path}, line {number}", f"{of} ({why})", "choose another file")
    if end < len(whole):
        os.truncate(path, end)
    return frozenset(tuple(line[: len(KEY)]) for line in lines[1:])


@contextmanager
def append_rows(path: Path) -> Iterator[Callable[[Iterable[SweepRow]], None]]:
    """Yield a function that appends rows to a CSV and flushes; the header comes first.

    Raises
    ------
    InputError
        If another sweep is writing to the file.
    """
    with path.open("a", encoding="utf-8", newline="") as file:
        _lock(file, path)
        writer = csv.writer(file, lineterminator="\n")

        def append(rows: Iterable[SweepRow]) -> None:
            if file.tell() == 0:
                writer.writerow(COLUMNS)
            writer.writerows(row.texts() for row in rows)
            file.flush()

        yield append


def _lock(file: IO[str], path: Path) -> None:
    """Take a file for this process until it is closed; a killed process leaves no lock behind."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        why = "is being written by another sweep"
        raise InputError(path, why, "wait, or choose another file") from None
