"""The answer in plain sentences, computed from a curve: pure functions, nothing printed.

A load counts as won or lost by the sign of the predicted gain, unless the gain is nil or its sign
is nearly a coin's toss; how sure a sign is stands beside every number. A setting is worth a GPU
hour where it wins and also beats what runs today.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specsim.curve import Curve, CurvePoint, Role, Series
from specsim.evidence import weakest
from specsim.report.words import (
    LoadAxis,
    amount,
    bands,
    listed,
    load_axis,
    percent,
    series_names,
    sure,
    sureness,
)

EVEN_GAIN = 0.005
"""A gain that rounds to nothing is even."""

EVEN_SURENESS = 0.65
"""A sign less sure than this is even."""

CLOSE_SURENESS = 0.75
"""The best setting of a load is called close to a tie below this."""

STAY = 0.01
"""The best setting of one load stays the best at the next if it is no further behind than this."""

WORTH_MEASURING = 0.08
"""An even load whose interval reaches a gain of this size is a toss-up, not a tie."""

LANDMARK = 0.03
"""A gain between the ends of a range is named if it stands out by this much."""

FULL_ANSWERS = 2
"""With more asked settings than this, each gets its verdict only."""

LIMITS = {
    "verify": "the cost of verifying",
    "draft": "drafting",
    "allreduce": "the all-reduce",
    "prefill": "prefill",
    "host": "the CPU between rounds",
    "client": "the load itself",
}
"""The terms of the curve's `limit`; caps are named with what runs under them."""

VERBS = {
    "wins": ("beats no speculation", "wins"),
    "loses": ("loses to no speculation", "loses"),
    "even": ("is even with no speculation", "is even"),
}
"""An outcome with its opponent, and without."""


@dataclass(frozen=True, slots=True)
class View:
    """A curve with the names that sentences use."""

    series: tuple[Series, ...]
    names: tuple[str, ...]
    axis: LoadAxis

    @classmethod
    def of(cls, curve: Curve, request_rate: float | None = None) -> View:
        """Name the series and the loads of a curve."""
        return cls(curve.series, series_names(curve), load_axis(curve, request_rate))

    def having(self, role: Role) -> list[int]:
        """Return the indices of the series of a role."""
        return [i for i, series in enumerate(self.series) if series.role == role]

    @property
    def current(self) -> int | None:
        """Index of what runs today, if it speculates."""
        return next(iter(self.having("current")), None)


def answer(curve: Curve, request_rate: float | None = None) -> tuple[str, ...]:
    """Answer the question of a curve in a few sentences.

    Parameters
    ----------
    curve
        Its first series is the baseline; others are the current, asked and alternative settings.
    request_rate
        Of an open loop, 1/s: the curve does not carry it.

    Returns
    -------
    tuple of str
        Where each asked setting (without one: the current) wins and loses, by how much and how
        surely; the same against what runs today and on the alternative version; what binds;
        the best setting of each load.
    """
    view = View.of(curve, request_rate)
    subjects = view.having("asked") or view.having("current")
    if all(series.points[0].limit == "client" for series in view.series):
        return tuple(keeping_up(view, i) for i in subjects)
    sentences = []
    for i in subjects:
        sentences.append(verdict(view, i))
        if len(subjects) <= FULL_ANSWERS:
            sentences += [*against_current(view, i), *alternatives(view, i), binding(view, i)]
    return (*sentences, *best_by_load(view))


def evidence_line(curve: Curve) -> str:
    """Say what the curve rests on at its weakest."""
    found = weakest(point.evidence for point in curve.rows)
    return f"Weakest evidence under these numbers: {found}."


def outcome(comparison: CurvePoint) -> str:
    """Return ``wins``, ``loses`` or ``even`` against no speculation."""
    if abs(comparison.gain) < EVEN_GAIN or sureness(comparison) < EVEN_SURENESS:
        return "even"
    return "wins" if comparison.gain > 0 else "loses"


def verdict(view: View, i: int) -> str:
    """Say whether a setting is worth a GPU hour, and where it wins and loses."""
    series = view.series[i]
    head = series.points[0]
    if series.role == "current":
        name, pays, verb = f"What runs today, {view.names[i]},", "pays", "does not pay"
    else:
        name, pays, verb = view.names[i], "is worth a GPU hour", "is not worth a GPU hour here"
    if head.what_if:
        name += f" (what-if: {head.engine} {head.engine_version} does not run it so)"
    won = _worthwhile(view, i, "wins")
    if all(won):
        judged = pays if series.role == "current" else f"{pays} here"
    elif any(won):
        spans = [view.axis.span(a, b) for yes, a, b in bands(_yes(won)) if yes == "yes"]
        judged = f"{pays} only {listed(spans)}"
    else:
        high = [c.gain_high > WORTH_MEASURING for c in series.points]
        even = _worthwhile(view, i, "even")
        toss_up = any(h and e for h, e in zip(high, even, strict=True))
        judged = "is a toss-up that only a measurement can decide" if toss_up else verb
    return f"{name} {judged}: {_course(view, i)}."


def _worthwhile(view: View, i: int, wanted: str) -> list[bool]:
    """Whether a setting has an outcome at a load and is no worse than what runs today."""
    series, current = view.series[i], view.current
    today = series.points if current is None else view.series[current].points
    rows = zip(series.points, series.points, today, strict=True)
    return [outcome(c) == wanted and mine.output_tps >= t.output_tps for c, mine, t in rows]


def _yes(flags: Sequence[bool]) -> list[str]:
    return ["yes" if flag else "no" for flag in flags]


def _course(view: View, i: int) -> str:
    """Where a setting wins and loses, by how much, how surely."""
    comparisons, axis = view.series[i].points, view.axis
    ranges = bands([outcome(c) for c in comparisons])
    if len(ranges) == 1:
        label, first, last = ranges[0]
        where = axis.at(0) if last == 0 else f"at every load {axis.span(0, last)}"
        return f"it {VERBS[label][0]} {where} ({_gains(comparisons, first, last, axis)})"
    parts = [
        f"{VERBS[label][1]} {axis.span(first, last)} ({_gains(comparisons, first, last, axis)})"
        for label, first, last in ranges
    ]
    return f"against no speculation it {listed(parts)}"


def _gains(comparisons: Sequence[CurvePoint], first: int, last: int, axis: LoadAxis) -> str:
    """Gains at the ends of a range, and between them where one stands out, with their sureness."""
    picked = _landmarks([c.gain for c in comparisons], first, last)
    texts = [f"{percent(comparisons[j].gain)}|{sure(sureness(comparisons[j]))}" for j in picked]
    if len(set(texts)) == 1:
        return texts[0].replace("|", ", ")
    return "; ".join(
        text.replace("|", f" at {axis.number(j)}, ") for text, j in zip(texts, picked, strict=True)
    )


def _landmarks(gains: Sequence[float], first: int, last: int) -> list[int]:
    extreme = max(range(first, last + 1), key=lambda j: abs(gains[j]))
    stands_out = abs(gains[extreme]) > max(abs(gains[first]), abs(gains[last])) + LANDMARK
    return sorted({first, last, *([extreme] if stands_out else [])})


def against_current(view: View, i: int) -> list[str]:
    """Compare with what runs today; nothing if that is unknown, or the same."""
    current = view.current
    if current is None or current == i:
        return []
    pairs = zip(view.series[i].points, view.series[current].points, strict=True)
    gains = [mine.output_tps / today.output_tps - 1 for mine, today in pairs]
    picked = _landmarks(gains, 0, len(gains) - 1)
    texts = [percent(gains[j]) for j in picked]
    if len(set(texts)) == 1:
        where = view.axis.span(0, len(gains) - 1)
        return [f"Against what runs today ({view.names[current]}) it gives {texts[0]} {where}."]
    told = listed(
        [f"{text} at {view.axis.number(j)}" for text, j in zip(texts, picked, strict=True)]
    )
    return [f"Against what runs today ({view.names[current]}) it gives {told} {view.axis.plural}."]


def alternatives(view: View, i: int) -> list[str]:
    """Say what another version of the engine would make of the same setting."""
    asked = view.series[i]
    result = []
    for j in view.having("alternative"):
        other = view.series[j]
        head = other.points[0]
        if _key(other) != _key(asked):
            continue
        place = f"On {head.engine} {head.engine_version}"
        if not head.allowed and head.reason:
            result.append(f"{place} it is refused: {head.reason}.")
            continue
        last = len(other.points) - 1
        rates = [f"{_rates(other, asked, k)} tok/s {view.axis.at(k)}" for k in sorted({0, last})]
        before = [outcome(c) for c in asked.points]
        after = [outcome(c) for c in other.points]
        if before == after and len(set(after)) == 1:
            verdict_too = {"wins": "still a gain", "loses": "still a loss", "even": "still a tie"}
            end = f", {verdict_too[after[0]]}"
        elif before == after:
            end = ", which turns nothing round"
        else:
            end = f"; there, {_course(view, j)}"
        result.append(
            f"{place} it would run under the {head.scheduler} scheduler: {listed(rates)}{end}."
        )
    return result


def _rates(other: Series, asked: Series, j: int) -> str:
    """One number instead of another, or the same."""
    new, old = amount(other.points[j].output_tps), amount(asked.points[j].output_tps)
    return f"the same {new}" if new == old else f"{new} instead of {old}"


def _key(series: Series) -> tuple[object, ...]:
    head = series.points[0]
    return head.algorithm, head.topk, head.num_steps, head.num_draft_tokens


def binding(view: View, i: int) -> str:
    """Name the constraint that binds a setting, by load."""
    points, axis = view.series[i].points, view.axis
    ranges = bands([point.limit for point in points])
    parts = []
    for label, first, last in ranges:
        running = f"{points[last].batch_size:.0f} run"
        if label == "kv":
            what = f"the KV pool ({running})"
        elif label == "cap":
            what = f"the cap of running requests ({running})"
        else:
            what = LIMITS.get(label, label)
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
        parts.append(what + where)
    name = "" if len(view.having("asked")) < 2 else f" {view.names[i]}"
    return f"What binds{name}: {listed(parts)}."


def best_by_load(view: View) -> list[str]:
    """Name the best setting of each load among those that an engine runs."""
    runnable = [i for i, series in enumerate(view.series) if not series.points[0].what_if]
    if len(runnable) < 2:
        return []
    last = len(view.series[0].points) - 1
    winners: list[str] = []
    for j in range(last + 1):
        tps = {i: view.series[i].points[j].output_tps for i in runnable}
        best = max(tps, key=lambda i: tps[i])
        if winners and tps[int(winners[-1])] >= (1 - STAY) * tps[best]:
            best = int(winners[-1])
        winners.append(str(best))
    ranges = bands(winners)
    if len(ranges) == 1:
        where = view.axis.at(0) if last == 0 else "at every load"
        return [f"Best {where}: {_praised(view, int(winners[0]), 0, last)}."]
    parts = [_praised(view, int(i), a, b, f" {view.axis.span(a, b)}") for i, a, b in ranges]
    return [f"Best by load: {'; '.join(parts)}."]


def _praised(view: View, i: int, first: int, last: int, where: str = "") -> str:
    """Name a winner, with its gain over no speculation and how sure that is."""
    series = view.series[i]
    if series.role == "baseline":
        return view.names[i] + where
    today = ""
    if series.role == "current":
        today = ", what runs today," if where else ", what runs today"
    gains = [c.gain for c in series.points[first : last + 1]]
    sures = [sureness(c) for c in series.points[first : last + 1]]
    gain = " to ".join(dict.fromkeys([percent(min(gains)), percent(max(gains))]))
    low, high = sure(min(sures)), sure(max(sures))
    how = low if low == high else f"{low.removesuffix(' sure')} to {high}"
    close = ""
    if min(sures) < CLOSE_SURENESS:
        close = ": close to a tie" if max(sures) < CLOSE_SURENESS else ": in places close to a tie"
    return f"{view.names[i]}{today}{where} ({gain}, {how}{close})"


def keeping_up(view: View, i: int) -> str:
    """Compare latency where the load itself binds: every setting delivers what arrives."""
    mine, plain = view.series[i].points[0], view.series[0].points[0]
    change = round(100 * (mine.tpot_s / plain.tpot_s - 1))
    pace = f"{abs(change)} % {'faster' if change < 0 else 'slower'}" if change else "no change"
    return (
        f"{view.names[i]} keeps up {view.axis.at(0)}, as no speculation does; each token takes "
        f"{amount(1e3 * mine.tpot_s)} instead of {amount(1e3 * plain.tpot_s)} ms ({pace})."
    )
