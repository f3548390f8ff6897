"""What the figures share: the profiles, their settings, and how a figure is written."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from specsim.engine import RunPlan
from specsim.profile import Profile, load_profile
from specsim.report.figure import drawn
from specsim.setting import SpecSetting
from specsim.textfile import write_bytes, write_text

FOLDER = Path(__file__).resolve().parent
EVIDENCE = FOLDER.parent / "calibration"
LOADS = (1, 2, 5, 10, 20, 30, 50, 70, 100)

Rows = list[tuple[str | float, ...]]


def founding() -> Profile:
    """Kimi-K2.5 INT4 on eight RTX PRO 6000."""
    return load_profile()


def founding_plans() -> dict[str, RunPlan]:
    """No speculation and the trees of the founding question, each as its engine runs it."""
    system = founding().system()
    overlap = SpecSetting.of(2, 2, scheduler="overlap")
    return {
        "no speculation": system.plan(SpecSetting.none()),
        "topk=1, v1": system.plan(SpecSetting.of(1, 2, scheduler="sequential")),
        "topk=1, v2": system.plan(SpecSetting.of(1, 2, scheduler="overlap")),
        "topk=2, v1": system.plan(SpecSetting.of(2, 2)),
        "topk=2, v2": system.plan(overlap, engine_version="0.5.13"),
        "topk=4, v1": system.plan(SpecSetting.of(4, 2, 16)),
    }


def as_csv(header: Sequence[str], rows: Rows) -> str:
    """Rows with six digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow(v if isinstance(v, str) else f"{v:.6g}" for v in row)
    return text.getvalue()


def save(script: str, header: Sequence[str], rows: Rows, figure: Figure) -> None:
    """Write the figure and its numbers beside the script."""
    path = Path(script)
    write_text(path.with_suffix(".csv"), as_csv(header, rows))
    write_bytes(path.with_suffix(".svg"), drawn(figure, "svg"))
