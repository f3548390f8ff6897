"""Documentation: generated pages follow the code, formats list every column, the site builds."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from specsim.cli.main import COMMANDS
from specsim.curve import COLUMNS as CURVE_COLUMNS
from specsim.observations import COLUMNS
from specsim.parameters import ACCEPTANCE, COST
from specsim.profile import profile_names

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cli_page_has_every_command(generate: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")  # what the page sets is taken back
    page = generate.cli_page()
    for name in COMMANDS:
        assert f"## specsim {name}\n" in page
        assert f"Usage: specsim {name}" in page


def test_json_page_has_every_field_of_a_curve(generate: ModuleType) -> None:
    page = generate.json_page()
    assert "## specsim.curve/2" in page
    assert "## specsim.validation/1" in page
    for field in CURVE_COLUMNS:
        assert f"| `{field}` |" in page


def test_parameters_page_has_every_row(generate: ModuleType) -> None:
    page = generate.parameters_page()
    for name in (*COST, *ACCEPTANCE):
        assert f"| `{name}` |" in page


def test_python_page_has_every_module(generate: ModuleType) -> None:
    page = generate.python_page()
    for name in generate.MODULES:
        assert f"## {name}\n" in page
    assert "load_profile(" in page


def test_validation_page_has_every_shipped_profile(generate: ModuleType) -> None:
    page = generate.validation_page()
    for name in profile_names():
        assert f"## {name}\n" in page
    assert page.count("`output_tps`") >= 8 + 44


def test_the_glossary_has_every_word_of_the_output() -> None:
    """Names of parameters, limits, evidence, kinds, algorithms, phases; headings of tables."""
    from specsim.cli import breakeven, plan, recommend
    from specsim.curve import Limit, Role
    from specsim.decide.plan import Kind
    from specsim.report.timeline import PHASES
    from specsim.setting import Algorithm
    from specsim.uncertainty import Evidence

    page = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    named = [name for kind in (Limit, Evidence, Kind, Role, Algorithm) for name in get_args(kind)]
    for name in (*named, *COST, *ACCEPTANCE):
        assert f"`{name}`" in page, name
    tables = (breakeven.COLUMNS, plan.COLUMNS, recommend._columns(True))
    headings = [heading for table in tables for heading, _ in table]
    small = "clients,choice,tok/s,gain,sure,its gain,TPOT,TTFT,p50/99,good/s,per Mtok,req/s,run"
    schedule = "request,requests/s,switches,vs best fixed,best table,K = 0"
    words = [*headings, *small.split(","), *schedule.split(",")]
    words += [words for _, words in PHASES.values()]
    for word in words:
        assert word.removesuffix(" (90 %)") in page, word


def test_formats_list_every_column() -> None:
    page = (ROOT / "docs" / "reference" / "formats.md").read_text()
    for column in COLUMNS:
        survival = column.startswith("survival_")
        assert survival or f"`{column}`" in page, column


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_commands_in_the_docs_exist(path: Path) -> None:
    """Also those that are mounted by name only; options are checked by running the tutorials."""
    modules = {p.stem for p in (ROOT / "specsim" / "cli").glob("*.py")}
    for block in re.findall(r"```sh\n(.*?)```", path.read_text(), re.S):
        for name in re.findall(r"^(?:\.venv/bin/)?specsim ([a-z]+)", block, re.M):
            assert name in modules, name


@pytest.mark.slow
def test_site_builds_strictly(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert (tmp_path / "reference" / "cli" / "index.html").exists()
