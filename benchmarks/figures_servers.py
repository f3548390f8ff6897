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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from specsim.calibrate.fit import fit_profile
from specsim.calibrate.validate import validate
from specsim.errors import SpecsimError
from specsim.observations import Observation, read_observations
from specsim.predict import predict
from specsim.profile import Profile
from specsim.profile.uncalibrated import uncalibrated_profile
from specsim.question import Question
from specsim.server import Setup, read_setup

EVIDENCE = Path(__file__).resolve().parent.parent / "calibration"
MOST_CELLS, MOST_LEFT_OUT = 24, 12
CLEAR = 0.05
"""A measured gain below this has no sign to be right about."""


@dataclass(frozen=True, slots=True)
class Server:
    """One server: what it is, and its measured cells."""

    name: str
    setup: Setup
    cells: tuple[Observation, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """Cells that are given, and those that are asked for."""

    given: tuple[Observation, ...]
    asked: tuple[Observation, ...]


def servers() -> Iterator[Server]:
    """All servers with evidence in this repository."""
    for path in sorted(EVIDENCE.rglob("setup.toml")):
        cells = read_observations(path.with_name("observations.csv")).rows
        name = str(path.parent.relative_to(EVIDENCE)).removeprefix("servers/")
        yield Server(name, read_setup(path), thinned(cells))


def thinned(cells: Sequence[Observation]) -> tuple[Observation, ...]:
    """Cells with a throughput; of a long sweep those of two contexts and two prompt lengths."""
    kept = [c for c in cells if c.output_tps is not None]
    for length in ("context_len", "input_len"):
        values = sorted({getattr(c, length) or 0.0 for c in kept})
        if len(kept) > MOST_CELLS and len(values) > 2:
            two = (values[0], values[len(values) // 2])
            kept = [c for c in kept if (getattr(c, length) or 0.0) in two]
    return tuple(kept)


def accept_lengths(cells: Sequence[Observation]) -> list[Observation]:
    """Rows that state the mean accept length of each setting and dataset, and nothing else."""
    groups: dict[object, list[Observation]] = {}
    for c in cells:
        if c.setting.speculates and c.accept_length is not None:
            groups.setdefault((c.setting.key, c.dataset), []).append(c)
    return [
        replace(
            group[0],
            **dict.fromkeys(("output_tps", "tpot_s", "itl_s", "round_time_s", "ttft_s")),
            survival=(),
            accept_length=float(np.mean([c.accept_length for c in group if c.accept_length])),
            accept_length_scope="run",
        )
        for group in groups.values()
    ]


def splits(server: Server, which: str) -> list[Split]:
    """Splits of one kind; none where the server does not have what it takes."""
    plain = [c for c in server.cells if not c.setting.speculates]
    drafting = [c for c in server.cells if c.setting.speculates]
    stated = accept_lengths(drafting)
    if which == "C":
        cells = server.cells
        step = max(len(cells) / MOST_LEFT_OUT, 1.0)
        chosen = [int(i * step) for i in range(min(len(cells), MOST_LEFT_OUT))]
        return [Split((*cells[:i], *cells[i + 1 :]), (cells[i],)) for i in chosen]
    if not plain or not drafting:
        return []
    if which == "A":
        known = {(c.setting.key, c.dataset) for c in stated}
        told = all((c.setting.key, c.dataset) in known for c in drafting)
        return [Split((*plain, *stated), tuple(drafting))] if told else []
    current = server.setup.current
    today = [c for c in drafting if current is None or c.setting.key == current.key] or drafting
    least = min((c.context_len or 0.0, c.input_len or 0.0) for c in today)
    near = [c for c in today if (c.context_len or 0.0, c.input_len or 0.0) == least]
    one = sorted(near, key=lambda c: c.concurrency or 0)[len(near) // 2]
    rest = tuple(c for c in drafting if c is not one)
    return [Split((*plain, *stated, one), rest)] if rest else []


@dataclass(frozen=True, slots=True)
class Prediction:
    """One asked cell: measured and predicted throughput, and the interval where there is one."""

    cell: Observation
    predicted: float
    inside: bool | None = None
    gain: float | None = None  # predicted over no speculation at the same load and lengths
    measured_gain: float | None = None

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted / float(self.cell.output_tps or np.nan) - 1.0


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


def step_s(cell: Observation) -> float:
    """Time of a step or round, as a client sees it."""
    tokens = cell.accept_length or 1.0
    return float(cell.concurrency or 1) * tokens / float(cell.output_tps or np.nan)


def _same_lengths(cell: Observation, other: Observation) -> bool:
    keys = ("context_len", "input_len", "output_len", "dataset", "num_requests", "kind")
    loose = [k for k in keys if k != "num_requests"]
    return all(getattr(cell, k) == getattr(other, k) for k in loose)


def _curve(split: Split, cell: Observation, like: bool) -> list[tuple[float, float]]:
    """(ln clients, ln throughput) of given cells of the cell's setting, or of no speculation."""
    found = {
        np.log(float(c.concurrency or 1)): np.log(float(c.output_tps))
        for c in split.given
        if c.output_tps is not None
        and _same_lengths(c, cell)
        and (c.setting == cell.setting if like else not c.setting.speculates)
    }
    return sorted(found.items())


def _along(points: Sequence[tuple[float, float]], at: float) -> float:
    """Interpolate, and carry the last slope on."""
    x, y = np.array(points).T
    if len(x) == 1:
        return float(y[0])
    i = int(np.clip(np.searchsorted(x, at) - 1, 0, len(x) - 2))
    return float(y[i] + (at - x[i]) * (y[i + 1] - y[i]) / (x[i + 1] - x[i]))


def interpolation(server: Server, split: Split) -> list[Prediction]:
    """Log-log over clients, within the cell's own setting."""
    result = []
    for c in split.asked:
        points = _curve(split, c, like=True)
        if points:
            value = np.exp(_along(points, np.log(float(c.concurrency or 1))))
            result.append(Prediction(c, float(value)))
    return result


def gain_kept(server: Server, split: Split) -> list[Prediction]:
    """The gain of the given speculating cell, at every load."""
    given = [c for c in split.given if c.setting.speculates and c.output_tps is not None]
    result = []
    for c in split.asked:
        base = _curve(split, c, like=False)
        if not given or not base:
            continue
        there = _curve(split, given[0], like=False)
        if not there:
            continue
        gain = float(np.log(float(given[0].output_tps or 1))) - _along(
            there, np.log(float(given[0].concurrency or 1))
        )
        value = np.exp(_along(base, np.log(float(c.concurrency or 1))) + gain)
        result.append(Prediction(c, float(value)))
    return result


def textbook(server: Server, split: Split) -> list[Prediction]:
    """Leviathan's speed-up: accept length over 1 + 0.1 per draft step, at every load."""
    result = []
    for c in split.asked:
        base = _curve(split, c, like=False)
        if base and c.accept_length:
            plain = np.exp(_along(base, np.log(float(c.concurrency or 1))))
            speed_up = c.accept_length / (1.0 + 0.1 * c.setting.num_steps)
            result.append(Prediction(c, float(plain * speed_up)))
    return result


def step_at_tokens(server: Server, split: Split) -> list[Prediction]:
    """A round of c requests costs the baseline's step at n c tokens and one constant."""
    given = [c for c in split.given if c.setting.speculates and c.output_tps is not None]

    def plain_s(c: Observation) -> float | None:
        base = _curve(split, c, like=False)
        if not base:
            return None
        tokens = float((c.concurrency or 1) * c.setting.num_draft_tokens)
        return tokens / float(np.exp(_along(base, np.log(tokens))))

    constants = [
        step_s(c) - plain for c in given if c.accept_length and (plain := plain_s(c)) is not None
    ]
    constant = max(float(np.mean(constants)), 0.0) if constants else 0.0  # no time is negative
    result = []
    for c in split.asked:
        plain = plain_s(c)
        if plain is not None and c.accept_length:
            tokens = float(c.concurrency or 1) * c.accept_length
            result.append(Prediction(c, tokens / max(plain + constant, 1e-6)))
    return result


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
