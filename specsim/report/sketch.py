"""Timelines as text: a line per lane, a letter per phase."""

from collections.abc import Sequence

import numpy as np

from specsim.metrics import Records
from specsim.report import amount
from specsim.report.timeline import LANES, PHASES, Timeline


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
