"""The best number of draft steps by running batch: a static table, in the engine's own syntax.

A server that speculates may switch the depth by how many requests run, down to none. With K = 0
the drafter stays loaded, and its extend and the worker's overhead are still paid for (ZERO-STEPS in
`specsim.cost.rounds`). The table is the best at every batch in closed form; what it brings
under a load that changes, beside policies that follow the acceptance, `specsim.decide.adaptive`
simulates.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from specsim.arrays import Floats
from specsim.case import TIMELINES
from specsim.cost.model import CostModel
from specsim.cost.rounds import round_time
from specsim.decide import HIDDEN, bands
from specsim.decide.contest import unbeaten
from specsim.decide.outlook import Outlook, algorithm_of, candidate_plans, outlook
from specsim.engine import RunPlan, engine_named
from specsim.errors import InputError
from specsim.predict import Grid
from specsim.profile import Profile
from specsim.question import Question
from specsim.setting import Algorithm, SpecSetting
from specsim.simulate.adaptation import idle_plan
from specsim.simulate.policy import Policy, by_batch
from specsim.simulate.pricing import planned_time
from specsim.workload import Load, Workload

BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128, 160, 192, 256)
"""Running requests that are looked at, up to the cap."""

SWITCH_GAIN = 0.01
"""What another table or setting must bring in a simulation: closer ones are not told apart."""


@dataclass(frozen=True, slots=True)
class Step:
    """From so many running requests on: draft so many steps; gains are of decoding there."""

    from_batch_size: int
    num_steps: int
    gain: float  # throughput against a server without a drafter, minus 1
    gain_idle_drafter: float  # the same of K = 0, the drafter loaded: the price of switching


@dataclass(frozen=True, slots=True)
class Schedule:
    """A table by running batch."""

    engine: str  # whose syntax
    engine_version: str
    algorithm: Algorithm
    table: tuple[Step, ...]  # in rising order of batch; the first starts at 1
    batch_max: int = field(metadata=HIDDEN)  # most requests that run
    kv_pool_share_of_drafter: float  # of the pool's tokens
    notes: tuple[str, ...]  # what is assumed, or what the engine's release cannot do
    engine_config: str | None = field(init=False)  # in the engine's syntax, None where it has none
    flags: tuple[str, ...] = field(init=False)  # what switches the table on, besides the setting's
    config_lines: tuple[str, ...] = field(init=False, metadata=HIDDEN)  # ready to paste

    def __post_init__(self) -> None:
        syntax, rows = engine_named(self.engine).schedule, list(self.rows.items())
        drafts = syntax is not None and any(self.rows.values())
        written = syntax.write(rows, self.batch_max) if syntax and drafts else None
        for name, value in (
            ("engine_config", written.config if written else None),
            ("flags", written.words if written else ()),
            ("config_lines", written.lines if written else ()),
        ):
            object.__setattr__(self, name, value)

    @property
    def rows(self) -> dict[int, int]:
        """Steps by first batch."""
        return {row.from_batch_size: row.num_steps for row in self.table}

    @property
    def policy(self) -> Policy:
        """What the simulator runs."""
        syntax = engine_named(self.engine).schedule
        padded = syntax is not None and syntax.padded
        return by_batch(self.rows, padded=padded, name="best table")

    def simpler(self) -> list[Self]:
        """Return itself, and its cuts into fewer rows."""
        return [replace(self, table=rows) for rows in simpler_tables(self.table)]


def best_schedule(profile: Profile, question: Question | None = None) -> Schedule:
    """Choose the depth for every running batch, chains only, at the requests' mean context."""
    question = question or Question()
    plain, *drafts = chain_plans(profile, question)
    head = drafts[0]
    workload = question.workload(profile.setup.workload)
    batches, pool_share = _batches(profile, plain, drafts[-1], workload)
    context = workload.input_len.mean + workload.output_len.mean / 2
    loads = [Load("steady_decode", b, context_len=context) for b in batches]
    view = outlook(profile, Grid.of(profile, question, (plain, *drafts), loads), question.measured)
    idle = zero_steps_tps(profile.system().cost, head, batches, context)
    depths = (0, *(p.setting.num_steps for p in drafts))
    table: list[Step] = []
    for j, i in enumerate(_depth_choice(profile, view, idle, depths)):
        if not table or table[-1].num_steps != depths[i]:
            none, zero = float(view.cells.output_tps[0, j]), float(idle[j])
            chosen = float(view.cells.output_tps[i, j]) if i else zero
            table.append(Step(batches[j], depths[i], chosen / none - 1.0, zero / none - 1.0))
    return Schedule(
        head.engine,
        head.version,
        head.setting.algorithm,
        tuple(table),
        batches[-1],
        pool_share,
        (*_beside_recommend(profile, question, (plain, *drafts), table), *_notes(head, table)),
    )


def chain_plans(profile: Profile, question: Question) -> tuple[RunPlan, ...]:
    """Plan no speculation, then chains by rising depth, overlapped where the engine does so."""
    algorithm = algorithm_of(profile)
    if algorithm is None:
        raise InputError("schedule", "needs a drafter", "add [draft] to the setup")
    deepest = min(question.max_steps, question.max_draft_tokens - 1)
    chains = [SpecSetting(algorithm, 1, s, s + 1) for s in range(1, deepest + 1)]
    plain, *drafts = candidate_plans(profile, question, chains)
    overlapped = [plan for plan in drafts if plan.setting.scheduler == "overlap"]
    if not drafts:
        raise InputError("schedule", "has no chain that the engine runs", "use another release")
    return (plain, *(overlapped or drafts))


def zero_steps_tps(
    cost: CostModel, plan: RunPlan, batches: Sequence[int], context: float
) -> Floats:
    """Return the decode throughput with an idle drafter (ZERO-STEPS), tokens per second.

    By running requests of `context` KV tokens each, under the scheduler of the plan of a chain.
    """
    batch, idle = np.array(batches, dtype=np.float64), idle_plan(plan)
    time = planned_time(cost, idle, 1.0, batch, batch * context)
    return batch / time.round_s


def _depth_choice(
    profile: Profile, view: Outlook, idle: Floats, depths: Sequence[int]
) -> list[int]:
    """Choose a depth for every batch as every command chooses: the simplest that none surely beats.

    Simplest is to draft nothing, then what runs today, then the fastest; a depth stays the choice
    as long as nothing surely beats it. The idle drafter errs as the shortest chain does.
    """
    today = profile.setup.current
    steps = today.num_steps if today is not None and today.topk == 1 else None
    rows = [1, *range(1, len(depths))]
    mean = np.vstack([np.log(idle), view.mean[1:]])

    def rank(i: int) -> tuple[int, ...]:
        return (0 if i == 0 else 1 if depths[i] == steps else 2,)

    chosen: list[int] = []
    for j in range(mean.shape[1]):
        sd = view.ratio_sd(j)[np.ix_(rows, rows)]
        stand = unbeaten(range(len(depths)), mean[:, j], sd, rank)
        chosen.append(chosen[-1] if chosen and chosen[-1] in stand else stand[0])
    return chosen


def simpler_tables(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    """Return a table, itself without K = 0, and its cuts into two rows.

    >>> rows = [Step(b, s, 0.0, 0.0) for b, s in ((1, 5), (8, 2), (32, 0))]
    >>> [[(r.from_batch_size, r.num_steps) for r in table] for table in simpler_tables(rows)]
    [[(1, 5), (8, 2), (32, 0)], [(1, 5), (8, 2)], [(1, 5), (32, 0)], [(1, 5), (8, 0)]]
    """
    rows = tuple(steps)
    drafting = tuple(row for row in rows if row.num_steps > 0)
    tables = [rows]
    if drafting and drafting[0].from_batch_size == 1:
        tables.append(drafting)
    if len(rows) > 2:
        tables.append((rows[0], rows[-1]))
        tables += [
            (rows[0], replace(rows[-1], from_batch_size=row.from_batch_size)) for row in rows[1:-1]
        ]
    return list(dict.fromkeys(tables))


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


def _beside_recommend(
    profile: Profile, question: Question, plans: Sequence[RunPlan], table: Sequence[Step]
) -> Iterator[str]:
    """Say at how many clients `specsim.decide.recommend` chooses otherwise, and why."""
    loads = [Load("closed_loop", clients) for clients in BATCHES]
    view = outlook(profile, Grid.of(profile, question, plans, loads), question.measured)
    none, other = [], []
    for j, clients in enumerate(BATCHES):
        stand = unbeaten(range(len(plans)), view.mean[:, j], view.ratio_sd(j), lambda i: (i,))
        batch = max(1.0, float(view.cells.batch_size[stand[-1], j])) + 0.5
        depth = [step.num_steps for step in table if step.from_batch_size <= batch][-1]
        if 0 in stand:
            none += [clients]
        elif depth not in {plans[i].setting.num_steps for i in stand}:
            other += [clients]
    if none and any(step.num_steps for step in table):
        yield (
            f"at {_spans(none)} clients no chain surely beats a server without drafter, which "
            "specsim recommend prefers there: a table cannot unload the drafter"
        )
    if other:
        yield (
            f"at {_spans(other)} clients specsim recommend prefers another depth: it counts "
            "prompts too, a table is chosen for decoding and keeps a depth that none surely beats"
        )


def _spans(clients: Sequence[int]) -> str:
    """Join neighbours among `BATCHES`: 1 to 4, 40 and more."""
    there = bands([batch in clients for batch in BATCHES])
    ends = [(BATCHES[first], BATCHES[last]) for among, first, last in there if among]
    return ", ".join(
        f"{a} and more" if b == BATCHES[-1] else f"{a} to {b}" if a < b else f"{a}" for a, b in ends
    )


def _notes(plan: RunPlan, table: Sequence[Step]) -> tuple[str, ...]:
    syntax = engine_named(plan.engine).schedule
    depths = [row.num_steps for row in table]
    notes = []
    if not any(depths):
        notes.append("no depth pays at any batch: launch without speculation")
    if syntax is None:
        notes.append(f"{plan.engine} has no such table that specsim knows")
    else:
        notes += syntax.limits(plan.engine, plan.version, plan.setting.algorithm, 0 in depths)
    if plan.ranks > 1:
        notes.append(f"{plan.engine} switches adaptive speculation off under data parallelism")
    return tuple(notes)


PROBES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # requests at which the table is filled


def sps_table(profile: Profile, question: Question) -> str:
    """Return SGLang's table of round times for DSPARK, which cuts drafts by it.

    Its additive form (0.5.16 ``dspark_sps.py``), seconds of a round of B requests that verify m
    tokens in all,

        T(B, m) = bias + alpha(B) + theta(m)

    fitted to this server's rounds of 2 to n tokens a request, relative errors squared, at the
    requests' mean context; n is of the deepest chain that is wished for. The engine takes the m
    with the most expected tokens per T, so T is a round of serving: under the plan's timeline, with
    what n tokens commit on average (the engine's own profiler pins one, to hold its contexts still:
    0.5.19 ``dspark_sps_profiler.py:457``). Refuses a server that does not draft with DSPARK.
    """
    plan = chain_plans(profile, question)[-1]
    if (plan.engine, plan.setting.algorithm) != ("sglang", "DSPARK"):
        what = f"--sps-table with {plan.engine} and {plan.setting.algorithm}"
        why = "is a table of SGLang's DSPARK"
        raise InputError(what, why, "ask about a server that drafts with it")
    cost, work = profile.system().cost, question.workload(profile.setup.workload)
    context_len = work.input_len.mean + work.output_len.mean / 2

    most = plan.setting.num_draft_tokens
    (bought,) = profile.accept_tables([plan.setting], question.dataset, question.temperature)
    commits = 1.0 + np.cumsum([0.0, *bought.pooled_survival])  # by verified tokens, from 1
    batch, width = (
        grid.ravel() for grid in np.meshgrid(np.array(PROBES, float), np.arange(2.0, most + 1))
    )
    whole = round_time(
        cost,
        batch,
        width,
        batch * context_len,
        topk=plan.draft_rows,
        draft_forwards=plan.draft_forwards,
        extend_tokens=batch * width,
        timeline=TIMELINES[plan.timeline],
        committed=np.interp(width, np.arange(1.0, most + 1), commits),
    ).round_s
    tokens = [int(m) for m in np.unique(np.outer(PROBES, (2, most)))]
    parts = (np.ones((batch.size, 1)), _between(PROBES, batch), _between(tokens, batch * width))
    shares = np.linalg.lstsq(np.hstack(parts) / whole[:, None], np.ones(batch.size), rcond=None)[0]
    bias, alpha, theta = np.split(shares, [1, 1 + len(PROBES)])
    table = {
        "bias_seconds": float(bias[0] + alpha[0] + theta[0]),
        "bs_probes": PROBES,
        "alpha_seconds": (alpha - alpha[0]).tolist(),
        "m_probes": tokens,
        "theta_seconds": (theta - theta[0]).tolist(),
    }
    return json.dumps(table)


def _between(probes: Sequence[int], at: Floats) -> Floats:
    """Return the weight of each probe in a linear interpolation at `at`."""
    return np.stack([np.interp(at, probes, one) for one in np.eye(len(probes))], axis=1)
