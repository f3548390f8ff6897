"""Fidelity on the two Kimi servers, beside the textbook formula and the model without a mechanism.

python benchmarks/figures_kimi.py            prints every figure; about a minute
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from specsim.calibrate.fit import FitResult, fit_profile
from specsim.calibrate.validate import Validation, validate
from specsim.observations import Observation, cell_name, read_observations
from specsim.profile import Profile
from specsim.server import Setup, read_setup
from specsim.uncertainty import Parameter

EVIDENCE = Path(__file__).resolve().parent.parent / "calibration"
FOUNDING = "kimi-k2.5-int4-8x-rtx-pro-6000"
K26 = "kimi-k2.6-8x-rtx-pro-6000"

K26_TRAINING = {  # (speculates, context, concurrency): the ten cells that the fit sees
    *((False, 0, c) for c in (1, 4, 16, 64)),
    (False, 65536, 1),
    (False, 16384, 16),
    (True, 0, 1),
    (True, 0, 32),
    (True, 16384, 8),
    (True, 65536, 2),
}

ABLATIONS: dict[str, dict[str, float]] = {
    "KV cache read once per request": {"kv_reads": 0.0, "verify_fill": 1.0},
    "all-reduce the same for all sizes": {"allreduce_bandwidth": 9e3},
    "experts of one request not shared": {"expert_sharing": 1.0},
}


def evidence(name: str) -> tuple[Setup, tuple[Observation, ...]]:
    """Setup and observations of one calibration directory."""
    folder = EVIDENCE / name
    return read_setup(folder / "setup.toml"), read_observations(folder / "observations.csv").rows


def k26_split() -> tuple[Setup, list[Observation], list[Observation]]:
    """Setup, the ten training cells, the other thirty-four."""
    setup, rows = evidence(K26)

    def trains(o: Observation) -> bool:
        return (o.setting.speculates, int(o.context_len or 0), o.concurrency) in K26_TRAINING

    return setup, [o for o in rows if trains(o)], [o for o in rows if not trains(o)]


def split_error(validation: Validation) -> tuple[float, float]:
    """Mean absolute error over rows without and with speculation."""
    error = np.array([abs(r.error) for r in validation.rows])
    speculates = np.array([r.observation.setting.speculates for r in validation.rows])
    return float(error[~speculates].mean()), float(error[speculates].mean())


def k26_held_out(fixed: dict[str, float] | None = None) -> tuple[FitResult, Validation]:
    """Fit on ten cells, predict the others."""
    setup, training, others = k26_split()
    result = fit_profile(setup, training, K26, fixed=fixed)
    return result, validate(result.profile, others)


def k26_textbook() -> float:
    """Mean absolute error of a constant speed-up on the held-out speculating cells.

    Leviathan's formula with constant alpha and cost ratio gives one speed-up at every load; its
    one free number is fitted to the training cells, and it is GIVEN the measured throughput
    without speculation of every load.
    """
    _, training, others = k26_split()
    _, rows = evidence(K26)
    plain = {(o.concurrency, o.context_len): o.output_tps for o in rows if not o.setting.speculates}

    def gain(o: Observation) -> float:
        return float((o.output_tps or 0.0) / (plain[o.concurrency, o.context_len] or 1.0))

    speedup = np.exp(np.mean([np.log(gain(o)) for o in training if o.setting.speculates]))
    return float(np.mean([abs(speedup / gain(o) - 1) for o in others if o.setting.speculates]))


def founding_fit(without_tree: bool = False, fixed: dict[str, float] | None = None) -> FitResult:
    """Fit the founding cells, all or without the two of topk 4."""
    setup, rows = evidence(FOUNDING)
    kept = [o for o in rows if not (without_tree and o.setting.topk == 4)]
    return fit_profile(setup, kept, FOUNDING, fixed=fixed)


def founding_textbook() -> list[float]:
    """Relative errors of the textbook formula on the speculating founding cells.

    Alpha and the cost ratio of the chain at C=1 are what the cells of C=1 give (tau from the
    profile); one draft step costs what the single-client round says; trees cost the same per
    step and yield tau; throughput without speculation is given as measured.
    """
    _, rows = evidence(FOUNDING)
    plain = {o.concurrency: o.output_tps or 0.0 for o in rows if not o.setting.speculates}
    one = {o.setting.topk: o.output_tps or 0.0 for o in rows if o.concurrency == 1}
    chain = next(
        o for o in rows if o.setting.topk == 1 and o.setting.speculates and o.concurrency == 1
    )
    speedup = (chain.output_tps or 0.0) / plain[1]
    assert one
    return [
        speedup * plain[o.concurrency] / (o.output_tps or 1.0) - 1
        for o in rows
        if o.setting.speculates and o is not chain
    ]


def with_parameter(profile: Profile, name: str, value: float) -> Profile:
    """The same profile with one parameter set."""

    def changed(p: Parameter) -> Parameter:
        if p.name != name:
            return p
        return replace(p, value=value, low=min(p.low, value), high=max(p.high, value))

    return replace(profile, parameters=tuple(changed(p) for p in profile.parameters))


def before_fusion(profile: Profile) -> tuple[float, float, float]:
    """Change one all-reduce number so that the baseline at C=1 is 82 tok/s: predict topk 4.

    Returns the number (all-reduce bandwidth against today's), the baseline and topk 4 at C=1;
    measured before fusion: 82 and 54.1 tok/s.
    """
    _, rows = evidence(FOUNDING)
    cells = [o for o in rows if o.concurrency == 1 and (not o.setting.speculates)]
    cells += [o for o in rows if o.concurrency == 1 and o.setting.topk == 4]
    today = next(p.value for p in profile.parameters if p.name == "allreduce_bandwidth")
    best = (np.inf, 1.0, 0.0, 0.0)
    for factor in np.geomspace(0.05, 1.0, 61):
        changed = with_parameter(profile, "allreduce_bandwidth", today * float(factor))
        plain, tree = (r.predicted for r in validate(changed, cells).rows)
        worst = max(abs(plain / 82.0 - 1), abs(tree / 54.1 - 1))
        if worst < best[0]:
            best = (worst, float(factor), plain, tree)
    return best[1:]


def main() -> None:
    """Print every figure."""
    _, held_out = k26_held_out()
    none, spec = split_error(held_out)
    print("Kimi-K2.6, fitted on 10 cells, 34 held out (mean absolute error):")
    print(f"  model                                 none {none:.1%}   speculating {spec:.1%}")
    print(f"  worst {held_out.rows[held_out.worst].error:+.1%}, coverage {held_out.coverage:.0%}, ")
    print(f"  sign of the gain right {held_out.sign_accuracy}")
    for name, fixed in ABLATIONS.items():
        a, b = split_error(k26_held_out(fixed)[1])
        print(f"  without: {name:36s} none {a:.1%}   speculating {b:.1%}")
    print(f"  textbook (one speed-up, none given)              speculating {k26_textbook():.1%}")

    fitted = founding_fit()
    _, rows = evidence(FOUNDING)
    print("\nFounding cells (Kimi-K2.5), all eight fitted:")
    for r in validate(fitted.profile, rows).rows:
        print(
            f"  {cell_name(r.observation):45s} {r.measured:7.1f} {r.predicted:7.1f} {r.error:+.1%}"
        )
    moved = [p.name for p in fitted.profile.parameters if p.fitted]
    print(f"  {len(moved)} fitted numbers: {', '.join(moved)}")
    blind = founding_fit(without_tree=True)
    for name, profile in {"model": blind.profile}.items():
        tree = [r for r in validate(profile, rows).rows if r.observation.setting.topk == 4]
        errors = ", ".join(f"C={r.observation.concurrency} {r.error:+.1%}" for r in tree)
        print(f"  fitted without topk=4, predicts it: {name}: {errors}")
    for name, fixed in ABLATIONS.items():
        profile = founding_fit(without_tree=True, fixed=fixed).profile
        tree = [r for r in validate(profile, rows).rows if r.observation.setting.topk == 4]
        errors = ", ".join(f"C={r.observation.concurrency} {r.error:+.1%}" for r in tree)
        print(f"    without: {name}: {errors}")
    print(
        "    textbook, from the chain at C=1: "
        + ", ".join(f"{e:+.1%}" for e in founding_textbook())
        + " (topk 4 at 1 and 100, topk 1 at 30 and 100)"
    )
    factor, plain, tree_tps = before_fusion(fitted.profile)
    print(
        f"  before all-reduce fusion: bandwidth x{factor:.2f} gives baseline {plain:.1f} "
        f"({plain / 82.0 - 1:+.1%}) and topk=4 {tree_tps:.1f} ({tree_tps / 54.1 - 1:+.1%})"
    )


if __name__ == "__main__":
    main()
