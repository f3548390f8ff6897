"""The best number of draft steps by running batch: a static table, in the engine's own syntax.

A server that speculates may switch the depth by how many requests run, down to none. With K = 0
the drafter stays loaded, and its extend and the worker's overhead are still paid for (ZERO-STEPS in
`specsim.simulate.pricing`). The table is the best at every batch in closed form; what it brings
under a load that changes, beside policies that follow the acceptance, `specsim.decide.adaptive`
simulates.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.cost import CostModel
from specsim.decide.candidates import algorithm_of, candidate_plans
from specsim.decide.outlook import Grid
from specsim.decide.recommend import Wish
from specsim.engine import RunPlan, parse_version
from specsim.errors import InputError
from specsim.profile import Profile
from specsim.setting import SpecSetting
from specsim.simulate.gears import idle_plan
from specsim.simulate.policy import Policy, by_batch
from specsim.simulate.pricing import planned_time
from specsim.workload import Load, Workload

if TYPE_CHECKING:
    from specsim.arrays import Floats

BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128, 160, 192, 256)
"""Running requests that are looked at, up to the cap."""

SWITCH_GAIN = 0.01
"""What another depth must bring to be switched to: closer ones are not told apart."""

TABLES_FROM, ZERO_FROM = "0.5.13", "0.5.18"
"""SGLang releases: tables by batch size; step 0 in them (not in 0.5.13, in 0.5.18 as read)."""

VLLM_FROM = "0.33.0"

ADAPTIVE_ALGORITHMS = ("EAGLE", "EAGLE3")


@dataclass(frozen=True, slots=True)
class Step:
    """From `batch` running requests on: draft `num_steps`.

    Parameters
    ----------
    batch, num_steps
        The row of the table.
    gain
        Decode throughput against no speculation at that batch, minus 1.
    zero_steps_gain
        The same of keeping the drafter loaded with K = 0: the price of being able to switch.
    """

    batch: int
    num_steps: int
    gain: float
    zero_steps_gain: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """A table by running batch.

    Parameters
    ----------
    engine, version
        Whose syntax.
    algorithm
        Drafting method.
    steps
        Rows in rising order of batch; the first starts at 1.
    batch_max
        Most requests that run.
    pool_lost
        Share of the KV pool's tokens that the drafter takes.
    notes
        What the engine's release cannot do.
    """

    engine: str
    version: str
    algorithm: str
    steps: tuple[Step, ...]
    batch_max: int
    pool_lost: float
    notes: tuple[str, ...]

    @property
    def policy(self) -> Policy:
        """What the simulator runs; SGLang looks a batch up as the size that it is padded to."""
        table = {step.batch: step.num_steps for step in self.steps}
        return by_batch(table, padded=self.engine == "sglang", name="best table")

    @property
    def config(self) -> str | None:
        """The table as the engine reads it, JSON; None where it has none, or drafts nothing.

        SGLang: the content of ``--speculative-adaptive-config``. vLLM: what goes into
        ``--speculative-config`` beside method and model.
        """
        most = max(step.num_steps for step in self.steps)
        if self.engine == "sglang" and most > 0:
            return self.sglang_table()
        if self.engine == "vllm" and most > 0:
            ranges = f'"num_speculative_tokens_per_batch_size": {self.vllm_table()}'
            return f'{{"num_speculative_tokens": {most}, {ranges}}}'
        return None

    def sglang_table(self) -> str:
        """Return the JSON of ``--speculative-adaptive-config``."""
        table = {str(s.batch): {"candidate_steps": [s.num_steps]} for s in self.steps}
        return json.dumps(table)

    def vllm_table(self) -> str:
        """Return the value of ``num_speculative_tokens_per_batch_size``: (first, last, K)."""
        ends = [s.batch - 1 for s in self.steps[1:]] + [self.batch_max]
        return json.dumps(
            [[s.batch, end, s.num_steps] for s, end in zip(self.steps, ends, strict=True)]
        )


def best_schedule(profile: Profile, wish: Wish | None = None) -> Schedule:
    """Choose the depth for every running batch, chains only, at the requests' mean context.

    Raises
    ------
    InputError
        If the server has no drafter.
    """
    wish = wish or Wish()
    plain, *drafts = chain_plans(profile, wish)
    algorithm = drafts[0].setting.algorithm
    workload = wish.workload or profile.setup.workload.workload
    batches, pool_lost = _batches(profile, plain, drafts[-1], workload)
    context = workload.input_len.mean + workload.output_len.mean / 2
    loads = tuple(Load("steady_decode", b, context_len=context) for b in batches)
    grid = Grid((plain, *drafts), loads, workload, wish.dataset, wish.temperature)
    tps = grid.solve(profile).output_tps
    zero = zero_steps_tps(profile.system().cost, drafts[0], batches, context)
    rows = np.vstack([zero, tps[1:]])
    depths = (0, *(p.setting.num_steps for p in drafts))
    chosen = steady_choice(rows)
    steps: list[Step] = []
    for j, (batch, i) in enumerate(zip(batches, chosen, strict=True)):
        if not steps or steps[-1].num_steps != depths[i]:
            gain, price = (float(rows[k, j] / tps[0, j] - 1.0) for k in (i, 0))
            steps.append(Step(batch, depths[i], gain, price))
    head = drafts[0]
    return Schedule(
        head.engine,
        head.version,
        algorithm,
        tuple(steps),
        batches[-1],
        pool_lost,
        _notes(head, algorithm, steps),
    )


def chain_plans(profile: Profile, wish: Wish) -> tuple[RunPlan, ...]:
    """Plan no speculation, then chains by rising depth, overlapped where the engine does so.

    Raises
    ------
    InputError
        If the server has no drafter, or no chain may run.
    """
    algorithm = algorithm_of(profile)
    if algorithm is None:
        raise InputError("schedule", "needs a drafter", "add [draft] to the setup")
    limits = wish.limits
    plans = candidate_plans(
        profile,
        [
            SpecSetting(algorithm, 1, s, s + 1)
            for s in range(1, min(limits.max_steps, limits.max_draft_tokens - 1) + 1)
        ],
        engine_version=wish.engine_version,
        max_running_requests=wish.max_running_requests,
    )
    drafts = [plan for plan in plans if plan.setting.speculates]
    overlapped = [plan for plan in drafts if plan.setting.scheduler == "overlap"]
    if not drafts:
        raise InputError("schedule", "has no chain that the engine runs", "use another release")
    return (plans[0], *(overlapped or drafts))


def zero_steps_tps(
    cost: CostModel, plan: RunPlan, batches: Sequence[int], context: float
) -> Floats:
    """Decode throughput with the drafter loaded and nothing drafted (ZERO-STEPS), tokens/s.

    Parameters
    ----------
    cost
        Prices rounds.
    plan
        Of a chain: its scheduler is kept.
    batches
        Running requests.
    context
        KV tokens per request.
    """
    batch, idle = np.array(batches, dtype=np.float64), idle_plan(plan)
    time = planned_time(cost, idle, 1.0, batch, batch * context)
    return np.asarray(batch / time.round_s, dtype=np.float64)


def steady_choice(tps: Floats) -> list[int]:
    """Choose a row for every column; another than the last only if it is `SWITCH_GAIN` better.

    >>> steady_choice(np.array([[1.0, 1.0, 1.0], [1.5, 0.995, 0.5]]))
    [1, 1, 0]
    """
    chosen: list[int] = []
    for column in tps.T:
        best = int(np.argmax(column))
        keep = bool(chosen) and column[best] < column[chosen[-1]] * (1.0 + SWITCH_GAIN)
        chosen.append(chosen[-1] if keep else best)
    return chosen


def schedule_lines(schedule: Schedule) -> list[str]:
    """Return the table for people, then in the engine's syntax."""
    lines = ["Draft steps by running batch (chains, decode only):"]
    for step in schedule.steps:
        depth = f"{step.num_steps} steps" if step.num_steps else "no drafts"
        lines.append(
            f"  from {step.batch} running: {depth}, {100 * step.gain:+.0f} % against a server "
            f"without drafter (K = 0 here: {100 * step.zero_steps_gain:+.0f} %)"
        )
    lines.append(f"  the drafter takes {100 * schedule.pool_lost:.0f} % of the KV pool's tokens")
    return [*lines, *config_lines(schedule), *(f"  - {note}" for note in schedule.notes)]


def config_lines(schedule: Schedule) -> list[str]:
    """Return the table in the engine's syntax, ready to paste; nothing if it drafts nothing."""
    if schedule.config is None:
        return []
    if schedule.engine == "sglang":
        return [f"  adaptive.json: {schedule.config}", f"  {' '.join(launch_words(schedule))}"]
    return [f"  in --speculative-config: {schedule.config[1:-1]}"]


def launch_words(schedule: Schedule) -> list[str]:
    """Return the flags that switch the table on, besides those of the setting."""
    if schedule.config is None:
        return []
    if schedule.engine == "vllm":
        return ["--speculative-config", schedule.config]
    most = max(step.num_steps for step in schedule.steps)
    first = schedule.steps[0].num_steps or most
    words = ["--speculative-num-steps", str(first), "--speculative-adaptive"]
    return [*words, "--speculative-adaptive-config", "adaptive.json"]


def _batches(
    profile: Profile, plain: RunPlan, draft: RunPlan, workload: Workload
) -> tuple[tuple[int, ...], float]:
    """Return the batches that can run, and the share of the pool that the drafter takes."""
    system = profile.system()
    pool = system.kv_pool_tokens(draft)
    need = system.kv_tokens_per_request(draft, workload.input_len.mean, workload.output_len.mean)
    most = max(1, min(draft.max_running_requests, int(pool / max(need, 1.0))))
    batches = sorted({*(b for b in BATCHES if b <= most), min(most, 4 * BATCHES[-1])})
    return tuple(batches), 1.0 - pool / system.kv_pool_tokens(plain)


def _notes(plan: RunPlan, algorithm: str, steps: Sequence[Step]) -> tuple[str, ...]:
    """Say what the release cannot do."""
    notes = []
    zero = any(step.num_steps == 0 for step in steps)
    if all(step.num_steps == 0 for step in steps):
        notes.append("no depth pays at any batch: launch without speculation")
    if plan.engine == "sglang":
        version = parse_version(plan.version)
        if algorithm not in ADAPTIVE_ALGORITHMS:
            notes.append(f"SGLang adapts EAGLE and EAGLE3 only, not {algorithm}")
        needed = ZERO_FROM if zero else TABLES_FROM
        if version.before(needed):
            notes.append(f"SGLang {plan.version} cannot: such a table needs {needed} or later")
    elif plan.engine == "vllm":
        if parse_version(plan.version).before(VLLM_FROM):
            notes.append(f"vLLM {plan.version} cannot: such a table is in {VLLM_FROM}")
    else:
        notes.append(f"{plan.engine} has no such table that specsim knows")
    if plan.ranks > 1:
        notes.append(f"{plan.engine} switches adaptive speculation off under data parallelism")
    return tuple(notes)
