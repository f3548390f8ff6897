"""How well deep chains follow from shallow ones, and what a block drafter's round costs.

Run: python benchmarks/figures_drafters.py (about two minutes)

Depth: accept lengths at depths 5 to 8 from those at 1 to 3 (calibration/tables/
accept_length_by_depth.csv), and at 7 from that at 3 alone (specbundle_accept_length.csv). Beside it
a decay alone, and the textbook (one alpha). Cost: rounds of DSpark for DeepSeek-V4-Flash, put
together of the published steps of drafter and target (dspark_step_cost.csv): some sizes are given
to the fit, the others predicted; beside it a straight line through the given ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from specsim.acceptance import Acceptance, accept_table
from specsim.acceptance.prior import at_accept_length, default_acceptance
from specsim.calibrate.fit import fit_profile
from specsim.calibrate.rows import Rows
from specsim.engine import EngineSpec
from specsim.observations import Observation, observations_from_rows
from specsim.server import DraftSpec, HardwareSpec, ModelSpec, Setup
from specsim.setting import SpecSetting
from specsim.workload import Lengths, Workload

TABLES = Path(__file__).parents[1] / "calibration" / "tables"
GIVEN = 3
DEPTH_TARGET, COST_TARGET = 0.06, 0.10
DRAFTS = 7
REQUESTS, FITTED = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128), (1, 16, 128)

Law = Callable[[tuple[float, ...], float], Acceptance]


def curves() -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield a name and the accept lengths at depths 1, 2, .. of every drafter that has five."""
    table = pd.read_csv(TABLES / "accept_length_by_depth.csv")
    for name, rows in table.groupby(["model", "algorithm", "on"], sort=False):
        if rows.survival.notna().any():
            survival = np.array(rows.survival.iloc[0].split(), np.float64)
            lengths = 1.0 + np.cumsum(survival)
        else:
            lengths = rows.sort_values("num_steps").accept_length.to_numpy()
            if rows.num_steps.min() > 1:
                continue
        yield " ".join(name), tuple(float(x) for x in lengths)


def length(law: Acceptance, depth: int) -> float:
    """Return the accept length of a chain."""
    return accept_table(law, SpecSetting.of(1, depth)).accept_length


def with_trend(alpha: tuple[float, ...], accept_length: float) -> Acceptance:
    """Return specsim's law with the given depths, levelled at the deepest of them."""
    chain = SpecSetting.of(1, len(alpha))
    return at_accept_length(Acceptance(accept_prob=alpha), chain, accept_length)


def decay_alone(alpha: tuple[float, ...], accept_length: float) -> Acceptance:
    """Return the same without a trend: each depth 0.97 of the one before."""
    known = with_trend(alpha, accept_length)
    further = [alpha[-1] * 0.97**d for d in range(1, 6)]
    return replace(known, accept_prob=(*alpha, *further))


def textbook(alpha: tuple[float, ...], accept_length: float) -> Acceptance:
    """Return one alpha for all depths."""
    still = Acceptance(decay=1.0, request_spread=0.0, context_spread=0.0)

    def error(one: float) -> float:
        return length(replace(still, accept_prob=(one,)), len(alpha)) - accept_length

    return replace(still, accept_prob=(float(brentq(error, 0.01, 0.999)),))


LAWS: dict[str, Law] = {"specsim": with_trend, "decay": decay_alone, "textbook": textbook}


def depth_errors() -> pd.DataFrame:
    """Return predicted / measured - 1 of each law: a row per drafter and depth beyond four."""
    found = []
    for name, lengths in curves():
        survival = np.diff((1.0, *lengths[:GIVEN]))
        alpha = tuple(
            float(a) for a in np.minimum(survival / np.array([1.0, *survival[:-1]]), 0.999)
        )
        for depth in {7, 8} & {len(lengths), 7} if len(lengths) >= 7 else {len(lengths)}:
            errors = {
                key: length(law(alpha, lengths[GIVEN - 1]), depth) / lengths[depth - 1] - 1
                for key, law in LAWS.items()
            }
            found.append({"drafter": name, "depth": depth, **errors})
    return pd.DataFrame(found)


def specbundle_errors() -> np.ndarray:
    """Return predicted / measured - 1 at seven steps from the accept length at three alone."""
    table = pd.read_csv(TABLES / "specbundle_accept_length.csv")
    chains = table[table.topk == 1].pivot(
        index=["draft", "dataset"], columns="num_steps", values="accept_length"
    )
    prior = default_acceptance("sglang", "EAGLE3")
    return np.array(
        [
            length(at_accept_length(prior, SpecSetting.of(1, 3), row[3]), 7) / row[7] - 1
            for _, row in chains.iterrows()
        ]
    )


def dspark() -> tuple[Setup, tuple[Observation, ...]]:
    """Return the server, and a row per number of requests with round and draft time."""
    table = pd.read_csv(TABLES / "dspark_step_cost.csv")
    seconds = table.set_index(["part", "size"]).seconds
    rows = []
    for requests in REQUESTS:
        draft = seconds["draft", requests] if requests != 12 else np.nan
        verify = seconds["verify", requests * (DRAFTS + 1)]
        if np.isnan(draft):
            continue
        rows.append(
            {
                "kind": "steady_decode",
                "algorithm": "DSPARK",
                "num_steps": DRAFTS,
                "concurrency": requests,
                "context_len": 8192,
                "round_time_s": draft + verify,
                "draft_time_s": draft,
            }
        )
    setup = Setup(
        HardwareSpec("b300-sxm", 4, "nvlink5", "custom"),
        ModelSpec("deepseek-v4-flash"),
        EngineSpec("vllm", "0.33.0", tp=4, kv_dtype="fp8", cuda_graph_max_bs=1024),
        DraftSpec("deepseek-v4-dspark"),
        Workload(Lengths(8192), Lengths(1024)),
        SpecSetting.of(1, DRAFTS, algorithm="DSPARK"),
    )
    return setup, observations_from_rows(rows).rows


def cost_table() -> pd.DataFrame:
    """Return a row per number of requests: measured and predicted round and draft, errors."""
    setup, observations = dspark()
    given = [o for o in observations if o.concurrency in FITTED]
    profile = fit_profile(setup, given).profile
    model = Rows(setup, observations, profile.acceptances)
    found = model.predict(profile.parameters, profile.coordinates[None])
    size = np.array([o.concurrency for o in observations], np.float64)
    known = np.array([o.concurrency in FITTED for o in observations])
    columns: dict[str, np.ndarray] = {"requests": size.astype(int), "given": known}
    for field, column in (("round_s", "round_time_s"), ("draft_s", "draft_time_s")):
        measured = np.array([getattr(o, column) for o in observations])
        line = np.polynomial.Polynomial.fit(size[known], measured[known], 1)(size)
        columns |= {
            column: measured,
            f"{column} error": found[field][0] / measured - 1,
            f"{column} line": line / measured - 1,
        }
    return pd.DataFrame(columns)


def main() -> None:
    """Print the tables and the figures."""
    depth = depth_errors()
    print(f"{'accept length from depths 1 to 3':58}{'depth':>6}", end="")
    print("".join(f"{name:>10}" for name in LAWS))
    for row in depth.itertuples():
        print(f"{row.drafter[:57]:58}{row.depth:6d}", end="")
        print("".join(f"{getattr(row, name):+10.1%}" for name in LAWS))
    means = {name: depth[name].abs().mean() for name in LAWS}
    print(f"{'mean absolute error':64}" + "".join(f"{means[name]:10.1%}" for name in LAWS))
    bundle = np.abs(specbundle_errors())
    print(f"\n{len(bundle)} EAGLE-3 chains of 7 from the accept length of 3 alone:", end="")
    print(f" {bundle.mean():.1%} on average, {np.quantile(bundle, 0.9):.1%} of nine in ten")
    cost = cost_table()
    print("\nDSpark, DeepSeek-V4-Flash on four B300: requests, draft and round in ms, errors")
    for row in cost.to_dict("records"):
        mark = "given" if row["given"] else ""
        print(f"{row['requests']:5d}", end="")
        for column in ("draft_time_s", "round_time_s"):
            print(f"{1e3 * row[column]:9.2f}{row[f'{column} error']:+8.1%}", end="")
            print(f" (line {row[f'{column} line']:+6.1%})", end="")
        print(f"  {mark}".rstrip())
    held = cost[~cost.given]
    worst = {c: held[f"{c} error"].abs() for c in ("draft_time_s", "round_time_s")}
    line = {c: held[f"{c} line"].abs().mean() for c in worst}
    print(
        f"FIGURE depth: mean absolute error {means['specsim']:.1%} (decay alone "
        f"{means['decay']:.1%}, textbook {means['textbook']:.1%}), EAGLE-3 {bundle.mean():.1%} "
        f"(target {DEPTH_TARGET:.0%})"
    )
    for column, name in (("draft_time_s", "draft"), ("round_time_s", "round")):
        print(
            f"FIGURE DSpark {name}: mean absolute error {worst[column].mean():.1%}, worst "
            f"{worst[column].max():.1%}, a line {line[column]:.1%} (target {COST_TARGET:.0%})"
        )


if __name__ == "__main__":
    main()
