"""``--plot`` of the commands that have a picture: written, in the right format, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from specsim.cli import output
from specsim.cli.main import run

ROOT = Path(__file__).resolve().parent.parent
NAME = "kimi-k2.6-8x-rtx-pro-6000"
EVIDENCE = ROOT / "calibration" / NAME
CELLS = str(EVIDENCE / "observations.csv")
STEADY = ("predict", "--profile", NAME, "--solver", "analytic", "--context-len", "0")

PICTURES = {
    "breakeven": ("breakeven", "--topk", "2", "--steps", "2", "--concurrency", "1,30,100"),
    "validate": ("validate", CELLS, "--profile", NAME),
    "calibrate": ("calibrate", str(EVIDENCE), "-o", "profile.toml"),
    "schedule": ("schedule", "--engine-version", "0.5.23", "--load", "ramp:1..8@20s",
                 "--repeats", "2", "--max-steps", "2", "--output-len", "60"),
}  # fmt: skip


@pytest.fixture
def drawn_figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that a command writes, kept."""
    kept: list[Figure] = []
    write = output.write_plot

    def keep(plot: str, figure: Figure) -> None:
        kept.append(figure)
        write(plot, figure)

    monkeypatch.setattr(output, "write_plot", keep)
    return kept


@pytest.mark.parametrize("name", PICTURES)
def test_a_command_draws(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    drawn_figures: list[Figure],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run((*PICTURES[name], "--json", "--plot", "it.svg")) == 0
    out, err = capsys.readouterr()
    assert "schema" in json.loads(out)  # the document and nothing else
    assert err == "wrote it.svg\n"
    assert Path("it.svg").read_text(encoding="utf-8").startswith("<?xml")
    (figure,) = drawn_figures
    (axes,) = figure.axes
    assert "(" in axes.get_xlabel()  # a unit
    assert figure.get_supxlabel().startswith("Profile ")


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("file", ["it.gif", "missing/it.svg", "."])
def test_a_name_that_cannot_be_drawn_is_refused_first(
    name: str,
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run((*PICTURES[name], "--plot", file)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert file in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (("2,2,7", "1,3,4"), "ask about one"),
        (("2,2,7", "--concurrency", "30"), "two loads"),
        (("--round-ms", "98.7", "--step-ms", "37.7"), "means nothing beside --round-ms"),
    ],
)
def test_a_map_is_of_one_setting_and_several_loads(
    words: tuple[str, ...],
    fragment: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "map.png"
    assert run(("breakeven", *words, "--plot", str(file))) == 2
    assert fragment in capsys.readouterr().err
    assert not file.exists()


def test_the_map_is_of_the_asked_requests(tmp_path: Path, drawn_figures: list[Figure]) -> None:
    """Long prompts leave the KV pool less room: another picture."""
    words = ("breakeven", "2,2,7", "--concurrency", "1,30,100", "--plot", str(tmp_path / "m.png"))
    assert run(words) == 0
    short = (tmp_path / "m.png").read_bytes()
    assert run((*words, "--input-len", "30000")) == 0
    assert (tmp_path / "m.png").read_bytes() != short
    assert "topk=2 steps=2 tokens=7" in drawn_figures[0].axes[0].get_title(loc="left")


# --- measured cells over a predicted curve


def test_measured_cells_lie_over_the_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], drawn_figures: list[Figure]
) -> None:
    words = ("--concurrency", "1,8,64", "--observations", CELLS, "--plot", str(tmp_path / "c.png"))
    assert run((*STEADY, *words)) == 0
    figure = drawn_figures[0]
    assert "measured" in figure.axes[0].get_legend_handles_labels()[1]
    told = figure.get_supxlabel().splitlines()[-1]
    assert told.startswith("Hollow: measured, ")
    assert 0 < int(told.split()[2]) <= int(told.split()[4])
    assert capsys.readouterr().err == f"wrote {tmp_path / 'c.png'}\n"


def test_cells_of_other_loads_are_not_drawn_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], drawn_figures: list[Figure]
) -> None:
    """Whole requests are not the steady decode that was measured."""
    argv = ("predict", "--profile", NAME, "--solver", "analytic", "--concurrency", "1,8")
    assert run((*argv, "--observations", CELLS, "--plot", str(tmp_path / "c.png"))) == 0
    assert "measured" not in drawn_figures[0].axes[0].get_legend_handles_labels()[1]
    assert "none of the 44 measured cells" in capsys.readouterr().err


def test_cells_without_a_picture_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run((*STEADY, "--observations", CELLS)) == 2
    assert "add --plot" in capsys.readouterr().err
