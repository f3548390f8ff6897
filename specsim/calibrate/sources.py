"""What a calibration is made from: a folder with setup.toml and observations.csv, or logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specsim.calibrate.log_setup import Stated
from specsim.errors import InputError
from specsim.observations import Observation, read_observations
from specsim.probe import FILE as PROBE_FILE
from specsim.server import Setup, read_setup


@dataclass(frozen=True, slots=True)
class Sources:
    """Setup and observations, with notes and a name for the profile."""

    setup: Setup
    observations: tuple[Observation, ...]
    notes: tuple[str, ...]
    name: str


def read_sources(sources: Sequence[str], stated: Stated, setup: str | None = None) -> Sources:
    """Read a calibration folder, or any mix of logs, traces, benchmark results, CSVs and probes.

    Parameters
    ----------
    sources
        Files, folders of ``specsim probe``, and at most one folder with setup.toml and
        observations.csv.
    stated
        What the user says beside the logs.
    setup
        Path of a setup.toml to use instead of the logs' own words.

    Raises
    ------
    InputError
        If a file is missing, or something that a setup needs is nowhere said.
    CalibrationError
        If nothing usable was measured.
    """
    named = [_probe_file(s) or s for s in sources]
    if len(named) == 1 and Path(named[0]).is_dir():
        return _folder(Path(named[0]), setup)
    named, setup = _unfolded(named, setup)
    from specsim.calibrate.logs import gather
    from specsim.logs import read_file

    base = None if setup is None else read_setup(setup)
    tables = [s for s in named if s.endswith(".csv") and _is_observations(Path(s))]
    entries = [e for s in named if s not in tables for e in read_file(s)]
    name = Path(sources[0]).stem if sources[0] != "-" else "logs"
    rows: list[Observation] = []
    notes: list[str] = []
    if entries or base is None:
        gathered = gather(entries, stated, base, rows_elsewhere=bool(tables))
        base = gathered.setup
        rows += gathered.observations
        notes += gathered.notes
    for table in tables:
        more = read_observations(table)
        rows += more.rows
        notes += more.notes
    return Sources(base, tuple(rows), tuple(notes), name)


def _unfolded(named: Sequence[str], setup: str | None) -> tuple[list[str], str | None]:
    """Put a calibration folder's observations in its place, and its setup where none is given.

    Beside files, a folder may hold the setup alone.
    """
    files: list[str] = []
    folders = [Path(s) for s in named if Path(s).is_dir()]
    if len(folders) > 1:
        listed = " and ".join(str(folder) for folder in folders)
        raise InputError(listed, "are two calibration folders", "give one, and files beside it")
    for name in named:
        folder = Path(name)
        if folder not in folders:
            files.append(name)
            continue
        of_server = folder / "setup.toml" if setup is None else Path(setup)
        table = folder / "observations.csv"
        if table.is_file() or len(named) == 1 or not of_server.is_file():
            _check_folder(folder, of_server)
            files.append(str(table))
        setup = str(of_server)
    return files, setup


def _probe_file(source: str) -> str | None:
    """Return the file of a folder that ``specsim probe`` wrote; None for anything else."""
    folder = Path(source)
    if not folder.is_dir() or (folder / "setup.toml").exists():
        return None
    return str(folder / PROBE_FILE) if (folder / PROBE_FILE).is_file() else None


def _is_observations(path: Path) -> bool:
    """Whether a CSV is in the observation schema: its header names kind and algorithm."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            header = next((line for line in file if line.strip() and line[0] != "#"), "")
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "check it") from error
    return {"kind", "algorithm"} <= {cell.strip().lstrip("\ufeff") for cell in header.split(",")}


def _folder(folder: Path, setup: str | None) -> Sources:
    path = Path(setup) if setup is not None else folder / "setup.toml"
    _check_folder(folder, path)
    observations = read_observations(folder / "observations.csv")
    return Sources(read_setup(path), observations.rows, observations.notes, folder.resolve().name)


def _check_folder(folder: Path, setup: Path) -> None:
    for needed in (setup, folder / "observations.csv"):
        if not needed.is_file():
            raise InputError(
                str(folder), f"has no {needed.name}", "see docs/reference for the files' formats"
            )
