"""Rules that need no simulator: what `figures_servers.py` sets beside the fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from server_splits import Prediction, Server, Split

from specsim.observations import Observation


def step_s(cell: Observation) -> float:
    """Time of a step or round, as a client sees it."""
    tokens = cell.accept_length or 1.0
    return float(cell.concurrency or 1) * tokens / float(cell.output_tps or np.nan)


def _same_lengths(cell: Observation, other: Observation) -> bool:
    keys = ("context_len", "input_len", "output_len", "dataset", "kind")
    return all(getattr(cell, k) == getattr(other, k) for k in keys)


def _curve(split: Split, cell: Observation, like: bool) -> list[tuple[float, float]]:
    """(ln clients, ln throughput) of given cells of the cell's setting, or of no speculation."""
    found = {
        np.log(float(c.concurrency or 1)): np.log(float(c.output_tps))
        for c in split.given
        if c.output_tps is not None
        and _same_lengths(c, cell)
        and (c.setting == cell.setting if like else not c.setting.speculates)
    }
    return sorted(found.items())


def _along(points: Sequence[tuple[float, float]], at: float) -> float:
    """Interpolate, and carry the last slope on."""
    x, y = np.array(points).T
    if len(x) == 1:
        return float(y[0])
    i = int(np.clip(np.searchsorted(x, at) - 1, 0, len(x) - 2))
    return float(y[i] + (at - x[i]) * (y[i + 1] - y[i]) / (x[i + 1] - x[i]))


def interpolation(server: Server, split: Split) -> list[Prediction]:
    """Log-log over clients, within the cell's own setting."""
    result = []
    for c in split.asked:
        points = _curve(split, c, like=True)
        if points:
            value = np.exp(_along(points, np.log(float(c.concurrency or 1))))
            result.append(Prediction(c, float(value)))
    return result


def gain_kept(server: Server, split: Split) -> list[Prediction]:
    """The gain of the given speculating cell, at every load."""
    given = [c for c in split.given if c.setting.speculates and c.output_tps is not None]
    result = []
    for c in split.asked:
        base = _curve(split, c, like=False)
        if not given or not base:
            continue
        there = _curve(split, given[0], like=False)
        if not there:
            continue
        gain = float(np.log(float(given[0].output_tps or 1))) - _along(
            there, np.log(float(given[0].concurrency or 1))
        )
        value = np.exp(_along(base, np.log(float(c.concurrency or 1))) + gain)
        result.append(Prediction(c, float(value)))
    return result


def textbook(server: Server, split: Split) -> list[Prediction]:
    """Leviathan's speed-up: accept length over 1 + 0.1 per draft step, at every load."""
    result = []
    for c in split.asked:
        base = _curve(split, c, like=False)
        if base and c.accept_length:
            plain = np.exp(_along(base, np.log(float(c.concurrency or 1))))
            speed_up = c.accept_length / (1.0 + 0.1 * c.setting.num_steps)
            result.append(Prediction(c, float(plain * speed_up)))
    return result


def step_at_tokens(server: Server, split: Split) -> list[Prediction]:
    """A round of c requests costs the baseline's step at n c tokens and one constant."""
    given = [c for c in split.given if c.setting.speculates and c.output_tps is not None]

    def plain_s(c: Observation) -> float | None:
        base = _curve(split, c, like=False)
        if not base:
            return None
        tokens = float((c.concurrency or 1) * c.setting.num_draft_tokens)
        return tokens / float(np.exp(_along(base, np.log(tokens))))

    constants = [
        step_s(c) - plain for c in given if c.accept_length and (plain := plain_s(c)) is not None
    ]
    constant = max(float(np.mean(constants)), 0.0) if constants else 0.0  # no time is negative
    result = []
    for c in split.asked:
        plain = plain_s(c)
        if plain is not None and c.accept_length:
            tokens = float(c.concurrency or 1) * c.accept_length
            result.append(Prediction(c, tokens / max(plain + constant, 1e-6)))
    return result
