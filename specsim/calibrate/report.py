"""What a fit found, as text: parameters against priors, residuals, what cannot be told apart.

And before any fit: measured values that no such server gives, by what factor, and in which unit
they may be.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from specsim.acceptance import accept_table
from specsim.calibrate.fit import FitResult, problem_of
from specsim.calibrate.rows import workload_of
from specsim.errors import SpecsimError
from specsim.observations import Observation, cell_name, first_of
from specsim.parameters import CORRECTIONS, KNOT, knot_of, row_of
from specsim.profile import Profile
from specsim.server import Setup
from specsim.setting import SpecSetting
from specsim.uncertainty import Parameter, strayed

STRONG = 0.9  # correlation beyond which two parameters are named as inseparable
CHAIN_SLACK = 0.98  # printed accept lengths of two runs of the same drafter differ by about this
TREE_SLACK = 0.9  # a tree this far below that of a calibrated drafter is worth a word

FAR = {"output_tps": 10.0, "tpot_s": 10.0, "round_s": 10.0, "itl_s": 10.0, "ttft_s": 50.0}
"""Factor from the expectation before any fit, by quantity: of 25 public sets the worst cells are 5
times off in throughput, 2 in times between tokens, and 14 in a first token that was queued for."""

COLUMNS = {"round_s": "round_time_s"}


def entangled(profile: Profile) -> list[tuple[str, str, float]]:
    """Pairs of parameters with a posterior correlation beyond `STRONG`, strongest first.

    The correction's knots are one curve and are left out.
    """
    kept = [(i, p.name) for i, p in enumerate(profile.parameters) if not p.name.startswith(KNOT)]
    pairs = [(a, b, profile.correlation[i][j]) for i, a in kept for j, b in kept if j < i]
    strong = (pair for pair in pairs if abs(pair[2]) > STRONG)
    return sorted(strong, key=lambda pair: -abs(pair[2]))


def warnings(result: FitResult) -> list[str]:
    """Say what a reader of the profile has to know, in whole sentences."""
    profile = result.profile
    lines = list(doubts(profile.setup, result.observations))
    lines += [] if result.suspicion is None else [result.suspicion]
    lines += strayed(p for p in profile.parameters if knot_of(p.name) is None)
    lines += [misfit.sentence for misfit in profile.misfits]
    lines += [
        f"{a} and {b} cannot be told apart by these cells (correlation {r:+.2f}): "
        f"add {row_of(a).pinned_by}, or {row_of(b).pinned_by}"
        for a, b, r in entangled(profile)
    ]
    level = [p for p in profile.parameters if p.name.startswith("accept_level")]
    speculating = [o for o in result.observations if o.setting.speculates]
    measured = any(o.accept_length is not None or o.survival for o in speculating)
    if level and speculating and not measured:
        lines.append(
            "accept length and speculation's cost cannot be told apart from throughput alone: "
            "add a log with accept length, or one profiler trace"
        )
    lines += poor_trees(result)
    return lines


def poor_trees(result: FitResult) -> list[str]:
    """Name trees that were accepted less than their drafter could give [@specbundle].

    A tree holds the chain of its depth, so where an engine verifies it rightly and the drafter
    knows what it is sure of, its accept length is at least the chain's; a drafter whose confidence
    is right gives what the model has without a confidence shift.
    """
    lines = []
    measured: dict[tuple[SpecSetting, str, float], list[float]] = {}
    for row in result.observations:
        if row.accept_length is not None and row.setting.speculates:
            work = workload_of(row, result.profile.setup)
            key = (replace(row.setting, scheduler="auto"), work.dataset, work.temperature)
            measured.setdefault(key, []).append(row.accept_length)
    for (setting, dataset, temperature), lengths in measured.items():
        if setting.topk == 1:
            continue
        depth = min(setting.num_steps, setting.num_draft_tokens - 1)
        chain = SpecSetting.of(1, depth, algorithm=setting.algorithm)
        fitted = result.profile.acceptance(dataset, temperature, algorithm=setting.algorithm)
        seen = measured.get((chain, dataset, temperature))
        of_chain = float(np.mean(seen)) if seen else accept_table(fitted, chain).accept_length
        sure = replace(fitted, confidence_shift=0.0)
        of_tree = accept_table(sure, setting).accept_length
        tau = float(np.mean(lengths))
        begin = f"accept length {tau:.2f} of {setting.label}"
        if tau < CHAIN_SLACK * of_chain:
            lines.append(
                f"{begin} is below the {of_chain:.2f} that a chain of its depth "
                f"{'has' if seen else 'should have'}: an engine defect in tree verification, or a "
                "drafter whose confidence is far off; test it with topk 1"
            )
        elif tau < TREE_SLACK * of_tree:
            lines.append(
                f"{begin} is more than 10 % below the {of_tree:.2f} of a drafter that knows how "
                "sure it is: the drafter is miscalibrated, and spends its budget on breadth"
            )
    return lines


def described(parameter: Parameter) -> tuple[str, str, str, str, str]:
    """Name, value and prior with their 90 %, what drives it, source: one row of a table."""
    value, prior = parameter.texts
    driven = f"{parameter.driven}{'' if parameter.fitted else ', held'}"
    return parameter.name, value, prior, driven, parameter.source


def corrections_described(profile: Profile) -> list[tuple[str, str, str, str]]:
    """Rows of what physics misses: the factors at a correction's knots, and their prior."""
    rows = []
    for family, row in CORRECTIONS.items():
        knots = [p for p in profile.parameters if (k := knot_of(p.name)) and k[0] == family]
        if knots:
            least, most = (math.exp(f(p.value for p in knots)) for f in (min, max))
            low, high = (math.exp(x) for x in knots[0].prior_interval)
            data = sum(p.driven == "data" for p in knots)
            factors, prior = f"{least:.3g} to {most:.3g}", f"1 ({low:.3g} to {high:.3g})"
            rows.append((row.source, factors, prior, f"{data}/{len(knots)} data"))
    return rows


def markdown(result: FitResult) -> str:
    """Write the whole report as Markdown."""
    profile = result.profile
    fit = profile.fit
    fitted = [p for p in profile.parameters if p.fitted and not p.name.startswith(KNOT)]
    lines = [
        f"# Profile {profile.name}",
        "",
        f"{fit.observations} observations, {len(fitted)} fitted numbers"
        + f"; noise of a cell {fit.noise:.1%}, model error {fit.model_error:.1%}.",
        "",
        "| parameter | value (90 %) | prior (90 %) | driven by | rests on |",
        "|---|---|---|---|---|",
        *("| " + " | ".join(described(p)) + " |" for p in profile.parameters),
        "",
        "| cell | model / measured - 1 |",
        "|---|---|",
        *(
            f"| {cell_name(o)} | {math.expm1(e):+.1%} |"
            for o, e in zip(result.observations, result.log_error, strict=True)
            if not math.isnan(e)
        ),
        "",
        *(f"- {line}" for line in warnings(result)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def doubts(setup: Setup, observations: Sequence[Observation]) -> tuple[str, ...]:
    """Return a line for each kind of doubt: the first cell, its value, and what may be meant."""
    try:
        problem = problem_of(setup, observations)
    except SpecsimError:  # nothing to compare with
        return ()
    prior = np.array([[p.coordinate for p in problem.parameters]])
    expected, data = problem.rows.predict(problem.parameters, prior), problem.data
    kinds: dict[tuple[str, str], list[str]] = {}
    for value, name, at in zip(np.exp(data.log_value), data.field, data.row, strict=True):
        model = float(expected[name][0, at])
        if name in FAR and abs(math.log(value / model)) > math.log(FAR[name]):
            row, column = observations[at], COLUMNS.get(name, name)
            said = f"{cell_name(row)}: {column} = {value:.4g} where about {model:.3g} is expected"
            meant = _meant(name, float(value) / model, row.concurrency or 1)
            kinds.setdefault((name, meant), []).append(said)
    return tuple(f"{first_of(cells)}{meant}" for (_, meant), cells in kinds.items())


def _meant(name: str, ratio: float, clients: int) -> str:
    known = {1e3: ": milliseconds? give seconds", 1e6: ": microseconds? give seconds"}
    if name == "output_tps":
        known = {f: f": {f:g} times too much?" for f in (100.0, 1000.0)}
        known |= {1 / f: f": {f:g} times too little?" for f in (100.0, 1000.0)}
        if clients > 1:
            known[1 / clients] = ": tokens/s of one client? give those of all"
    best = min(known, key=lambda factor: abs(math.log(ratio / factor)))
    close = abs(math.log(ratio / best)) < math.log(FAR[name])
    return known[best] if close else ": check value, unit and setup"
