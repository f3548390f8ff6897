"""Cells that a fit does not honour, and what may be behind each: none is passed over in silence."""

import math
from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from specsim.arrays import Floats
from specsim.curve import Misfit
from specsim.observations import Observation, cell_name

HONOURED = 0.05  # greatest error of a cell that is honoured: 90 % of a noise of 3 %
ANOTHER_UNIT = 3.0  # no server is so many times off physics, and no cell off the others
NEARLY = 0.8  # share of a cell's misfit by which a neighbour's differs where a jump is between them
_LENGTHS = attrgetter("kind", "context_len", "input_len", "output_len")
SLIPS = {10.0: "a typing error?", 100.0: "a typing error?", 1e3: "ms for s?"}
ROUGHLY = 1.3  # a factor within this of ten, or of the clients, is taken for it


def misfits(observations: Sequence[Observation], log_error: Floats) -> tuple[Misfit, ...]:
    """Cells outside their noise, the worst first.

    The error of each is ln(model / measured); nan where it has no throughput or time.
    """
    allowed = [HONOURED / math.sqrt(o.weight) for o in observations]
    off = []
    for i, (o, error) in enumerate(zip(observations, np.expm1(log_error).tolist(), strict=True)):
        if abs(error) > allowed[i]:  # nan is not
            load = float((o.request_rate if o.kind == "open_loop" else o.concurrency) or 1.0)
            meant = _suspicion(i, observations, log_error)
            off.append(Misfit(cell_name(o), o.setting.label, load, error, meant))
    return tuple(sorted(off, key=lambda misfit: -abs(math.log1p(misfit.error))))


def whole_server(prior_log_error: Floats) -> str | None:
    """Say where all cells are many times faster or slower than the hardware's own rates.

    By ln(model / measured speed) before anything is fitted; of a time that is -ln of its ratio.
    """
    known = prior_log_error[np.isfinite(prior_log_error)]
    if not len(known) or abs(middle := float(np.median(known))) < math.log(ANOTHER_UNIT):
        return None
    word = "slower" if middle > 0 else "faster"
    return (
        f"the measurements are {math.exp(abs(middle)):.0f} times {word} than this hardware at its "
        "published rates: another unit (ms for s, one user's rate for all), another GPU or model, "
        "or a throttled one? check setup.toml and the table"
    )


def _suspicion(i: int, observations: Sequence[Observation], log_error: Floats) -> str:
    """Guess what is behind one cell's misfit, and say what to do."""
    o, error = observations[i], float(log_error[i])
    factor, clients = math.exp(abs(error)), float(o.concurrency or 1)
    others = "more than" if error < 0 else "less than"
    if factor > ANOTHER_UNIT:
        for unit, meant in ((clients, "one user's rate for all?"), *SLIPS.items()):
            if unit > ANOTHER_UNIT and 1 / ROUGHLY < factor / unit < ROUGHLY:
                return f"{unit:g} times {others} the other cells lead to: {meant} check the row"
        return f"{factor:.1f} times {others} the other cells lead to: is it of this server?"
    near = [j for j in _neighbours(i, observations) if j is not None]
    jumps = [j for j in near if abs(log_error[j] - error) > NEARLY * abs(error)]
    if not jumps:
        return "an outlier against its neighbours: measure it again"
    steepest = max(jumps, key=lambda j: _steepness(o, observations[j]))
    low, high = sorted((_tokens(o), _tokens(observations[steepest])))
    return (
        f"a step changes its price between {low:g} and {high:g} tokens by more than the "
        "model follows (a kernel or graph size that switches): measure between them"
    )


def _steepness(one: Observation, other: Observation) -> float:
    """How fast the measured price of a step grows between two cells, with the tokens in it."""
    price = [_tokens(o) / float(o.output_tps or math.nan) for o in (one, other)]
    return math.log(price[1] / price[0]) / math.log(_tokens(other) / _tokens(one))


def _tokens(o: Observation) -> float:
    return float(o.setting.num_draft_tokens * (o.concurrency or 1))


def _neighbours(i: int, observations: Sequence[Observation]) -> tuple[int | None, int | None]:
    """Cells with the next fewer and the next more tokens in a step, at the same lengths."""
    here, known = observations[i], enumerate(observations)
    same = [j for j, o in known if _LENGTHS(o) == _LENGTHS(here) and o.output_tps is not None]
    fewer = [j for j in same if _tokens(observations[j]) < _tokens(here)]
    more = [j for j in same if _tokens(observations[j]) > _tokens(here)]
    return (
        max(fewer, key=lambda j: _tokens(observations[j]), default=None),
        min(more, key=lambda j: _tokens(observations[j]), default=None),
    )
