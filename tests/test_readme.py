"""The README's commands and outputs are what the code does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def shown() -> str:
    """Output of the founding command as the README shows it."""
    block = README.split("$ python -m specsim predict --topk 2 --steps 2\n", 1)[1]
    return block.split("```", 1)[0]


def printed() -> str:
    return subprocess.run(
        [sys.executable, "-m", "specsim", "predict", "--topk", "2", "--steps", "2"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80"},  # pytest runs with the width of its own terminal
    ).stdout


def test_the_founding_command_prints_what_the_readme_shows() -> None:
    now, then = printed().split(), shown().split()
    words_now = [NUMBER.sub("#", word) for word in now]
    words_then = [NUMBER.sub("#", word) for word in then]
    assert words_now[:40] == words_then[:40]
    numbers_now = [float(n) for n in NUMBER.findall(" ".join(now))]
    numbers_then = [float(n) for n in NUMBER.findall(" ".join(then))]
    assert len(numbers_now) == pytest.approx(len(numbers_then), abs=4)
    # other builds of numpy and BLAS move the last digit of a simulation, not more; a model that
    # changed by a percent must show
    table_now, table_then = numbers_now[:150], numbers_then[:150]
    assert table_now == pytest.approx(table_then, rel=0.005, abs=1.05)


def test_the_test_command_is_what_ci_runs() -> None:
    assert "python -m pytest -n auto -q" in README
    assert "python -m pytest -n auto -q" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_python_example_runs() -> None:
    code = README.split("```python\n", 1)[1].split("```", 1)[0]
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert result.returncode == 0, result.stderr
    assert "output_tps" in result.stdout


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_every_runtime_dependency_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[<>=!~ ]", d)[0] for d in project["dependencies"]}
    wanted = "numpy scipy pandas simpy matplotlib packaging pydantic rich click jinja2 tomlkit"
    assert names == set(wanted.split())


def test_observations_example_is_readable(tmp_path: Path) -> None:
    from specsim.observations import read_observations

    text = README.split("```csv\n", 1)[1].split("```", 1)[0]
    path = tmp_path / "observations.csv"
    path.write_text(text, encoding="utf-8")
    assert len(read_observations(path).rows) == 4
