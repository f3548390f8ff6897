"""The test of the promise: calibrate on a few cells of our own live server, predict the others.

python benchmarks/figures_live.py            prints every figure; about a minute

Given, for each target, as the server's logs of three runs say it: no speculation at 1, 4 and 16
clients (1 and 8 where nothing more was run), one chain at 1 and 8 clients; besides the pinned
acceptance of both levels, and the mean accept length and drafted tokens, not the speed, of the real
drafter's chain of 3 and of the n-gram lookup. Predicted: the throughput of every other cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.stats import binom

from specsim.calibrate.fit import fit_profile
from specsim.calibrate.log_setup import Stated
from specsim.calibrate.logs import gather
from specsim.calibrate.validate import ValidatedRow, validate
from specsim.logs import read_file
from specsim.observations import Observation, read_observations
from specsim.profile import Profile
from specsim.server import DraftSpec, Setup, read_setup
from specsim.uncertainty import Z90

FOLDER = Path(__file__).resolve().parent.parent / "calibration" / "smollm2-135m-llama-server-2-core"
TARGETS = ("q4_1", "f16", "f32")
PASSES = ("p0", "p1", "p2")
GIVEN_STEPS = 3
GIVEN_LEVEL = "pinned-high"
PINNED = {  # P(draft accepted | those before it were), collect.py's rates
    "pinned-high": (0.80, 0.75, 0.70, 0.65, 0.60),
    "pinned-low": (0.50, 0.45, 0.40, 0.35, 0.30),
}
FULL_DRAFT = DraftSpec("smollm2-135m", "q4_0")
CLEAR = 0.05
NOISE = 0.03
"""Relative error of a row of weight 1, as collect.py weighs them."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: what was measured, what was predicted, whether the fit saw it."""

    target: str
    row: ValidatedRow
    sd: float
    given: bool

    @property
    def name(self) -> str:
        """Target, setting, acceptance."""
        o = self.row.observation
        if not o.setting.speculates:
            return f"{self.target} none"
        return f"{self.target} {o.setting.algorithm.lower()} {o.setting.num_steps} {o.dataset}"

    @property
    def inside(self) -> bool:
        """Whether the measurement lies in the 90 % interval of a measurement.

        The interval of the prediction is that of the server's true throughput; the measured one
        has an error of its own.
        """
        spread = math.log(self.row.high / self.row.predicted) / Z90
        error = math.log(self.row.measured / self.row.predicted)
        return abs(error) <= Z90 * math.hypot(spread, self.sd)

    @property
    def concurrency(self) -> int:
        """Clients."""
        return self.row.observation.concurrency or 0


def cells() -> list[Cell]:
    """Fit each target and predict all its cells."""
    return [cell for target in TARGETS for cell in target_cells(target)]


def target_cells(target: str) -> list[Cell]:
    """Fit one target on its given cells and predict all of them."""
    folder = FOLDER / target
    setup = read_setup(folder / "setup.toml")
    rows = [_throughput(o) for o in read_observations(folder / "observations.csv").rows]
    given = [o for o in rows if is_given(o, rows)]
    logs = [row for o in given for row in from_logs(target, setup, o)]
    profile = fit_profile(setup, [*logs, *known_acceptance(rows)], f"live {target}").profile
    result = []
    for o in rows:
        full = o.setting.algorithm == "STANDALONE" and o.dataset == "mixed"
        (row,) = validate(_with_draft(profile, setup, FULL_DRAFT) if full else profile, [o]).rows
        result.append(Cell(target, row, _sd(o), o in given))
    return result


def from_logs(target: str, setup: Setup, o: Observation) -> list[Observation]:
    """Read a cell from the server's logs of all passes; the log names no dataset."""
    kind = f"chain{o.setting.num_steps}-high" if o.setting.speculates else "none"
    name = f"{target}-{kind}-c{o.concurrency}.log.gz"
    entries = [e for p in PASSES for e in read_file(FOLDER / "logs" / f"{p}-{name}")]
    found = gather(entries, Stated(), setup).observations
    return [replace(row, dataset=o.dataset) for row in found]


def is_given(o: Observation, rows: Sequence[Observation]) -> bool:
    """Whether the fit may see this cell."""
    if not o.setting.speculates:
        most = max(r.concurrency or 0 for r in rows if not r.setting.speculates)
        return o.concurrency in ((1, 4, 16) if most >= 16 else (1, 8))
    chain = o.setting.num_steps == GIVEN_STEPS and o.dataset == GIVEN_LEVEL
    return chain and o.concurrency in (1, 8)


def known_acceptance(rows: Sequence[Observation]) -> list[Observation]:
    """Acceptance without timing: the pinned rates, and the mean accept length of the rest."""
    known = []
    for level, rates in PINNED.items():
        deepest = max(
            (o for o in rows if o.dataset == level), key=lambda o: o.setting.num_steps, default=None
        )
        if deepest is not None:
            survival = np.cumprod(rates[: deepest.setting.num_steps])
            known.append(
                _acceptance_only(
                    replace(deepest, survival=tuple(survival.tolist())), 1 + float(survival.sum())
                )
            )
    others: dict[str, list[Observation]] = {}
    for o in rows:
        if o.dataset == "lookup" or (o.dataset == "mixed" and o.setting.num_steps == 3):
            others.setdefault(o.dataset, []).append(o)
    for cells in others.values():
        tokens = np.array([o.output_tps or 0.0 for o in cells])
        lengths = np.array([o.accept_length or 1.0 for o in cells])
        mean = float(tokens.sum() / (tokens / lengths).sum())  # all tokens over all rounds
        known.append(_acceptance_only(replace(cells[0], survival=()), mean))
    return known


def _acceptance_only(o: Observation, accept_length: float) -> Observation:
    return replace(
        o, output_tps=None, ttft_s=None, tpot_s=None, accept_length=accept_length, concurrency=1
    )


def _throughput(o: Observation) -> Observation:
    """Keep throughput and acceptance: times per token come from the answered requests only."""
    return replace(o, ttft_s=None, tpot_s=None)


def _with_draft(profile: Profile, setup: Setup, draft: DraftSpec) -> Profile:
    return replace(profile, setup=replace(setup, draft=draft))


def _sd(o: Observation) -> float:
    """Relative standard error of a cell, from the noise of one pass pooled over all cells."""
    return NOISE / math.sqrt(o.weight)


def sign_errors(found: Sequence[Cell]) -> list[tuple[Cell, float, float]]:
    """Unseen cells whose measured gain exceeds 5 % and whose predicted gain has another sign."""
    wrong = []
    for cell in found:
        base = _baseline(found, cell)
        if cell.given or base is None or not cell.row.observation.setting.speculates:
            continue
        gain = cell.row.measured / base.row.measured - 1
        said = cell.row.predicted / base.row.predicted - 1
        if abs(gain) > CLEAR and gain * said <= 0:
            wrong.append((cell, gain, said))
    return wrong


def _baseline(found: Sequence[Cell], cell: Cell) -> Cell | None:
    return next(
        (
            c
            for c in found
            if c.target == cell.target
            and c.concurrency == cell.concurrency
            and not c.row.observation.setting.speculates
        ),
        None,
    )


def regrets(found: Sequence[Cell]) -> list[tuple[str, str, float, float]]:
    """Measured loss of the setting predicted best, per target, acceptance and concurrency.

    Returns
    -------
    list
        (where, chosen, regret, standard error of the difference); fractions.
    """
    groups: dict[tuple[str, str, int], list[Cell]] = {}
    for cell in found:
        if cell.row.observation.setting.speculates:
            key = (cell.target, cell.row.observation.dataset or "", cell.concurrency)
            groups.setdefault(key, []).append(cell)
    result = []
    for (target, dataset, clients), members in groups.items():
        base = _baseline(found, members[0])
        candidates = members + ([base] if base else [])
        chosen = max(candidates, key=lambda c: c.row.predicted)
        best = max(candidates, key=lambda c: c.row.measured)
        regret = 1 - chosen.row.measured / best.row.measured
        error = math.hypot(chosen.sd, best.sd) if chosen is not best else 0.0
        result.append((f"{target} {dataset} C={clients}", chosen.name, regret, error))
    return result


def main() -> None:
    """Print all figures."""
    found = cells()
    print(
        "cell                                    C   measured  predicted    90 % interval   error"
    )
    for cell in sorted(found, key=lambda c: (c.name, c.concurrency)):
        r = cell.row
        mark = "given" if cell.given else ("" if cell.inside else "outside")
        print(
            f"{cell.name:37} {cell.concurrency:3d} {r.measured:8.1f} ±{cell.sd:4.1%} "
            f"{r.predicted:8.1f} {r.low:9.1f} - {r.high:6.1f} {r.error:+7.1%}  {mark}"
        )
    unseen = [c for c in found if not c.given]
    print()
    for target in (*TARGETS, "all"):
        errors = [abs(c.row.error) for c in unseen if target in (c.target, "all")]
        print(
            f"{target:5} {len(errors):3d} unseen cells: mean absolute error "
            f"{np.mean(errors):.1%}, worst {max(errors):.1%}"
        )
    wrong = sign_errors(found)
    print(f"sign of the gain wrong in {len(wrong)} unseen cells where it exceeds 5 %")
    for cell, gain, said in wrong:
        print(f"  {cell.name} C={cell.concurrency}: {gain:+.1%} measured, {said:+.1%} predicted")
    print("regret of the setting predicted best, where it is not the best measured:")
    for where, chosen, regret, error in regrets(found):
        if regret > 0:
            fine = regret <= max(0.03, 2 * error)
            print(
                f"  {where}: {chosen}, {regret:.1%} ± {error:.1%}"
                + ("" if fine else "   above 3 % and two standard errors")
            )
    inside = sum(c.inside for c in unseen)
    low, high = binom.interval(0.99, len(unseen), 0.9)
    band = f"90 % nominal; 99 % band {low:.0f}-{high:.0f}"
    print(f"intervals: {inside} of {len(unseen)} inside ({band})")


if __name__ == "__main__":
    main()
