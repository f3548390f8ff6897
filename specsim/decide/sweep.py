"""Grids over settings, loads and what-ifs, cut into tasks that need nothing but themselves.

A cell that fails is a row with its error, and costs no other cell. Tasks run here, on all cores or
on a Dask cluster; rows go to a CSV that can be resumed.
"""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import IO, Any

from specsim import __version__
from specsim.curve import Solver
from specsim.engine import RunPlan
from specsim.errors import FormatError, InputError, SpecsimError
from specsim.predict import Grid
from specsim.processes import Map, mapping
from specsim.profile import Profile
from specsim.question import Question
from specsim.scenario import apply_overrides, parse_overrides
from specsim.setting import SpecSetting
from specsim.textfile import csv_cell

CHUNK = 250
"""Settings per task of a closed-form sweep; a simulated task is one setting."""

POOL_FROM = 2000
"""Settings from which a closed-form sweep is worth a pool of processes."""

Progress = Callable[[int, int], None]

FAILURES = (SpecsimError, ArithmeticError, ValueError)

NUMBERS = {
    **{name: name for name in ("output_tps", "accept_length", "batch_size", "tpot_s", "ttft_s")},
    "round_s": "round_time_s",
}
"""Column of each number that both solvers give."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One cell. Numbers are None where it failed, and `error` says why."""

    scenario: str  # overrides as they are typed; empty for the profile itself
    algorithm: str  # what was asked for
    topk: int
    num_steps: int
    num_draft_tokens: int
    asked_scheduler: str
    concurrency: int
    solver: str
    seed: int
    profile: str
    run: str  # fingerprint of the profile's content, the version of specsim, and what_if
    scheduler: str = ""  # what runs
    engine: str = ""
    engine_version: str = ""
    output_tps: float | None = None
    accept_length: float | None = None
    batch_size: float | None = None
    round_time_s: float | None = None
    tpot_s: float | None = None
    ttft_s: float | None = None
    limit: str = ""  # what binds (closed form only)
    error: str = ""

    def texts(self) -> list[str]:
        """Return the cells of a CSV line."""
        return [_text(getattr(self, name)) for name in COLUMNS]

    @property
    def key(self) -> tuple[str, ...]:
        """What tells the cell from all others, as texts."""
        return tuple(self.texts()[: len(KEY)])


COLUMNS = tuple(f.name for f in fields(SweepRow))
KEY = COLUMNS[:11]


@dataclass(frozen=True, slots=True)
class Sweep:
    """What to compute: the product of settings, loads and what-ifs."""

    profile: Profile
    settings: tuple[SpecSetting, ...]  # no speculation is not added by itself
    concurrency: tuple[int, ...]
    scenarios: tuple[tuple[str, ...], ...] = ((),)  # overrides of each what-if, as they are typed
    solver: Solver = "analytic"
    seed: int = 0  # of all cells, which so share their random numbers
    what_if: bool = False  # model what the engine refuses
    run: str = field(init=False)  # fingerprint of what all numbers rest on

    def __post_init__(self) -> None:
        object.__setattr__(self, "run", _fingerprint(self.profile, self.what_if))
        for name in ("settings", "concurrency", "scenarios"):
            if not getattr(self, name):
                raise InputError(f"sweep: {name}", "is empty", "give at least one")

    def tasks(self, done: frozenset[tuple[str, ...]] = frozenset()) -> list[Sweep]:
        """Cut what is not done yet into sweeps of one what-if, in a fixed order."""
        size = CHUNK if self.solver == "analytic" else 1
        result = []
        for scenario in self.scenarios:
            one = replace(self, scenarios=(scenario,))
            left = [s for s in self.settings if not all(r.key in done for r in one.blank(s))]
            result += [
                replace(one, settings=tuple(left[i : i + size])) for i in range(0, len(left), size)
            ]
        return result

    def blank(self, setting: SpecSetting) -> list[SweepRow]:
        """Return the rows of a setting under the first what-if, not computed."""
        return [
            SweepRow(
                " ".join(self.scenarios[0]),
                setting.algorithm,
                setting.topk,
                setting.num_steps,
                setting.num_draft_tokens,
                setting.scheduler,
                concurrency,
                self.solver,
                self.seed,
                self.profile.name,
                self.run,
            )
            for concurrency in self.concurrency
        ]


def _fingerprint(profile: Profile, what_if: bool) -> str:
    """Return what tells an edited profile, one of its own files or another version of specsim."""
    rests_on = f"{__version__} {what_if} {profile!r}"
    with suppress(SpecsimError):  # of a server that cannot be: each cell says so
        rests_on += repr(profile.system())
    return hashlib.sha256(rests_on.encode()).hexdigest()[:12]


def solve_task(task: Sweep) -> list[SweepRow]:
    """Compute the cells of one what-if; what fails is a row with its error."""
    try:
        profile = apply_overrides(task.profile, parse_overrides(task.scenarios[0])).profile
    except SpecsimError as error:
        return _failed([row for setting in task.settings for row in task.blank(setting)], error)
    plans: dict[SpecSetting, RunPlan] = {}
    rows: list[SweepRow] = []
    for setting in task.settings:
        try:
            plans[setting] = profile.system().plan(setting, what_if=task.what_if)
        except SpecsimError as error:
            rows += _failed(task.blank(setting), error)
    return rows + _solved(task, profile, plans)


def _failed(rows: Sequence[SweepRow], error: Exception) -> list[SweepRow]:
    """Return rows that cannot be computed."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return [replace(row, error=text) for row in rows]


def _solved(task: Sweep, profile: Profile, plans: dict[SpecSetting, RunPlan]) -> list[SweepRow]:
    """Compute all at once; if that fails, cell by cell."""
    rows = [row for setting in plans for row in task.blank(setting)]
    grid = Grid.of(profile, Question(concurrency=task.concurrency), tuple(plans.values()))
    try:
        if task.solver == "analytic":
            cells = grid.solve(profile, with_limit=True)
            found: dict[str, list[Any]] = {
                column: getattr(cells, n).ravel().tolist() for n, column in NUMBERS.items()
            }
            limits = cells.limits
        else:
            runs = list(grid.simulate(profile, task.seed))
            found = {column: [getattr(r, n) for r in runs] for n, column in NUMBERS.items()}
            limits = ("",) * len(runs)
    except FAILURES as error:
        if len(rows) <= 1:
            return _failed(rows, error)
        singles = product(plans.items(), task.concurrency)
        return [
            row
            for (setting, plan), c in singles
            for row in _solved(replace(task, concurrency=(c,)), profile, {setting: plan})
        ]
    runs_as = (plan for plan in plans.values() for _ in task.concurrency)
    return [
        replace(
            row,
            scheduler=plan.setting.scheduler,
            engine=plan.engine,
            engine_version=plan.version,
            limit=limits[i],
            **{column: values[i] for column, values in found.items()},
        )
        for i, (row, plan) in enumerate(zip(rows, runs_as, strict=True))
    ]


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.10g}" if isinstance(value, float) else csv_cell(str(value))


def run_sweep(
    sweep: Sweep,
    *,
    jobs: int | None = None,
    dask: str | None = None,
    done: frozenset[tuple[str, ...]] = frozenset(),
    progress: Progress | None = None,
) -> Iterator[list[SweepRow]]:
    """Compute a sweep, task by task, in a fixed order, but for cells that are `done` (`read_done`).

    In so many processes (`jobs`; by default all cores for simulations and large sweeps, else this
    one), or on the Dask scheduler of an address, which needs ``specsim-llm[dask]``. `progress` is
    told tasks done and in all.
    """
    tasks = sweep.tasks(done)
    small = sweep.solver == "analytic" and len(sweep.settings) * len(sweep.scenarios) < POOL_FROM
    workers = jobs if jobs is not None else 1 if small else os.cpu_count() or 1
    with _runner(min(workers, max(len(tasks), 1)), dask) as run:
        for number, rows in enumerate(run(solve_task, tasks), start=1):
            yield [row for row in rows if row.key not in done]
            if progress is not None:
                progress(number, len(tasks))


@contextmanager
def _runner(jobs: int, dask: str | None) -> Iterator[Map]:
    """Yield what maps `solve_task` over tasks, in their order."""
    if dask is None:
        with mapping(jobs) as run:
            yield run
        return
    try:
        distributed = import_module("distributed")
    except ImportError as error:
        raise InputError(
            f"--dask {dask}",
            "needs Dask, which is not installed",
            "pip install 'specsim-llm[dask]'",
        ) from error
    with distributed.Client(dask) as client:
        yield lambda function, tasks: (
            f.result() for f in client.map(function, list(tasks), pure=False)
        )


def read_done(path: Path, sweep: Sweep) -> frozenset[tuple[str, ...]]:
    """Return the keys of the cells in a partial CSV; a torn last line is cut off.

    Raises :class:`FormatError` if the file is not the table of a sweep, or of another one: its
    cells have another profile, seed or version of specsim.
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

    Refuses a file that another sweep is writing to.
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
