"""Predictions beside measurements: error, interval, coverage, sign of speculation's gain."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from specsim.calibrate.fit import fit_profile
from specsim.calibrate.report import doubts
from specsim.calibrate.rows import Rows, workload_of
from specsim.documents import document
from specsim.errors import CalibrationError
from specsim.observations import COLUMNS, Observation
from specsim.profile import Profile, acceptance_name, acceptance_of
from specsim.uncertainty import Interval

if TYPE_CHECKING:
    from specsim.arrays import Floats

LeaveOut = Literal["setting", "concurrency"]

SIGN_THRESHOLD = 0.05
"""A measured gain or loss of less than this has no sign to be right about."""

ASKED = COLUMNS[: COLUMNS.index("output_tps")]
"""Columns of an observation that say what was run."""

COMPARED = ("measured", "predicted", "low", "high", "error")
SUMMARY = ("mape", "median_ape", "worst", "coverage", "sign_accuracy")
"""In the order of the document."""

QUANTITIES = (("output_tps", "output_tps"), ("tpot_s", "tpot_s"), ("round_time_s", "round_s"))


@dataclass(frozen=True, slots=True)
class ValidatedRow:
    """One observation and its prediction; `quantity` says what `measured` is."""

    observation: Observation
    quantity: str
    measured: float
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted / self.measured - 1.0

    @property
    def inside(self) -> bool:
        """Whether the measurement lies in the central 90 %."""
        return self.low <= self.measured <= self.high

    def to_row(self) -> dict[str, object]:
        """Return setting and load as observed, and the numbers of the comparison."""
        stated = self.observation.to_row() | {"scheduler": self.observation.setting.scheduler}
        asked = {name: stated.get(name) for name in ASKED}
        return asked | {name: getattr(self, name) for name in COMPARED}


@dataclass(frozen=True, slots=True)
class Validation:
    """Rows, in the order of the observations, and what they sum up to; fractions."""

    rows: tuple[ValidatedRow, ...]
    notes: tuple[str, ...] = ()  # what was left out, and how

    @property
    def mape(self) -> float:
        """Mean absolute error."""
        return float(np.mean([abs(r.error) for r in self.rows]))

    @property
    def median_ape(self) -> float:
        """Median absolute error."""
        return float(np.median([abs(r.error) for r in self.rows]))

    @property
    def worst(self) -> int:
        """Index of the row with the largest absolute error."""
        return int(np.argmax([abs(r.error) for r in self.rows]))

    @property
    def coverage(self) -> float:
        """Fraction of rows inside their interval."""
        return float(np.mean([r.inside for r in self.rows]))

    @property
    def sign_accuracy(self) -> float | None:
        """How often the sign of a measured gain beyond 5 % is predicted; None without any."""
        drafted = [row for row in self.rows if row.observation.setting.speculates]
        plain = [row for row in self.rows if not row.observation.setting.speculates]
        base = {_load_key(row.observation): row for row in plain}
        right = []
        for row in drafted:
            other = base.get(_load_key(row.observation))
            if other is None or row.quantity != other.quantity:
                continue
            gain = row.measured / other.measured - 1.0
            if abs(gain) > SIGN_THRESHOLD:
                right.append(gain * (row.predicted / other.predicted - 1.0) > 0)
        return float(np.mean(right)) if right else None

    def to_json(self) -> str:
        """Return the document ``specsim.validation/1``."""
        summary = {"n": len(self.rows)} | {name: getattr(self, name) for name in SUMMARY}
        rows = [row.to_row() for row in self.rows]
        return document(
            "specsim.validation/1", {"rows": rows, "summary": summary, "notes": self.notes}
        )


def _load_key(o: Observation) -> tuple[object, ...]:
    return (o.kind, o.concurrency, o.request_rate, o.context_len, o.input_len, o.output_len)


def validate(
    profile: Profile,
    observations: Sequence[Observation],
    leave_out: LeaveOut | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Validation:
    """Predict every measured cell.

    Parameters
    ----------
    profile
        The server; with `leave_out` only its setup is used.
    observations
        Measured rows; those without throughput, TPOT or round time are skipped with a note.
    leave_out
        Refit without each setting (or concurrency) in turn, and predict the rows left out.
    progress
        Called with (fits done, fits in all).

    Raises
    ------
    CalibrationError
        If no row can be compared, or leaving out leaves nothing.
    """
    rows = tuple(o for o in observations if _quantity(o) is not None)
    if not rows:
        raise CalibrationError(
            f"{len(observations)} observations",
            "none measures output_tps, tpot_s or round_time_s",
            "add a measured column",
        )
    notes = list(doubts(profile.setup, rows))
    if len(rows) < len(observations):
        notes.append(f"{len(observations) - len(rows)} rows without a throughput or time skipped")
    if leave_out is None:
        return Validation(tuple(_predicted(profile, rows)), tuple(notes))
    groups: dict[object, list[int]] = {}
    for i, row in enumerate(rows):
        key = row.setting if leave_out == "setting" else (row.kind, row.concurrency)
        groups.setdefault(key, []).append(i)
    if len(groups) < 2:
        raise CalibrationError(
            f"--leave-out {leave_out}", "there is only one to leave out", "validate without it"
        )
    result: dict[int, ValidatedRow] = {}
    for done, indices in enumerate(groups.values()):
        kept = [row for i, row in enumerate(rows) if i not in set(indices)]
        held_out = fit_profile(profile.setup, kept, profile.name).profile
        predicted = _predicted(held_out, [rows[i] for i in indices])
        result.update(zip(indices, predicted, strict=True))
        if progress is not None:
            progress(done + 1, len(groups))
    notes.append(f"each {leave_out} predicted from a fit without it ({len(groups)} fits)")
    return Validation(tuple(result[i] for i in range(len(rows))), tuple(notes))


def _quantity(observation: Observation) -> tuple[str, str] | None:
    return next((q for q in QUANTITIES if getattr(observation, q[0]) is not None), None)


def _predicted(profile: Profile, observations: Sequence[Observation]) -> list[ValidatedRow]:
    """Predict rows with one profile, with intervals."""
    wanted = {}
    for row in observations:
        workload = workload_of(row, profile.setup)
        own = row.setting.algorithm if row.setting.speculates else None
        acceptance = acceptance_of(profile, workload.dataset, workload.temperature, own)
        wanted[acceptance_name(acceptance)] = acceptance
    profile = replace(profile, acceptances=tuple(wanted.values()))
    model = Rows(profile.setup, tuple(observations), profile.acceptances)
    fields = [_quantity(o) or QUANTITIES[0] for o in observations]

    def log_value(coordinates: Floats) -> Floats:
        solutions = model.predict(profile.parameters, coordinates)
        columns = [solutions[name[1]][:, i] for i, name in enumerate(fields)]
        return np.asarray(np.log(np.stack(columns, axis=1)))

    centre = log_value(profile.coordinates[None, :])[0]
    sd = profile.spread(log_value).sd
    result = []
    for observation, (name, _), middle, error in zip(
        observations, fields, centre.tolist(), sd.tolist(), strict=True
    ):
        found = Interval.of_log(math.exp(middle), error)
        measured = float(getattr(observation, name))
        result.append(ValidatedRow(observation, name, measured, found.value, found.low, found.high))
    return result
