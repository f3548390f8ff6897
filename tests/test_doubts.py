"""Measured values in the wrong unit, or against each other: named; of honest sets nothing is said.

The honest sets are all that ship in calibration/; the wrong ones are made from them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from specsim.calibrate.report import doubts
from specsim.cli.main import run
from specsim.observations import (
    Observation,
    contradictions,
    observations_from_rows,
    read_observations,
    write_observations,
)
from specsim.server import read_setup

ROOT = Path(__file__).parent.parent / "calibration"
FOLDERS = sorted(file.parent for file in ROOT.rglob("observations.csv"))
TIMED = next(f for f in FOLDERS if f.name == "deepseek-v4-flash-2x-b200")
FOUNDING = next(f for f in FOLDERS if f.name.startswith("kimi-k2.5-int4"))


def scaled(rows: Iterable[Observation], column: str, factor: float) -> list[Observation]:
    """The rows with a column times a factor; 0 stands for one over the clients."""
    return [
        row
        if (value := getattr(row, column)) is None
        else replace(row, **{column: value * (factor or 1 / (row.concurrency or 1))})
        for row in rows
    ]


def said_of(folder: Path, rows: Iterable[Observation]) -> list[str]:
    """All that is said of rows."""
    cells = tuple(rows)
    return [*contradictions(cells), *doubts(read_setup(folder / "setup.toml"), cells)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_nothing_is_said_of_honest_cells(folder: Path) -> None:
    assert said_of(folder, read_observations(folder / "observations.csv")) == []


WRONG = {
    "x100": ("output_tps", 100.0, "100 times too much?"),
    "/100": ("output_tps", 0.01, "100 times too little?"),
    "x1000": ("output_tps", 1e3, "1000 times too much?"),
    "of one client": ("output_tps", 0.0, "tokens/s of one client? give those of all"),
    "tpot in ms": ("tpot_s", 1e3, "milliseconds? give seconds"),
    "tpot in us": ("tpot_s", 1e6, "microseconds? give seconds"),
    "ttft in ms": ("ttft_s", 1e3, "milliseconds? give seconds"),
    "itl in ms": ("itl_s", 1e3, "milliseconds? give seconds"),
    "round in ms": ("round_time_s", 1e3, "milliseconds? give seconds"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_units(wrong: str) -> None:
    column, factor, meant = WRONG[wrong]
    seen = 0
    for folder in FOLDERS:
        rows = read_observations(folder / "observations.csv").rows
        if all(getattr(row, column) is None for row in rows):
            continue
        if factor == 0 and max(row.concurrency or 1 for row in rows) < 30:
            continue
        if column == "itl_s" and all(row.output_tps or row.tpot_s for row in rows):
            continue  # the same runs say it twice, and it is not compared
        said = said_of(folder, scaled(rows, column, factor))
        assert any(meant in line and f"{column} = " in line for line in said), (folder.name, said)
        assert len(said) < 6
        seen += 1
    assert seen or column == "itl_s"


@pytest.mark.parametrize("factor", [100.0, 0.01])
@pytest.mark.parametrize("column", ["output_tps", "tpot_s"])
@pytest.mark.parametrize("at", [0, 3, -1])
def test_one_cell(column: str, factor: float, at: int) -> None:
    rows = list(read_observations(TIMED / "observations.csv"))
    [rows[at]] = scaled([rows[at]], column, factor)
    lines = doubts(read_setup(TIMED / "setup.toml"), rows)
    (line,) = (line for line in lines if f"{column} = {getattr(rows[at], column):.4g}" in line)
    assert f"C={rows[at].concurrency}" in line


def cell(**told: object) -> dict[str, object]:
    """A measured cell of a chain of two steps."""
    speculating = {"kind": "closed_loop", "algorithm": "EAGLE3", "topk": 1, "num_steps": 2}
    return {**speculating, "concurrency": 1, "output_tps": 92.7, **told}


FIRST = observations_from_rows([cell()]).rows[0]
PAIRS = {
    "twice": (cell(), cell(output_tps=400), "the same cell"),
    "of one client": (cell(), cell(concurrency=30, output_tps=23), "tokens/s of one client?"),
    "one x100": (cell(), cell(concurrency=2, output_tps=18000), "more than so many clients can"),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_two_cells(kind: str) -> None:
    one, other, meant = PAIRS[kind]
    for rows in ([one, other], [other, one]):
        (note,) = observations_from_rows(rows).notes
        assert meant in note
        assert f"{other['output_tps']:g}" in note
        assert "92.7" in note
    assert observations_from_rows([one, {**other, "input_len": 9}]).notes == ()


def test_many_cells_take_no_longer() -> None:
    """Pairs of 20,000 cells would be 200 million."""
    rows = [replace(FIRST, concurrency=1 + i % 7, output_tps=90.0 + i % 3) for i in range(20_000)]
    began = time.process_time()
    assert contradictions(rows) == ()
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("length", "survival", "wrong"),
    [
        (2.2, (0.7, 0.5), False),
        (1.4, (0.7, 0.5), True),
        (2.9, (0.4, 0.2), True),
        (2.0, (0.7,), False),
    ],
)
def test_accept_length_beside_survivals(
    length: float, survival: tuple[float, ...], wrong: bool
) -> None:
    """1 + 0.7 + 0.5 = 2.2; where the second depth is not stated, it may hold the rest."""
    stated = {f"survival_{depth}": value for depth, value in enumerate(survival, 1)}
    notes = observations_from_rows([cell(accept_length=length, **stated)]).notes
    assert [f"accept_length = {length:g} contradicts" in note for note in notes] == [True] * wrong


@pytest.fixture
def wrong_file(tmp_path: Path) -> Path:
    """The founding cells, a hundred times too fast; and the first one once more, as it was."""
    rows = read_observations(FOUNDING / "observations.csv").rows
    (tmp_path / "setup.toml").write_bytes((FOUNDING / "setup.toml").read_bytes())
    write_observations(tmp_path / "observations.csv", [*scaled(rows, "output_tps", 100), rows[0]])
    return tmp_path / "observations.csv"


Command = Callable[[Path], tuple[str, ...]]
LOUD: dict[str, Command] = {
    "calibrate": lambda f: ("calibrate", str(f.parent), "-o", str(f.parent / "p.toml")),
    "validate": lambda f: ("validate", str(f)),
    "predict": lambda f: (
        *("predict", "2,1,3", "--solver", "analytic", "--concurrency", "1"),
        *("--observations", str(f), "--plot", str(f.parent / "p.svg")),
    ),
}


@pytest.mark.parametrize("name", LOUD)
@pytest.mark.parametrize("as_json", [False, True])
def test_every_command_says_so(
    capsys: pytest.CaptureFixture[str], wrong_file: Path, name: str, as_json: bool
) -> None:
    assert run((*LOUD[name](wrong_file), *(["--json"] if as_json else []))) == 0
    out, err = capsys.readouterr()
    document = json.loads(out) if as_json else {}
    notes = document.get("notes", document.get("warnings", ()))
    told = " ".join(notes) if as_json else out + err
    for part in ("output_tps = 9270", "is expected", "100 times too much?", "the same cell"):
        assert part in " ".join(told.split())


@pytest.mark.parametrize("command", ["recommend", "plan"])
def test_settings_that_were_measured_wrongly(
    capsys: pytest.CaptureFixture[str], wrong_file: Path, command: str
) -> None:
    words = ["--max-steps", "1", "--max-topk", "1"] if command == "recommend" else []
    words += ["--concurrency", "1", "--observations", str(wrong_file), "--json"]
    assert run((command, *words)) == 0
    told = capsys.readouterr()
    assert told.err.startswith("specsim: note: ")
    assert "the same cell" in told.err
    json.loads(told.out)
