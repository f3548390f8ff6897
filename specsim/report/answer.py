"""The answer in plain sentences and a small table, from a curve and the decision about it.

Pure functions: nothing is printed. The numbers are the curve's; how surely one setting beats
another, and which is chosen, is the decision's (`specsim.decide.contest`). A setting beats another
where it is faster with a probability of at least `SURE`; it is worth a GPU hour where it so beats
no speculation and what runs today.
"""

import math
import re
from collections.abc import Callable, Sequence
from textwrap import wrap

from specsim.curve import Curve, Series
from specsim.decide import FreeFlag, Latency, LoadChoice, Option, bands
from specsim.decide import whole_percent as percent
from specsim.report import LoadAxis, View, amount, engine_of, listed, sentence, spread, sure
from specsim.uncertainty import SURE, Outcome, weakest

WORTH_MEASURING = 0.08  # an even load whose interval reaches such a gain is a toss-up, not a tie
LANDMARK = 0.03  # a gain between the ends of a range is named if it stands out by this much
FULL_ANSWERS = 2  # with more asked settings than this, each gets its verdict only
SHOWN_FLAGS = 2
SHORT = 10  # lines of the short answer

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

VERBS: dict[Outcome, tuple[str, str]] = {
    "faster": ("beats no speculation", "wins"),
    "slower": ("loses to no speculation", "loses"),
    "even": ("is even with no speculation", "is even"),
}
"""An outcome with its opponent, and without."""

STILL: dict[Outcome, str] = {"faster": "gain", "slower": "loss", "even": "tie"}


def answer(view: View, free: Sequence[FreeFlag] = ()) -> tuple[str, ...]:
    """Answer the question of a curve in a few sentences, the most important first.

    Where each asked setting (without one: the current) wins and loses, by how much and how surely;
    which launch flags would help (`free`); the best setting of each load; the same on the
    alternative version and against what runs today; what binds.
    """
    if all(series.points[0].limit == "client" for series in view.series):
        return tuple(_keeping_up(view, i) for i in view.subjects)
    sentences = [_overload(view)] if any(s.points[0].saturated for s in view.series) else []
    sentences += [_verdict(view, i) for i in view.subjects]
    sentences += [sentence(flag.text) for flag in free[:SHOWN_FLAGS]]
    others = view.series[1:]
    something_runs = not others or any(not series.points[0].what_if for series in others)
    if something_runs or any(load.choice.plan.setting.speculates for load in view.loads):
        sentences.append(best_by_load(view.loads, view.axis, view.name_of))
    if len(view.subjects) <= FULL_ANSWERS:
        for i in view.subjects:
            sentences += [*_alternatives(view, i), *_against_today(view, i), _binding(view, i)]
    return tuple(sentences)


def short(sentences: Sequence[str], width: int, most: int = SHORT) -> list[str]:
    """Return the first sentences in lines of `width`, those that fit into so many lines."""
    lines: list[str] = []
    for one in sentences:
        more = wrap(one, width)
        if not lines or len(lines) + len(more) <= most:
            lines += more
    return lines


Cells = Sequence[tuple[str, Callable[[LoadChoice], str]]]
"""Of a table of choices: heading, and what a cell says of a load."""


def choice_cells(loads: Sequence[LoadChoice], axis: LoadAxis, asked: Series | None = None) -> Cells:
    """Return the small table: load, choice, tokens/s with interval, gain and how sure it is.

    Two more columns have the tokens/s and the gain of the series that is `asked` about.
    """

    def place(load: LoadChoice) -> int:
        return loads.index(load)

    def drafts(load: LoadChoice, text: str) -> str:
        return text if load.choice.plan.setting.speculates else "-"

    def certain(load: LoadChoice) -> str:
        return sure(load.choice.probability_faster).replace("over ", ">").removesuffix(" sure")

    def name(load: LoadChoice) -> str:
        if load.meets_targets is False:
            return "none meets it"
        return load.choice.plan.setting.brief + (" *" if load.keeps_today else "")

    def rate(load: LoadChoice) -> str:
        tps = load.choice.output_tps
        return spread(tps.value, tps.low, tps.high)

    cells = [(axis.heading, lambda load: axis.number(place(load))), ("choice", name)]
    cells += [("tok/s (90 %)", rate)]
    cells += [("gain", lambda load: drafts(load, percent(load.choice.gain.value)))]
    cells += [("sure", lambda load: drafts(load, certain(load)))]
    priced = any(load.choice.money_per_million is not None for load in loads)
    if any(load.latency is not None for load in loads):
        dropped = {"sure", "gain"} if priced else {"sure"}
        cells = [cell for cell in cells if cell[0] not in dropped]
        cells[2] = ("tok/s", lambda load: amount(load.choice.output_tps.value))
        cells += [
            ("TPOT p50/99", lambda load: _pair(load.latency, "tpot", 1e3)),
            ("TTFT p50/99", lambda load: _pair(load.latency, "ttft", 1.0)),
            ("good/s", lambda load: amount(load.latency.goodput_rps) if load.latency else ""),
        ]
    if priced:
        cells.append(("per Mtok", lambda load: f"{load.choice.money_per_million:.3g}"))
    if asked is not None:
        points = asked.points
        cells.append(("asked", lambda load: amount(points[place(load)].output_tps)))
        cells.append(("its gain", lambda load: percent(points[place(load)].gain)))
    return cells


def _pair(seen: Latency | None, metric: str, scale: float) -> str:
    """Write the median and the 99th percentile of a latency."""
    values = (getattr(seen, f"{metric}_{p}_s", math.nan) for p in ("p50", "p99"))
    return "/".join(amount(scale * value) for value in values)


def rule(loads: Sequence[LoadChoice], considered: int) -> str:
    """Say what a choice is."""
    today = any(c.keeps_today and c.meets_targets is not False for c in loads)
    seen = any(c.latency is not None for c in loads)
    gains = not seen or all(c.choice.money_per_million is None for c in loads)
    return (
        f"choice: the simplest of {considered} setting{'s' * (considered > 1)} that none "
        f"beats with {100 * SURE:.0f} % probability{'; gain: over no speculation' if gains else ''}"
        f"{'; * runs today' if today else ''}"
        f"{'; TPOT in ms, TTFT in s; good/s: requests within the targets' if seen else ''}"
    )


def assumptions(notes: Sequence[str]) -> str:
    """Name what an answer rests on: the head of each note, but for those of a setting."""
    heads = dict.fromkeys(re.split(r"[:;,(]", note, maxsplit=1)[0].strip() for note in notes)
    return "; ".join(head for head in heads if not head.startswith("topk="))


def evidence_line(curve: Curve) -> str:
    """Say what the curve rests on at its weakest."""
    found = weakest(point.evidence for point in curve.rows)
    return f"Weakest evidence under these numbers: {found}."


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
    against, today = view.outcomes(i), _against(view, i)
    held = [
        one == "faster" and other != "faster" for one, other in zip(against, today, strict=True)
    ]
    worth = [one == "faster" and not by for one, by in zip(against, held, strict=True)]
    but = f"; {_spans(view, held)} it does not surely beat what runs today" if any(held) else ""
    open_ended = [
        one == "even" and other != "slower" and point.gain_high > WORTH_MEASURING
        for one, other, point in zip(against, today, series.points, strict=True)
    ]
    if all(worth):
        judged = always
    elif any(worth):
        judged = f"{yes} only {_spans(view, worth)}"
    elif any(open_ended):
        judged = "is a toss-up that only a measurement can decide"
    else:
        judged = no
    return f"{name} {judged}: {_course(view, i)}{but}."


def _against(view: View, i: int) -> list[Outcome]:
    """Return how a setting stands to what runs today, by load; faster than nothing, and itself."""
    if view.today is None or view.today == i:
        return ["faster"] * len(view.axis.values)
    return view.outcomes(i, view.today)


def _spans(view: View, holds: Sequence[bool]) -> str:
    return listed([view.axis.span(a, b) for yes, a, b in bands(holds) if yes])


def _course(view: View, i: int) -> str:
    """Where a setting wins and loses, by how much, how surely."""
    axis, ranges = view.axis, bands(view.outcomes(i))
    if len(ranges) == 1:
        label, first, last = ranges[0]
        where = axis.at(0) if last == 0 else f"at every load {axis.span(0, last)}"
        return f"it {VERBS[label][0]} {where} ({_gains(view, i, first, last)})"
    parts = [
        f"{VERBS[label][1]} {axis.span(first, last)} ({_gains(view, i, first, last)})"
        for label, first, last in ranges
    ]
    return f"against no speculation it {listed(parts)}"


def _gains(view: View, i: int, first: int, last: int) -> str:
    """Gains at the ends of a range, and between them where one stands out, with their sureness."""
    picked = _landmarks([view.gain(i, j) for j in range(last + 1)], first, last)
    told = [(percent(view.gain(i, j)), sure(view.sureness(i, j))) for j in picked]
    if len(set(told)) == 1:
        return ", ".join(told[0])
    rows = zip(told, picked, strict=True)
    return "; ".join(f"{gain} at {view.axis.number(j)}, {how}" for (gain, how), j in rows)


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
    comma = "," if len(view.subjects) > 1 else ""
    return [f"Against what runs today ({name}){comma} {_it(view, i)} gives {told}."]


def _it(view: View, i: int) -> str:
    """Name a setting where several are asked about."""
    return "it" if len(view.subjects) < 2 else view.names[i]


def _alternatives(view: View, i: int) -> list[str]:
    """Say what another version of the engine would make of the same setting."""
    heads = [(s.points[0].algorithm, s.points[0].setting.key) for s in view.series]
    return [
        f"On {engine_of(view.series[j].points[0])} {_alternative(view, i, j, _it(view, i))}."
        for j in view.having("alternative")
        if heads[j] == heads[i]
    ]


def _alternative(view: View, asked: int, j: int, it: str) -> str:
    other = view.series[j]
    head = other.points[0]
    if not head.allowed and head.reason:
        return f"{it} is refused: {head.reason}"
    rates = []
    for k in sorted({0, len(other.points) - 1}):
        new, old = (amount(view.series[i].points[k].output_tps) for i in (j, asked))
        told = f"the same {new}" if new == old else f"{new} instead of {old}"
        rates.append(f"{told} tok/s {view.axis.at(k)}")
    before, after = view.outcomes(asked), view.outcomes(j)
    if before != after:
        end = f"; there, {_course(view, j)}"
    elif len(set(after)) == 1:
        end = f", still a {STILL[after[0]]}"
    else:
        end = ", which turns nothing round"
    return f"{it} would run under the {head.scheduler} scheduler: {listed(rates)}{end}"


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


def best_by_load(
    loads: Sequence[LoadChoice], axis: LoadAxis, name: Callable[[Option], str], every: bool = True
) -> str:
    """Name the choice of each load; `every`: whether these are all that are asked about."""
    ranges = bands([load.choice.plan for load in loads])
    if len(ranges) == 1:
        where = "at every load" if every and len(loads) > 1 else axis.span(0, len(loads) - 1)
        return f"Best {where}: {_praised(loads, name)}."
    parts = [_praised(loads[a : b + 1], name, f" {axis.span(a, b)}") for _, a, b in ranges]
    return f"Best by load: {'; '.join(parts)}."


def _praised(loads: Sequence[LoadChoice], name: Callable[[Option], str], where: str = "") -> str:
    """Name a choice, with its gain over no speculation and how sure that is."""
    chosen = [load.choice for load in loads]
    setting = chosen[0].plan.setting
    if not setting.speculates:
        return setting.brief + where
    note = (", what runs today" + "," * bool(where)) if loads[0].keeps_today else ""
    gains = [option.gain.value for option in chosen]
    sures = [option.probability_faster for option in chosen]
    gain = " to ".join(dict.fromkeys([percent(min(gains)), percent(max(gains))]))
    low, high = sure(min(sures)), sure(max(sures))
    how = low if low == high else f"{low.removesuffix(' sure')} to {high}"
    return f"{name(chosen[0])}{note}{where} ({gain}, {how})"


def _overload(view: View) -> str:
    full = [i for i, series in enumerate(view.series) if series.points[0].saturated]
    heads = [view.series[i].points[0] for i in full]
    served = [amount(p.output_tps / (p.output_len or 1.0)) for p in heads]
    names = [f"{view.names[i]} ({rate}/s)" for i, rate in zip(full, served, strict=True)]
    verb = "serves: the queue grows" if len(full) == 1 else "serve: their queues grow"
    return (
        f"{view.axis.values[0]:g} requests/s are more than {listed(names)} {verb} without end, and "
        "TTFT with it; the throughput shown is the capacity."
    )


def _keeping_up(view: View, i: int) -> str:
    """Compare latency where the load itself binds: every setting delivers what arrives."""
    mine, plain = view.series[i].points[0], view.series[0].points[0]
    change = round(100 * (mine.tpot_s / plain.tpot_s - 1))
    pace = f"{abs(change)} % {'faster' if change < 0 else 'slower'}" if change else "no change"
    return (
        f"{view.names[i]} keeps up {view.axis.at(0)}, as no speculation does; each token takes "
        f"{amount(1e3 * mine.tpot_s)} instead of {amount(1e3 * plain.tpot_s)} ms ({pace})."
    )
