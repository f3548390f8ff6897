"""What a calibration is made from: a directory with setup.toml and observations.csv."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specsim.errors import InputError
from specsim.observations import Observation, read_observations
from specsim.setup import Setup, read_setup


def read_directory(
    sources: Sequence[str],
) -> tuple[Setup, tuple[Observation, ...], tuple[str, ...], str]:
    """Return setup, observations, notes and a name of a calibration directory.

    Raises
    ------
    InputError
        If it is not one directory, or a file is missing.
    """
    if len(sources) != 1 or not Path(sources[0]).is_dir():
        raise InputError(" ".join(sources), "is not one directory", "give a folder with setup.toml")
    folder = Path(sources[0])
    for name in ("setup.toml", "observations.csv"):
        if not (folder / name).is_file():
            raise InputError(
                str(folder), f"has no {name}", "see docs/reference for both files' formats"
            )
    observations = read_observations(folder / "observations.csv")
    return (
        read_setup(folder / "setup.toml"),
        observations.rows,
        observations.notes,
        folder.resolve().name,
    )
