"""One point for a solver: how the engine runs a setting, what a round buys, and the load."""

from __future__ import annotations

from dataclasses import dataclass

from specsim.acceptance import AcceptTable
from specsim.cost import OVERLAP, RUN_AHEAD, SEQUENTIAL
from specsim.engine import RunPlan, with_draft_share
from specsim.server.system import System
from specsim.workload import Load, Workload

TIMELINES = {"sequential": SEQUENTIAL, "overlap": OVERLAP, "run_ahead": RUN_AHEAD}
"""The engine's timelines as the cost module numbers them."""


@dataclass(frozen=True, slots=True)
class Case:
    """One point to solve: how the engine runs it, what a round buys, and the load.

    Parameters
    ----------
    plan
        Setting and engine rules.
    table
        Distribution of accepted tokens.
    workload, load
        Requests, and how they come.
    request_kv_tokens, pool_tokens
        KV tokens that a mean running request holds, and that all ranks have.
    """

    plan: RunPlan
    table: AcceptTable
    workload: Workload
    load: Load
    request_kv_tokens: float
    pool_tokens: float

    @classmethod
    def of(
        cls, system: System, plan: RunPlan, table: AcceptTable, workload: Workload, load: Load
    ) -> Case:
        """Fill in what the KV pool allows.

        Long answers stay longer, so the running requests' mean output is the length-biased one.
        """
        if table.draft_share != plan.draft_share:
            plan = with_draft_share(plan, table.draft_share)
        context = workload.input_len.mean
        output = workload.output_len.mean * (1.0 + workload.output_len.cv**2)
        if load.kind == "steady_decode":
            context, output = load.context_len or 0.0, 0.0
        need = system.kv_tokens_per_request(plan, context, output)
        return cls(plan, table, workload, load, need, system.kv_pool_tokens(plan))

    def at(self, load: Load) -> Case:
        """Return the same case under another load of the same kind and context."""
        return Case(
            self.plan,
            self.table,
            self.workload,
            load,
            self.request_kv_tokens,
            self.pool_tokens,
        )
