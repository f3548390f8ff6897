"""Servers that nobody here built: what is predicted from a few cells of each, beside cheap rules.

    python benchmarks/figures_servers.py             every figure; some minutes
    python benchmarks/figures_servers.py AB          splits A and B alone
    python benchmarks/figures_servers.py sure        over 99 % sure, and wrong?
    python benchmarks/figures_servers.py given       cells that a fit of all cells does not honour

Splits, fixed before anything was run:

A   all cells without speculation and the accept length of each setting -> the speculating cells
B   A and one speculating cell -> the others; it is of the setting that runs today, at the least
    context, with the middle number of clients
C   all cells but one -> that one, for at most twelve cells of a server, evenly taken

A long sweep is thinned to its least and its middle context (or prompt length) first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
from cheap_rules import gain_kept, interpolation, step_at_tokens, textbook
from server_splits import CLEAR, Prediction, Server, Split, servers, splits

from specsim.calibrate.fit import fit_profile
from specsim.calibrate.validate import validate
from specsim.errors import SpecsimError
from specsim.observations import Observation
from specsim.predict import predict
from specsim.profile import Profile
from specsim.profile.uncalibrated import uncalibrated_profile
from specsim.question import Question

Method = Callable[[Server, Split], list[Prediction]]


def predicted_by(
    profile: Profile, asked: Sequence[Observation], plain: Sequence[Observation] = ()
) -> list[Prediction]:
    """What a profile says of cells; of gains where a cell without speculation is beside them."""
    rows = validate(profile, asked).rows
    beside = {_load(r.observation): r for r in validate(profile, plain).rows} if plain else {}
    found = []
    for r in rows:
        base = beside.get(_load(r.observation)) if r.observation.setting.speculates else None
        gains = (None, None)
        if base is not None:
            gains = (r.predicted / base.predicted - 1.0, r.measured / base.measured - 1.0)
        found.append(Prediction(r.observation, r.predicted, r.inside, *gains))
    return found


def _load(cell: Observation) -> tuple[object, ...]:
    keys = ("concurrency", "context_len", "input_len", "output_len", "dataset", "kind")
    return tuple(getattr(cell, k) for k in keys)


def this_fit(server: Server, split: Split) -> list[Prediction]:
    """The project's fit."""
    plain = [c for c in server.cells if not c.setting.speculates]
    return predicted_by(fit_profile(server.setup, split.given).profile, split.asked, plain)


def physics(server: Server, split: Split) -> list[Prediction]:
    """Nothing fitted but the accept length."""
    current = server.setup.current
    stated = next((c for c in split.given if c.setting == current), None)
    profile = uncalibrated_profile(
        server.setup, "physics", stated.accept_length if stated else None, current
    )
    return predicted_by(profile, split.asked)


METHODS: dict[str, Method] = {
    "this fit": this_fit,
    "physics": physics,
    "interpolation": interpolation,
    "gain kept": gain_kept,
    "textbook": textbook,
    "step at n c tokens": step_at_tokens,
}
CHEAP = ("interpolation", "gain kept", "textbook", "step at n c tokens")


def evaluate(server: Server, which: str, methods: Sequence[str]) -> dict[str, list[Prediction]]:
    """Predictions of every method; a method that has nothing to go by says nothing."""
    result: dict[str, list[Prediction]] = {}
    for name in methods:
        predictions: list[Prediction] = []
        for split in splits(server, which):
            try:
                predictions += METHODS[name](server, split)
            except SpecsimError as error:
                print(f"    {server.name}, {name}: {error}", file=sys.stderr)
        if predictions:
            result[name] = predictions
    return result


def _mean(predictions: Sequence[Prediction]) -> float:
    return 100.0 * float(np.mean([abs(p.error) for p in predictions]))


def report(which: str, everything: Sequence[Server]) -> None:
    """Print the table of one split."""
    methods = [m for m in METHODS if which != "A" or m not in ("interpolation", "gain kept")]
    methods = methods if which != "C" else ["this fit", "interpolation"]
    print(f"\n{which}: mean error of the cells asked for, %")
    print(f"{'server':46s} {'cells':>5s} " + " ".join(f"{m:>13.13s}" for m in methods), flush=True)
    every: dict[str, list[float]] = {m: [] for m in methods}
    covered: list[str] = []
    inside: list[bool] = []
    signed: list[float] = []
    signs: list[bool] = []
    thirds: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for server in everything:
        found = evaluate(server, which, methods)
        if "this fit" not in found:
            continue
        own = found["this fit"]
        inside += [bool(p.inside) for p in own]
        if len(own) >= 6 and np.mean([bool(p.inside) for p in own]) < 0.7:
            covered.append(server.name)
        signed += [p.error for p in own if p.cell.setting.speculates]
        loads = sorted({p.cell.concurrency or 0 for p in own})
        for p in own:
            if p.gain is not None and p.measured_gain is not None:
                third = 3 * loads.index(p.cell.concurrency or 0) // len(loads)
                thirds[third].append((1.0 + p.gain) / (1.0 + p.measured_gain) - 1.0)
                if abs(p.measured_gain) > CLEAR:
                    signs.append(p.gain * p.measured_gain > 0)
        texts = []
        for m in methods:
            texts.append(f"{_mean(found[m]):13.1f}" if m in found else f"{'-':>13s}")
            if m in found:
                every[m].append(_mean(found[m]))
        print(f"{server.name:46s} {len(own):5d} " + " ".join(texts), flush=True)
    means = [f"{np.mean(every[m]):13.1f}" if every[m] else f"{'-':>13s}" for m in methods]
    print(f"{'mean over servers':46s} {'':5s} " + " ".join(means))
    print(f"inside the 90 % interval: {100 * np.mean(inside):.0f} % of {len(inside)} cells")
    print(f"less than 70 % inside on: {', '.join(covered) or 'no server'}")
    if signed:
        print(f"signed mean error of the speculating cells: {100 * np.mean(signed):+.1f} %")
    if signs:
        print(f"sign of the gain right: {sum(signs)} of {len(signs)} beyond {100 * CLEAR:.0f} %")
        mean = ", ".join(f"{100 * np.mean(thirds[t]):+.1f} %" for t in sorted(thirds) if thirds[t])
        print(f"signed mean error of the gain at low, middle and high load: {mean}")


def report_sure(everything: Sequence[Server]) -> None:
    """Print how often a gain or a loss is said to be over 99 % sure, and how often wrongly."""
    print("\nover 99 % sure of a gain or a loss beside a measured cell without speculation")
    for which in "AB":
        said, wrong = 0, []
        for server in everything:
            plain = {_load(c): c for c in server.cells if not c.setting.speculates}
            for split in splits(server, which):
                profile = fit_profile(server.setup, split.given).profile
                for cell in split.asked:
                    base = plain.get(_load(cell))
                    if base is None or not (base.output_tps and cell.output_tps):
                        continue
                    chance = _chance_of_gain(profile, cell)
                    if 0.01 < chance < 0.99:
                        continue
                    said += 1
                    if (cell.output_tps > base.output_tps) != (chance > 0.5):
                        gain = cell.output_tps / base.output_tps - 1.0
                        wrong.append(f"{server.name} C={cell.concurrency} {100 * gain:+.0f} %")
        print(f"{which}: said of {said} cells, wrong of {len(wrong)}: {'; '.join(wrong) or 'none'}")


def _chance_of_gain(profile: Profile, cell: Observation) -> float:
    """P(gain > 0) that `predict` says at a cell."""
    question = Question(
        (cell.setting,),
        (int(cell.concurrency or 1),),
        input_len=cell.input_len,
        output_len=cell.output_len,
        context_len=cell.context_len if cell.kind == "steady_decode" else None,
        what_if=True,
    )
    curve = predict(profile, question, solver="analytic")
    asked = curve.of("asked") or curve.of("current")
    assert asked is not None
    return asked.points[0].probability


def report_given(everything: Sequence[Server]) -> None:
    """Print what a fit of all cells leaves: its median, and cells beyond 5 % without a line."""
    errors, beyond, told = [], 0, 0
    for server in everything:
        result = fit_profile(server.setup, server.cells)
        off = np.abs(np.expm1(result.log_error[~np.isnan(result.log_error)]))
        errors += off.tolist()
        beyond += int((off > 0.05).sum())
        told += len(result.profile.misfits)
    print(f"\nall cells given: {len(errors)} cells, median misfit {100 * np.median(errors):.1f} %")
    print(f"beyond 5 %: {beyond} cells, lines in the output: {told}")


def main(argv: Sequence[str]) -> None:
    """Print the splits that are named, or all."""
    everything = list(servers())
    others = {"sure": report_sure, "given": report_given}
    if argv and argv[0] in others:
        others[argv[0]](everything)
        return
    for which in argv[0] if argv else "ABC":
        report(which, everything)
    if not argv:
        report_given(everything)
        report_sure(everything)


if __name__ == "__main__":
    main(sys.argv[1:])
