"""What a policy chooses among: its settings as gears of one server.

The server keeps the drafter loaded, and reserves KV slots and admits requests as the largest
setting needs (SGLang 0.5.23 sizes its buffers by the largest candidate, ``spec_info.py:281-289``).
A gear without drafts is priced by ZERO-STEPS.

When the gear changes, a running request keeps what it has, and from the next round on emits what
its own uniform numbers give under the new setting; so two policies see the same luck.

Captured graphs: SGLang captures every number of steps at the batch sizes whose tier lists it,
vLLM every K of its table; both padded as the plan says, past the largest size eager. Steps that
are left out of `captured` have no graph at all and run eager. The memory of the further graphs is
outside the KV pool and not modelled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from specsim.acceptance import Acceptance, AcceptTable, accept_table
from specsim.engine import RunPlan, with_draft_share
from specsim.simulate.policy import Policy


@dataclass(frozen=True, slots=True)
class Gear:
    """One setting of a policy: how its rounds run, and what they buy."""

    plan: RunPlan
    table: AcceptTable


@dataclass(frozen=True, slots=True)
class Adaptation:
    """A policy and the settings that it chooses among."""

    policy: Policy
    gears: tuple[Gear, ...]  # for each of `policy.steps`, in their order
    head: RunPlan  # what the server is launched with: the largest setting, its caps and reserves

    @classmethod
    def of(
        cls,
        policy: Policy,
        plan_of: Callable[[int], RunPlan],
        acceptance: Acceptance,
        captured: Collection[int] | None = None,
    ) -> Adaptation:
        """Plan every number of steps of a policy.

        `plan_of` plans a chain of so many steps, at least 1, all under one scheduler and cap;
        `captured` are the steps that have CUDA graphs, None for all of them.
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
    return replace(head, setting=replace(head.setting, topk=1, num_steps=0, num_draft_tokens=1))


def _captured_sizes(
    policy: Policy, plan: RunPlan, steps: int, captured: Collection[int] | None
) -> tuple[int, ...]:
    if captured is not None and steps not in captured:
        return ()
    sizes = plan.graph_batch_sizes
    if not policy.padded:
        return sizes
    return tuple(b for b in sizes if steps in policy.tiers[policy.tier_of(b)].steps)


class GearChoice:
    """Which gear a policy is in; knows batches and rounds, and nothing of the server."""

    def __init__(self, adaptation: Adaptation) -> None:
        self.policy = adaptation.policy
        self.follows = any(len(tier.steps) > 1 for tier in self.policy.tiers)  # the acceptance
        self._steps = self.policy.steps
        self._sizes = adaptation.head.graph_batch_sizes if self.policy.padded else ()
        self._standing = self.policy.start()

    @property
    def gear(self) -> int:
        """Index of the gear of the next round."""
        return self._steps.index(self._standing.steps)

    @property
    def horizon(self) -> int:
        """Rounds until it may change its mind although the batch does not."""
        return self.policy.rounds_to_decision(self._standing)

    def look(self, batch: int) -> None:
        """Choose for a round with so many running requests."""
        at = bisect_left(self._sizes, batch)
        padded = self._sizes[at] if at < len(self._sizes) else batch
        self._standing = self.policy.route(self._standing, padded)

    def observe(self, accepted: Sequence[float]) -> None:
        """See how many drafts the last rounds accepted per request."""
        self._standing = self.policy.observe(self._standing, accepted)
