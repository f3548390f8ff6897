"""Points for the solvers: how the engine runs a setting, what a round buys, and the load.

Cases of one setting differ only in their load, so as arrays what belongs to the setting is worked
out once and spread over its rows; that is what makes large grids cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.acceptance import FEW_TOKENS, AcceptTable
from specsim.cost.rounds import OVERLAP, RUN_AHEAD, SEQUENTIAL
from specsim.engine import RunPlan, with_draft_share
from specsim.server.system import System
from specsim.workload import Lengths, Load, Workload

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats, Ints

TIMELINES = {"sequential": SEQUENTIAL, "overlap": OVERLAP, "run_ahead": RUN_AHEAD}
"""The engine's timelines as the cost module numbers them."""


@dataclass(frozen=True, slots=True)
class Case:
    """One point to solve: how the engine runs it, what a round buys, and the load."""

    plan: RunPlan  # setting and engine rules
    table: AcceptTable  # distribution of accepted tokens
    workload: Workload
    load: Load
    request_kv_tokens: float  # that a mean running request holds
    pool_tokens: float  # KV tokens that all ranks have

    @classmethod
    def of(
        cls, system: System, plan: RunPlan, table: AcceptTable, workload: Workload, load: Load
    ) -> Case:
        """Fill in what the KV pool allows.

        Long answers stay longer, so the running requests' mean output is the length-biased one.
        """
        if table.draft_share != plan.draft_share:
            plan = with_draft_share(plan, table.draft_share)
        if plan.prefill == "elsewhere":
            workload = replace(workload, input_cached=workload.input_len.mean)
        context = workload.input_len.mean
        output = workload.output_len.mean * (1.0 + workload.output_len.spread**2)
        if load.kind == "steady_decode":
            context, output = load.context_len or 0.0, 0.0
        shared = min(workload.shared_prefix_len, context)
        need = system.kv_tokens_per_request(plan, context - shared, output)
        pool = max(1.0, system.kv_pool_tokens(plan) - shared)
        return cls(plan, table, workload, load, need, pool)

    @property
    def fitting(self) -> int:
        """Mean requests that run at once, if there are as many: at least one."""
        fit = max(1, int(self.pool_tokens / max(self.request_kv_tokens, 1.0)))
        return min(self.plan.running_cap, fit)

    @property
    def decoding(self) -> int:
        """Most requests that decode while prompts join them, see :func:`most_decoding`."""
        plan, work = self.plan, self.workload
        if plan.prefill != "mixed":
            return plan.running_cap
        new = max(work.input_len.mean - work.input_cached, 1.0)
        rounds = _mean_rounds(self) + plan.finish_lag_rounds
        most = most_decoding(plan.chunked_prefill_size, new, rounds, plan.verified_per_request)
        return min(plan.running_cap, max(int(most), 1))

    def at(self, load: Load) -> Case:
        """Return the same case under another load of the same kind and context."""
        need, pool = self.request_kv_tokens, self.pool_tokens
        return Case(self.plan, self.table, self.workload, load, need, pool)


def most_decoding(budget: Any, prompt: Any, rounds: Any, width: Any) -> Any:
    """D: requests that decode where every step's `budget` of tokens is full (BUDGET).

    A round then holds `width` tokens of each and the prompts, of `prompt` tokens, of those that
    take the place of the D / `rounds` that end.

    >>> round(float(most_decoding(8192, 2048, 64, 1)), 2)
    248.24
    """
    return budget / (prompt / np.maximum(rounds, 1e-9) + width)


ENDLESS = 1e9
"""Clients that stand for a queue that never empties."""

LENGTHS = 16
"""Equally likely answer lengths that a run of a known number of requests is played with."""


@dataclass(frozen=True, slots=True)
class Points:
    """Cases as arrays of one length, and their plans with the rows that each runs."""

    width: Floats
    draft_share: Floats
    draft_rows: Floats  # tokens of a request in a forward of the drafter
    forwards: Floats
    timeline: Ints
    speculates: Flags
    extend: Floats  # tokens per request in the draft extend
    extend_eager: Floats  # the same past the largest captured size
    accept: Floats
    rounds: Floats  # rounds per request, lag excluded
    single: Floats  # share of the answers that leave with a prefill step, if not all do
    lag: Floats
    running_cap: Floats
    pool_cap: Floats
    clients: Floats
    input_new: Floats
    input_len: Floats
    output: Floats
    input_cv: Floats
    output_cv: Floats
    context: Floats  # mean KV tokens of a running request
    shared: Floats  # of them, those that all requests have in common
    chunk: Floats
    mixed: Flags
    steady: Flags
    open_rate: Floats
    window_s: Floats
    requests: Floats  # NaN: steady state
    lives: tuple[tuple[float, ...], ...]  # rounds of a request, equally likely; () where none end
    plans: tuple[tuple[RunPlan, Ints], ...]

    def taken(self, rows: Ints) -> Points:
        """Return some of the points, in that order, each as often as it is named."""
        plan_of_row = np.empty(self.width.size, dtype=np.int64)
        for k, (_, own) in enumerate(self.plans):
            plan_of_row[own] = k
        arrays = {
            f.name: value[rows]
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), np.ndarray)
        }
        lives = tuple(self.lives[i] for i in rows.tolist()) if self.lives else ()
        plans = _rows_of_plans([plan for plan, _ in self.plans], plan_of_row[rows])
        return replace(self, **arrays, lives=lives, plans=plans)


def points_of(cases: Sequence[Case], loads: Sequence[Load] = ()) -> Points:
    """Collect cases into arrays: each at its load, or at all of `loads`, if there are any, in turn.

    >>> points_of([]).width.size
    0
    """
    if loads:
        unlike, count = cases, len(loads)
        place, at = np.divmod(np.arange(len(cases) * count), count)
    else:
        kinds: dict[tuple[int, int, int, float, float], int] = {}
        found: dict[int, int] = {}
        ids = [(id(c.plan), id(c.table), id(c.workload)) for c in cases]
        keys = [(*i, c.request_kv_tokens, c.pool_tokens) for i, c in zip(ids, cases, strict=True)]
        of_kind = [kinds.setdefault(key, len(kinds)) for key in keys]
        of_load = [found.setdefault(id(c.load), len(found)) for c in cases]
        place, at = np.array(of_kind, np.int64), np.array(of_load, np.int64)
        unlike = [cases[i] for i in np.unique(place, return_index=True)[1]]
        loads = [cases[i].load for i in np.unique(at, return_index=True)[1]]

    def of_case(value: Callable[[Case], float]) -> Floats:
        return np.array([value(c) for c in unlike], np.float64)[place]

    def under(value: Callable[[Load], float]) -> Floats:
        return np.array([value(load) for load in loads], np.float64)[at]

    steady = under(lambda load: load.kind == "steady_decode").astype(np.bool_)
    requests = under(lambda load: load.num_requests or np.nan)
    output = of_case(lambda c: c.workload.output_len.mean)
    output_cv = of_case(lambda c: c.workload.output_len.spread)
    input_len = of_case(lambda c: max(1.0, c.workload.input_len.mean))
    context = np.where(
        steady,
        under(lambda load: load.context_len or 0.0),
        input_len + output * (1 + output_cv**2) / 2,
    )
    pool_cap = of_case(lambda c: c.pool_tokens / max(c.request_kv_tokens, 1.0))
    return Points(
        width=of_case(lambda c: c.plan.verified_per_request),
        draft_share=of_case(lambda c: c.plan.draft_share),
        draft_rows=of_case(lambda c: c.plan.draft_rows),
        forwards=of_case(lambda c: c.plan.draft_forwards),
        timeline=of_case(lambda c: TIMELINES[c.plan.timeline]).astype(np.int64),
        speculates=of_case(lambda c: c.plan.setting.speculates).astype(np.bool_),
        extend=of_case(lambda c: c.plan.extend_tokens_per_request(c.table.accept_length)),
        extend_eager=of_case(
            lambda c: c.plan.extend_tokens_per_request(c.table.accept_length, True)
        ),
        accept=of_case(lambda c: c.table.accept_length),
        rounds=of_case(_mean_rounds),
        single=of_case(_single_token),
        lag=of_case(lambda c: c.plan.finish_lag_rounds),
        running_cap=of_case(lambda c: c.plan.running_cap),
        pool_cap=_admitted(pool_cap, output_cv, steady),
        # clients that never send a request are none; an open loop has as many as arrive
        clients=np.fmin(
            under(lambda x: ENDLESS if x.kind == "open_loop" else x.concurrency), requests
        ),
        # of a prompt that the cache holds, its last token
        input_new=np.maximum(input_len - of_case(lambda c: c.workload.input_cached), 1.0),
        input_len=input_len,
        output=output,
        input_cv=of_case(lambda c: c.workload.input_len.spread),
        output_cv=output_cv,
        context=context,
        shared=of_case(lambda c: c.workload.shared_prefix_len),
        chunk=of_case(lambda c: c.plan.chunked_prefill_size),
        mixed=of_case(lambda c: c.plan.prefill != "first").astype(np.bool_),
        steady=steady,
        open_rate=under(lambda x: x.request_rate or np.nan if x.kind == "open_loop" else np.nan),
        window_s=under(lambda load: load.window_s or 0.0),
        requests=requests,
        lives=_lives(unlike, place, np.isfinite(requests) & ~steady),
        plans=_rows_of_plans(*_plans(unlike, place)),
    )


def _mean_rounds(case: Case) -> float:
    """Mean rounds of a request; short answers need more per token, so their spread counts."""
    lengths = case.workload.output_len
    few, many, mean = _short_and_long(lengths)
    total = sum(map(case.table.mean_rounds, few))
    if many:
        total += many * case.table.mean_rounds(mean)
    return total / (len(few) + many)


@lru_cache(maxsize=256)
def _short_and_long(lengths: Lengths) -> tuple[tuple[float, ...], int, float]:
    """Return tokens of short answers after the first, and how many are long, and their mean."""
    tokens = lengths.equally_likely(LENGTHS) - 1.0
    long = tokens > FEW_TOKENS  # where rounds are linear in the tokens
    mean = float(tokens[long].mean()) if long.any() else 0.0
    return tuple(tokens[~long].tolist()), int(long.sum()), mean


def _single_token(case: Case) -> float:
    """Share of the answers that leave with a prefill step of their own, if not all do."""
    lengths, plan = case.workload.output_len, case.plan
    if lengths.spread == 0 or plan.finish_lag_rounds > 0 or plan.prefill == "mixed":
        return 0.0
    values = lengths.equally_likely(LENGTHS)
    return float(np.mean((2.0 - values).clip(0.0))) if values[0] < 2.0 else 0.0


def _lives(unlike: Sequence[Case], place: Ints, finite: Flags) -> tuple[tuple[float, ...], ...]:
    """Return the rounds that a request may take, if the number of requests matters anywhere."""
    if not finite.any():
        return ()
    known: dict[int, tuple[float, ...]] = {}
    for kind in set(place[finite].tolist()):
        case = unlike[kind]
        lengths = case.workload.output_len.equally_likely(LENGTHS)
        rounds = [case.table.rounds_by_request(float(length) - 1.0) for length in lengths]
        known[kind] = tuple(np.round(np.sort(np.concatenate(rounds)), 3).tolist())
    return tuple(
        known[kind] if counts else ()
        for kind, counts in zip(place.tolist(), finite.tolist(), strict=True)
    )


def _plans(unlike: Sequence[Case], place: Ints) -> tuple[list[RunPlan], Ints]:
    """Return the plans, and which of them each row runs."""
    plans = {id(c.plan): c.plan for c in unlike}
    number = {key: k for k, key in enumerate(plans)}
    return list(plans.values()), np.array([number[id(c.plan)] for c in unlike], np.int64)[place]


def _rows_of_plans(plans: Sequence[RunPlan], plan_of_row: Ints) -> tuple[tuple[RunPlan, Ints], ...]:
    """Each plan with the rows that it runs."""
    order = np.argsort(plan_of_row, kind="stable")
    bounds = np.searchsorted(plan_of_row[order], np.arange(len(plans) + 1))
    return tuple((plan, order[bounds[k] : bounds[k + 1]]) for k, plan in enumerate(plans))


def _admitted(fitting: Floats, output_cv: Floats, steady: Flags) -> Floats:
    """Mean requests in a pool that `fitting` mean requests would fill.

    Whole requests only: the pool is left with half a request's room on average where lengths
    vary, with the fraction where they do not (a steep stair, so that a fit sees a slope).
    """
    whole = np.floor(fitting)
    stair = whole + (fitting - whole) ** 4
    mean = np.where(output_cv > 0, fitting - 0.5, stair)
    return np.maximum(np.where(steady, fitting, mean), 1.0)
