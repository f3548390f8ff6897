"""Gantt charts of timelines: lanes of one scheduler beside those of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from specsim.metrics import Records
from specsim.report.timeline import LANES, PHASES, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAINT = {
    "draft": ("#56B4E9", "///"),
    "tree": ("#F0E442", ""),
    "target": ("#0072B2", ""),
    "allreduce": ("#D55E00", "xxx"),
    "overhead": ("#BBBBBB", "..."),
    "extend": ("#CC79A7", "\\\\\\"),
    "results": ("#5C4000", ""),
    "host": ("#E69F00", "---"),
    "prefill": ("#009E73", "+++"),
    "waiting": ("#EEEEEE", ""),
    "round": ("#FFFFFF", ""),
}
"""Colour (Okabe and Ito 2008; results a darker shade of host) and hatch of a phase."""

DRAWN_ROUNDS = 12
"""More rounds are too narrow to see."""

SLIM_SHARE = 0.006
"""A bar narrower than this share of the picture has no edge and no hatch: they would hide it."""

MARGIN = 1.005
"""Room at the right, so that the last bar has its edge."""

LABEL_SHARE = 0.07
"""A step narrower than this share of the picture has no label."""


def timeline_figure(shown: Sequence[Timeline], caption: str = "") -> Figure:
    """Draw timelines one above the other on one time axis.

    Parameters
    ----------
    shown
        What to draw.
    caption
        Profile, evidence and what else a reader must know.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(9.5, 1.4 + 2.1 * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, timeline in zip(panels, shown, strict=True):
        plot_timeline(axes, timeline)
        if axes is not panels[-1]:
            axes.set_xlabel("")
    last_ms = max(float(_drawn(t)["end_ns"].max()) for t in shown) / 1e6
    panels[0].set_xlim(0, MARGIN * last_ms)
    used = {str(name) for t in shown for name in np.unique(_drawn(t)["phase"])}
    handles = [
        Patch(facecolor=PAINT[name][0], hatch=PAINT[name][1], edgecolor="black", label=words)
        for name, (_, words) in PHASES.items()
        if name in used
    ]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=4, frameon=False, fontsize="small"
    )
    note = "The target's all-reduces are spread over its layers; they are drawn as one share."
    figure.supxlabel(f"{caption} {note}".strip(), fontsize="x-small", x=0.01, ha="left")
    return figure


def plot_timeline(axes: Axes, timeline: Timeline) -> Axes:
    """Draw the lanes of one timeline, milliseconds from left to right.

    Parameters
    ----------
    axes
        Where.
    timeline
        What; at most its first `DRAWN_ROUNDS` rounds.
    """
    spans = _drawn(timeline)
    end_ms = spans["end_ns"].max() / 1e6
    lanes = [lane for lane in LANES if np.any(spans["lane"] == lane)]
    for row, lane in enumerate(reversed(lanes)):
        for phase in (*PHASES, "waiting", "round"):
            chosen = spans[(spans["lane"] == lane) & (spans["phase"] == phase)]
            bars = [(s["start_ns"] / 1e6, (s["end_ns"] - s["start_ns"]) / 1e6) for s in chosen]
            colour, hatch = PAINT[phase]
            for slim in (False, True):
                some = [bar for bar in bars if (bar[1] < SLIM_SHARE * end_ms) == slim]
                axes.broken_barh(
                    some, (row - 0.4, 0.8), facecolor=colour, hatch="" if slim else hatch,
                    edgecolor=colour if slim else "black", lw=0.5,
                )  # fmt: skip
            if lane == "step" or phase == "waiting":
                _label(axes, chosen, row, end_ms)
    axes.set_yticks(range(len(lanes)), [LANES[lane] for lane in reversed(lanes)])
    axes.set_ylim(-0.6, len(lanes) - 0.4)
    axes.set_xlim(0, MARGIN * end_ms)
    axes.set_xlabel("time (ms)")
    axes.set_title(timeline.title, loc="left", fontsize="medium")
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    return axes


def _drawn(timeline: Timeline) -> Records:
    """Spans of the first rounds."""
    rounds = timeline.rounds
    if len(rounds) <= DRAWN_ROUNDS:
        return timeline.spans
    end = rounds["end_ns"][DRAWN_ROUNDS - 1]
    return np.asarray(timeline.spans[timeline.spans["end_ns"] <= end])


def _label(axes: Axes, spans: Records, row: int, end_ms: float) -> None:
    """Write into wide bars what happens in them."""
    for span in spans:
        start, end = span["start_ns"] / 1e6, span["end_ns"] / 1e6
        if end - start < LABEL_SHARE * end_ms:
            continue
        if span["phase"] == "waiting":
            text = f"{span['batch']} waiting"
        elif span["phase"] == "prefill":
            text = f"{span['batch']} prompt{'s' if span['batch'] > 1 else ''}"
        else:
            text = f"B={span['batch']}, {span['accepted']} accepted"
        width = 0.0095 * len(text) * end_ms
        if end - start < width:
            text = text.split(",")[0]
        background = {"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.9}
        axes.text(
            (start + end) / 2, row, text, ha="center", va="center", fontsize=7, bbox=background
        )
