"""Gantt charts of timelines: lanes of one scheduler beside those of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.metrics import Records
from specsim.report import figure as fig
from specsim.report.timeline import LANES, PHASES, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAINT = {
    "draft": (fig.SKY, "///"),
    "tree": (fig.YELLOW, ""),
    "target": (fig.BLUE, ""),
    "allreduce": (fig.VERMILION, "xxx"),
    "overhead": ("#BBBBBB", "..."),
    "extend": (fig.PURPLE, "\\\\\\"),
    "results": ("#5C4000", ""),  # a darker shade of the host's
    "host": (fig.ORANGE, "---"),
    "prefill": (fig.GREEN, "+++"),
    "waiting": ("#EEEEEE", ""),
    "round": ("#FFFFFF", ""),
}
"""Colour and hatch of a phase."""

DRAWN_ROUNDS = 12  # more are too narrow to see
MARGIN = 1.005  # room at the right, so that the last bar has its edge
SLIM_SHARE = 0.006  # of the picture: a narrower bar has no edge and no hatch, which would hide it
LABEL_SHARE = 0.07  # a narrower step has no label
LETTER_SHARE = 0.0095  # what a letter of a label takes
NOTE = "The target's all-reduces are spread over its layers; they are drawn as one share."


def timeline_figure(shown: Sequence[Timeline], caption: str = "") -> Figure:
    """Draw timelines one above the other on one time axis; the caption says what they rest on."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(9.5, 1.4 + 2.1 * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, timeline in zip(panels, shown, strict=True):
        plot_timeline(axes, timeline)
        if axes is not panels[-1]:
            axes.set_xlabel("")
    spans = np.concatenate([_drawn(t) for t in shown])
    panels[0].set_xlim(0, MARGIN * spans["end_ns"].max() / 1e6)
    patches = [
        Patch(facecolor=PAINT[name][0], hatch=PAINT[name][1], edgecolor="black", label=words)
        for name, (_, words) in PHASES.items()
        if name in spans["phase"]
    ]
    figure.legend(
        handles=patches, loc="outside upper center", ncols=4, frameon=False, fontsize="small"
    )
    fig.put_caption(figure, f"{caption} {NOTE}".strip())
    return figure


def plot_timeline(axes: Axes, timeline: Timeline) -> Axes:
    """Draw the lanes of the first `DRAWN_ROUNDS` rounds, milliseconds from left to right."""
    spans = _drawn(timeline)
    end_ms = spans["end_ns"].max() / 1e6
    lanes = [lane for lane in reversed(LANES) if lane in spans["lane"]]
    for row, lane in enumerate(lanes):
        for phase, (colour, hatch) in PAINT.items():
            chosen = spans[(spans["lane"] == lane) & (spans["phase"] == phase)]
            start_ms = chosen["start_ns"] / 1e6
            length_ms = (chosen["end_ns"] - chosen["start_ns"]) / 1e6
            slim = length_ms < SLIM_SHARE * end_ms
            for some, line, fill in ((~slim, "black", hatch), (slim, colour, "")):
                bars = list(zip(start_ms[some], length_ms[some], strict=True))
                looks: dict[str, Any] = {"facecolor": colour, "edgecolor": line, "hatch": fill}
                axes.broken_barh(bars, (row - 0.4, 0.8), lw=0.5, **looks)
            if lane == "step" or phase == "waiting":
                _label(axes, chosen, row, end_ms)
    fig.frame(axes, timeline.title, "time (ms)", "", grid="none")
    fig.name_rows(axes, [LANES[lane] for lane in lanes])
    axes.set_ylim(-0.6, len(lanes) - 0.4)
    axes.set_xlim(0, MARGIN * end_ms)
    axes.spines["left"].set_visible(False)
    return axes


def _drawn(timeline: Timeline) -> Records:
    """Spans of the first rounds."""
    rounds, spans = timeline.rounds, timeline.spans
    if len(rounds) <= DRAWN_ROUNDS:
        return spans
    first: Records = spans[spans["end_ns"] <= rounds["end_ns"][DRAWN_ROUNDS - 1]]
    return first


def _label(axes: Axes, spans: Records, row: int, end_ms: float) -> None:
    """Write into wide bars what happens in them."""
    for span in spans:
        start, end, batch = span["start_ns"] / 1e6, span["end_ns"] / 1e6, span["batch"]
        if end - start < LABEL_SHARE * end_ms:
            continue
        if span["phase"] == "waiting":
            text = f"{batch} waiting"
        elif span["phase"] == "prefill":
            text = f"{batch} prompt{'s' if batch > 1 else ''}"
        else:
            text = f"B={batch}, {span['accepted']} accepted"
        if end - start < LETTER_SHARE * len(text) * end_ms:
            text = text.split(",")[0]
        middle = (start + end) / 2
        axes.text(middle, row, text, ha="center", va="center", fontsize=7, bbox=fig.BACKING)
