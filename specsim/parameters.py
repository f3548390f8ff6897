"""The parameters: a row for each number that calibration may move, with all that is known of it.

The rows stand in ``parameters.toml``. A cost parameter multiplies a derived time unless its row
says otherwise. To add one, add its row and use ``cost.parameters["name"]`` in the formula that it
belongs to: profiles, fits, ``--set`` and the way back to the prior follow from the row.
"""

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from specsim.uncertainty import Evidence, Parameter, Scale

KNOT, SPECULATING_KNOT = "correction_", "correction_speculating_"
"""Begin the name of a knot's parameter."""

KNOT_OCTAVES: dict[str, tuple[float, ...]] = {
    KNOT: (*map(float, range(12)),),
    SPECULATING_KNOT: (0.0, 3.0, 5.0, 7.0, 9.0, 11.0),
}
"""log2 of the tokens of a step at which the knots of each correction lie, 1 .. 2048."""

SHARED_READ = ("flashinfer", "fa3", "fa4", "flash_attn", "flashmla", "trtllm", "cutlass", "dsa")
"""Attention backends that read the KV cache once per request and tile [@kv-reads]."""

ALLREDUCE_SD: dict[Evidence, tuple[float, float]] = {
    "measured": (0.15, 0.15),
    "published": (0.5, 0.4),
    "assumed": (0.7, 0.6),
}
"""Errors of latency and bandwidth in log; one host differs from another by up to 10x."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the priors need to know of a server and its drafter."""

    is_cpu: bool = False
    bandwidth_measured: bool = False
    compute_measured: bool = False
    allreduce: Evidence | None = None  # what it rests on; None for a single GPU
    latent_attention: bool = False
    attention_backend: str = ""
    verify_walks: bool = False  # whether a verification is not split over the GPU (WALK)
    picks_entries: bool = False  # whether each row reads what its indexer picked
    has_experts: bool = False
    has_draft: bool = False
    copies_state: bool = False  # whether it keeps a recurrent state for each slot of llama.cpp
    pool_logged: bool = False  # whether the start-up log's KV tokens are known
    standalone: bool = False  # whether a model of its own drafts
    depths_measured: bool = False  # whether accept probabilities by depth are


Prior = tuple[float, float]
"""Median of the value, standard deviation of the coordinate."""


@dataclass(frozen=True, slots=True)
class Row:
    """One parameter before anything is measured."""

    prior: (
        Prior | Callable[[Facts], Prior | None] | None
    )  # None: only the servers of `when` have it
    resets: str  # parts of the setup whose change takes it back to its prior
    source: str  # what the prior rests on
    scale: Scale = "log"  # the coordinate is ln(value), or the value itself
    bounds: tuple[float, float] | None = None  # None: five standard deviations about the median
    default: float = 1.0  # where a profile does not have it
    unit: str = "factor"
    set_as: tuple[str, ...] = ()  # its keys of --set beside its name
    of_software: bool = False  # keeps its value on other hardware, with the prior's error
    pinned_by: str = "more cells"  # measurement that tells it apart from the others
    when: Mapping[str, Prior] = field(default_factory=dict)  # by what holds of a server (`Facts`)

    @property
    def reset_by(self) -> set[str]:
        """The parts of the setup that reset it."""
        return set(self.resets.split())

    def on(self, facts: Facts) -> Prior | None:
        """Return the prior on a server; None where it has no such parameter."""
        usual = self.prior(facts) if callable(self.prior) else self.prior
        return next((prior for fact, prior in self.when.items() if getattr(facts, fact)), usual)

    def parameter(self, name: str, prior: Prior) -> Parameter:
        """Return the parameter at its prior."""
        median, sd = prior
        reach = math.exp(5 * max(sd, 0.4))
        low, high = self.bounds or (median / reach, median * reach)
        return Parameter(name, self.scale, median, sd, median, sd, False, low, high, self.source)


def _kv_reads(server: Facts) -> Prior:
    if "triton" in server.attention_backend:
        return 0.95, 0.15
    if any(name in server.attention_backend for name in SHARED_READ):
        return 0.1, 0.15
    return 0.3, 0.3


def _allreduce(which: int) -> Callable[[Facts], Prior | None]:
    return lambda s: None if s.allreduce is None else (1.0, ALLREDUCE_SD[s.allreduce][which])


COMPUTED: dict[str, Callable[[Facts], Prior | None]] = {
    "kv_reads": _kv_reads,
    "allreduce_latency": _allreduce(0),
    "allreduce_bandwidth": _allreduce(1),
}
"""Priors that more than a yes or no decides."""


def _tuples(value: Any) -> Any:
    """Return a value of TOML with tuples for its lists."""
    if isinstance(value, dict):
        return {key: _tuples(entry) for key, entry in value.items()}
    return tuple(value) if isinstance(value, list) else value


_TABLE = _tuples(tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")))

COST, ACCEPTANCE, CORRECTIONS = (
    {name: Row(**{"prior": COMPUTED.get(name), **row}) for name, row in _TABLE[part].items()}
    for part in ("cost", "acceptance", "correction")
)
"""What a round costs, what it buys, and how both differ from physics: rows by name."""

CORRECTION_OCTAVES = {KNOT: 3.0, SPECULATING_KNOT: 6.0}
"""Octaves over which a correction is correlated, exp(-distance / length): kernels and graphs switch
with the tokens of a step, so its correction may jump; what speculation adds grows steadily."""


def knot_of(name: str, wanted: str | None = None) -> tuple[str, int] | None:
    """Return the correction and the knot that a parameter is, e.g. of ``correction_3``.

    None if it is no knot, or not of the wanted correction.

    >>> knot_of("correction_speculating_3"), knot_of("host")
    (('correction_speculating_', 3), None)
    """
    family, digits = name.rstrip("0123456789"), name[len(name.rstrip("0123456789")) :]
    known = family in CORRECTIONS and digits and family == (wanted or family)
    return (family, int(digits)) if known else None


def is_price(name: str) -> bool:
    """Whether a parameter changes what rounds cost and nothing else: not yield, not the KV pool."""
    return knot_of(name) is not None or (name in COST and name != "kv_pool")


def row_of(name: str) -> Row:
    """Return the row of a profile's parameter, e.g. of ``correction_3``.

    >>> row_of("accept_level[chat@0]") is ACCEPTANCE["accept_level"]
    True
    """
    knot = knot_of(name)
    if knot is not None:
        return CORRECTIONS[knot[0]]
    return COST.get(name) or ACCEPTANCE[name.partition("[")[0]]


def cost_priors(server: Facts) -> tuple[Parameter, ...]:
    """Priors of the cost parameters that matter on a server."""
    return _priors(COST, server)


def acceptance_priors(
    names: Iterable[str], measured: frozenset[str] = frozenset(), standalone: bool = False
) -> tuple[Parameter, ...]:
    """Priors of the acceptance: a level per named acceptance, shapes shared by all.

    Parameters
    ----------
    names
        The acceptances.
    measured
        Those whose accept probabilities by depth are known.
    standalone
        Whether a model of its own drafts.
    """
    level = ACCEPTANCE["accept_level"]
    levels = [
        _priors({f"accept_level[{name}]": level}, Facts(depths_measured=name in measured))
        for name in names
    ]
    shapes = {name: row for name, row in ACCEPTANCE.items() if row is not level}
    return (*chain.from_iterable(levels), *_priors(shapes, Facts(standalone=standalone)))


def correction_priors(spread: Mapping[str, float]) -> tuple[Parameter, ...]:
    """Priors of the corrections' knots, by correction with the spread that was learnt for it."""
    return tuple(
        CORRECTIONS[family].parameter(f"{family}{j}", (0.0, sd))
        for family, sd in spread.items()
        for j in range(len(KNOT_OCTAVES[family]))
    )


def prior_correlation(names: Sequence[str]) -> list[list[float]]:
    """Correlation of parameters before anything is measured: only the knots of one correction."""

    def of(one: str, other: str) -> float:
        first, second = knot_of(one), knot_of(other)
        if first is None or second is None or first[0] != second[0]:
            return float(one == other)
        at = KNOT_OCTAVES[first[0]]
        return math.exp(-abs(at[first[1]] - at[second[1]]) / CORRECTION_OCTAVES[first[0]])

    return [[of(one, other) for other in names] for one in names]


def _priors(rows: Mapping[str, Row], server: Facts) -> tuple[Parameter, ...]:
    found = [(name, row, row.on(server)) for name, row in rows.items()]
    return tuple(row.parameter(name, prior) for name, row, prior in found if prior is not None)
