"""Curves with chosen gains, for what is written about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specsim.curve import Curve, CurvePoint, Role, Series
from specsim.decide import LoadChoice, Option, Verdict
from specsim.engine import EngineSpec, RunPlan, engine_named
from specsim.setting import SpecSetting
from specsim.uncertainty import SURE, Z90, Interval, beats, normal_cdf

LOADS = (1, 10, 100)


def made_series(
    role: Role,
    gains: Sequence[float],
    *,
    loads: Sequence[int] = LOADS,
    setting: SpecSetting | None = None,
    sd: float = 0.02,
    scheduler: str = "overlap",
    version: str = "0.5.9",
    what_if: bool = False,
    limits: Sequence[str] = (),
    context_len: float | None = None,
    evidence: str = "fitted",
) -> Series:
    """A series whose throughput is (1 + gain) times 100 tokens/s per client."""
    setting = setting or (SpecSetting.none() if role == "baseline" else SpecSetting.of(2, 2))
    points = []
    for j, (load, gain) in enumerate(zip(loads, gains, strict=True)):
        tps = 100.0 * load * (1 + gain)
        points.append(
            CurvePoint(
                role=role,
                algorithm=setting.algorithm,
                topk=setting.topk,
                num_steps=setting.num_steps,
                num_draft_tokens=setting.num_draft_tokens,
                scheduler="sequential" if scheduler == "sequential" else "overlap",
                engine="sglang",
                engine_version=version,
                allowed=not what_if,
                what_if=what_if,
                saturated=False,
                reason="the rule" if what_if else None,
                concurrency=load,
                input_len=1024.0 if context_len is None else None,
                output_len=512.0 if context_len is None else None,
                context_len=context_len,
                output_tps=tps,
                output_tps_low=0.95 * tps,
                output_tps_high=1.05 * tps,
                speedup=1 + gain,
                accept_length=2.25 if setting.speculates else 1.0,
                batch_size=float(min(load, 48)),
                round_time_s=0.02,
                tpot_s=0.01 / (1 + gain),
                tpot_p50_s=None,
                tpot_p99_s=None,
                ttft_s=0.2,
                ttft_p50_s=None,
                ttft_p99_s=None,
                evidence="assumed" if evidence == "assumed" else "fitted",
                limit=limits[j] if limits else "verify",
                gain_low=gain - Z90 * sd,
                gain_high=gain + Z90 * sd,
                probability=0.0 if role == "baseline" else normal_cdf(gain / sd),
            )
        )
    return Series(tuple(points))


def made_curve(*series: Series, notes: Sequence[str] = ()) -> Curve:
    """The series behind a baseline of the same loads."""
    first = series[0].points
    baseline = made_series(
        "baseline",
        [0.0] * len(first),
        loads=[p.concurrency for p in first],
        context_len=first[0].context_len,
        limits=[p.limit if p.limit == "client" else "verify" for p in first],
    )
    return Curve(
        "made", 0, "analytic", tuple(p for s in (baseline, *series) for p in s.points), tuple(notes)
    )


def made_plan(point: CurvePoint) -> RunPlan:
    """The plan of a point, refused where the point is a what-if."""
    spec = EngineSpec("sglang", point.engine_version)
    plan = engine_named("sglang").plan(point.setting, spec, 9.6e10, True)
    return replace(plan, allowed=point.allowed, reason=point.reason)


def made_verdict(curve: Curve) -> Verdict:
    """The decision that a made curve's gains and their error ask for."""
    loads = []
    for points in zip(*(series.points for series in curve.series), strict=True):
        sd = (points[-1].gain_high - points[-1].gain) / Z90
        today = next((p for p in points if p.role == "current"), None)
        options = [made_option(p, today, sd) for p in points]
        own = points[0].engine_version
        pool = [i for i, p in enumerate(points) if p.allowed and p.engine_version == own]
        rank = {"baseline": 0, "current": 1, "asked": 2, "alternative": 3}

        def beaten(
            i: int, pool: list[int] = pool, points: tuple[CurvePoint, ...] = points, sd: float = sd
        ) -> bool:
            return any(beats(points[k].gain - points[i].gain, sd) >= SURE for k in pool if k != i)

        stand = sorted((i for i in pool if not beaten(i)), key=lambda i: rank[points[i].role])
        fastest = max(pool, key=lambda i: points[i].gain)
        loads.append(
            LoadChoice(
                points[0].concurrency,
                choice=options[stand[0]],
                fastest=options[fastest],
                tied=tuple(options[i] for i in stand[1:]),
                baseline=options[0],
                current=None if today is None else options[points.index(today)],
                asked=tuple(o for o, p in zip(options, points, strict=True) if rank[p.role] > 1),
                meets_targets=None,
            )
        )
    return Verdict(SURE, len(curve.series), tuple(loads), ())


def made_option(point: CurvePoint, today: CurvePoint | None, sd: float) -> Option:
    """What a decision says of a point."""
    gain = Interval(point.gain, point.gain_low, point.gain_high)
    over = None if today is None else point.output_tps / today.output_tps - 1
    tps = Interval(point.output_tps, point.output_tps_low, point.output_tps_high)
    return Option(
        made_plan(point),
        measured=False,
        output_tps=tps,
        output_tps_per_gpu=tps.value,
        tokens_per_money=None,
        money_per_million=None,
        gain=gain,
        probability_faster=point.probability if point.role != "baseline" else 0.5,
        gain_against_current=None if over is None else Interval(over, over, over),
        probability_faster_than_current=None if over is None else beats(over, sd),
        probability_fastest=0.5,
        regret=0.0,
        regret_if_not_fastest=0.0,
        accept_length=point.accept_length,
        accept_length_low=point.accept_length,
        accept_length_high=point.accept_length,
        batch_size=point.batch_size,
        tpot_s=point.tpot_s,
        ttft_s=0.2,
        limit=point.limit,
    )
