"""Bad input: one clear line that names value and remedy, exit code 2, nothing written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from specsim.cli.main import run
from specsim.profile import DEFAULT_PROFILE

ANALYTIC = ("predict", "--solver", "analytic")


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line of a run that is refused."""
    assert run(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("specsim: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert len(err) < 600
    return err


NUMBERS = {
    "--topk 0 --steps 2": ("topk 0", "use 1 for a chain"),
    "--steps -1": ("steps -1", "--algorithm none"),
    "--topk 2 --steps 0": ("steps 0 with topk 2", "more steps"),
    "--topk 2": ("steps", "add --steps N"),
    "--topk 2 --steps 2 --draft-tokens 8": ("draft tokens 8", "use at most 7"),
    "--topk 2 --steps 2 --draft-tokens 0": ("draft tokens 0", "between 2 and 7"),
    "--steps 2 --draft-tokens 0": ("draft tokens 0", "between 2 and 3"),
    "--steps 2 --draft-tokens -4": ("draft tokens -4", "between 2 and 3"),
    "--topk two": ("--topk two", "is not a whole number"),
    "--speculative-num-steps=2.5": ("--steps 2.5", "is not a whole number"),
    "--seed 1e3": ("--seed 1e3", "is not a whole number"),
    "--seed -1": ("seed -1", "0..2^63"),
    "--input-len x": ("--input-len x", "is not a number"),
    "--input-len nan": ("input length nan", "finite"),
    "--input-len -5": ("input length -5", ">= 0"),
    "--output-len 0": ("output length 0", "at least 1"),
    "--context-len inf": ("context length inf", "finite"),
    "--request-rate 0": ("request rate 0", "must be positive"),
    "--request-rate -1": ("request rate -1", ">= 0"),
    "--request-rate nan": ("request rate nan", "finite"),
    "--max-running-requests 0": ("max_running_requests = 0", "at least 1"),
    "--concurrency nan": ("concurrency nan", "--concurrency 1,10,100"),
    "--concurrency 1,2.5": ("concurrency 2.5", "is not a whole number"),
    "--concurrency 1,-3": ("concurrency -3", "is not a whole number"),
    "--concurrency 0": ("concurrency 0", "1..1000000"),
    "--concurrency ,": ("concurrency", "is empty"),
    "--concurrency 99999999999999": ("concurrency 99999999999999", "is not a whole number"),
    "--solver simulate --concurrency 1000000": ("concurrency 1e+06", "use --solver analytic"),
    "--topk 100000 --steps 3": ("topk 100000", "use at most 64"),
    "--steps 10000000": ("steps 10000000", "use at most 64"),
    "--topk 30 --steps 3": ("draft tokens 1831", "give fewer with --draft-tokens"),
    "--topk 40 --steps 40 --draft-tokens 60": ("topk 40, steps 40", "smaller topk"),
    f"--topk {'9' * 5000} --steps 3": ("--topk 9999", "is not a whole number"),
}

NAMES = {
    "--profile kimi-k2.5-int4-8x-rtx-pro-600": (
        "rtx-pro-600'",
        f"did you mean '{DEFAULT_PROFILE}'",
    ),
    "--profile missing.toml": ("missing.toml", "does not exist"),
    "--engine-version newest-ish": ("'newest-ish'", "such as 0.5.9"),
    "--engine vlm": ("'vlm'", "did you mean 'vllm'"),
    "--steps 2 --algorithm eagel": ("'eagel'", "did you mean 'EAGLE'"),
    "--model llama3.1 --gpu h100-sxm": ("'llama3.1'", "did you mean 'llama-3.1-8b'"),
    "--steps 2 --scheduler overlp": ("'overlp'", "did you mean 'overlap'"),
    "--solver analytical": ("'analytical'", "did you mean 'analytic'"),
    "--steps 2 --algorithm eagel3": ("'eagel3'", "use one of"),
    "--dataset poetry": ("'poetry'", "coding/agentic@0"),
    "--stpes 2": ("--stpes", "specsim predict --help"),
    "--topk": ("--topk", "specsim predict --help"),
    "2,2": ("'2,2'", "steps,topk,draft tokens"),
    "--config-list 2,2,x": ("'2,2,x'", "steps,topk,draft tokens"),
    "--config-list 2,2,9": ("draft tokens 9", "use at most 7"),
    "missing.json": ("missing.json", "does not exist"),
}

CONTRADICTIONS = {
    "--json --csv out.csv": ("--json --csv", "choose one"),
    "--request-rate 1 --concurrency 5": ("--request-rate --concurrency", "choose one"),
    "--request-rate 1 --context-len 5": ("--request-rate --context-len", "choose one"),
    "--context-len 100 --input-len 5": ("--context-len --input-len", "choose one"),
    "--algorithm none --steps 2": ("algorithm none with 2", "drop the numbers"),
    "--scheduler sequential": ("--scheduler sequential", "add e.g. --topk 2"),
    "--algorithm MTP": ("--algorithm MTP", "add e.g. --topk 2"),
    "--plot missing/plot.png": ("--plot missing/plot.png", "folder that does not exist"),
    "--csv missing/curve.csv": ("--csv missing/curve.csv", "folder that does not exist"),
    "--plot plot.gif": ("plot plot.gif", ".png, .svg or .pdf"),
    "--csv .": ("--csv .", "is a directory"),
}


@pytest.mark.parametrize(
    ("argv", "fragments"),
    [*NUMBERS.items(), *NAMES.items(), *CONTRADICTIONS.items()],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_refused(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    argv: str,
    fragments: tuple[str, str],
) -> None:
    monkeypatch.chdir(tmp_path)
    told = refused(capsys, *ANALYTIC, *argv.split())
    for fragment in fragments:
        assert fragment in told
    assert os.listdir(tmp_path) == []


def test_empty_concurrency(capsys: pytest.CaptureFixture[str]) -> None:
    assert "concurrency: is empty" in refused(capsys, *ANALYTIC, "--concurrency", "")


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean 'predict'" in refused(capsys, "predcit", "--steps", "2")
    assert "specsim --help" in refused(capsys, "--steps", "2")


def test_the_engines_own_rule_is_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    """SGLang 0.5.7-0.5.10 refuses trees under overlap [@founding-case]."""
    argv = ("--topk", "2", "--steps", "2", "--scheduler", "overlap")
    told = refused(capsys, *ANALYTIC, *argv)
    for fragment in (
        "topk=2 steps=2 tokens=7",
        "refused by sglang 0.5.9",
        '"Spec v2 currently only supports topk = 1 for speculative decoding."',
        "SGLang 0.5.13+",
        "--what-if",
    ):
        assert fragment in told
    told = refused(capsys, *ANALYTIC, "--topk", "2", "--steps", "2", "--engine", "vllm")
    assert "refused by vllm 0.33.0: vLLM drafts chains only" in told


# --- files that are not what they should be


def shipped() -> str:
    folder = resources.files("specsim") / "profiles"
    return (folder / f"{DEFAULT_PROFILE}.toml").read_text(encoding="utf-8")


PROFILES = {
    "empty": (b"", "is empty"),
    "binary": (b"\x80\xff\x00" * 40, "is not UTF-8 text"),
    "nul": (b"a = 1\0", "is a binary file"),
    "no toml": (b"schema = ", "is not TOML"),
    "another schema": (b'schema = "specsim.setup/1"', "specsim calibrate"),
    "incomplete": (b'schema = "specsim.profile/1"', "is no complete profile"),
    "newer": (
        shipped().replace("specsim.profile/1", "specsim.profile/2").encode(),
        "written by a newer specsim; upgrade specsim",
    ),
    "unknown key": (
        shipped().replace("model_error", "modle_error").encode(),
        "did you mean 'model_error'",
    ),
    "unknown setup key": (
        shipped().replace("gpu_count", "gpu_cuont").encode(),
        "did you mean 'gpu_count'",
    ),
    "nan": (shipped().replace("noise = 0.0", "noise = nan # ").encode(), ""),
}


@pytest.mark.parametrize("what", PROFILES)
def test_profile_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, what: str) -> None:
    content, fragment = PROFILES[what]
    file = tmp_path / "my.toml"
    file.write_bytes(content)
    told = refused(capsys, *ANALYTIC, "--profile", str(file))
    assert str(file)[-40:] in told or "noise" in told
    assert fragment in told
    assert file.read_bytes() == content


def test_profile_that_is_a_directory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "is a directory" in refused(capsys, *ANALYTIC, "--profile", str(tmp_path))


SETTINGS = {
    "": "is empty",
    "{": "is not JSON",
    "[]": "holds no list of settings",
    "3": "holds no list of settings",
    "[3]": "setting 1: is neither a table nor [S, K, N]",
    "[[1, 2]]": "is not [steps, topk, draft tokens]",
    "[[1, 2, true]]": "is not [steps, topk, draft tokens]",
    '[[2, 2, 7], {"topk": 2, "num_step": 2}]': "setting 2: key 'num_step': is not known; did you",
    '[{"topk": 2.5, "num_steps": 2}]': "topk = 2.5: is not a whole number",
    '[{"topk": "2", "num_steps": 2}]': "topk = '2': is not a whole number",
    '[{"topk": NaN, "num_steps": 2}]': "topk = nan: is not a whole number",
    '[{"topk": 2}]': "setting 1: steps: is not given",
    '[{"topk": 2, "num_steps": 2, "num_draft_tokens": 9}]': "setting 1: draft tokens 9",
    '[{"steps": 2, "num_steps": 3}]': "num_steps: gives num_steps a second time",
    '[{"num_steps": 2, "algorithm": "eagle9"}]': "setting 1: algorithm 'eagle9'",
    '[{"num_steps": 2, "scheduler": "fast"}]': "setting 1: scheduler 'fast'",
    "[" * 100_000: "is not JSON",
    json.dumps([[2, 2, 7]] * 201): "more than 200",
}


@pytest.mark.parametrize("content", SETTINGS, ids=lambda content: content[:30])
def test_settings_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(content)
    told = refused(capsys, *ANALYTIC, str(file))
    assert SETTINGS[content] in told


def test_a_refusal_overwrites_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    curve, plot = tmp_path / "curve.csv", tmp_path / "plot.png"
    curve.write_text("old")
    plot.write_text("old")
    argv = ("--topk", "0", "--steps", "2", "--csv", str(curve), "--plot", str(plot))
    refused(capsys, *ANALYTIC, *argv)
    # one output that cannot be written leaves the other alone
    refused(capsys, *ANALYTIC, "--csv", str(curve), "--plot", str(tmp_path / "no" / "plot.png"))
    assert curve.read_text() == plot.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["curve.csv", "plot.png"]


def test_names_cannot_break_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Line ends and escape sequences in a name must not reach the terminal."""
    told = refused(capsys, *ANALYTIC, "--profile", "a\nb\x1b[31m.toml")
    assert "\x1b" not in told


def test_the_same_from_a_shell() -> None:
    command = [sys.executable, "-m", "specsim", *ANALYTIC, "--topk", "0", "--steps", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "specsim: topk 0: must be at least 1; use 1 for a chain\n"


UNUSED = {
    "breakeven --round-ms 98 --step-ms 30 --json": "--json: means nothing beside --round-ms",
    "breakeven --round-ms 98 --step-ms 30 2,2,7": "2,2,7: means nothing beside --round-ms",
    "breakeven --round-ms 98 --step-ms 30 --topk 2": "--topk 2: means nothing beside --round-ms",
    "breakeven --round-ms 98 --step-ms 30 --set tp=4": "--set ('tp=4',): means nothing",
    "breakeven --round-ms 98 --step-ms 30 --concurrency 1": "--concurrency (1,): means nothing",
    "breakeven --round-ms 98 --step-ms 30 --plot p.png": "--plot p.png: means nothing",
    "predict 2,1,3 --gpu h100-sxm": "--gpu h100-sxm: describes a server without a profile",
    "predict 2,1,3 --setup SETUP --model llama-3.1-8b": "--model llama-3.1-8b: is said by --setup",
    "recommend --schedule --json": "--schedule --json: exclude each other",
    "plan --mix 1:0.5,30:0.5 --concurrency 1": "--mix --concurrency: exclude each other",
    "sweep 2,1,3 --jobs 2 --dask tcp://localhost:1": "--jobs --dask: exclude each other",
    "schedule --load trace:TRACE --input-len 5": "--input-len 5.0: is said by the trace",
    "calibrate FOLDER -o p.toml --model llama-3.1-8b": "model llama-3.1-8b: is said by",
    "calibrate FOLDER -o p.toml --steps 2": "num_steps 2: is said by",
}


@pytest.mark.parametrize("argv", UNUSED)
def test_what_would_not_be_used_is_refused(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    argv: str,
) -> None:
    folder = Path(__file__).parent.parent / "calibration" / DEFAULT_PROFILE
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,input_len,output_len\n0,100,10\n1,100,10\n")
    monkeypatch.chdir(tmp_path)
    names = {
        "SETUP": str(folder / "setup.toml"),
        "FOLDER": str(folder),
        "trace:TRACE": f"trace:{trace}",
    }
    told = refused(capsys, *(names.get(word, word) for word in argv.split()))
    assert UNUSED[argv] in told
    assert os.listdir(tmp_path) == ["trace.csv"]


def test_no_speculation_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert run((*ANALYTIC, "0,1,1", "--concurrency", "1")) == 0
    assert "no speculation, which was asked about, is what all" in capsys.readouterr().err


def test_a_grid_has_the_algorithm_and_the_scheduler_that_are_said(tmp_path: Path) -> None:
    file = tmp_path / "sweep.csv"
    words = ("--grid", "steps=2", "--algorithm", "MTP", "--scheduler", "sequential")
    assert run(("sweep", *words, "--concurrency", "1", "-o", str(file))) == 0
    assert ",MTP,1,2,3,sequential,1," in file.read_text()
