"""What the drafter accepts before the fit moves it: from measured depths, or from its kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from specsim.acceptance import Acceptance, at_accept_length
from specsim.calibrate.rows import workload_of
from specsim.observations import Observation
from specsim.profile import assembled
from specsim.profile.uncalibrated import default_acceptance
from specsim.server import Setup
from specsim.setting import Algorithm, SpecSetting

FAR_LEVEL = 0.9
"""Log-odds that a drafter is off its kind, two errors of the prior, to be taken as unlike it."""


def first_acceptances(setup: Setup, observations: Sequence[Observation]) -> tuple[Acceptance, ...]:
    """Return what the drafter accepts before a fit: by measured depths, or a drafter of its kind.

    Survival columns of chains give the accept probabilities by depth. Of what comes back there is
    one per dataset and temperature, the setup's own first.
    """
    system, current = assembled(setup), setup.current
    otherwise = next(_algorithms(observations), current.algorithm if current else "EAGLE3")
    groups: dict[tuple[str, float], list[Observation]] = {
        (setup.workload.dataset, setup.workload.temperature): []
    }
    for row in observations:
        work = workload_of(row, setup)
        groups.setdefault((work.dataset, work.temperature), []).append(row)
    result = []
    for (dataset, temperature), rows in groups.items():
        algorithm = next(_algorithms(rows), otherwise)
        base = default_acceptance(system, algorithm, dataset, temperature)
        chains = [(o.survival, o.weight) for o in rows if o.survival and o.setting.topk == 1]
        if chains:
            base = replace(base, accept_prob=_conditional(chains), source="measured survival")
            base = _levelled(base, chains)
        else:
            base = _unlike_its_kind(base, rows)
        result.append(_lookup(base, rows))
    return tuple(result)


def _algorithms(rows: Sequence[Observation]) -> Iterator[Algorithm]:
    return (o.setting.algorithm for o in rows if o.setting.speculates)


def _unlike_its_kind(base: Acceptance, rows: Sequence[Observation]) -> Acceptance:
    """Start from the measured accept length where it is far from what drafters of this kind have.

    The fit weighs a prior against data whose errors have fat tails: it would rather write such a
    row off than believe it. Of several settings the one with most rows counts, chains first.
    """
    lengths: dict[SpecSetting, list[float]] = {}
    for o in rows:
        if o.setting.speculates and o.accept_length is not None:
            lengths.setdefault(o.setting, []).append(o.accept_length)
    if not lengths:
        return base
    setting = max(lengths, key=lambda s: (s.topk == 1, len(lengths[s])))
    moved = _at_length(base, setting, float(np.mean(lengths[setting])))
    return moved if abs(moved.level - base.level) > FAR_LEVEL else base


def _lookup(base: Acceptance, rows: Sequence[Observation]) -> Acceptance:
    """Put in the share of rounds that drafted, where rows of a lookup say (LOOKUP)."""
    lookups = [o for o in rows if o.setting.algorithm == "NGRAM" and "drafted_per_round" in o.extra]
    if not lookups:
        return base
    shares = [float(o.extra["drafted_per_round"]) / o.setting.num_steps for o in lookups]
    share = float(np.average(shares, weights=[o.weight for o in lookups]))
    return replace(base, draft_share=min(max(share, 0.01), 1.0))


def _levelled(base: Acceptance, curves: Sequence[tuple[tuple[float, ...], float]]) -> Acceptance:
    """Put the level where the chain's accept length is the measured one.

    Requests differ, and slow ones run for longer, so the mean request accepts more than the mean
    round does.
    """
    depth = max(len(s) for s, _ in curves)
    lengths, weights = zip(*((1 + sum(s), w) for s, w in curves if len(s) == depth), strict=True)
    return _at_length(base, SpecSetting.of(1, depth), float(np.average(lengths, weights=weights)))


def _at_length(base: Acceptance, setting: SpecSetting, wanted: float) -> Acceptance:
    """Put the level where a setting's accept length is the wanted one, if that is within reach."""
    most = min(setting.num_steps, setting.num_draft_tokens - 1) + 1
    if not 1.01 < wanted < most - 0.01:
        return base
    return replace(base, level=at_accept_length(base, setting, wanted).level)


def _conditional(curves: Sequence[tuple[tuple[float, ...], float]]) -> tuple[float, ...]:
    """Mean accept probability per depth from several survival curves and their weights."""
    result = []
    for d in range(max(len(s) for s, _ in curves)):
        before = sum(w * (s[d - 1] if d else 1.0) for s, w in curves if len(s) > d)
        after = sum(w * s[d] for s, w in curves if len(s) > d)
        if before > 0:
            result.append(float(np.clip(after / before, 1e-3, 1 - 1e-3)))
    return tuple(result)
