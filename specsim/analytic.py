"""Closed-form solver: a closed network of C clients and one batch, over whole arrays of points.

With B = min(C, cap) running requests, R rounds per request, T the length of a round at the mean
context, F the prefill time per request, a slot's cycle and the throughput are

    cycle = (R + lag + J) T + B F      every slot's prefill stops all of them        (CYCLE)
    X = B / cycle,   output = O X                                                    (CLOSED)

F counts that prompts which arrive in the same round share a step: completions per round are
Poisson with mean B / (R + lag), K of them at once cost one step of K prompts; a request that ends
up in a step finds the size-biased mean, one more than K's, in it. J is the rounds that a prompt
sits in while its chunks join the decode steps of the others (mixed prefill), 0 where prefill comes
first; the decoding batch is smaller by that share. A step of at most Q tokens holds the n tokens of
each that decodes and the prompts' chunks, so that no more decode than

    D = Q / (I / (R + lag) + n),   J >= (R + lag) (B / D - 1)                         (BUDGET)

with I the tokens of a prompt: beyond that requests queue for their prompts, and neither a faster
round nor a longer accept length helps much. In open loop (CLOSED) with the batch at its cap
is the capacity: arrivals beyond it saturate the server, arrivals below it are followed by
:mod:`specsim.queueing`. A run of a known number of requests also fills and drains
(:mod:`specsim.drain`). In steady decode there is no prefill and
output = B * accept_length / T.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.case import Case, Points, points_of
from specsim.cost.model import CostModel
from specsim.cost.rounds import RoundTime, compose_s, read_once, round_time
from specsim.curve import Limit
from specsim.engine import padded_batch
from specsim.parameters import is_price
from specsim.prompts import (
    decoding_share,
    end_probability,
    joined_rounds,
    prefill_per_request,
    prefill_step_s,
    prefill_steps,
    prompts_s,
    tokens_beside,
)
from specsim.uncertainty import Parameter

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats, Ints
    from specsim.workload import Load

OPEN_REQUESTS = 1000
"""Arrivals whose mean TTFT stands for a queue that grows without end."""

NEARLY = 0.999
"""Share of the capacity up to which a queue is taken to settle."""

TERMS: tuple[Limit, ...] = ("verify", "draft", "allreduce", "prefill", "host")
"""What can be halved; the caps come besides."""


@dataclass(frozen=True, slots=True)
class Solution:
    """Results per case, arrays of equal length; times in seconds."""

    output_tps: Floats  # tokens delivered per second
    batch_size: Floats  # mean running requests
    round_s: Floats  # length of a round (or step)
    accept_length: Floats  # tokens emitted per request and round
    tpot_s: Floats  # mean over requests
    ttft_s: Floats
    limit: tuple[Limit, ...]  # the term whose halving would raise `output_tps` most
    time: RoundTime  # parts of the round
    itl_s: Floats  # between a request's rounds, prompts of others included
    # more arrives than the server can do: the throughput is its capacity, and `ttft_s` what
    # the first `OPEN_REQUESTS` (or `num_requests`) wait, for it grows without end
    saturated: Flags
    tpot_p50_s: Floats | None = None  # percentiles are known to simulations alone
    tpot_p99_s: Floats | None = None
    ttft_p50_s: Floats | None = None
    ttft_p99_s: Floats | None = None

    @property
    def draft_s(self) -> Floats:
        """What the drafter's steps take of a round."""
        return self.time.draft_s


def solve(
    cost: CostModel, cases: Sequence[Case], with_limit: bool = True, loads: Sequence[Load] = ()
) -> Solution:
    """Solve all cases at once (CYCLE, CLOSED): each at its load, or at all of `loads` in turn.

    The latter are of one kind and context. `with_limit` finds out what binds, which takes six more
    evaluations.
    """
    return _solve(cost, points_of(cases, loads), with_limit)


def solve_along(
    cost: CostModel,
    parameters: Sequence[Parameter],
    coordinates: Floats,
    cases_at: Callable[[Floats], Sequence[Case]],
    loads: Sequence[Load] = (),
) -> Solution:
    """Solve the cases of a server under each row of coordinates in turn, all in one go.

    Most rows of a Jacobian differ in prices alone, which leave the cases as they are.
    """
    kept = [i for i, p in enumerate(parameters) if not is_price(p.name)]
    seen: dict[bytes, int] = {}
    cases: list[Case] = []
    starts = []
    for row in coordinates:
        starts.append(seen.setdefault(row[kept].tobytes(), len(cases)))
        if starts[-1] == len(cases):
            cases += cases_at(row)
    count = len(cases) // len(seen) * max(len(loads), 1)
    first = np.array(starts)[:, None] * max(len(loads), 1)
    points = points_of(cases, loads).taken((first + np.arange(count)).ravel())
    return _solve(cost.stacked(parameters, coordinates, count), points, with_limit=False)


def _solve(cost: CostModel, points: Points, with_limit: bool) -> Solution:
    batch = np.minimum(points.clients, _cap(points))
    is_open = np.isfinite(points.open_rate)
    time, output, cycle, prefill = _evaluate(cost, points, batch)
    saturated = is_open & (points.open_rate * cycle >= batch)
    limit = _limits(points, batch, time, is_open & ~saturated, prefill) if with_limit else ()
    queue_s = np.where(
        points.steady | is_open,
        0.0,
        np.maximum(points.clients - batch, 0.0) * cycle / np.maximum(batch, 1e-12),
    )
    first = _first_token_s(cost, points, batch, time, prefill)
    ttft = np.where(points.steady, np.nan, queue_s + first)
    decode = cycle - first - points.lag * time.round_s
    tokens = np.maximum(points.output - 1.0, 1.0)
    further = points.steady | (points.rounds <= 0)  # of a single token: what another would take
    tpot = np.where(further, time.round_s / points.accept, decode / tokens)
    finite = np.flatnonzero(np.isfinite(points.requests) & ~points.steady)
    if finite.size:
        whole = _finite(cost, points, batch, prefill, first, finite)
        for steady_state, value in zip((output, tpot, ttft), whole, strict=True):
            steady_state[finite] = value[finite]
    if is_open.any():
        _open(cost, points, batch / cycle, (output, batch, tpot, ttft), saturated)
    itl = np.where(points.steady, time.round_s, tpot * tokens / np.maximum(points.rounds, 1.0))
    return Solution(
        output, batch, time.round_s, points.accept, tpot, ttft, limit, time, itl, saturated
    )


def _open(
    cost: CostModel,
    points: Points,
    capacity: Floats,
    results: tuple[Floats, Floats, Floats, Floats],
    saturated: Flags,
) -> None:
    """Let requests arrive by themselves: write output, batch, TPOT and TTFT of these rows.

    Where more arrives than the capacity, in requests/s, is left what the batch at its cap gives;
    the first N requests then wait (N / 2) (1 / capacity - 1 / rate) on average.
    """
    from specsim.queueing import PROMPTS, Station, stay  # few questions need it

    output, batch, tpot, ttft = results
    rows = np.flatnonzero(np.isfinite(points.open_rate))
    caps = np.maximum(np.floor(batch + 1e-9), 1.0)
    most = float(caps[rows].max())
    nodes = np.unique(np.append(np.round(2 ** np.arange(0.0, np.log2(most), 0.125)), most))
    sizes = np.minimum(nodes[:, None], caps)
    round_s = _round(cost, points, sizes, decoding=sizes).round_s
    together = np.arange(1.0, PROMPTS + 1.0)[:, None]
    steps = np.broadcast_to(prefill_steps(points, together), (PROMPTS, batch.size))
    alone = prompts_s(cost, points, together)
    busy = batch * np.minimum(1.0, points.open_rate / capacity)
    joined = prompts_s(cost, points, together, tokens_beside(points, busy))
    for i in rows.tolist():
        rate, most_s = float(points.open_rate[i]), float(capacity[i])
        count = OPEN_REQUESTS if np.isnan(points.requests[i]) else points.requests[i]
        station = Station(
            min(rate, NEARLY * most_s),
            most_s,
            float(points.rounds[i]),
            float(points.lag[i]),
            float(points.input_cv[i]),
            float(points.output_cv[i]),
            np.interp(np.arange(1.0, caps[i] + 1.0), np.minimum(nodes, caps[i]), round_s[:, i]),
            alone[:, i],
            joined[:, i] if points.mixed[i] else None,
            steps[:, i],
        )
        found = stay(station)
        tokens = max(float(points.output[i]) - 1.0, 1.0)
        if not saturated[i]:
            batch[i] = min(found.batch, batch[i])
            tpot[i] = found.decode_s / tokens if station.rounds > 0 else tpot[i]
        growing_s = max(0.0, count / 2.0 * (1.0 / most_s - 1.0 / rate))
        if np.isnan(points.requests[i]):
            output[i], ttft[i] = points.output[i] * min(rate, most_s), found.first_s + growing_s
            continue
        # no later than if all came at once, which is what stands there
        all_s = count * points.output[i] / output[i]
        last_s = (count - 1.0) / rate + min(found.first_s + found.decode_s, all_s)
        output[i] = count * points.output[i] / max(all_s, last_s)
        ttft[i] = min(found.first_s + growing_s, ttft[i])


def _finite(
    cost: CostModel, points: Points, batch: Floats, prefill: Floats, first: Floats, rows: Ints
) -> tuple[Floats, Floats, Floats]:
    """Throughput, TPOT and TTFT of runs of a known number of requests (DRAIN).

    All slots' first prompts come in one burst, step after step of the engine's chunk; later ones
    come one by one, unless all requests are alike and end together.
    """
    from specsim.drain import NODES, finite_run  # few questions need it

    slots = np.maximum(np.floor(batch + 1e-9), 1.0)
    sizes, rounds = np.ones((NODES, batch.size)), np.zeros((NODES, batch.size))
    scale, in_step = np.ones(batch.size), np.zeros(batch.size, dtype=np.bool_)
    alike: dict[tuple[int, float, float], list[int]] = {}
    for i, of_slots, count in zip(rows.tolist(), slots[rows], points.requests[rows], strict=True):
        alike.setdefault((id(points.lives[i]), of_slots, count), []).append(i)
    for (_, of_slots, count), own in alike.items():
        run = finite_run(points.lives[own[0]], int(of_slots), int(count))
        sizes[:, own] = np.array(run.batch)[:, None]
        rounds[:, own] = np.array(run.rounds)[:, None]
        in_step[own], scale[own] = run.in_step, run.drawn
    scale = np.where(points.rounds > 0, scale / np.maximum(points.rounds, 1e-12), 1.0)
    times = _round(cost, points, sizes, decoding=sizes).round_s
    requests = np.where(np.isfinite(points.requests), points.requests, 1.0)
    start = np.minimum(slots, requests)
    burst = prefill_step_s(cost, points, batch, start)
    steps = np.maximum(1.0, start * points.input_new / points.chunk)
    met = burst * (1.0 + 1.0 / steps) / 2.0  # what a prompt of the burst waits for on average
    share = np.where(in_step, 1.0, start / requests)
    each = share * burst / start + (1.0 - share) * prefill
    rounds[-1] += points.lag * requests / start
    total = (rounds * times).sum(axis=0) + requests * each
    busy = (rounds * sizes * times).sum(axis=0) / np.maximum((rounds * sizes).sum(axis=0), 1e-12)
    stalls = (1.0 - share) * (slots - 1.0) * prefill + share * (burst - met)
    tpot = (points.rounds * busy + stalls) / np.maximum(points.output - 1.0, 1.0)
    generations = np.maximum(requests / start - 1.0, 0.0)
    queue = np.maximum(points.clients - slots, 0.0) / requests * total / 2.0 * generations
    ttft = share * np.maximum(met, first) + (1.0 - share) * first + queue
    return points.output * requests * scale / np.maximum(total, 1e-12), tpot, ttft


def _cap(points: Points) -> Floats:
    """Most requests that run at once."""
    return np.minimum(points.running_cap, points.pool_cap)


def _round(
    cost: CostModel, points: Points, batch: Floats, decoding: Floats | None = None
) -> RoundTime:
    """Round at the mean context; steady decode at the middle of its window.

    `decoding` are the requests in it, if not the share of the batch that is past its prompt.
    """
    # any number of sizes per point; a round that runs has at least one request, however rarely
    share = decoding_share(points, batch) if decoding is None else 1.0
    batch = np.maximum(batch * share, 1.0)
    whole = np.floor(batch + 1e-9)
    padded, eager = np.empty_like(batch), np.zeros(batch.shape, dtype=np.bool_)
    for plan, rows in points.plans:
        own = (..., rows)
        padded[own], eager[own] = padded_batch(plan, whole[own])
        if plan.prefill == "mixed":  # prompts are in it or not: between two sizes
            more = padded_batch(plan, whole[own] + 1.0)[0]
            padded[own] += (batch[own] - whole[own]) * (more - padded[own])
    context = points.context
    for _ in range(3 if points.window_s.any() else 1):
        time = round_time(
            cost,
            batch,
            points.width,
            read_once(batch * context, batch, points.shared),
            topk=points.draft_rows,
            draft_forwards=points.forwards,
            extend_tokens=batch * np.where(eager, points.extend_eager, points.extend),
            timeline=points.timeline,
            padded=padded,
            eager=eager,
            draft_share=points.draft_share,
            loaded=points.speculates,
            committed=points.accept,
        )
        grown = points.window_s * points.accept / time.round_s
        context = points.context + np.where(points.steady, grown / 2.0, 0.0)
    return time


def _evaluate(
    cost: CostModel, points: Points, batch: Floats
) -> tuple[RoundTime, Floats, Floats, Floats]:
    """Round, output_tps, cycle and prefill time per request at a given batch."""
    time = _round(cost, points, batch)
    prefill = prefill_per_request(cost, points, batch)
    cycle = _cycle(points, batch, time.round_s, prefill)
    return time, _output(points, batch, time.round_s, prefill), cycle, prefill


def _cycle(points: Points, batch: Floats, round_s: Floats, prefill: Floats) -> Floats:
    rounds = points.rounds + points.lag + joined_rounds(points, batch)
    return np.where(points.steady, round_s, rounds * round_s + batch * prefill)


def _output(points: Points, batch: Floats, round_s: Floats, prefill: Floats) -> Floats:
    closed = points.output * batch / _cycle(points, batch, round_s, prefill)
    return np.where(points.steady, batch * points.accept / round_s, closed)


def _first_token_s(
    cost: CostModel, points: Points, batch: Floats, time: RoundTime, prefill: Floats
) -> Floats:
    """Prefill of the prompts that share a step with a request, and the rounds it joins or awaits.

    Each of these rounds holds the prompts that take the place of those that ended.
    """
    decoding = batch * decoding_share(points, batch)
    together = 1.0 + np.maximum(decoding - 1.0, 0.0) * end_probability(points)
    step_s = prefill_step_s(cost, points, batch, together)
    joined = joined_rounds(points, batch)
    stalls = joined * decoding * end_probability(points) * prefill
    return np.maximum(step_s, stalls) + joined * time.round_s


def _limits(
    points: Points, batch: Floats, time: RoundTime, keeps_up: Flags, prefill: Floats
) -> tuple[Limit, ...]:
    """Name the term whose halving (for caps: doubling) would raise the output most.

    Where the server `keeps_up` with what arrives, that is the load itself.
    """
    verify = time.target_s - time.allreduce_s
    drafting = time.draft_s + time.tree_s + time.overhead_s

    def tps(v: float, d: float, a: float, f: float, h: float) -> Floats:
        length = compose_s(
            points.timeline,
            verify * v + time.allreduce_s * a + drafting * d,
            time.extend_s * d,
            time.host_s * h,
        )
        return _output(points, batch, length, prefill * f)

    halved = [tps(*np.where(np.arange(5) == term, 0.5, 1.0).tolist()) for term in range(5)]
    which = np.argmax(halved, axis=0)
    capped = points.clients > batch + 0.5
    result: list[Limit] = []
    for i, index in enumerate(which):
        if keeps_up[i]:
            result.append("client")
        elif capped[i]:
            result.append("cap" if points.running_cap[i] <= points.pool_cap[i] else "kv")
        else:
            result.append(TERMS[int(index)])
    return tuple(result)
