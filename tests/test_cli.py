"""The command ``specsim``: what it prints, where, and in which form."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

import specsim
from specsim.cli.main import COMMANDS, run
from specsim.cli.output import console, headed, progress_bar, table
from specsim.curve import Curve
from specsim.profile import DEFAULT_PROFILE
from specsim.question import CONCURRENCY

ANALYTIC = ("predict", "--solver", "analytic")
FOUNDING = (*ANALYTIC, "--topk", "2", "--steps", "2")


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "SPECSIM_DEBUG"):
        monkeypatch.delenv(name, raising=False)


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Standard output of a run that goes well and says nothing on stderr."""
    assert run(argv) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> Curve:
    content = json.loads(printed(capsys, *argv, "--json"))
    assert content.pop("schema") == "specsim.curve/2"
    return TypeAdapter(Curve).validate_python(content)


def settings(found: Curve, role: str = "asked") -> list[tuple[int, int, int]]:
    rows = [r for r in found.rows if r.role == role and r.concurrency == found.rows[0].concurrency]
    return [(row.num_steps, row.topk, row.num_draft_tokens) for row in rows]


# --- the founding question


def test_the_founding_question(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, *FOUNDING, "--full")
    lines = out.splitlines()
    asked = "Is topk=2 steps=2 worth a GPU hour? "
    assert lines[0].startswith(f"{asked}{DEFAULT_PROFILE}: sglang 0.5.9")
    for word in ("no speculation", "runs today", "asked", "on sglang 0.5.13", "TPOT ms", "limit"):
        assert word in out
    for load in CONCURRENCY:
        told = sum(line.lstrip().startswith(f"{load} ") for line in lines)
        assert told == 1 + 4  # the choice, and every setting
    assert "topk=2 steps=2 is not worth a GPU hour here" in out
    assert "Best by load: " in out
    assert re.search(r"accepts 2\.\d+ \(\d\.\d+-\d\.\d+\)", out)  # with the interval
    assert "What binds: " in out
    assert "Weakest evidence under these numbers: assumed." in out
    assert "prompt and answer lengths are assumed" in out
    assert "\x1b" not in out  # no colour when piped
    assert max(map(len, lines)) <= 100
    assert all(line == line.rstrip() for line in lines)
    assert out.isascii()


def test_default_solver_simulates(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "predict", "--topk", "2", "--steps", "2", "--concurrency", "1,30")
    assert found.solver == "simulate"
    assert found.rows[0].tpot_p99_s is not None
    again = document(capsys, "predict", "--topk", "2", "--steps", "2", "--concurrency", "1,30")
    assert again == found


def test_nothing_asked_shows_what_runs_today(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, *ANALYTIC, "--concurrency", "1,100")
    assert "No setting was asked about" in out
    assert "What runs today, topk=1 steps=2," in out
    assert "asked" not in out.splitlines()[4]


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_width_is_that_of_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """A table per setting, never over the edge."""
    monkeypatch.setenv("COLUMNS", str(width))
    lines = printed(capsys, *FOUNDING, "--full").splitlines()
    assert max(map(len, lines)) <= width
    loads = [line for line in lines if line.lstrip().startswith("250 ") and "clients" not in line]
    assert not any("\u2026" in line for line in lines)
    assert len(loads) == 1 + 4


@pytest.mark.parametrize("width", [60, 80])
def test_a_table_breaks_words_and_cuts_no_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [("topk=8 steps=3 tokens=64 overlap C=16", "1774.9 .. 1980.3", "+1.9 %", "over 99 %")]
    grid = table(headed("cell of a sweep", "90 % interval", "error", "sure"), rows)
    console(width).print(grid)
    out = capsys.readouterr().out
    assert "\u2026" not in out
    assert all(number in out for number in rows[0][1:])
    assert max(map(len, out.splitlines())) <= width


def test_the_short_answer_is_short(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question, a verdict of at most ten lines, one small table, what it rests on."""
    monkeypatch.setenv("COLUMNS", "80")
    out = printed(capsys, *FOUNDING)
    question, verdict, table, rests = out.split("\n\n")
    assert question.startswith("Is topk=2 steps=2 worth a GPU hour?")
    assert len(verdict.splitlines()) <= 10
    assert len(table.splitlines()) == 1 + len(CONCURRENCY)
    assert "Weakest evidence" in rests
    assert max(map(len, out.splitlines())) <= 80
    assert all(line == line.rstrip() for line in out.splitlines())


def test_colour_only_where_it_is_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[31m-" in printed(capsys, *FOUNDING, "--full", "--concurrency", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in printed(capsys, *FOUNDING, "--concurrency", "100")


# --- settings


def test_names_of_sglang_and_of_its_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    ours = document(
        capsys, *ANALYTIC, "--topk", "4", "--steps", "2", "--draft-tokens", "16",
        "--input-len", "1000", "--output-len", "200", "--algorithm", "eagle3",
    )  # fmt: skip
    theirs = document(
        capsys, *ANALYTIC, "--speculative-eagle-topk", "4", "--speculative-num-steps", "2",
        "--speculative-num-draft-tokens", "16", "--isl", "1000", "--osl", "200",
        "--speculative-algorithm", "EAGLE3",
    )  # fmt: skip
    assert ours == theirs
    assert settings(ours) == [(2, 4, 16)]


def test_config_list_and_positional_settings(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(
        capsys, *ANALYTIC, "--config-list", "2,2,7 3,2,8", "5,1,6", "--config-list", "2,4,16",
        "--concurrency", "10",
    )  # fmt: skip
    assert settings(found) == [(2, 2, 7), (3, 2, 8), (2, 4, 16), (5, 1, 6)]


def test_settings_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(
        json.dumps([{"topk": 2, "num_steps": 2}, {"speculative_num_steps": 3}, [2, 4, 16]])
    )
    expected = [(2, 2, 7), (3, 1, 4), (2, 4, 16)]
    for argv in ([str(file)], ["--settings", str(file)]):
        assert settings(document(capsys, *ANALYTIC, *argv)) == expected


def test_a_chain_verifies_all_of_itself_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("--steps", "3", "--draft-tokens", "8", "--scheduler", "overlap")
    found = document(capsys, *ANALYTIC, *argv)
    assert settings(found) == [(3, 1, 4)]
    assert "topk 1, steps 3: a chain verifies 4 tokens (steps + 1), not 8" in found.notes


def test_another_version_has_its_own_rules(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *FOUNDING, "--engine-version", "0.5.13")
    assert {r.scheduler for r in found.rows if r.role == "asked"} == {"overlap"}
    assert not any(r.role == "alternative" for r in found.rows)


def test_another_engine_says_what_it_assumes(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *ANALYTIC, "--steps", "4", "--engine", "vLLM")
    assert {(r.engine, r.engine_version) for r in found.rows} == {("vllm", "0.33.0")}
    assert "all lines are under vllm 0.33.0, the newest whose rules are known" in found.notes[0]
    assert "fitted under sglang 0.5.9" in found.notes[0]
    own = document(capsys, *ANALYTIC, "--steps", "4", "--engine", "sglang")
    assert own == document(capsys, *ANALYTIC, "--steps", "4")


def test_what_if_models_what_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    argv = (*FOUNDING, "--scheduler", "overlap", "--what-if")
    rows = [r for r in document(capsys, *argv).rows if r.role == "asked"]
    assert all(r.what_if and not r.allowed and r.reason for r in rows)
    assert "(what-if: sglang 0.5.9 does not run it so)" in printed(capsys, *argv)


# --- loads


def test_loads_are_sorted_and_each_once(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *ANALYTIC, "--concurrency", "100, 1,30,1")
    assert [r.concurrency for r in found.rows if r.role == "baseline"] == [1, 30, 100]


def test_open_loop(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, *FOUNDING, "--request-rate", "0.05")
    assert "req/s" in out
    assert "keeps up at 0.05 requests/s" in out


def test_an_overrun_open_loop_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(printed(capsys, *ANALYTIC, "--request-rate", "20").split())
    assert "20 requests/s are more than no speculation (0.75/s)" in out
    assert "grow without end, and TTFT with it; the throughput shown is the capacity" in out


def test_steady_decode(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, *FOUNDING, "--context-len", "2048", "--concurrency", "1,8")
    assert "steady decode at 2048 tokens of context" in " ".join(out.split())
    assert "from 1 to 8 held requests" in " ".join(out.split())


# --- outputs


def test_json_is_the_document_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, *FOUNDING, "--json")
    curve = specsim.load_profile().predict(topk=2, num_steps=2, solver="analytic")
    content = json.loads(out)
    decision = content.pop("verdict")
    assert content == json.loads(curve.to_json())
    assert [load["concurrency"] for load in decision["loads"]] == list(CONCURRENCY)


def test_csv_to_stdout_and_to_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = printed(capsys, *FOUNDING, "--csv", "-")
    assert out.startswith("role,algorithm,topk,")
    file = tmp_path / "curve.csv"
    file.write_text("old")
    assert run((*FOUNDING, "--csv", str(file))) == 0
    shown = capsys.readouterr()
    assert file.read_text() == out
    assert shown.err == f"wrote {file}\n"
    assert "GPU hour" in shown.out
    assert os.listdir(tmp_path) == ["curve.csv"]  # the temporary file is gone


def test_plot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "curve.svg"
    assert run((*FOUNDING, "--json", "--plot", str(file))) == 0
    assert file.read_text(encoding="utf-8").startswith("<?xml")
    assert json.loads(capsys.readouterr().out)["schema"] == "specsim.curve/2"


# --- the command line itself


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "--version") == f"specsim {specsim.__version__}\n"
    told = printed(capsys, "--help")
    assert all(f"\n  {name} " in told for name in COMMANDS)
    assert printed(capsys) == told


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_mounted(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert f"Usage: specsim {name} " in printed(capsys, name, "--help")


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("terminal", "patience_s"), [(True, 0.0), (True, 1e9), (False, 0.0)])
def test_progress_shows_on_a_terminal_after_a_while(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, patience_s: float
) -> None:
    stream = Screen() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr("specsim.cli.output.PATIENCE_S", patience_s)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("simulating") as advance:
        for done in range(3):
            advance(done + 1, 3)
    assert ("simulating" in stream.getvalue()) == (terminal and patience_s == 0)


def test_interrupt_and_bug(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(error: BaseException) -> None:
        def predict(*_args: object, **_named: object) -> None:
            raise error

        monkeypatch.setattr("specsim.predict.predict", predict)

    broken(KeyboardInterrupt())
    assert run(FOUNDING) == 130
    assert capsys.readouterr() == ("", "\n")  # below the terminal's ^C
    broken(ZeroDivisionError("division\nby zero"))
    assert run(FOUNDING) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("specsim: ZeroDivisionError: division by zero; this is a bug")
    assert told.err.count("\n") == 1
    monkeypatch.setenv("SPECSIM_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(FOUNDING)


@pytest.mark.parametrize("form", [("--csv", "-"), ("--full",)])
def test_a_closed_pipe_is_quiet(form: tuple[str, ...]) -> None:
    """Text by rich, which would exit with the code of a bug."""
    command = [sys.executable, "-m", "specsim", *FOUNDING, *form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 141
