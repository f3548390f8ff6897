"""How numbers, settings and loads are named wherever people read them."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from specsim.curve import Curve, CurvePoint, Role, Series
from specsim.decide import LoadChoice, Option, Verdict
from specsim.uncertainty import Interval, Outcome, outcome

CERTAIN = 0.995  # from here on a probability is not worth a number: "over 99 % sure"


def amount(value: float) -> str:
    """Write a positive number with about three digits.

    >>> amount(1234.5), amount(569.02), amount(86.81), amount(2.254)
    ('1234', '569', '86.8', '2.25')
    """
    return (
        f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
    )


def spread(value: float, low: float, high: float) -> str:
    """Write a positive number with its interval.

    >>> spread(759.3, 701.2, 820.0)
    '759 (701-820)'
    """
    return f"{amount(value)} ({amount(low)}-{amount(high)})"


def sure(probability: float) -> str:
    """Say how sure a sign is.

    >>> sure(0.88), sure(0.999)
    ('88 % sure', 'over 99 % sure')
    """
    return "over 99 % sure" if probability > CERTAIN else f"{100 * probability:.0f} % sure"


def sentence(text: str) -> str:
    """Write a remark as a sentence; what is typed keeps its case.

    >>> sentence("raise it"), sentence("topk=1 would win")
    ('Raise it.', 'topk=1 would win.')
    """
    return (text if text.startswith("topk=") else text[0].upper() + text[1:]) + "."


@dataclass(frozen=True, slots=True)
class LoadAxis:
    """The loads of a curve, as people call them."""

    values: tuple[float, ...]  # in rising order
    heading: str  # of a column
    label: str  # of an axis, with its unit
    singular: str  # what is counted
    plural: str

    def at(self, index: int) -> str:
        """One load, e.g. ``at 30 clients``."""
        value = self.values[index]
        return f"at {value:g} {self.singular if value == 1 else self.plural}"

    def number(self, index: int) -> str:
        """One load without its unit."""
        return f"{self.values[index]:g}"

    def span(self, first: int, last: int) -> str:
        """Neighbouring loads, e.g. ``from 1 to 250 clients``."""
        if first == last:
            return self.at(first)
        return f"from {self.values[first]:g} to {self.values[last]:g} {self.plural}"


def load_axis(curve: Curve, request_rate: float | None = None) -> LoadAxis:
    """Return the loads of a curve; `request_rate` if it is that of an open loop."""
    points = curve.series[0].points
    if request_rate is not None:
        unit = "requests/s"
        return LoadAxis((request_rate,), "req/s", "arrivals (requests/s)", unit, unit)
    values = [p.concurrency for p in points]
    if points[0].context_len is not None:
        label = "held batch (requests)"
        held = tuple(map(float, values))
        return LoadAxis(held, "batch", label, "held request", "held requests")
    return client_axis(values)


def client_axis(concurrency: Sequence[int]) -> LoadAxis:
    """Return loads that are clients in flight."""
    label = "clients in flight (requests)"
    return LoadAxis(tuple(map(float, concurrency)), "clients", label, "client", "clients")


def described_requests(curve: Curve) -> str:
    """Say how long the requests are."""
    head = curve.series[0].points[0]
    if head.context_len is not None:
        return f"steady decode at {head.context_len:g} tokens of context"
    return f"{head.input_len:g} tokens in, {head.output_len:g} out"


def curve_title(curve: Curve) -> str:
    """Name the server and its requests."""
    head = curve.series[0].points[0]
    return f"{curve.profile}: {engine_of(head)}, {described_requests(curve)}"


def engine_of(point: CurvePoint) -> str:
    """Name the engine and its version."""
    return f"{point.engine} {point.engine_version}"


DISTINCTIONS: tuple[Callable[[CurvePoint], str], ...] = (
    lambda point: point.scheduler,
    lambda point: point.algorithm,
    engine_of,
)
"""What tells settings of the same numbers apart, tried in this order."""


def series_names(curve: Curve) -> tuple[str, ...]:
    """Name each series, no longer than it takes to tell them apart."""
    heads = [series.points[0] for series in curve.series]
    names = [
        head.setting.brief + (f" on {engine_of(head)}" if head.role == "alternative" else "")
        for head in heads
    ]
    for tell in DISTINCTIONS:
        told = [(name, tell(head)) for name, head in zip(names, heads, strict=True)]
        different = Counter(name for name, _ in set(told))
        names = [f"{name}, {word}" if different[name] > 1 else name for name, word in told]
    return tuple(names)


def series_labels(curve: Curve) -> tuple[str, ...]:
    """Name each series, with what a reader must know of it."""
    labels = []
    for name, series in zip(series_names(curve), curve.series, strict=True):
        words = ["runs today"] if series.role == "current" else []
        words += ["what-if"] if series.points[0].what_if else []
        labels.append(f"{name} ({', '.join(words)})" if words else name)
    return tuple(labels)


def listed(parts: Sequence[str]) -> str:
    """Join the parts of a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


@dataclass(frozen=True, slots=True)
class View:
    """A curve, the decision about it, and the names that sentences use."""

    series: tuple[Series, ...]
    names: tuple[str, ...]
    axis: LoadAxis
    loads: tuple[LoadChoice, ...]  # with the curve's numbers where it shows the chosen setting

    @classmethod
    def of(cls, curve: Curve, verdict: Verdict, request_rate: float | None = None) -> Self:
        """Return what is told; the curve does not carry the rate of an open loop, 1/s."""
        axis = load_axis(curve, request_rate)
        view = cls(curve.series, series_names(curve), axis, verdict.loads)
        return replace(view, loads=tuple(map(view._drawn, range(len(verdict.loads)))))

    def _drawn(self, j: int) -> LoadChoice:
        """Return the choice at a load with the numbers of its series, if there is one."""
        load = self.loads[j]
        for i, series in enumerate(self.series):
            if self.option(i, j).plan == load.choice.plan:
                p = series.points[j]
                tps = Interval(p.output_tps, p.output_tps_low, p.output_tps_high)
                gain = Interval(self.gain(i, j), p.gain_low, p.gain_high)
                return replace(load, choice=replace(load.choice, output_tps=tps, gain=gain))
        return load

    def name_of(self, option: Option) -> str:
        """Name a setting as the curve does."""
        shown = (i for i in range(len(self.series)) if self.option(i, 0).plan == option.plan)
        return next((self.names[i] for i in shown), option.plan.setting.brief)

    def having(self, role: Role) -> list[int]:
        """Return the indices of the series of a role."""
        return [i for i, series in enumerate(self.series) if series.role == role]

    @property
    def today(self) -> int | None:
        """Index of what runs today, if it speculates."""
        return next(iter(self.having("current")), None)

    @property
    def subjects(self) -> list[int]:
        """The asked settings; without one, what runs today."""
        return self.having("asked") or self.having("current")

    def option(self, i: int, j: int) -> Option:
        """Return what the decision says of a series at a load."""
        load, role = self.loads[j], self.series[i].role
        if role == "current" and load.current is not None:
            return load.current
        before = len(self.series) - len(load.asked)
        return load.baseline if role == "baseline" else load.asked[i - before]

    def gain(self, i: int, j: int, base: int = 0) -> float:
        """Gain of a series at a load over another, no speculation by default."""
        mine, other = (self.series[k].points[j].output_tps for k in (i, base))
        return mine / other - 1.0

    def outcomes(self, i: int, base: int = 0) -> list[Outcome]:
        """Return how a series stands to no speculation, or to what runs today, by load."""
        result = []
        for j in range(len(self.axis.values)):
            option = self.option(i, j)
            against_today = option.probability_faster_than_current
            chance = option.probability_faster if base == 0 else against_today
            result.append(outcome(self.gain(i, j, base), 0.5 if chance is None else chance))
        return result

    def sureness(self, i: int, j: int) -> float:
        """Probability that the sign of a gain over no speculation is as predicted."""
        chance = self.option(i, j).probability_faster
        return chance if self.gain(i, j) >= 0 else 1.0 - chance


ROLES = {"baseline": (), "current": ("runs today",), "asked": ("asked",)}
"""What is said of a series for its role; of an alternative, its engine."""


def described(view: View, i: int) -> str:
    """Say what holds of a series at every load, its accept length with the 90 % interval."""
    head, option = view.series[i].points[0], view.option(i, 0)
    role = ROLES.get(head.role, (f"on {engine_of(head)}",))
    words = [head.scheduler, *role, *(["what-if"] if head.what_if else [])]
    if not head.setting.speculates:
        return ", ".join([head.setting.title, *words])
    accepts = spread(head.accept_length, option.accept_length_low, option.accept_length_high)
    return ", ".join([f"{head.algorithm} {head.setting.label}", *words, f"accepts {accepts}"])
