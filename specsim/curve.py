"""A predicted curve: one row per setting and load, as a table, a data frame or a document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Literal

from specsim.evidence import Evidence
from specsim.setting import Algorithm, SpecSetting

if TYPE_CHECKING:
    import pandas as pd

Role = Literal["baseline", "current", "asked", "alternative"]
Solver = Literal["simulate", "analytic"]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One setting at one load; fields and units as in ``specsim.curve/1`` (docs/reference).

    `speedup` is against no speculation at the same load; low and high bound the central 90 %;
    `limit` is the term whose halving would raise the throughput most.
    """

    role: Role
    algorithm: Algorithm
    topk: int
    num_steps: int
    num_draft_tokens: int
    scheduler: Literal["sequential", "overlap"]
    engine: str
    engine_version: str
    allowed: bool
    what_if: bool
    reason: str | None
    concurrency: int
    input_len: float | None
    output_len: float | None
    context_len: float | None
    output_tps: float
    output_tps_low: float
    output_tps_high: float
    speedup: float | None
    accept_length: float
    batch_size: float
    round_time_s: float
    tpot_s: float
    tpot_p50_s: float | None
    tpot_p99_s: float | None
    ttft_s: float | None
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    evidence: Evidence
    limit: str

    @property
    def setting(self) -> SpecSetting:
        """The setting of this row."""
        return SpecSetting(
            self.algorithm, self.topk, self.num_steps, self.num_draft_tokens, self.scheduler
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """How surely one setting beats no speculation at a load.

    Parameters
    ----------
    concurrency
        The load.
    gain, gain_low, gain_high
        Throughput against no speculation, minus 1, with the central 90 %.
    probability
        That the gain is above zero.
    """

    concurrency: int
    gain: float
    gain_low: float
    gain_high: float
    probability: float


@dataclass(frozen=True, slots=True)
class Series:
    """All loads of one setting: its points, and how surely each beats no speculation."""

    points: tuple[CurvePoint, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def role(self) -> Role:
        """Why this setting is here."""
        return self.points[0].role

    @property
    def label(self) -> str:
        """Setting and scheduler, for people."""
        point = self.points[0]
        name = point.setting.label
        version = f" on {point.engine} {point.engine_version}" if self.role == "alternative" else ""
        what_if = " (what-if)" if point.what_if else ""
        return f"{name}, {point.scheduler}{version}{what_if}"


@dataclass(frozen=True, slots=True)
class Curve:
    """The answer to one question.

    Parameters
    ----------
    profile
        Name of the profile.
    seed, solver
        How it was computed.
    series
        Baseline, current, asked, alternatives.
    notes
        What the engine changed, what is assumed.
    """

    profile: str
    seed: int
    solver: Solver
    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> Iterator[CurvePoint]:
        """All points, series after series."""
        return (point for series in self.series for point in series.points)

    def of(self, role: Role) -> Series | None:
        """Return the first series of a role, None if there is none."""
        return next((s for s in self.series if s.role == role), None)

    def to_frame(self) -> pd.DataFrame:
        """All rows as a data frame, columns as in ``specsim.curve/1``."""
        import pandas as pd

        return pd.DataFrame([asdict(point) for point in self.rows])

    def to_csv(self) -> str:
        """All rows as CSV, columns as in ``specsim.curve/1``."""
        import csv
        import io

        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = [f.name for f in fields(CurvePoint)]
        writer.writerow(names)
        for point in self.rows:
            values = [getattr(point, name) for name in names]
            writer.writerow(
                ["" if v is None else f"{v:.10g}" if isinstance(v, float) else v for v in values]
            )
        return text.getvalue()

    def to_json(self) -> str:
        """Write the document ``specsim.curve/1``; equal curves give equal bytes."""
        from specsim.documents import CurveDocument, CurveRow, to_json

        rows = tuple(CurveRow(**asdict(point)) for point in self.rows)
        return to_json(
            CurveDocument(
                profile=self.profile,
                seed=self.seed,
                solver=self.solver,
                rows=rows,
                notes=self.notes,
            )
        )

    def _repr_html_(self) -> str:
        """Show a table in notebooks."""
        columns = ["concurrency", "output_tps", "output_tps_low", "output_tps_high", "speedup"]
        frame = self.to_frame()
        frame.insert(0, "setting", [s.label for s in self.series for _ in s.points])
        html: str = frame[["setting", *columns, "accept_length", "batch_size", "limit"]].to_html(
            index=False, float_format=lambda x: f"{x:.4g}"
        )
        return html
