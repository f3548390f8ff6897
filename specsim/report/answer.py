"""The answer in plain sentences, computed from a curve: pure functions, nothing printed.

A load counts as won or lost by the sign of the predicted gain, unless the gain is nil or its sign
is nearly a coin's toss; how sure a sign is stands beside every number. A setting is worth a GPU
hour where it wins and also beats what runs today.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specsim.curve import Curve, CurvePoint, Role, Series
from specsim.report.words import (
    LoadAxis,
    amount,
    bands,
    engine_of,
    listed,
    load_axis,
    percent,
    series_names,
    sure,
    sureness,
)
from specsim.uncertainty import weakest

EVEN_GAIN = 0.005  # a gain that rounds to nothing is even
EVEN_SURENESS = 0.65  # and so is one whose sign is less sure than this
CLOSE_SURENESS = 0.75  # the best setting of a load is called close to a tie below this
STAY = 0.01  # a best setting stays so at the next load if it is no further behind than this
WORTH_MEASURING = 0.08  # an even load whose interval reaches such a gain is a toss-up, not a tie
LANDMARK = 0.03  # a gain between the ends of a range is named if it stands out by this much
FULL_ANSWERS = 2  # with more asked settings than this, each gets its verdict only

LIMITS = {
    "kv": "the KV pool ({running:.0f} run)",
    "cap": "the cap of running requests ({running:.0f} run)",
    "verify": "the cost of verifying",
    "draft": "drafting",
    "allreduce": "the all-reduce",
    "prefill": "prefill",
    "host": "the CPU between rounds",
    "client": "the load itself",
}
"""The terms of the curve's `limit`."""

VERBS = {
    "wins": ("beats no speculation", "wins"),
    "loses": ("loses to no speculation", "loses"),
    "even": ("is even with no speculation", "is even"),
}
"""An outcome with its opponent, and without."""

STILL = {"wins": "gain", "loses": "loss", "even": "tie"}


@dataclass(frozen=True, slots=True)
class View:
    """A curve with the names that sentences use."""

    series: tuple[Series, ...]
    names: tuple[str, ...]
    axis: LoadAxis

    def having(self, role: Role) -> list[int]:
        """Return the indices of the series of a role."""
        return [i for i, series in enumerate(self.series) if series.role == role]

    @property
    def today(self) -> int | None:
        """Index of what runs today, if it speculates."""
        return next(iter(self.having("current")), None)


def answer(curve: Curve, request_rate: float | None = None) -> tuple[str, ...]:
    """Answer the question of a curve in a few sentences.

    Where each asked setting (without one: the current) wins and loses, by how much and how surely;
    the same against what runs today and on the alternative version; what binds; the best setting
    of each load. The curve does not carry the `request_rate` of an open loop, 1/s.
    """
    view = View(curve.series, series_names(curve), load_axis(curve, request_rate))
    subjects = view.having("asked") or view.having("current")
    if all(series.points[0].limit == "client" for series in view.series):
        return tuple(_keeping_up(view, i) for i in subjects)
    sentences = []
    for i in subjects:
        sentences.append(_verdict(view, i))
        if len(subjects) <= FULL_ANSWERS:
            sentences += [*_against_today(view, i), *_alternatives(view, i), _binding(view, i)]
    return (*sentences, *_best_by_load(view))


def evidence_line(curve: Curve) -> str:
    """Say what the curve rests on at its weakest."""
    found = weakest(point.evidence for point in curve.rows)
    return f"Weakest evidence under these numbers: {found}."


def _outcome(point: CurvePoint) -> str:
    """Return ``wins``, ``loses`` or ``even`` against no speculation."""
    if abs(point.gain) < EVEN_GAIN or sureness(point) < EVEN_SURENESS:
        return "even"
    return "wins" if point.gain > 0 else "loses"


def _verdict(view: View, i: int) -> str:
    """Say whether a setting is worth a GPU hour, and where it wins and loses."""
    series = view.series[i]
    head = series.points[0]
    if series.role == "current":
        name, yes, always, no = f"What runs today, {view.names[i]},", "pays", "pays", "does not pay"
    else:
        name, yes = view.names[i], "is worth a GPU hour"
        always, no = f"{yes} here", "is not worth a GPU hour here"
    if head.what_if:
        name += f" (what-if: {engine_of(head)} does not run it so)"
    won, even = (_worthwhile(view, i, wanted) for wanted in ("wins", "even"))
    open_ended = [point.gain_high > WORTH_MEASURING for point in series.points]
    if all(won):
        judged = always
    elif any(won):
        spans = [view.axis.span(a, b) for yes_there, a, b in bands(won) if yes_there]
        judged = f"{yes} only {listed(spans)}"
    elif any(map(all, zip(even, open_ended, strict=True))):
        judged = "is a toss-up that only a measurement can decide"
    else:
        judged = no
    return f"{name} {judged}: {_course(view, i)}."


def _worthwhile(view: View, i: int, wanted: str) -> list[bool]:
    """Whether a setting has an outcome at a load and is no worse than what runs today."""
    series = view.series[i]
    today = series if view.today is None else view.series[view.today]
    return [
        _outcome(mine) == wanted and mine.output_tps >= current.output_tps
        for mine, current in zip(series.points, today.points, strict=True)
    ]


def _course(view: View, i: int) -> str:
    """Where a setting wins and loses, by how much, how surely."""
    points, axis = view.series[i].points, view.axis
    ranges = bands([_outcome(point) for point in points])
    if len(ranges) == 1:
        label, first, last = ranges[0]
        where = axis.at(0) if last == 0 else f"at every load {axis.span(0, last)}"
        return f"it {VERBS[label][0]} {where} ({_gains(points, first, last, axis)})"
    parts = [
        f"{VERBS[label][1]} {axis.span(first, last)} ({_gains(points, first, last, axis)})"
        for label, first, last in ranges
    ]
    return f"against no speculation it {listed(parts)}"


def _gains(points: Sequence[CurvePoint], first: int, last: int, axis: LoadAxis) -> str:
    """Gains at the ends of a range, and between them where one stands out, with their sureness."""
    picked = _landmarks([point.gain for point in points], first, last)
    told = [(percent(points[j].gain), sure(sureness(points[j]))) for j in picked]
    if len(set(told)) == 1:
        return ", ".join(told[0])
    rows = zip(told, picked, strict=True)
    return "; ".join(f"{gain} at {axis.number(j)}, {how}" for (gain, how), j in rows)


def _landmarks(gains: Sequence[float], first: int, last: int) -> list[int]:
    extreme = max(range(first, last + 1), key=lambda j: abs(gains[j]))
    stands_out = abs(gains[extreme]) > max(abs(gains[first]), abs(gains[last])) + LANDMARK
    return sorted({first, last, *([extreme] if stands_out else [])})


def _against_today(view: View, i: int) -> list[str]:
    """Compare with what runs today; nothing if that is unknown, or the same."""
    if view.today is None or view.today == i:
        return []
    axis, name = view.axis, view.names[view.today]
    pairs = zip(view.series[i].points, view.series[view.today].points, strict=True)
    gains = [mine.output_tps / today.output_tps - 1 for mine, today in pairs]
    picked = _landmarks(gains, 0, len(gains) - 1)
    texts = [percent(gains[j]) for j in picked]
    if len(set(texts)) == 1:
        told = f"{texts[0]} {axis.span(0, len(gains) - 1)}"
    else:
        rows = zip(texts, picked, strict=True)
        told = f"{listed([f'{text} at {axis.number(j)}' for text, j in rows])} {axis.plural}"
    return [f"Against what runs today ({name}) it gives {told}."]


def _alternatives(view: View, i: int) -> list[str]:
    """Say what another version of the engine would make of the same setting."""
    asked = view.series[i]
    return [
        f"On {engine_of(view.series[j].points[0])} {_alternative(view, asked, j)}."
        for j in view.having("alternative")
        if _same_setting(view.series[j], asked)
    ]


def _alternative(view: View, asked: Series, j: int) -> str:
    other = view.series[j]
    head = other.points[0]
    if not head.allowed and head.reason:
        return f"it is refused: {head.reason}"
    ends = sorted({0, len(other.points) - 1})
    rates = [f"{_rates(other, asked, k)} tok/s {view.axis.at(k)}" for k in ends]
    before, after = ([_outcome(point) for point in one.points] for one in (asked, other))
    if before != after:
        end = f"; there, {_course(view, j)}"
    elif len(set(after)) == 1:
        end = f", still a {STILL[after[0]]}"
    else:
        end = ", which turns nothing round"
    return f"it would run under the {head.scheduler} scheduler: {listed(rates)}{end}"


def _rates(other: Series, asked: Series, j: int) -> str:
    """One number instead of another, or the same."""
    new, old = amount(other.points[j].output_tps), amount(asked.points[j].output_tps)
    return f"the same {new}" if new == old else f"{new} instead of {old}"


def _same_setting(one: Series, other: Series) -> bool:
    a, b = one.points[0], other.points[0]
    return (a.algorithm, a.setting.key) == (b.algorithm, b.setting.key)


def _binding(view: View, i: int) -> str:
    """Name the constraint that binds a setting, by load."""
    points, axis = view.series[i].points, view.axis
    ranges = bands([point.limit for point in points])
    parts = []
    for label, first, last in ranges:
        if len(points) == 1:
            where = ""
        elif len(ranges) == 1:
            where = " at every load"
        elif first == last:
            where = f" at {axis.number(first)}"
        elif last == len(points) - 1:
            where = f" from {axis.number(first)} on"
        else:
            where = f" from {axis.number(first)} to {axis.number(last)}"
        what = LIMITS.get(label, label).format(running=points[last].batch_size)
        parts.append(what + where)
    name = "" if len(view.having("asked")) < 2 else f" {view.names[i]}"
    return f"What binds{name}: {listed(parts)}."


def _best_by_load(view: View) -> list[str]:
    """Name the best setting of each load among those that an engine runs."""
    runnable = [i for i, series in enumerate(view.series) if not series.points[0].what_if]
    if len(runnable) < 2:
        return []
    winners: list[int] = []
    for at_load in zip(*(view.series[i].points for i in runnable), strict=True):
        tps = {i: point.output_tps for i, point in zip(runnable, at_load, strict=True)}
        best = max(tps, key=lambda i: tps[i])
        stays = winners and tps[winners[-1]] >= (1 - STAY) * tps[best]
        winners.append(winners[-1] if stays else best)
    ranges = bands(winners)
    if len(ranges) == 1:
        where = view.axis.at(0) if len(winners) == 1 else "at every load"
        return [f"Best {where}: {_praised(view, *ranges[0])}."]
    parts = [_praised(view, i, a, b, f" {view.axis.span(a, b)}") for i, a, b in ranges]
    return [f"Best by load: {'; '.join(parts)}."]


def _praised(view: View, i: int, first: int, last: int, where: str = "") -> str:
    """Name a winner, with its gain over no speculation and how sure that is."""
    series = view.series[i]
    if series.role == "baseline":
        return view.names[i] + where
    today = (", what runs today" + "," * bool(where)) if series.role == "current" else ""
    won = series.points[first : last + 1]
    gains, sures = [point.gain for point in won], [sureness(point) for point in won]
    gain = " to ".join(dict.fromkeys([percent(min(gains)), percent(max(gains))]))
    low, high = sure(min(sures)), sure(max(sures))
    how = low if low == high else f"{low.removesuffix(' sure')} to {high}"
    places = "" if max(sures) < CLOSE_SURENESS else "in places "
    close = f": {places}close to a tie" if min(sures) < CLOSE_SURENESS else ""
    return f"{view.names[i]}{today}{where} ({gain}, {how}{close})"


def _keeping_up(view: View, i: int) -> str:
    """Compare latency where the load itself binds: every setting delivers what arrives."""
    mine, plain = view.series[i].points[0], view.series[0].points[0]
    change = round(100 * (mine.tpot_s / plain.tpot_s - 1))
    pace = f"{abs(change)} % {'faster' if change < 0 else 'slower'}" if change else "no change"
    return (
        f"{view.names[i]} keeps up {view.axis.at(0)}, as no speculation does; each token takes "
        f"{amount(1e3 * mine.tpot_s)} instead of {amount(1e3 * plain.tpot_s)} ms ({pace})."
    )
