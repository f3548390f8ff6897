"""Hostile input and accidents: one clear line, exit code 2, never "this is a bug"."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.cli.main import run
from specsim.errors import InputError
from specsim.observations import observations_from_rows, read_observations, write_observations
from specsim.profile import DEFAULT_PROFILE
from specsim.setting import SpecSetting
from specsim.textfile import csv_cell, from_csv_cell

ANALYTIC = ("predict", "2,1,3", "--solver", "analytic", "--concurrency", "1")


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line of a run that is refused."""
    assert run(argv) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "bug" not in told
    assert "\x1b" not in told
    assert len(told) < 700
    return told


def shipped() -> str:
    folder = resources.files("specsim") / "profiles"
    return (folder / f"{DEFAULT_PROFILE}.toml").read_text(encoding="utf-8")


DEEP = "[" * 5000 + "]" * 5000
PROFILES = {
    "deep": (f"a = {DEEP}\n", "nested too deep"),
    "deep table": (f"{'.'.join('a' * 5000)} = 1\n", "nested too deep"),
    "digits": (shipped().replace("gpu_count = 8", f"gpu_count = {'8' * 5000}"), "too many digits"),
    "count": (shipped().replace("gpu_count = 8", f"gpu_count = {'8' * 400}"), "beyond anything"),
    "model_error": (
        re.sub("model_error = .*", "model_error = 1e308", shipped()),
        "beyond anything",
    ),
    "large error": (re.sub("model_error = .*", "model_error = 1e30", shipped()), "at most 20"),
    "sd": (re.sub("\nsd = .*", "\nsd = 1e30", shipped()), "outside 0..20"),
    "escape": (re.sub('name = ".*', 'name = "\x1b[31mred"', shipped()), "control characters"),
}


@pytest.mark.parametrize("kind", PROFILES)
@pytest.mark.parametrize("option", ["--profile", "--setup"])
def test_profiles_that_mean_harm(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, option: str
) -> None:
    text, reason = PROFILES[kind]
    assert text != shipped()
    file = tmp_path / "my.toml"
    file.write_text(text, encoding="utf-8")
    told = refused(capsys, *ANALYTIC, option, str(file))
    if option == "--profile":
        assert reason in told


COMMANDS = (
    ANALYTIC,
    ("breakeven", "2,1,3", "--concurrency", "1"),
    ("schedule", "--load", "burst:1..2,1s/2s@4s", "--repeats", "1", "--max-steps", "1"),
    ("recommend", "--concurrency", "1", "--max-steps", "1", "--max-topk", "1"),
    ("timeline", "2,1,3", "--concurrency", "1"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda argv: argv[0])
def test_no_escape_sequence_reaches_the_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: tuple[str, ...]
) -> None:
    """TOML may write what it must not hold: \\u001b; 0x9b alone begins a sequence too."""
    file = tmp_path / "my.toml"
    red = r"\\u001b[31m\\u009b1m\\u0007\\u202ered"
    text = re.sub(r'((source|text|dataset) = ")', rf"\1{red}", shipped())
    file.write_text(re.sub('name = "', f'name = "{red}', text, count=1), encoding="utf-8")
    assert run((*command, "--profile", str(file))) == 0
    told = "".join(capsys.readouterr())
    assert "red" in told
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", told)


JSONS = {
    "deep": DEEP,
    "less deep": "[" * 600 + "]" * 600,
    "digits": f'{{"hidden_size": {"9" * 5000}}}',
    "count": f'{{"hidden_size": {"9" * 400}}}',
    "escape": json.dumps({"_name_or_path": "\x1b[31mred", "model_type": "llama"}),
}


@pytest.mark.parametrize("kind", JSONS)
def test_jsons_that_mean_harm(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(JSONS[kind], encoding="utf-8")
    server = ("--gpu", "h100-sxm", "--tp", "1")
    refused(capsys, *ANALYTIC, *server, "--model", str(file))
    refused(capsys, *ANALYTIC, "--settings", str(file))
    refused(capsys, "read", str(file))


ENDLESS = (
    (*ANALYTIC, "--profile", "zero.csv"),
    (*ANALYTIC, "--setup", "setup.toml"),
    (*ANALYTIC, "--settings", "zero.csv"),
    (*ANALYTIC, "--observations", "zero.csv", "--plot", "p.png"),
    (*ANALYTIC, "--gpu", "h100-sxm", "--tp", "1", "--model", "zero.json"),
    ("schedule", "--load", "trace:zero.csv"),
    ("validate", "zero.csv"),
    ("read", "zero.csv"),
    ("calibrate", "zero.csv", "-o", "p.toml"),
)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no such device")
@pytest.mark.parametrize("argv", ENDLESS, ids=lambda argv: " ".join(argv[-4:]))
def test_files_without_an_end(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    argv: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("zero.csv", "zero.json"):
        (tmp_path / name).symlink_to("/dev/zero")
    setup = shipped().partition("[setup.hardware]")[2].partition("[setup.model]")[0]
    (tmp_path / "setup.toml").write_text(
        f'schema = "specsim.setup/1"\n[hardware]{setup}[model]\nconfig = "zero.json"\n'
    )
    told = refused(capsys, *argv)
    assert "longer than" in told or "binary" in told or "setup.toml" in argv


LONG = "a" * 300
NAMES = (
    (*ANALYTIC, "--csv", f"{LONG}.csv"),
    (*ANALYTIC, "--plot", f"{LONG}.png"),
    (*ANALYTIC, "--profile", LONG),
    (*ANALYTIC, "--profile", f"{LONG}.toml"),
    (*ANALYTIC, "--setup", f"{LONG}.toml"),
    (*ANALYTIC, "--gpu", "h100-sxm", "--tp", "1", "--model", f"{LONG}.json"),
    (*ANALYTIC, "--gpu", f"{LONG}.toml", "--tp", "1", "--model", "llama-3.1-8b"),
    ("predict", LONG),
    ("read", LONG),
    ("read", f"{LONG}.gz", "-o", f"{LONG}.txt"),
    ("calibrate", LONG, "-o", "x.toml"),
    ("calibrate", f"{LONG}.csv", "-o", "x.toml"),
    ("sweep", "2,1,3", "-o", f"{LONG}.csv"),
    ("recommend", "--observations", LONG),
    ("plan", "--observations", LONG),
    ("report", "--observations", LONG, "-o", "x.html"),
    ("validate", LONG),
    ("timeline", "2,1,3", "--trace", f"{LONG}.json"),
    ("compare", LONG, LONG),
    ("schedule", "--load", f"trace:{LONG}"),
    ("probe", "--model", "llama-3.1-8b", "-o", LONG),
)


@pytest.mark.parametrize("argv", NAMES, ids=lambda argv: " ".join(argv).replace(LONG, "LONG"))
def test_names_longer_than_any_file_system_takes(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    argv: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(capsys, *argv)
    assert os.listdir(tmp_path) == []


def test_the_longest_name_that_a_file_may_have(tmp_path: Path) -> None:
    """The name of the temporary file must not be longer than that of the file."""
    file = tmp_path / f"{'a' * 251}.csv"
    assert run((*ANALYTIC, "--csv", str(file))) == 0
    assert os.listdir(tmp_path) == [file.name]


STREAMS = {
    "full": "> /dev/full",
    "closed": ">&-",
    "closed, all of them": "<&- >&- 2>&-",
}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("words", [" ".join(ANALYTIC), f"{' '.join(ANALYTIC)} --json", "--help"])
def test_standard_output_that_takes_nothing(stream: str, words: str) -> None:
    command = f"{sys.executable} -m specsim {words} {STREAMS[stream]}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    if "2>" not in STREAMS[stream]:
        assert done.stderr.startswith("specsim: ")
        assert done.stderr.count("\n") == 1
        assert "bug" not in done.stderr


def test_standard_input_that_is_closed() -> None:
    command = f"{sys.executable} -m specsim read - <&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "specsim: -: is closed; name a file, or pipe one in\n"


# --- files that results are written to


@pytest.fixture(params=["curve.csv", "curve.svg"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """An option and the file that it writes."""
    option = "--csv" if request.param.endswith(".csv") else "--plot"
    return option, tmp_path / request.param


def test_a_link_is_followed_and_the_mode_kept(output: tuple[str, Path], tmp_path: Path) -> None:
    option, file = output
    target = tmp_path / "kept" / "target"
    target.parent.mkdir()
    target.write_text("old")
    target.chmod(0o640)
    file.symlink_to(Path("kept") / "target")
    assert run((*ANALYTIC, option, str(file))) == 0
    assert file.is_symlink()
    assert target.read_text() != "old"
    assert target.stat().st_mode & 0o777 == 0o640
    assert os.listdir(target.parent) == ["target"]


def test_a_link_to_nothing_makes_what_it_names(output: tuple[str, Path], tmp_path: Path) -> None:
    option, file = output
    file.symlink_to(tmp_path / "new")
    assert run((*ANALYTIC, option, str(file))) == 0
    assert file.is_symlink()
    assert (tmp_path / "new").stat().st_size > 100


def test_a_link_to_itself_is_refused(
    capsys: pytest.CaptureFixture[str], output: tuple[str, Path]
) -> None:
    option, file = output
    file.symlink_to(file)
    refused(capsys, *ANALYTIC, option, str(file))
    assert file.is_symlink()


def test_pipes_are_written_into(output: tuple[str, Path]) -> None:
    option, file = output
    os.mkfifo(file)
    command = [sys.executable, "-m", "specsim", *ANALYTIC, option, str(file)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as writer:
        assert len(file.read_bytes()) > 100
    assert writer.returncode == 0
    assert file.is_fifo()


def test_devices_are_written_into(tmp_path: Path) -> None:
    """Of a link to one: were it renamed over, the link alone would be lost."""
    null = tmp_path / "null.csv"
    null.symlink_to(os.devnull)
    assert run((*ANALYTIC, "--csv", str(null))) == 0
    assert null.is_symlink()
    assert Path(os.devnull).is_char_device()
    command = [sys.executable, "-m", "specsim", *ANALYTIC, "--csv", "/dev/stdout"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("role,")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_what_is_read_only_stays(
    capsys: pytest.CaptureFixture[str], output: tuple[str, Path]
) -> None:
    option, file = output
    file.write_text("old")
    file.chmod(0o440)
    assert "Permission denied" in refused(capsys, *ANALYTIC, option, str(file))
    assert file.read_text() == "old"


# --- cells that a spreadsheet would take for formulas


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_cells_come_back(text: str) -> None:
    cell = csv_cell(text)
    assert from_csv_cell(cell) == text
    assert not re.match(r"[=@+-]", cell) or re.fullmatch(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?", cell)


@pytest.mark.parametrize("formula", ["=1+1", "+A1", "-A1", "@SUM(A1)", "'=1+1"])
def test_formulas_of_observations(tmp_path: Path, formula: str) -> None:
    told = {"kind": "closed_loop", "algorithm": "none", "concurrency": 1, "output_tps": 92.7}
    rows = observations_from_rows([{**told, "source": formula, formula: "x", "dataset": formula}])
    file = tmp_path / "observations.csv"
    write_observations(file, rows)
    cells = [cell for line in csv.reader(file.read_text().splitlines()) for cell in line]
    assert f"'{formula}" in cells
    assert not [cell for cell in cells if cell[:1] in "=+-@" and cell]
    again = read_observations(file)
    assert [row.to_row() for row in again] == [row.to_row() for row in rows]


def test_numbers_stay_numbers() -> None:
    for number in ("-1", "+1.5", "-1e-05", "-.5"):
        assert csv_cell(number) == number


def test_a_zero_that_is_given_is_not_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--assume-accept-length 0" in refused(
        capsys, *ANALYTIC[:1], "--assume-accept-length", "0"
    )


@pytest.mark.parametrize(
    ("topk", "steps", "tokens"), [(10**10, 3, 4), (2, 10**9, 4), (1, 600, 601)]
)
def test_trees_that_no_engine_drafts(topk: int, steps: int, tokens: int) -> None:
    """In an observation, a setup or a launch line: before anything is made of them."""
    with pytest.raises(InputError, match="more than"):
        SpecSetting("EAGLE3", topk, steps, tokens)


@pytest.mark.parametrize("read", ["cells.csv", "setup.toml"])
@pytest.mark.parametrize("by", ["name", "link", "path"])
def test_what_is_read_is_not_written_over(
    read: str, by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("cells.csv", "setup.toml"):
        (tmp_path / name).write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / read)
    target = {"name": read, "link": "link", "path": f"./{read}"}[by]
    argv = ("calibrate", f"{tmp_path}/cells.csv", "--setup", f"{tmp_path}/setup.toml")
    assert "is read" in refused(capsys, *argv, "-o", f"{tmp_path}/{target}")
    assert (tmp_path / read).read_text() == "kept"


def test_memory_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert "/proc/self/mem: cannot be read" in refused(capsys, "read", "/proc/self/mem")
