"""What a calibration is made from: a folder with setup.toml and observations.csv, or logs."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from specsim.calibrate.log_setup import Sources, Stated
from specsim.errors import InputError
from specsim.observations import Observation, contradictions, read_observations
from specsim.server import Setup, read_setup
from specsim.textfile import name_of

HEAD_CHARS = 1 << 20  # of a CSV, in which its header stands


def read_sources(sources: Sequence[str], stated: Stated, setup: str | None = None) -> Sources:
    """Read a calibration folder, or any mix of logs, traces, benchmark results, CSVs and probes.

    The `sources` are files, folders of ``specsim probe``, URLs of running servers, and at most one
    folder with setup.toml and observations.csv. What is `stated` wins over the logs, a setup.toml
    over what the logs say. Raises :class:`InputError` if a file is missing, or something that a
    setup needs is nowhere said; :class:`CalibrationError` if nothing usable was measured.
    """
    named = [_probe_file(source) or source for source in sources]
    folders = [Path(name) for name in named if Path(name).is_dir()]
    if len(folders) > 1:
        listed = " and ".join(map(str, folders))
        raise InputError(listed, "are two calibration folders", "give one, and files beside it")
    tables, logs = [], []
    for name in named:
        path = Path(name)
        if path in folders:  # its observations, or only the setup of the files beside it
            setup = str(path / "setup.toml") if setup is None else setup
            table = path / "observations.csv"
            if table.is_file() or len(named) == 1 or not Path(setup).is_file():
                for needed in (Path(setup), table):
                    if not needed.is_file():
                        hint = "see docs/reference for the files' formats"
                        raise InputError(str(path), f"has no {needed.name}", hint)
                tables.append(str(table))
        elif path.suffix == ".csv" and _is_observations(path):
            tables.append(name)
        else:
            logs.append(name)
    base = None if setup is None else read_setup(setup)
    if base is not None and not logs:
        for name in (f.name for f in fields(stated) if getattr(stated, f.name) is not None):
            said = f"{name} {getattr(stated, name)}"
            raise InputError(said, f"is said by {setup} and its rows", "drop it, or edit them")
    rows: list[Observation] = []
    notes: list[str] = []
    if logs or base is None:
        from specsim.calibrate.logs import gather
        from specsim.logs import read_file
        from specsim.logs.source import is_url

        entries = []
        for log in logs:
            if is_url(log):
                from specsim.live.watch import look

                seen, told = look(log)
                entries.append(seen)
                notes += told
            else:
                entries += read_file(log)
        gathered = gather(entries, stated, base, rows_elsewhere=bool(tables))
        base = gathered.setup
        rows += gathered.observations
        notes += (*gathered.notes, *contradictions(gathered.observations))
    for more in map(read_observations, tables):
        rows += more.rows
        notes += more.notes
    first = Path(sources[0])
    own = first.resolve().name if first.is_dir() else _server_name(base)
    return Sources(base, tuple(rows), tuple(notes), own)


def _server_name(setup: Setup) -> str:
    """Name a profile after its model, GPUs and engine."""
    model, hardware = Path(name_of(setup.model.id or setup.model.config or "model")), setup.hardware
    named = model.resolve().parent if model.name == "config.json" else model
    gpu = hardware.gpu if isinstance(hardware.gpu, str) else hardware.gpu.name
    return f"{named.name} {hardware.gpu_count}x {gpu} {setup.engine.name}".replace(" ", "-")


def _probe_file(source: str) -> str | None:
    """Return the file of a folder that ``specsim probe`` wrote; None for anything else."""
    folder = Path(source)
    if not folder.is_dir() or (folder / "setup.toml").exists():
        return None
    from specsim.probe import FILE

    return str(folder / FILE) if (folder / FILE).is_file() else None


def _is_observations(path: Path) -> bool:
    """Whether a CSV is in the observation schema: its header names kind and algorithm."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            head = file.read(HEAD_CHARS).splitlines()
            header = next((line for line in head if line.strip() and line[0] != "#"), "")
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "check it") from error
    return {"kind", "algorithm"} <= {cell.strip().lstrip("\ufeff") for cell in header.split(",")}
