"""From what was logged to tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.metrics import REQUEST_DTYPE, Records
from specsim.simulate.log import Segment
from specsim.simulate.result import PREFILL_DTYPE, RETRACTION_DTYPE, ROUND_DTYPE, Deliveries
from specsim.simulate.server import Server

if TYPE_CHECKING:
    from specsim.arrays import Ints


@dataclass(frozen=True, slots=True)
class Tables:
    """All records of a run; rows as :mod:`specsim.simulate.result` has them."""

    requests: Records
    rounds: Records
    prefills: Records
    retractions: Records
    deliveries: Deliveries


def build_tables(server: Server) -> Tables:
    """Return the records of a run that has ended."""
    rounds = _round_bounds(server)
    deliveries = _deliveries(server, rounds)
    return Tables(
        _request_records(server, rounds, deliveries),
        rounds,
        np.array(server.log.prefills, dtype=PREFILL_DTYPE),
        np.array(server.log.retractions, dtype=RETRACTION_DTYPE),
        deliveries,
    )


def _round_bounds(server: Server) -> Records:
    stretches = server.log.stretches
    rounds = np.zeros(server.round, dtype=ROUND_DTYPE)
    if not stretches:
        return rounds
    counts = np.array([len(s.bounds) - 1 for s in stretches])
    rounds["start_s"] = np.concatenate([s.bounds[:-1] for s in stretches])
    rounds["end_s"] = np.concatenate([s.bounds[1:] for s in stretches])
    rounds["batch"] = np.repeat([s.batch for s in stretches], counts)
    rounds["running"] = np.repeat([s.running for s in stretches], counts)
    rounds["prefill_s"] = np.repeat([s.prefill_s for s in stretches], counts)
    rounds["gear"] = np.repeat([s.gear for s in stretches], counts)
    rounds["kv_tokens"] = server.kv[: server.round]
    return rounds


def _deliveries(server: Server, rounds: Records) -> Deliveries:
    """Lay the drawn tokens of all segments over the rounds; fills the rounds' counts in."""
    total = len(rounds)
    segments = list(server.log.segments)
    for request in server.batch:
        life = server.lives[request]
        run = min(life.rounds, total - life.first_round)
        segments.append(Segment(request, life.first_round, run, life.offset))
    segments = [s for s in segments if s.rounds > 0]
    if not segments:
        return Deliveries.none()
    request, first, count, _ = np.array(segments).T
    drawn = server.demand.tokens
    tokens = np.concatenate([drawn[s.request][s.offset : s.offset + s.rounds] for s in segments])
    result = Deliveries(request, first, count, tokens.astype(np.int64))
    last, starts = result.last_round, result.starts
    emitted = np.add.reduceat(result.tokens, starts)
    surplus = _surplus(server, segments, emitted)
    started = np.bincount(first, minlength=total + 1) - np.bincount(last + 1, minlength=total + 1)
    active = np.cumsum(started[:total])
    speculates = emitted.sum() > len(tokens)
    all_tokens = active
    if speculates:
        weights = result.tokens
        all_tokens = np.bincount(result.round_of_each(), weights, total).astype(np.int64)
    rounds["active"] = active
    rounds["accepted"] = all_tokens - active
    rounds["tokens"] = all_tokens - np.bincount(last, surplus, total).astype(np.int64)
    result.tokens[starts + count - 1] -= surplus
    return result


def _surplus(server: Server, segments: list[Segment], emitted: Ints) -> Ints:
    """Tokens that the last round of a finished request emits beyond its end, per segment."""
    lives = [server.lives[s.request] for s in segments]
    ends = [
        s.first_round == life.first_round and s.rounds == life.rounds
        for s, life in zip(segments, lives, strict=True)
    ]
    given = np.array([life.given for life in lives])
    wanted = np.array([server.demand.output_len[s.request] for s in segments])
    return np.where(ends, given + emitted - wanted, 0)


def _request_records(server: Server, rounds: Records, deliveries: Deliveries) -> Records:
    lives, demand, count = server.lives, server.demand, len(server.lives)
    table = np.zeros(count, dtype=REQUEST_DTYPE)
    table["request"] = np.arange(count)
    for name in ("arrival_s", "admitted_s", "first_token_s", "last_token_s", "finished_s"):
        table[name] = [getattr(life, name) for life in lives]
    table["input_len"] = demand.input_len[:count]
    table["output_len"] = demand.output_len[:count]
    table["retractions"] = [life.retractions for life in lives]
    table["tokens"] = _from_prefill(server)
    if len(deliveries.request):
        who = deliveries.request
        tokens = np.add.reduceat(deliveries.tokens, deliveries.starts)
        table["tokens"] += np.bincount(who, tokens, count).astype(np.int64)
        table["rounds"] = np.bincount(who, deliveries.rounds, count)
        delivered_s = rounds["end_s"][deliveries.last_round]
        np.fmax.at(table["last_token_s"], who, delivered_s)
    return table


def _from_prefill(server: Server) -> Ints:
    """Tokens of each request that its prefills brought: one each."""
    steps = np.array([life.retractions + (not life.in_progress) for life in server.lives])
    steps[[*server.queue, *(p.request for p in server.prompts)]] -= 1
    return steps
