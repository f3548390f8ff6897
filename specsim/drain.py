"""Runs of a known number of requests, counted in rounds.

All slots start at once and each takes the next request when its own has ended: the batch is full
until the last request is taken, and then drains. How many rounds run at which batch size does not
depend on what a round costs, so it is found once by playing the run in rounds:

    T = sum over batch sizes b of R(b) T_round(b) + prefill                            (DRAIN)

Requests end at different times because their lengths and their acceptance differ. Where they do
not, all of a generation end together and the next one's prompts come in one burst.
"""

from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heapreplace

import numpy as np

from specsim.arrays import Floats, Ints

NODES = 5
"""Batch sizes that the rounds are counted at, log-spaced; between them a round's price is taken to
be linear in log b."""

GENERATIONS = 40  # requests per slot that are played; what is beyond runs at the full batch
DRAWS = 8  # plays of a run, each with other requests

IN_STEP = 0.5
"""Standard deviation of the rounds of a request, in rounds, below which all end together."""


@dataclass(frozen=True, slots=True)
class FiniteRun:
    """How many rounds run at which batch size."""

    batch: tuple[float, ...]  # requests that run, rising
    rounds: tuple[float, ...]  # mean rounds at each
    drawn: float  # mean rounds of the requests that were played
    in_step: bool  # all requests of a generation end together


@lru_cache(maxsize=4096)
def finite_run(rounds: tuple[float, ...], slots: int, requests: int) -> FiniteRun:
    """Play a run in rounds.

    Parameters
    ----------
    rounds
        Rounds that a request takes, equally likely values.
    slots
        Requests that run at once, at least 1.
    requests
        Requests in all, at least 1.

    Examples
    --------
    >>> finite_run((10.0,), 4, 4).rounds[-1]  # all four end together
    10.0
    >>> run = finite_run((10.0,), 4, 5)       # the fifth starts when they end
    >>> run.rounds[0], run.rounds[-1]
    (10.0, 10.0)
    """
    slots = min(slots, requests)
    played = min(requests, GENERATIONS * slots)
    likely = np.asarray(rounds)
    batch = np.geomspace(1.0, slots, NODES) if slots > 1 else np.ones(NODES)
    lives = likely[_places(played, len(likely))]
    drawn = float(lives.mean())
    ends, last = lives[:, :slots].copy(), np.zeros((DRAWS, 1))  # when the last request is taken
    if played > slots:
        for draw, row in enumerate(lives.tolist()):
            running = row[:slots]
            heapify(running)
            for life in row[slots:-1]:
                heapreplace(running, running[0] + life)
            last[draw] = running[0]
            heapreplace(running, running[0] + row[-1])
            ends[draw] = running
    times = np.concatenate([last, np.maximum(np.sort(ends, axis=1), last)], axis=1)
    drained = np.diff(times, axis=1).mean(axis=0)
    counted = _at_nodes(slots - np.arange(slots), drained, batch)
    counted[-1] += last.mean()
    if requests > played:
        counted[-1] += (requests - played) / slots * drawn
    in_step = float(likely.std()) < IN_STEP
    return FiniteRun(tuple(batch.tolist()), tuple(counted.tolist()), drawn, in_step)


@lru_cache(maxsize=256)
def _places(played: int, count: int) -> Ints:
    """Which of `count` equally likely lives each request has, (plays, requests)."""
    first = (np.arange(DRAWS)[:, None] + 0.5) / DRAWS
    return ((first + np.arange(played) * _GOLDEN) % 1.0 * count).astype(np.int64)


_GOLDEN = 0.6180339887498949  # steps of the golden section fill 0..1 evenly


def _at_nodes(running: Ints, rounds: Floats, batch: Floats) -> Floats:
    """Share rounds at the sizes that run between the neighbouring nodes."""
    if batch[-1] <= 1.0:
        return np.append(np.zeros(NODES - 1), rounds.sum())
    place = np.log(running) / np.log(batch[-1]) * (NODES - 1)
    left = np.minimum(place.astype(np.int64), NODES - 2)
    upper = rounds * (place - left)
    shared = np.zeros(NODES)
    np.add.at(shared, left, rounds - upper)
    np.add.at(shared, left + 1, upper)
    return shared
