"""Curves with chosen gains, for what is written about them."""

from __future__ import annotations

from collections.abc import Sequence

from specsim.curve import Curve, CurvePoint, Role, Series
from specsim.setting import SpecSetting
from specsim.uncertainty import Z90, normal_cdf

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
