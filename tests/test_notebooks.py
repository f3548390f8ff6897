"""Notebooks run from a clean kernel, and are saved without outputs."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

SECONDS = 300
"""Far more than a notebook takes (about 10 s): only a hang shall end here."""


def code(path: Path) -> list[str]:
    cells = json.loads(path.read_text())["cells"]
    return ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]


def test_there_are_five() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_saved_without_outputs(path: Path) -> None:
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_calls_the_public_api_only(path: Path) -> None:
    tree = ast.parse("\n".join(code(path)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_")
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert not any(a.name.startswith("_") for a in node.names)
            assert not any(part.startswith("_") for part in node.module.split("."))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
@pytest.mark.filterwarnings("default")  # of the notebook machinery's own libraries
def test_runs_from_a_clean_kernel(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    monkeypatch.setenv("PYTHONWARNINGS", "error::DeprecationWarning:specsim")
    notebook = nbformat.read(path, as_version=4)
    run = client.NotebookClient(notebook, timeout=SECONDS, kernel_name="python3")
    run.execute(cwd=str(FOLDER))
    outputs = [o for c in notebook.cells if c.cell_type == "code" for o in c.outputs]
    assert outputs
    assert not any(o.output_type == "stream" and o.name == "stderr" for o in outputs), outputs
    assert len(json.dumps(outputs)) < 1_500_000
