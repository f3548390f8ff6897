"""Completion by the shell: the protocol of click's scripts, and that names cost no imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specsim.cli.main import COMMANDS, run
from specsim.profile import profile_names

SCRIPT = "import sys; from specsim.cli.main import main; main()"


def asked(line: str, shell: str = "bash", code: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    """Ask as the script of a shell does, with the cursor at the end of the line."""
    words = line.split(" ")
    protocol = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
    }[shell]
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **protocol, "_SPECSIM_COMPLETE": f"{shell}_complete"},
        capture_output=True,
        text=True,
        check=False,
    )


def completed(line: str) -> list[str]:
    done = asked(line)
    assert done.returncode == 0
    assert done.stderr == ""
    kinds = [line.split(",") for line in done.stdout.splitlines()]
    return [name for kind, name in kinds if kind == "plain"]


def test_commands() -> None:
    assert completed("specsim ") == list(COMMANDS)
    assert completed("specsim pr") == ["predict", "probe"]
    completed("specsim nothing-like-it ")  # says nothing on stderr


def test_options_of_the_group_and_of_a_command() -> None:
    assert {"--version", "--install-completion", "--show-completion", "--help"} <= {
        *completed("specsim --")
    }
    assert completed("specsim predict --st") == ["--steps"]
    assert "--plot" in completed("specsim predict --topk 2 --steps 2 --p")
    assert "--topk" not in completed("specsim predict --topk 2 --t")  # it has been given


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("specsim predict --profile ", list(profile_names())),
        ("specsim recommend --profile kimi-k2.5", ["kimi-k2.5-int4-8x-rtx-pro-6000"]),
        ("specsim validate cells.csv -p kimi-k2.6", ["kimi-k2.6-8x-rtx-pro-6000"]),
        ("specsim predict --solver ", ["simulate", "analytic"]),
        ("specsim predict --scheduler s", ["sequential"]),
        ("specsim predict --algorithm EAGLE", ["EAGLE", "EAGLE3"]),
        ("specsim predict --engine v", ["vllm"]),
        ("specsim predict --topk x --solver an", ["analytic"]),  # what is wrong can be mended
        ("specsim read ", []),  # files, which the shell knows
    ],
)
def test_values(line: str, names: list[str]) -> None:
    assert completed(line) == names


def test_zsh_gets_the_words_of_the_help() -> None:
    done = asked("specsim sw", "zsh")
    assert done.returncode == 0
    assert done.stdout == "plain\nsweep\nGrids over settings, loads and overrides to a table.\n"


@pytest.mark.parametrize("line", ["predict nothing", "read ", "predict --plot ", "sweep -o x"])
def test_files_are_left_to_the_shell(line: str) -> None:
    assert asked(f"specsim {line}").stdout.startswith("file,")


def test_names_are_completed_without_importing_the_commands() -> None:
    """Nor anything heavy: this is waited for at every press of Tab."""
    tail = "import json; sys.stderr.write(json.dumps(sorted(sys.modules)))"
    done = asked(
        "specsim ", code=f"{SCRIPT.removesuffix('; main()')}\ntry: main()\nfinally: {tail}"
    )
    modules = set(json.loads(done.stderr))
    assert not {f"specsim.cli.{name.replace('-', '_')}" for name in COMMANDS} & modules
    assert not {"numpy", "pydantic", "rich", "scipy", "pandas", "matplotlib", "simpy"} & modules


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_to_source(shell: str) -> None:
    """``_SPECSIM_COMPLETE=bash_source specsim`` prints it, whatever shell runs this test."""
    wanted = {**os.environ, "_SPECSIM_COMPLETE": f"{shell}_source"}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=wanted, capture_output=True, text=True, check=True)
    assert f"_SPECSIM_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize(
    ("shell", "script", "startup"),
    [
        ("bash", ".bash_completions/specsim.sh", ".bashrc"),
        ("zsh", ".zfunc/_specsim", ".zshrc"),
        ("fish", ".config/fish/completions/specsim.fish", None),
    ],
)
def test_installing(
    shell: str,
    script: str,
    startup: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    assert run(["--show-completion"]) == 0
    shown = capsys.readouterr().out
    if startup is not None:
        (tmp_path / startup).write_text("alias x=y\n")
    for _ in range(2):  # a second time changes nothing
        assert run(["--install-completion"]) == 0
    assert (tmp_path / script).read_text().strip() == shown.strip()
    if startup is not None:
        lines = (tmp_path / startup).read_text().splitlines()
        assert lines[0] == "alias x=y"
        assert len(lines) == 2
        assert Path(script).parent.name in lines[1]


def test_an_unknown_shell_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHELL", "/bin/csh")
    assert run(["--show-completion"]) == 2
    assert "use bash, zsh, fish" in capsys.readouterr().err
