"""Adaptive speculation: which number of draft steps a round runs with, as the engines decide it.

A policy is a table by running batch. A tier holds one number of steps, or several among which it
follows the acceptance as SGLang does (0.5.23 ``adaptive_spec_params.py:150-260``):

    ema <- (1 - a) ema + a (accepted drafts per request of the round)                      (EMA)
    down while ema <= below - 1/2 + down  (below 0 steps: <= 1/2 + down), else up while
    ema > steps - 1/2 + up; looked at every `interval` rounds after `warmup`; from 0 steps always
    up to the smallest, a probe

Everything here is a value: `Policy.start` gives the first standing, `route` and `observe` the
next. SGLang feeds the average when it processes a round's results, a round later under overlap;
that round is left out here.

Evidence: SGLang 0.5.23 and vLLM 0.33.0 as read. Both swap prepared graphs and attention backends
on the host when the steps change (``eagle_worker_v2.py:1862-1908``: assignments, a log line and a
small buffer), so that a change takes no time: assumed, nobody published a measurement.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specsim.engine.sglang import NEWEST, adaptive_table
from specsim.errors import InputError
from specsim.textfile import shown

NEVER = 2**62
"""Rounds until a decision that does not come."""


@dataclass(frozen=True, slots=True)
class Follow:
    """How a tier with several numbers of steps follows the acceptance (EMA)."""

    alpha: float = 0.2  # weight of the newest round
    warmup: int = 10  # rounds before the first look
    interval: int = 5  # rounds from one look to the next
    up: float = 0.0  # added to the thresholds, drafts
    down: float = -0.25

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise InputError(f"alpha {self.alpha}", "must lie in 0..1", "SGLang's is 0.2")
        if self.warmup < 0 or self.interval < 1:
            raise InputError(
                f"warmup {self.warmup}, interval {self.interval}",
                "must be at least 0 and 1",
                "SGLang's are 10 and 5",
            )


@dataclass(frozen=True, slots=True)
class Tier:
    """What runs from `first_batch` running requests on."""

    first_batch: int  # entered from below at this batch
    steps: tuple[int, ...]  # numbers of draft steps; several are chosen among by `follow`
    follow: Follow = Follow()
    leave_below: int | None = None  # left downward only below this batch; None: no hysteresis

    def __post_init__(self) -> None:
        if not self.steps or min(self.steps) < 0 or max(self.steps) > 64:
            raise InputError(
                f"candidate steps {list(self.steps)}", "must be whole numbers 0..64", "e.g. [3]"
            )
        object.__setattr__(self, "steps", tuple(sorted(set(self.steps))))
        if self.leave_below is not None and not 0 < self.leave_below <= self.first_batch:
            raise InputError(
                f"leave below {self.leave_below}",
                f"must lie in 1..{self.first_batch}, where the tier begins",
                "leave it out for no hysteresis",
            )


@dataclass(frozen=True, slots=True)
class Slot:
    """What a tier remembers: its steps, the moving average, rounds seen."""

    steps: int
    ema: float
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """State of a policy: the tier it is in, and what each tier remembers."""

    tier: int
    slots: tuple[Slot, ...]

    @property
    def steps(self) -> int:
        """Draft steps that it runs with."""
        return self.slots[self.tier].steps


@dataclass(frozen=True, slots=True)
class Policy:
    """Draft steps by running batch."""

    name: str
    tiers: tuple[Tier, ...]  # in rising order of `first_batch`; the first begins at 1
    # where a tier that has it among its candidates begins; else in the middle, as SGLang does
    initial_steps: int | None = None
    padded: bool = False  # whether the batch is looked up as the captured size it is padded to

    def __post_init__(self) -> None:
        firsts = [tier.first_batch for tier in self.tiers]
        if not firsts or firsts[0] != 1 or firsts != sorted(set(firsts)):
            raise InputError(
                f"tiers from {firsts}", "must begin at 1 and rise", "give batches, e.g. 1, 8, 32"
            )

    @property
    def steps(self) -> tuple[int, ...]:
        """All numbers of steps that may run, rising."""
        return tuple(sorted({s for tier in self.tiers for s in tier.steps}))

    def tier_of(self, batch: int) -> int:
        """Return the tier of a batch, hysteresis left out."""
        return max(i for i, tier in enumerate(self.tiers) if tier.first_batch <= max(batch, 1))

    def start(self) -> Standing:
        """Return the state before the first round: the tier of one request."""
        slots = []
        for tier in self.tiers:
            steps = tier.steps[len(tier.steps) // 2]
            if self.initial_steps in tier.steps:
                steps = int(self.initial_steps or 0)
            slots.append(Slot(steps, float(steps - 1)))
        return Standing(0, tuple(slots))

    def route(self, standing: Standing, batch: int) -> Standing:
        """Return the state in which a round runs with so many requests.

        If `padded`, the batch is the captured size that they are padded to.
        """
        wanted = self.tier_of(batch)
        while wanted < standing.tier:
            above = self.tiers[wanted + 1]
            if batch < (above.leave_below or above.first_batch):
                break
            wanted += 1
        return replace(standing, tier=wanted)

    def rounds_to_decision(self, standing: Standing) -> int:
        """Count the rounds that surely run unchanged while the batch stays as it is, at least 1."""
        tier, slot = self.tiers[standing.tier], standing.slots[standing.tier]
        if len(tier.steps) == 1:
            return NEVER
        beyond = slot.rounds - tier.follow.warmup
        return tier.follow.interval - (beyond if beyond < 0 else beyond % tier.follow.interval)

    def observe(self, standing: Standing, accepted: Sequence[float]) -> Standing:
        """Return the state after rounds that accepted so many drafts per request on average."""
        tier = self.tiers[standing.tier]
        if len(tier.steps) == 1:
            return standing
        slot = standing.slots[standing.tier]
        for drafts in accepted:
            slot = _after(tier, slot, drafts)
        slots = list(standing.slots)
        slots[standing.tier] = slot
        return replace(standing, slots=tuple(slots))


def _after(tier: Tier, slot: Slot, drafts: float) -> Slot:
    """Take one round into the moving average, and look at the steps when it is time (EMA)."""
    follow = tier.follow
    ema = slot.ema
    if slot.steps > 0:
        ema = (1.0 - follow.alpha) * ema + follow.alpha * drafts
    slot = Slot(slot.steps, ema, slot.rounds + 1)
    beyond = slot.rounds - follow.warmup
    if beyond <= 0 or beyond % follow.interval:
        return slot
    return _looked_at(tier, slot)


def _looked_at(tier: Tier, slot: Slot) -> Slot:
    """Choose the steps from the average, as SGLang's ``_recompute_params`` does."""
    candidates, at, ema = tier.steps, tier.steps.index(slot.steps), slot.ema
    if slot.steps == 0:
        at = min(at + 1, len(candidates) - 1)
        if candidates[at] > 0 and ema < 0:
            ema = float(candidates[at] - 1)
        return Slot(candidates[at], ema, slot.rounds)
    before = at
    while at > 0:
        below = candidates[at - 1]
        threshold = (0.5 if below == 0 else below - 0.5) + tier.follow.down
        if ema > threshold:
            break
        at -= 1
    if at == before:
        while at < len(candidates) - 1 and ema > candidates[at] - 0.5 + tier.follow.up:
            at += 1
    return Slot(candidates[at], ema, slot.rounds)


def fixed(steps: int) -> Policy:
    """One number of steps whatever the batch."""
    return Policy(f"always {steps} steps", (Tier(1, (steps,)),))


def by_batch(table: Mapping[int, int], padded: bool = False, name: str = "by batch") -> Policy:
    """One number of steps from each batch on.

    >>> by_batch({1: 3, 8: 1, 32: 0}).steps
    (0, 1, 3)
    """
    tiers = tuple(Tier(batch, (steps,)) for batch, steps in sorted(table.items()))
    return Policy(name, tiers, padded=padded)


def on_off(steps: int, off_above: int, on_below: int) -> Policy:
    """Draft `steps` up to `off_above` running requests, and again once fewer than `on_below` run.

    Raises :class:`InputError` if `on_below` exceeds `off_above` + 1.
    """
    return Policy(
        f"{steps} steps to {off_above} running, again below {on_below}",
        (Tier(1, (steps,)), Tier(off_above + 1, (0,), leave_below=on_below)),
    )


# --- as the engines ship and read them


def vllm_ranges(ranges: Sequence[tuple[int, int, int]]) -> Policy:
    """Return the policy of vLLM's ``num_speculative_tokens_per_batch_size``: (first, last, K).

    Gaps keep the K before them (0.33.0 ``v1/spec_decode/dynamic/utils.py``). Raises
    :class:`InputError` if a range is empty, overlaps another, or the first does not begin at 1.
    """
    end, table = 0, {}
    for first, last, steps in sorted(ranges):
        if first > last or first <= end:
            raise InputError(
                f"range {first}..{last}", "is empty or overlaps", "give (first, last, K) in order"
            )
        end, table[first] = last, steps
    return by_batch(table, name="num_speculative_tokens_per_batch_size")


def sglang_default(version: str = NEWEST) -> Policy:
    """Return SGLang's own adaptive table in a release.

    Its servers begin with the middle one of all candidates unless told otherwise.
    """
    eager, calm = Follow(down=-0.25), Follow(down=0.0)
    table = adaptive_table(version)
    tiers = tuple(Tier(b, steps, eager if b == 1 else calm) for b, steps in table.items())
    return Policy("SGLang's default table", tiers, initial_steps=3, padded=True)


def sglang_table(text: str | Mapping[str, Any]) -> Policy:
    """Return the policy of a ``--speculative-adaptive-config`` file's content.

    Keys that are whole numbers are batches; other keys are defaults of all of them. Batches below
    the first one take the first, as SGLang routes them. Raises :class:`InputError` if there is no
    batch, a value is not as SGLang wants it, or it caps by `ceiling_coeff`, which is not modelled.
    """
    try:
        content = json.loads(text) if isinstance(text, str) else dict(text)
        defaults = {key: value for key, value in content.items() if not key.isdigit()}
        batches = sorted((key for key in content if key.isdigit()), key=int)
        tiers = [_tier(int(key), {**defaults, **content[key]}) for key in batches]
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            "adaptive table", f"cannot be read ({error})", 'write {"1": {"candidate_steps": [3]}}'
        ) from None
    if tiers:
        tiers[0] = replace(tiers[0], first_batch=1)
    union = sorted({steps for tier in tiers for steps in tier.steps})
    middle = union[len(union) // 2] if union else None
    return Policy("adaptive table", tuple(tiers), initial_steps=middle, padded=True)


def parse_table(text: str) -> Policy:
    """Read a table that a server runs: ``1:3,17:2,65:0``, or as vLLM or SGLang are given it.

    Raises :class:`InputError` if it is none of them.

    >>> parse_table("1:3,17:0") == parse_table("[[1, 16, 3], [17, 256, 0]]")
    True
    """
    policy = sglang_table(text) if text.lstrip().startswith("{") else None
    try:
        if text.lstrip().startswith("["):
            policy = vllm_ranges([(int(a), int(b), int(k)) for a, b, k in json.loads(text)])
        pairs = (row.split(":") for row in text.split(","))
        policy = policy or by_batch({int(batch): int(steps) for batch, steps in pairs})
    except (ValueError, TypeError, RecursionError):
        raise InputError(
            f"table {shown(text)}",
            "is no table of draft steps by running requests",
            "write 1:3,17:2,65:0, or vLLM's [[1, 16, 3], [17, 64, 2]], or SGLang's JSON",
        ) from None
    return replace(policy, name="given table")


def _tier(batch: int, entry: Mapping[str, Any]) -> Tier:
    if float(entry.get("ceiling_coeff", 0)) > 0:
        raise InputError(
            f"ceiling_coeff {entry['ceiling_coeff']}", "is not modelled", "leave it out, or 0"
        )
    follow = Follow(
        float(entry.get("ema_alpha", 0.2)),
        int(entry.get("warmup_batches", 10)),
        int(entry.get("update_interval", 5)),
        float(entry.get("up_hysteresis", 0.0)),
        float(entry.get("down_hysteresis", -0.25)),
    )
    return Tier(batch, tuple(int(steps) for steps in entry["candidate_steps"]), follow)
