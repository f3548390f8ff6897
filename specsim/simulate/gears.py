"""Running with a policy: which setting each round is priced and drawn with.

All settings of a policy are gears of one server: it keeps the drafter loaded, and reserves KV
slots and admits requests as its largest setting needs (SGLang 0.5.23 sizes its buffers by the
largest candidate, ``spec_info.py:281-289``). A gear without drafts is priced by ZERO-STEPS.

When the gear changes, a running request keeps what it has, and from the next round on emits what
its own uniform numbers give under the new setting; so two policies see the same luck.

Captured graphs: SGLang captures every number of steps at the batch sizes whose tier lists it,
vLLM every K of its table; both padded as the plan says, past the largest size eager. Steps that
are left out of `captured` have no graph at all and run eager. The memory of the further graphs is
outside the KV pool and not modelled.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from specsim.acceptance import Acceptance, AcceptTable, accept_table
from specsim.cost import CostModel
from specsim.engine import RunPlan, with_draft_share
from specsim.setting import SpecSetting
from specsim.simulate.policy import NEVER, Policy
from specsim.simulate.pricing import RoundPricer

if TYPE_CHECKING:
    from specsim.simulate.server import Server


@dataclass(frozen=True, slots=True)
class Gear:
    """One setting of a policy: how its rounds run, and what they buy."""

    plan: RunPlan
    table: AcceptTable


@dataclass(frozen=True, slots=True)
class Adaptation:
    """A policy and the settings that it chooses among.

    Parameters
    ----------
    policy
        Draft steps by running batch.
    gears
        For each of `policy.steps`, in their order.
    head
        The plan that the server is launched with: the largest setting, its caps and reserves.
    """

    policy: Policy
    gears: tuple[Gear, ...]
    head: RunPlan

    @classmethod
    def of(
        cls,
        policy: Policy,
        plan_of: Callable[[int], RunPlan],
        acceptance: Acceptance,
        captured: Collection[int] | None = None,
    ) -> Adaptation:
        """Plan every number of steps of a policy.

        Parameters
        ----------
        policy
            What is run.
        plan_of
            Plan of a chain of so many steps, at least 1, all under one scheduler and cap.
        acceptance
            Of the drafter.
        captured
            Steps that have CUDA graphs; None is all of them.
        """
        head = plan_of(max(1, *policy.steps))
        gears = []
        for steps in policy.steps:
            plan = plan_of(steps) if steps else idle_plan(head)
            plan = replace(
                plan,
                alloc_tokens=head.alloc_tokens,
                reserved_tokens_per_request=head.reserved_tokens_per_request,
                graph_batch_sizes=_captured_sizes(policy, plan, steps, captured),
            )
            table = accept_table(acceptance, plan.setting)
            gears.append(Gear(with_draft_share(plan, table.draft_share), table))
        return cls(policy, tuple(gears), head)


def idle_plan(head: RunPlan) -> RunPlan:
    """Return the plan of rounds without drafts on a server that has its drafter loaded (K = 0)."""
    none = SpecSetting.none(head.setting.scheduler)
    return replace(head, setting=none, draft_extend="verify")


def _captured_sizes(
    policy: Policy, plan: RunPlan, steps: int, captured: Collection[int] | None
) -> tuple[int, ...]:
    if captured is not None and steps not in captured:
        return ()
    if not policy.padded:
        return plan.graph_batch_sizes
    tiers = policy.tiers
    sizes = plan.graph_batch_sizes
    return tuple(b for b in sizes if steps in tiers[policy.tier_of(b)].steps)


class Gearbox:
    """The state of a policy while a server runs.

    Attributes
    ----------
    gear
        Index of the gear that rounds run with.
    horizon
        Rounds until the policy may change its mind although the batch does not.
    switches
        Changes of the gear so far.
    """

    def __init__(self, cost: CostModel, adaptation: Adaptation, most: int) -> None:
        self.policy, self.gears = adaptation.policy, adaptation.gears
        self.pricers = tuple(
            RoundPricer.of(cost, gear.plan, gear.table.accept_length, most) for gear in self.gears
        )
        self.horizon, self.switches = NEVER, 0
        self._index = {steps: i for i, steps in enumerate(self.policy.steps)}
        self._sizes = adaptation.head.graph_batch_sizes if self.policy.padded else ()
        self._follows = any(len(tier.steps) > 1 for tier in self.policy.tiers)
        self._standing = self.policy.start()
        self.gear = self._index[self._standing.steps]

    @property
    def pricer(self) -> RoundPricer:
        """What the next round is priced with."""
        return self.pricers[self.gear]

    def choose(self, server: Server) -> float:
        """Choose the gear of the next round, and return what changing to it takes, seconds."""
        batch = self._looked_up(len(server.batch))
        self._standing = self.policy.route(self._standing, batch, server.round)
        if self._follows or self.policy.dwell_rounds:
            self.horizon = self.policy.rounds_to_decision(self._standing, batch, server.round)
        gear = self._index[self._standing.steps]
        if gear == self.gear:
            return 0.0
        self.gear = gear
        self._refit(server)
        if server.round == 0:
            return 0.0
        self.switches += 1
        return self.policy.switch_s

    def observe(self, server: Server, rounds: int) -> None:
        """Show the policy how many drafts were accepted in the last rounds."""
        if not self._follows:
            return
        first, last = server.round - rounds, server.round
        total, requests = np.zeros(rounds), np.zeros(rounds)
        for request in server.batch:
            life = server.lives[request]
            active = min(last, life.first_round + life.rounds) - first  # not while it lags
            if active > 0:
                at = life.offset + first - life.first_round
                total[:active] += server.demand.tokens[request][at : at + active]
                requests[:active] += 1
        accepted = (total / np.maximum(requests, 1.0) - 1.0).clip(0.0)
        self._standing = self.policy.observe(self._standing, accepted.tolist())

    def fit(self, server: Server, request: int) -> None:
        """Let a request that is about to decode emit what the current gear gives."""
        life, demand = server.lives[request], server.demand
        if demand.gear[request] != self.gear:
            need = demand.output_len[request] - life.given
            left = demand.change_gear(request, self.gear, life.offset, need)
            demand.rounds[request] = life.offset + left

    def _looked_up(self, batch: int) -> int:
        """Return the captured size that a batch is padded to, where the policy goes by it."""
        at = int(np.searchsorted(self._sizes, batch)) if self._sizes else 0
        return self._sizes[at] if at < len(self._sizes) else batch

    def _refit(self, server: Server) -> None:
        """Change the course of all running requests from this round on."""
        lag, now = server.plan.finish_lag_rounds, server.round
        ends = []
        for request in server.batch:
            life, demand = server.lives[request], server.demand
            done, end = now - life.first_round, life.first_round + life.rounds
            if now < end:
                server.add_course(request, now, end, -1, done)
                at = life.offset + done
                emitted = int(demand.tokens[request][life.offset : at].sum())
                need = demand.output_len[request] - life.given - emitted
                left = demand.change_gear(request, self.gear, at, need)
                life.rounds, end = done + left, now + left
                server.lengthen(end + lag)
                server.add_course(request, now, end, 1, done)
            ends.append((end + lag, request))
        heapq.heapify(ends)
        server.ends = ends
