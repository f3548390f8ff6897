"""``specsim.recommendation/1``: the JSON document of ``specsim recommend``.

Conventions as in `specsim.documents`: SI units, fractions as fractions, null where a number could
not be had, fields in this order.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specsim.decide.recommendation import (
    AdviceKind,
    Band,
    Launch,
    LoadChoice,
    MixChoice,
    Option,
    Range,
    Recommendation,
)
from specsim.documents import Amount, Count, Finite, Number, Record
from specsim.engine import RunPlan
from specsim.setting import Algorithm


class SettingRow(Record):
    """A setting as the engine runs it."""

    algorithm: Algorithm
    topk: Count
    num_steps: Count
    num_draft_tokens: Count
    scheduler: Literal["sequential", "overlap"]
    engine: str
    engine_version: str


class Interval(Record):
    """A value with its central 90 %."""

    value: Finite
    low: Finite
    high: Finite


class OptionRow(SettingRow):
    """A setting at a load; fields as in `recommendation.Option`."""

    measured: bool
    output_tps: Interval
    output_tps_per_gpu: Amount
    tokens_per_money: Amount
    gain: Interval
    gain_against_current: Interval | None
    probability_fastest: Amount
    regret: Amount
    regret_if_not_fastest: Amount
    accept_length: Amount
    batch_size: Amount
    tpot_s: Amount
    ttft_s: Amount
    limit: str


class LoadRow(Record):
    """The choice at a load."""

    concurrency: Count
    choice: OptionRow
    fastest: OptionRow
    tied: tuple[OptionRow, ...]
    baseline: OptionRow
    current: OptionRow | None
    meets_targets: bool | None


class BandRow(SettingRow):
    """Neighbouring loads with one choice; `tied`: at some of them another setting is as good."""

    from_concurrency: Count
    to_concurrency: Count
    tied: bool


class MixRow(SettingRow):
    """The one setting for a mix of loads."""

    weights: dict[str, Amount]
    output_tps: Amount
    gain: Interval
    probability_fastest: Amount
    regret: Amount


class LaunchRow(SettingRow):
    """What to type; flags are empty where a file sets the engine."""

    flags: tuple[str, ...]
    env: dict[str, str]


class AdviceRow(Record):
    """Something better than, or besides, a setting."""

    kind: AdviceKind
    text: str


class TargetRow(Record):
    """A latency target."""

    metric: Literal["tpot", "ttft"]
    statistic: Literal["mean", "p50", "p99"]
    seconds: Number


class RecommendationDocument(Record):
    """``recommend --json``."""

    schema_: Literal["specsim.recommendation/1"] = Field(
        default="specsim.recommendation/1", alias="schema"
    )
    profile: str
    seed: Count
    gpus: Count
    gpu_hour_price: Amount
    targets: tuple[TargetRow, ...]
    settings_considered: Count
    settings_compared: Count
    loads: tuple[LoadRow, ...]
    bands: tuple[BandRow, ...]
    mix: MixRow | None
    launch: tuple[LaunchRow, ...]
    advice: tuple[AdviceRow, ...]
    notes: tuple[str, ...]


def recommendation_document(answer: Recommendation) -> RecommendationDocument:
    """Return the document of a recommendation."""
    return RecommendationDocument(
        profile=answer.profile,
        seed=answer.seed,
        gpus=answer.gpus,
        gpu_hour_price=answer.gpu_hour_price,
        targets=tuple(
            TargetRow(metric=t.metric, statistic=t.statistic, seconds=t.seconds)
            for t in answer.targets
        ),
        settings_considered=answer.considered[0],
        settings_compared=answer.considered[1],
        loads=tuple(_load(answer, choice) for choice in answer.loads),
        bands=tuple(_band(band) for band in answer.bands),
        mix=None if answer.mix is None else _mix(answer.mix),
        launch=tuple(_launch(launch) for launch in answer.launch),
        advice=tuple(AdviceRow(kind=a.kind, text=a.text) for a in answer.advice),
        notes=answer.notes,
    )


def setting_fields(plan: RunPlan) -> dict[str, str | int]:
    """Return what names a plan, as keyword arguments of a `SettingRow`."""
    setting = plan.setting
    return {
        "algorithm": setting.algorithm,
        "topk": setting.topk,
        "num_steps": setting.num_steps,
        "num_draft_tokens": setting.num_draft_tokens,
        "scheduler": "sequential" if setting.scheduler == "sequential" else "overlap",
        "engine": plan.engine,
        "engine_version": plan.version,
    }


def interval(value: Range) -> Interval:
    """Return a range as it is written."""
    return Interval(value=value.value, low=value.low, high=value.high)


def _option(answer: Recommendation, option: Option) -> OptionRow:
    today = option.against_current
    return OptionRow.model_validate(
        {
            **setting_fields(option.plan),
            "measured": option.measured,
            "output_tps": interval(option.output_tps),
            "output_tps_per_gpu": answer.tps_per_gpu(option),
            "tokens_per_money": answer.tokens_per_money(option),
            "gain": interval(option.gain),
            "gain_against_current": None if today is None else interval(today),
            "probability_fastest": option.probability,
            "regret": option.regret,
            "regret_if_not_fastest": option.regret_if_wrong,
            "accept_length": option.accept_length,
            "batch_size": option.batch_size,
            "tpot_s": option.tpot_s,
            "ttft_s": option.ttft_s,
            "limit": option.limit,
        }
    )


def _load(answer: Recommendation, choice: LoadChoice) -> LoadRow:
    current = choice.current
    return LoadRow(
        concurrency=choice.concurrency,
        choice=_option(answer, choice.choice),
        fastest=_option(answer, choice.best),
        tied=tuple(_option(answer, option) for option in choice.tied),
        baseline=_option(answer, choice.baseline),
        current=None if current is None else _option(answer, current),
        meets_targets=choice.meets_targets,
    )


def _band(band: Band) -> BandRow:
    return BandRow.model_validate(
        {
            **setting_fields(band.plan),
            "from_concurrency": band.first,
            "to_concurrency": band.last,
            "tied": any(choice.tied for choice in band.choices),
        }
    )


def _mix(mix: MixChoice) -> MixRow:
    return MixRow.model_validate(
        {
            **setting_fields(mix.plan),
            "weights": {str(load): share for load, share in mix.weights},
            "output_tps": mix.output_tps,
            "gain": interval(mix.gain),
            "probability_fastest": mix.probability,
            "regret": mix.regret,
        }
    )


def _launch(launch: Launch) -> LaunchRow:
    return LaunchRow.model_validate(
        {**setting_fields(launch.plan), "flags": launch.flags, "env": dict(launch.env)}
    )
