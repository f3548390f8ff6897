"""What a calibration is made from: a folder with setup.toml and observations.csv, or logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specsim.calibrate.log_setup import Stated
from specsim.errors import InputError
from specsim.observations import Observation, read_observations
from specsim.setup import Setup, read_setup


@dataclass(frozen=True, slots=True)
class Sources:
    """Setup and observations, with notes and a name for the profile."""

    setup: Setup
    observations: tuple[Observation, ...]
    notes: tuple[str, ...]
    name: str


def read_sources(sources: Sequence[str], stated: Stated, setup: str | None = None) -> Sources:
    """Read a calibration folder, or any mix of logs, traces, benchmark results and CSVs.

    Parameters
    ----------
    sources
        One folder, or files; observations.csv files may stand among them.
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
    if len(sources) == 1 and Path(sources[0]).is_dir():
        return _folder(Path(sources[0]), setup)
    from specsim.calibrate.logs import gather
    from specsim.calibrate.readers import read_file

    base = None if setup is None else read_setup(setup)
    tables = [s for s in sources if s.endswith(".csv") and _is_observations(Path(s))]
    entries = [e for s in sources if s not in tables for e in read_file(s)]
    name = Path(sources[0]).stem if sources[0] != "-" else "logs"
    rows: list[Observation] = []
    notes: list[str] = []
    if entries or base is None:
        gathered = gather(entries, stated, base)
        base = gathered.setup
        rows += gathered.observations
        notes += gathered.notes
    for table in tables:
        more = read_observations(table)
        rows += more.rows
        notes += more.notes
    return Sources(base, tuple(rows), tuple(notes), name)


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
    for needed in (path, folder / "observations.csv"):
        if not needed.is_file():
            raise InputError(
                str(folder), f"has no {needed.name}", "see docs/reference for the files' formats"
            )
    observations = read_observations(folder / "observations.csv")
    return Sources(read_setup(path), observations.rows, observations.notes, folder.resolve().name)
