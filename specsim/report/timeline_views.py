"""Timelines as Gantt charts, as text, and as a Chrome trace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.metrics import Records
from specsim.report import amount
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
    rounds, spans = timeline.rounds, timeline.spans
    if len(rounds) <= DRAWN_ROUNDS:
        return spans
    first: Records = spans[spans["end_ns"] <= rounds["end_ns"][DRAWN_ROUNDS - 1]]
    return first


def _label(axes: Axes, spans: Records, row: int, end_ms: float) -> None:
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


def sketch(shown: Sequence[Timeline], width: int) -> str:
    """Draw timelines one above the other on one time scale, in lines of `width` characters."""
    margin = 2 + max(map(len, LANES.values()))
    columns = max(20, width - margin)
    scale = max(t.duration_ns for t in shown) / columns  # nanoseconds of a character
    lines = []
    for t in shown:
        lines.append(t.title)
        for lane, words in LANES.items():
            drawn = _sketched(t.lane(lane), scale, columns, lane)
            if drawn.strip():
                lines.append(f"{words:<{margin}}{drawn}".rstrip())
        lines.append("")
    total = amount(scale * columns / 1e6)
    lines.append(f"{'':<{margin}}0{'ms'.rjust(columns - len(total) - 2)} {total}")
    used = np.concatenate([t.spans["phase"] for t in shown])
    legend = [f"{letter} {words}" for name, (letter, words) in PHASES.items() if name in used]
    return "\n".join(lines + _wrapped(legend, width))


def _sketched(spans: Records, scale: float, columns: int, lane: str) -> str:
    """One lane: long spans first, so that short ones are not lost."""
    cells = [" "] * columns
    if lane not in ("step", "clients"):
        spans = spans[np.argsort(spans["start_ns"] - spans["end_ns"], kind="stable")]
    for span in spans:
        start = min(columns - 1, int(span["start_ns"] / scale))
        end = min(columns, max(start + 1, int(span["end_ns"] / scale)))
        if lane == "step":
            name = "prefill" if span["round"] < 0 else f"B={span['batch']}"
            room = end - start - 1
            text = "|" + (name.center(room, "-") if len(name) <= room else "-" * room)
        elif lane == "clients":
            text = str(span["batch"])[: end - start].ljust(end - start, "-")
        else:
            text = PHASES[str(span["phase"])][0] * (end - start)
        cells[start:end] = text
    return "".join(cells)


def _wrapped(words: Sequence[str], width: int) -> list[str]:
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) + 3 > width:
            lines.append("")
        lines[-1] += ("   " if lines[-1] else "") + word
    return lines


def chrome_trace(shown: Sequence[Timeline]) -> str:
    """Return the trace of timelines, a process each and a thread per lane.

    Complete events (``"ph": "X"``) with microseconds to three decimals, that is whole nanoseconds;
    the number of waiting clients is a counter.
    """
    events = ",\n".join(line for pid, t in enumerate(shown, start=1) for line in _process(pid, t))
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{events}\n]}}\n'


def _process(pid: int, timeline: Timeline) -> Iterator[str]:
    """Names of a process and its threads, then its events."""
    yield _metadata(pid, 0, "process", timeline.title, pid)
    for tid, (lane, words) in enumerate(LANES.items()):
        if lane != "clients":
            yield _metadata(pid, tid, "thread", words, tid)
            yield from _events(pid, tid, timeline.lane(lane))
    yield from _counter(pid, timeline.lane("clients"), timeline.duration_ns)


def _metadata(pid: int, tid: int, kind: str, words: str, place: int) -> str:
    """Name and order of a process or a thread, as two events."""
    told = ((f"{kind}_name", {"name": words}), (f"{kind}_sort_index", {"sort_index": place}))
    return ",\n".join(
        json.dumps({"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args})
        for name, args in told
    )


def _events(pid: int, tid: int, spans: Records) -> Iterator[str]:
    names = {name: words for name, (_, words) in PHASES.items()}
    columns = ("phase", "round", "start_ns", "end_ns", "batch", "tokens", "accepted")
    rows = zip(*(spans[name].tolist() for name in columns), strict=True)
    for phase, number, start, end, batch, tokens, accepted in rows:
        where = f'"round": {number}, ' if number >= 0 else ""
        yield (
            f'{{"ph": "X", "pid": {pid}, "tid": {tid}, "name": "{names.get(phase, phase)}", '
            f'"ts": {_us(start)}, "dur": {_us(end - start)}, "args": {{{where}'
            f'"batch": {batch}, "tokens": {tokens:.6g}, "accepted": {accepted}}}}}'
        )


def _counter(pid: int, spans: Records, end_ns: int) -> Iterator[str]:
    """Yield the number of waiting clients at every change, 0 where nobody waits."""
    starts, ends = spans["start_ns"], spans["end_ns"]
    rows = list(zip(starts.tolist(), spans["batch"].tolist(), strict=True))
    rows += [(end, 0) for end in ends[~np.isin(ends, starts)].tolist() if end < end_ns]
    for at, waiting in sorted(rows or [(0, 0)]):
        yield (
            f'{{"ph": "C", "pid": {pid}, "name": "{LANES["clients"]}", "ts": {_us(at)}, '
            f'"args": {{"waiting": {waiting}}}}}'
        )


def _us(ns: int) -> str:
    """Microseconds of nanoseconds, exactly.

    >>> _us(1234567)
    '1234.567'
    """
    return f"{ns // 1000}.{ns % 1000:03d}"
