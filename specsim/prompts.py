"""Prompts among decoding rounds, in closed form: how many share a step, and what they take.

Completions per round are Poisson, so a step holds the prompts of those that ended in the round
before. With mixed prefill their chunks join the rounds of the others, within the step's budget of
tokens (BUDGET of :mod:`specsim.analytic`); else a step of prompts stops all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from specsim.case import Points, most_decoding
from specsim.cost.model import CostModel
from specsim.cost.rounds import prefill_s

if TYPE_CHECKING:
    from specsim.arrays import Floats

GENERATIONS = 8
"""Prefill steps in a row that answers of one token are followed through."""


def end_probability(points: Points) -> Floats:
    """q: P(a decoding request ends in a round); those of one round, all alike, end together."""
    alike = (points.rounds <= 1.0) & (points.output_cv == 0)
    decode = 1.0 - points.single
    return np.where(alike, 1.0, decode / np.maximum(points.rounds + points.lag, decode))


def _per_round(points: Points, batch: Floats) -> Floats:
    """Mean number of requests that end in a round, and so of prompts that come in the next."""
    return np.maximum(batch * end_probability(points), 1e-9)


def _prompt_rounds(points: Points, batch: Floats) -> Floats:
    """Count the rounds of a prompt in mixed prefill: alone, with others, in the queue (BUDGET)."""
    decoding = np.maximum(points.rounds + points.lag, 1e-9)
    most = most_decoding(points.chunk, points.input_new, decoding, points.width)
    running = np.minimum(batch, most)
    room = np.maximum(points.chunk - running * points.width, 1.0)
    alone = np.ceil(points.input_new / room)
    shared = (1.0 + _per_round(points, running)) * points.input_new / room
    queued = decoding * (batch / running - 1.0)
    prompts: Floats = np.maximum(np.maximum(1.0, alone), np.maximum(shared, queued))
    return prompts


def decoding_share(points: Points, batch: Floats) -> Floats:
    """Share of the slots that decode: all, but for prompts in mixed prefill."""
    if not points.mixed.any():
        return np.ones(batch.shape)
    decoding = points.rounds + points.lag
    share = decoding / (decoding + _prompt_rounds(points, batch))
    staggered = (batch > 1.0) & (end_probability(points) < 1.0)
    return np.where(points.mixed & ~points.steady & staggered, share, 1.0)


def _alone(points: Points, batch: Floats) -> Floats:
    """P(no other slot decodes while a prompt is in mixed prefill): it then has its own steps."""
    waiting = _prompt_rounds(points, batch)
    others = np.where(end_probability(points) < 1.0, np.maximum(batch - 1.0, 0.0), 0.0)
    return np.power(waiting / (waiting + points.rounds + points.lag), others)


def joined_rounds(points: Points, batch: Floats) -> Floats:
    """J: rounds of the others that a prompt sits in (CYCLE)."""
    if not points.mixed.any():
        return np.zeros(batch.shape)
    rounds = _prompt_rounds(points, batch) * (1.0 - _alone(points, batch))
    return np.where(points.mixed & ~points.steady, rounds, 0.0)


def prefill_per_request(cost: CostModel, points: Points, batch: Floats) -> Floats:
    """F: prefill time per request when prompts of one round share a step."""
    ends = end_probability(points)
    some = 1.0 - (1.0 - ends) ** np.maximum(batch, 1.0)
    together = batch * ends / some
    seconds = prefill_step_s(cost, points, batch, together)
    if not points.single.any():
        return seconds / together
    # answers of one token end with their prompt, and the next ones come before the next round
    computed, again = together.copy(), together
    for _ in range(GENERATIONS):
        again = again * points.single
        likely = -np.expm1(-again)
        size = again / np.maximum(likely, 1e-12)
        seconds += likely * prefill_step_s(cost, points, batch, np.maximum(size, 1.0))
        computed += again
    return seconds / computed


def prefill_steps(points: Points, together: Floats) -> Floats:
    """Count the prefill steps that so many prompts need at once, fractional beyond the first."""
    return np.maximum(1.0, together * points.input_new / points.chunk)


def tokens_beside(points: Points, batch: Floats) -> Floats:
    """Tokens of those that decode in a round that prompts join."""
    return batch * decoding_share(points, batch) * points.width


def prompts_s(
    cost: CostModel, points: Points, together: Floats, beside: Floats | None = None
) -> Floats:
    """Time that `together` prompts take at once, alone or what they add to rounds (MIXED)."""
    steps = prefill_steps(points, together)
    tokens = together * points.input_new / steps
    context = (points.input_len - points.input_new / 2) * (1.0 + points.input_cv**2)
    return prefill_s(cost, tokens, context, points.speculates, beside) * steps


def prefill_step_s(cost: CostModel, points: Points, batch: Floats, together: Floats) -> Floats:
    """Time that `together` prompts take at once, in as many steps as their chunks need."""
    seconds = prompts_s(cost, points, together)
    if points.mixed.any():
        mixed = prompts_s(cost, points, together, tokens_beside(points, batch))
        alone = _alone(points, batch)
        seconds = np.where(points.mixed, mixed * (1.0 - alone) + seconds * alone, seconds)
    return np.where(points.steady, 0.0, seconds)
