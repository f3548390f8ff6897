"""``specsim.schedule/1``: the JSON document of ``specsim schedule``.

Conventions as in `specsim.documents`: SI units, fractions as fractions, null where a number could
not be had, fields in this order.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specsim.decide.document import SettingRow, TargetRow, setting_fields
from specsim.decide.load_answer import LoadAnswer, Outcome, Role, Score
from specsim.decide.schedule import launch_words
from specsim.documents import Amount, Count, Number, Record


class ScheduleRow(Record):
    """From so many running requests on: the draft steps, and gains of decoding there.

    `gain` is against a server without a drafter, `gain_idle_drafter` that of K = 0 with the drafter
    loaded, both in closed form.
    """

    from_batch_size: Count
    num_steps: Count
    gain: Number
    gain_idle_drafter: Number


class StepsShare(Record):
    """Share of the decoding time that ran with so many draft steps."""

    num_steps: Count
    time_share: Amount


class OutcomeRow(SettingRow):
    """One way to run the server under the load, means over the repeats.

    The setting is what it is launched with: of a table its deepest. `gain` is by score against the
    best of the settings without a table, `gain_se` its standard error over the repeats.
    """

    role: Role
    name: str
    output_tps: Amount
    output_tps_se: Amount
    tpot_s: Amount
    tpot_p99_s: Amount
    ttft_s: Amount
    ttft_p99_s: Amount
    request_time_s: Amount
    goodput_rps: Amount
    good_share: Amount
    batch_size: Amount
    accept_length: Amount
    switches: Amount
    requests: Amount
    steps: tuple[StepsShare, ...]
    gain: Number
    gain_se: Amount


class ScheduleDocument(Record):
    """``schedule --json``."""

    schema_: Literal["specsim.schedule/1"] = Field(default="specsim.schedule/1", alias="schema")
    profile: str
    seed: Count
    repeats: Count
    load: str
    score: Score
    targets: tuple[TargetRow, ...]
    engine: str
    engine_version: str
    algorithm: str
    table: tuple[ScheduleRow, ...]
    engine_config: str | None
    flags: tuple[str, ...]
    kv_pool_share_of_drafter: Amount
    worth_it: bool
    best_static: str
    outcomes: tuple[OutcomeRow, ...]
    notes: tuple[str, ...]


def schedule_document(answer: LoadAnswer) -> ScheduleDocument:
    """Return the document of an answer."""
    schedule = answer.schedule
    return ScheduleDocument(
        profile=answer.profile,
        seed=answer.seed,
        repeats=answer.repeats,
        load=answer.load,
        score=answer.score,
        targets=tuple(
            TargetRow(metric=t.metric, statistic=t.statistic, seconds=t.seconds)
            for t in answer.targets
        ),
        engine=schedule.engine,
        engine_version=schedule.version,
        algorithm=schedule.algorithm,
        table=tuple(
            ScheduleRow(
                from_batch_size=step.batch,
                num_steps=step.num_steps,
                gain=step.gain,
                gain_idle_drafter=step.zero_steps_gain,
            )
            for step in schedule.steps
        ),
        engine_config=schedule.config,
        flags=tuple(launch_words(schedule)),
        kv_pool_share_of_drafter=schedule.pool_lost,
        worth_it=answer.worth_it,
        best_static=answer.best_static.contender.name,
        outcomes=tuple(_outcome(answer, outcome) for outcome in answer.outcomes),
        notes=answer.notes,
    )


def _outcome(answer: LoadAnswer, outcome: Outcome) -> OutcomeRow:
    gain, error = answer.gain(outcome, answer.best_static)
    plan, policy = outcome.contender.plan, outcome.contender.policy
    fields: dict[str, object] = dict(setting_fields(plan))
    if policy is not None:
        most = max(policy.steps)
        fields |= {"topk": 1, "num_steps": most, "num_draft_tokens": most + 1}
    means = {
        name: outcome.mean(name)
        for name in ("output_tps", "tpot_s", "tpot_p99_s", "ttft_s", "ttft_p99_s", "good_share")
    }
    means |= {
        name: outcome.mean(name) for name in ("batch_size", "accept_length", "switches", "requests")
    }
    return OutcomeRow.model_validate(
        {
            **fields,
            **means,
            "role": outcome.contender.role,
            "name": outcome.contender.name,
            "output_tps_se": outcome.error("output_tps"),
            "request_time_s": outcome.mean("request_s"),
            "goodput_rps": outcome.mean("good_rps"),
            "steps": tuple(
                StepsShare(num_steps=steps, time_share=share)
                for steps, share in outcome.steps_share().items()
            ),
            "gain": gain,
            "gain_se": error,
        }
    )
