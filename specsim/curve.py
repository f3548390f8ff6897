"""A predicted curve: one row per setting and load, as a table, a data frame or a document."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from specsim.setting import Algorithm, SpecSetting
from specsim.uncertainty import Evidence
from specsim.workload import Load

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "specsim.curve/2"

Role = Literal["baseline", "current", "asked", "alternative"]
Solver = Literal["simulate", "analytic"]
Limit = Literal["client", "cap", "kv", "verify", "draft", "allreduce", "prefill", "host"]

UNWRITTEN = {"json": False}
"""Metadata of a field that no document has."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One setting at one load, predicted: a row of ``specsim.curve/2``.

    `speedup` is against the baseline row of the same load; `tpot_s` and `ttft_s` are means over
    requests; low and high bound the central 90 %. `limit` is the one term whose halving would
    raise `output_tps` most. A setting that the engine refuses has `allowed` false, its `reason`,
    and numbers only if asked for as a `what_if`. `saturated`: requests arrive faster than they are
    served, `output_tps` is the capacity, and TTFT has no number, for it grows without end.
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
    saturated: bool
    concurrency: int
    input_len: float | None
    output_len: float | None
    context_len: float | None
    output_tps: float
    output_tps_low: float
    output_tps_high: float
    speedup: float
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
    limit: Limit
    gain_low: float = field(default=0.0, metadata=UNWRITTEN)  # speedup - 1, central 90 %
    gain_high: float = field(default=0.0, metadata=UNWRITTEN)
    probability: float = field(default=0.0, metadata=UNWRITTEN)  # that the gain is above zero

    @property
    def gain(self) -> float:
        """Throughput against no speculation, minus 1."""
        return self.speedup - 1

    @property
    def setting(self) -> SpecSetting:
        """The setting of this row."""
        return SpecSetting(
            self.algorithm, self.topk, self.num_steps, self.num_draft_tokens, self.scheduler
        )


COLUMNS = tuple(f.name for f in fields(CurvePoint) if f.metadata != UNWRITTEN)
"""Of a curve's table, and the keys of a row of its document."""


@dataclass(frozen=True, slots=True)
class Series:
    """All loads of one setting."""

    points: tuple[CurvePoint, ...]

    @property
    def role(self) -> Role:
        """Why this setting is here."""
        return self.points[0].role

    @property
    def label(self) -> str:
        """Setting and scheduler, for people."""
        point = self.points[0]
        version = f" on {point.engine} {point.engine_version}" if self.role == "alternative" else ""
        what_if = " (what-if)" if point.what_if else ""
        return f"{point.setting.label}, {point.scheduler}{version}{what_if}"


@dataclass(frozen=True, slots=True)
class Curve:
    """The answer to one question: the document ``specsim.curve/2``."""

    profile: str
    seed: int
    solver: Solver
    rows: tuple[CurvePoint, ...]  # load after load of the baseline, the current, the asked settings
    notes: tuple[str, ...] = ()  # what the engine changed, what is assumed

    @property
    def series(self) -> tuple[Series, ...]:
        """The rows by setting."""
        by_setting = groupby(self.rows, lambda p: (p.role, p.setting, p.engine_version, p.what_if))
        return tuple(Series(tuple(points)) for _, points in by_setting)

    def of(self, role: Role) -> Series | None:
        """Return the first series of a role, None if there is none."""
        return next((s for s in self.series if s.role == role), None)

    def to_frame(self) -> pd.DataFrame:
        """All rows as a data frame."""
        import pandas as pd

        return pd.DataFrame({name: [getattr(p, name) for p in self.rows] for name in COLUMNS})

    def to_csv(self) -> str:
        """All rows as CSV."""
        import csv
        import io

        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for point in self.rows:
            values = [getattr(point, name) for name in COLUMNS]
            writer.writerow([f"{v:.10g}" if isinstance(v, float) else v for v in values])
        return text.getvalue()

    def to_json(self) -> str:
        """Write the document; equal curves give equal bytes."""
        from specsim.documents import document

        return document(SCHEMA, self)

    def _repr_html_(self) -> str:
        """Show a table in notebooks."""
        columns = ["concurrency", "output_tps", "output_tps_low", "output_tps_high", "speedup"]
        frame = self.to_frame()
        frame.insert(0, "setting", [s.label for s in self.series for _ in s.points])
        html: str = frame[["setting", *columns, "accept_length", "batch_size", "limit"]].to_html(
            index=False, float_format=lambda x: f"{x:.4g}"
        )
        return html


NEAR = 2.0
"""Loads within this factor of a misfit cell's are near it."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A cell whose model value lies outside the noise of its measurement."""

    cell: str  # its name
    setting: str  # label of its setting
    load: float  # clients, or requests per second in an open loop
    error: float  # model / measured - 1
    suspicion: str  # what may be behind it, and what to do

    @property
    def sentence(self) -> str:
        """What the output says of it.

        >>> Misfit("none C=8", "none", 8, -0.3, "an outlier: measure it again").sentence
        'none C=8: the model is -30 % off the measurement; an outlier: measure it again'
        """
        off = f"{100 * self.error:+.0f} % off the measurement"
        return f"{self.cell}: the model is {off}; {self.suspicion}"

    def is_near(self, setting: SpecSetting, load: Load) -> bool:
        """Whether a point is of the same setting at about that load."""
        at = load.request_rate if load.kind == "open_loop" else load.concurrency
        return setting.label == self.setting and 1 / NEAR <= (at or 0.0) / self.load <= NEAR
