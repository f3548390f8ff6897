"""The page on architecture says what the imports do."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/explanation/architecture.md").read_text()
PACKAGE = ROOT / "specsim"

APART = {"__init__", "__main__", "curve", "documents", "question", "textfile"}
"""Results, writers and small things that the page leaves out."""


def rooms_of_the_page() -> list[str]:
    """Rooms of the table from the top down."""
    cells = re.findall(r"^\| (`[^|]*`) \|", PAGE, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def layers() -> list[set[str]]:
    """Layers that import-linter enforces, from the top down."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = [c["layers"] for c in contract["contracts"] if c["type"] == "layers"]
    return [set(re.findall(r"\((\w+)\)", layer)) for layer in layers]


def test_every_room_is_on_the_page() -> None:
    found = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py"}
    found |= {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()}
    assert set(rooms_of_the_page()) == found - APART


def test_the_page_has_the_order_of_the_layers() -> None:
    place = {name: i for i, names in enumerate(layers()) for name in names}
    order = [place[name] for name in rooms_of_the_page()]
    assert order == sorted(order)


def test_no_import_is_excused() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert not any("ignore_imports" in c for c in contract["contracts"])
