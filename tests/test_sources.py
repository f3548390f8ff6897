"""Every source that is cited is one that a reader can find: docs/explanation/sources.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "docs/explanation/sources.md"
KEYS = frozenset(re.findall(r"^### ([a-z0-9-]+)$", SOURCES.read_text(), re.MULTILINE))
CITATION = re.compile(r"\[(@[a-z0-9-]+[^\]\[]*)\]")
KEY = re.compile(r"@([a-z0-9-]+)")
UNREACHABLE = re.compile(r"\b(?:PHYSICS|ENGINES|DESIGN|CONTRACT)(?:\.md)? (?:section )?[A-Z]?\d")


def texts() -> list[Path]:
    folders = ("specsim", "docs", "calibration", "tests", "benchmarks", "figures")
    kinds = {".py", ".toml", ".md", ".csv"}
    found = [p for name in folders for p in (ROOT / name).rglob("*") if p.suffix in kinds]
    return [p for p in (*found, ROOT / "README.md") if p != Path(__file__)]


def cited_in(text: str) -> set[str]:
    """Keys of ``[@one]``, ``[@one, section 2]``, ``[@one, @other]``."""
    return {key for inside in CITATION.findall(text) for key in KEY.findall(inside)}


@pytest.mark.parametrize("path", texts(), ids=lambda p: str(p.relative_to(ROOT)))
def test_citations_resolve(path: Path) -> None:
    text = path.read_text()
    assert cited_in(text) <= {*KEYS, "key"}
    assert not UNREACHABLE.findall(text)


def test_keys_are_cited() -> None:
    cited = {key for path in texts() for key in cited_in(path.read_text())}
    assert cited >= KEYS
