"""What the drafter accepts before the fit moves it: from measured depths, or from its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from specsim.acceptance import Acceptance, at_accept_length
from specsim.calibrate.residuals import workload_of
from specsim.observations import Observation
from specsim.profile import assembled
from specsim.profile.uncalibrated import default_acceptance
from specsim.server import Setup
from specsim.setting import SpecSetting

FAR_LEVEL = 0.9
"""Log-odds that a drafter is off its kind, two errors of the prior, to be taken as unlike it."""


def first_acceptances(setup: Setup, observations: Sequence[Observation]) -> tuple[Acceptance, ...]:
    """Return what the drafter accepts before a fit: by measured depths, or a drafter of its kind.

    Parameters
    ----------
    setup
        The server.
    observations
        Rows; survival columns of chains give the accept probabilities by depth.

    Returns
    -------
    One per dataset and temperature, the setup's own first.
    """
    system = assembled(setup)
    current = setup.current
    algorithms = [o.setting.algorithm for o in observations if o.setting.speculates]
    algorithm = algorithms[0] if algorithms else (current.algorithm if current else "EAGLE3")
    kinds: dict[tuple[str, float], str | None] = {}
    kinds[setup.workload.dataset, setup.workload.temperature] = None
    for row in observations:
        w = workload_of(row, setup)
        drafts = row.setting.algorithm if row.setting.speculates else None
        key = (w.dataset, w.temperature)
        kinds[key] = kinds.get(key) or drafts
    result = []
    for (dataset, temperature), kind in kinds.items():
        base = default_acceptance(system, kind or algorithm, dataset, temperature)
        depths = [
            (o.survival, o.weight)
            for o in observations
            if o.survival
            and o.setting.topk == 1
            and (workload_of(o, setup).dataset, workload_of(o, setup).temperature)
            == (dataset, temperature)
        ]
        if depths:
            base = replace(base, accept_prob=_conditional(depths), source="measured survival")
            base = _levelled(base, depths)
        else:
            base = _unlike_its_kind(base, setup, observations)
        result.append(_lookup(base, setup, observations))
    return tuple(result)


def _unlike_its_kind(
    base: Acceptance, setup: Setup, observations: Sequence[Observation]
) -> Acceptance:
    """Start from the measured accept length where it is far from what drafters of this kind have.

    The fit weighs a prior against data whose errors have fat tails: it would rather write such a
    row off than believe it. Of several settings the one with most rows counts, chains first.
    """
    lengths: dict[SpecSetting, list[float]] = {}
    for o in observations:
        w = workload_of(o, setup)
        same = (w.dataset, w.temperature) == (base.dataset, base.temperature)
        if same and o.setting.speculates and o.accept_length is not None:
            lengths.setdefault(o.setting, []).append(o.accept_length)
    if not lengths:
        return base
    setting = max(lengths, key=lambda s: (s.topk == 1, len(lengths[s])))
    wanted = float(np.mean(lengths[setting]))
    most = min(setting.num_steps, setting.num_draft_tokens - 1) + 1
    if not 1.01 < wanted < most - 0.01:
        return base
    level = at_accept_length(base, setting, wanted).level
    return replace(base, level=level) if abs(level - base.level) > FAR_LEVEL else base


def _lookup(base: Acceptance, setup: Setup, observations: Sequence[Observation]) -> Acceptance:
    """Put in the share of rounds that drafted, where rows of a lookup say (LOOKUP)."""
    shares, weights = [], []
    for o in observations:
        drafted = o.extra.get("drafted_per_round")
        w = workload_of(o, setup)
        same = (w.dataset, w.temperature) == (base.dataset, base.temperature)
        if same and o.setting.algorithm == "NGRAM" and drafted is not None:
            shares.append(float(drafted) / o.setting.num_steps)
            weights.append(o.weight)
    if not shares:
        return base
    share = float(np.average(shares, weights=weights))
    return replace(base, draft_share=min(max(share, 0.01), 1.0))


def _levelled(base: Acceptance, curves: Sequence[tuple[tuple[float, ...], float]]) -> Acceptance:
    """Put the level where the chain's accept length is the measured one.

    Requests differ, and slow ones run for longer, so the mean request accepts more than the mean
    round does.
    """
    depth = max(len(s) for s, _ in curves)
    lengths, weights = zip(*((1 + sum(s), w) for s, w in curves if len(s) == depth), strict=True)
    wanted = float(np.average(lengths, weights=weights))
    if not 1.01 < wanted < depth + 0.99:
        return base
    level = at_accept_length(base, SpecSetting.of(1, depth), wanted).level
    return replace(base, level=level)


def _conditional(curves: Sequence[tuple[tuple[float, ...], float]]) -> tuple[float, ...]:
    """Mean accept probability per depth from several survival curves and their weights."""
    result = []
    for d in range(max(len(s) for s, _ in curves)):
        before = sum(w * (s[d - 1] if d else 1.0) for s, w in curves if len(s) > d)
        after = sum(w * s[d] for s, w in curves if len(s) > d)
        if before > 0:
            result.append(float(np.clip(after / before, 1e-3, 1 - 1e-3)))
    return tuple(result)
