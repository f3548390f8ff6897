"""The plot: what it says, what tells its lines apart, and that it is the same file twice."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from made_curves import made_curve, made_series
from matplotlib.colors import to_rgb

from specsim.cli.output import writable, write_plot
from specsim.curve import Curve
from specsim.observations import Observation
from specsim.report.figure import STYLES, drawn
from specsim.report.plots_curve import measured_cells, throughput_figure
from specsim.setting import SpecSetting

CHAIN = SpecSetting.of(1, 2)


@pytest.fixture
def curve() -> Curve:
    return made_curve(
        made_series("current", [0.1, 0.1, 0.1], setting=CHAIN),
        made_series("asked", [-0.1, -0.2, -0.3], scheduler="sequential", evidence="assumed"),
    )


def test_lines_bands_units_and_caption(curve: Curve) -> None:
    figure = throughput_figure(curve)
    (axes,) = figure.axes
    assert axes.get_xlabel() == "clients in flight (requests)"
    assert "tokens/s" in axes.get_ylabel()
    assert axes.get_xscale() == "log"  # two decades of load
    assert axes.get_ylim()[0] == 0
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["no speculation", "topk=1 steps=2 (runs today)", "topk=2 steps=2"]
    assert len(axes.collections) == 3  # a band each
    middle = next(line for line in axes.lines if line.get_label() == "topk=2 steps=2")
    assert list(middle.get_ydata()) == pytest.approx([90, 800, 7000], rel=1e-12)
    told = figure.get_supxlabel()
    for word in ("Profile made", "sglang 0.5.9", "1024 tokens in, 512 out", "90 %", "assumed"):
        assert word in told


def test_each_of_colour_line_and_marker_tells_series_apart() -> None:
    """In grey too: no two of the first five colours are closer than 5 % in luminance.

    Luminance as in Rec. 709; beyond five settings, line and marker have to do.
    """
    colours, lines, markers = zip(*STYLES, strict=True)
    for one in (colours, lines, markers):
        assert len(set(map(str, one))) == len(STYLES)
    grey = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(to_rgb, colours[:5]))
    assert all(b - a > 0.05 for a, b in pairwise(grey))


def test_measured_cells_take_the_colour_of_their_setting(curve: Curve) -> None:
    cells = [
        Observation(
            kind="closed_loop",
            setting=CHAIN.with_scheduler("overlap"),
            concurrency=10,
            output_tps=1080.0,
        ),
        Observation(
            kind="closed_loop", setting=SpecSetting.of(4, 2), concurrency=1, output_tps=1.0
        ),
    ]
    (axes,) = throughput_figure(curve, measured=cells).axes
    assert axes.get_legend_handles_labels()[1][-1] == "measured"
    drawn_cells = axes.collections[-1]
    assert drawn_cells.get_offsets().tolist() == [[10.0, 1080.0]]
    assert tuple(drawn_cells.get_edgecolor()[0][:3]) == pytest.approx(to_rgb(STYLES[1][0]))


def test_only_cells_of_the_same_question_are_drawn(curve: Curve) -> None:
    """The curve: closed loop, 1024 tokens in and 512 out, sglang 0.5.9."""
    none = SpecSetting.none()
    same = Observation(kind="closed_loop", setting=none, concurrency=10, output_tps=990.0)
    others = [
        replace(same, kind="steady_decode"),
        replace(same, kind="open_loop", request_rate=2.0),
        replace(same, input_len=2048.0),
        replace(same, output_len=100.0),
        replace(same, engine_version="0.5.13"),
        replace(same, setting=SpecSetting.none("sequential")),
        replace(same, output_tps=None),
    ]
    stated = replace(same, input_len=1024.0, output_len=512.0, engine_version="0.5.9")
    cells = measured_cells(curve, [same, *others, stated])
    assert cells == (((10.0, 990.0), (10.0, 990.0)), (), ())
    told = throughput_figure(curve, measured=[same, *others]).get_supxlabel()
    assert told.endswith("Hollow: measured, 1 of 8 cells.")


def test_at_one_load_cells_of_other_loads_are_left_out() -> None:
    curve = made_curve(made_series("asked", [0.1], loads=[30]))
    cell = Observation(
        kind="closed_loop", setting=SpecSetting.none(), concurrency=30, output_tps=2900.0
    )
    found = measured_cells(curve, [cell, replace(cell, concurrency=10)])
    assert found == (((30.0, 2900.0),), ())
    (axes,) = throughput_figure(curve, measured=[cell]).axes
    assert [[0.0, 2900.0]] in [c.get_offsets().tolist() for c in axes.collections]


def test_steady_decode_takes_cells_of_its_context() -> None:
    curve = made_curve(made_series("asked", [0.1] * 3, context_len=16384.0))
    cell = Observation(
        kind="steady_decode",
        setting=SpecSetting.none(),
        concurrency=1,
        context_len=16384.0,
        output_tps=99.0,
    )
    found = measured_cells(curve, [cell, replace(cell, context_len=None)])
    assert found == (((1.0, 99.0),), ())


def test_one_load_stands_side_by_side() -> None:
    curve = made_curve(made_series("asked", [0.1], loads=[30]))
    (axes,) = throughput_figure(curve).axes
    assert axes.get_xlabel() == "at 30 clients"
    assert [label.get_text() for label in axes.get_xticklabels()] == [
        "no speculation",
        "topk=2 steps=2",
    ]


def test_open_loop_and_steady_decode_name_their_loads() -> None:
    asked = made_series("asked", [0.1], loads=[1])
    (axes,) = throughput_figure(made_curve(asked), 2.5).axes
    assert axes.get_xlabel() == "at 2.5 requests/s"
    steady = made_series("asked", [0.1] * 3, context_len=16384.0)
    figure = throughput_figure(made_curve(steady))
    assert figure.axes[0].get_xlabel() == "held batch (requests)"
    assert "16384 tokens of context" in figure.get_supxlabel()


@pytest.mark.parametrize("file_format", ["png", "svg", "pdf"])
def test_the_same_curve_gives_the_same_file(curve: Curve, file_format: str) -> None:
    first, second = (drawn(throughput_figure(curve), file_format) for _ in range(2))
    assert first == second
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[file_format]
    assert first.startswith(start)


@pytest.mark.parametrize("name", ["x", "x.gif", "x.png.txt", ""])
def test_unknown_formats_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="ending") as error:
        writable(".png", ".svg", ".pdf")(name)
    assert error.value.args[1] == "end the name in .png, .svg or .pdf"


def test_format_in_any_case(curve: Curve, tmp_path: Path) -> None:
    path = str(tmp_path / "X.PNG")
    assert writable(".png", ".svg", ".pdf")(path) == path
    write_plot(path, throughput_figure(curve))
    assert Path(path).read_bytes().startswith(b"\x89PNG")
