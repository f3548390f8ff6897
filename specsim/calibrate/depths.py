"""What the drafter accepts before the fit moves it: from measured depths, or from its kind."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from specsim.acceptance import MEASURED_DEPTHS, Acceptance
from specsim.acceptance.prior import at_accept_length, default_acceptance
from specsim.calibrate.rows import workload_of
from specsim.observations import Observation
from specsim.profile import main_algorithm
from specsim.server import Setup
from specsim.setting import FAMILY_OF, Algorithm, SpecSetting

FAR_LEVEL = 0.9  # log-odds, two errors of the prior, beyond which a drafter is unlike its kind


def first_acceptances(setup: Setup, observations: Sequence[Observation]) -> tuple[Acceptance, ...]:
    """Return what drafters accept before a fit: by measured depths, or as others of their kind.

    Survival columns of chains give the accept probabilities by depth. Of what comes back there is
    one per drafter, dataset and temperature: rows of one say nothing of another. The setup's own
    comes first.
    """
    main, work = main_algorithm(setup), setup.workload
    drafters = {o.setting.algorithm for o in observations if o.setting.speculates}
    groups: dict[tuple[str, str, float], list[Observation]] = {
        ("", work.dataset, work.temperature): []
    }
    for row in observations:
        own = workload_of(row, setup)
        key = (_drafter(row, main, drafters), own.dataset, own.temperature)
        groups.setdefault(key, []).append(row)
    result = []
    for (drafter, dataset, temperature), rows in groups.items():
        algorithm = drafter or main
        base = default_acceptance(setup.engine.name, algorithm, dataset, temperature)
        base = replace(base, algorithm=drafter)
        chains = [o for o in rows if o.survival and o.setting.topk == 1]
        base = _by_depth(base, chains) if chains else _unlike_its_kind(base, rows)
        result.append(_lookup(base, rows))
    return tuple(result)


def _drafter(row: Observation, main: Algorithm, drafters: Collection[Algorithm]) -> str:
    """Return whose a row is: nothing for the server's own drafter, under whatever name."""
    algorithm = row.setting.algorithm
    if algorithm in ("none", main):
        return ""
    named = main in drafters or FAMILY_OF[algorithm] != FAMILY_OF[main]
    return algorithm if named else ""


def _unlike_its_kind(base: Acceptance, rows: Sequence[Observation]) -> Acceptance:
    """Start from the measured accept length where it is far from what drafters of this kind have.

    The fit weighs a prior against data whose errors have fat tails: it would rather write such a
    row off than believe it. Of several settings the one with most rows counts, chains first.
    """
    lengths: dict[SpecSetting, list[float]] = {}
    for o in rows:
        if o.setting.drafts and o.accept_length is not None:
            lengths.setdefault(o.setting, []).append(o.accept_length)
    if not lengths:
        return base
    setting = max(lengths, key=lambda s: (s.topk == 1, len(lengths[s])))
    moved = _at_length(base, setting, float(np.mean(lengths[setting])))
    return moved if abs(moved.level - base.level) > FAR_LEVEL else base


def _lookup(base: Acceptance, rows: Sequence[Observation]) -> Acceptance:
    """Put in the share of rounds that drafted, where rows of a lookup say (LOOKUP)."""
    lookups = [o for o in rows if o.setting.family == "lookup" and "drafted_per_round" in o.extra]
    if not lookups:
        return base
    shares = [float(o.extra["drafted_per_round"]) / o.setting.num_steps for o in lookups]
    share = float(np.average(shares, weights=[o.weight for o in lookups]))
    return replace(base, draft_share=min(max(share, 0.01), 1.0))


def _by_depth(base: Acceptance, chains: Sequence[Observation]) -> Acceptance:
    """Put in the accept probabilities by depth, and what asking for more depth costs (ASKED).

    The level goes where the deepest chains' accept length is the measured one: requests differ, and
    slow ones run for longer, so the mean request accepts more than the mean round does.
    """
    asked = {o.setting.num_steps for o in chains}
    loss, reference = _asked_loss(chains), max(asked)
    if loss:
        chains = [o for o in chains if o.setting.num_steps == reference]
    curves = [(o.survival, o.weight) for o in chains]
    base = replace(
        base,
        accept_prob=_conditional(curves),
        source=MEASURED_DEPTHS,
        asked_depth=reference if loss else 0,
        asked_loss=loss,
    )
    depth = max(len(s) for s, _ in curves)
    lengths, weights = zip(*((1 + sum(s), w) for s, w in curves if len(s) == depth), strict=True)
    return _at_length(base, SpecSetting.of(1, depth), float(np.average(lengths, weights=weights)))


ASKED_NOISE = 0.1  # log-odds by which the first depth may differ between two asked ones by chance


def _asked_loss(chains: Sequence[Observation]) -> float:
    """Return the log-odds that the first depth loses per unit of ln(asked depth); 0 if by chance.

    Only the first depth compares like with like: deeper ones are conditional on those above.
    """
    asked = np.log([o.setting.num_steps for o in chains])
    first = np.clip([o.survival[0] for o in chains], 1e-3, 1 - 1e-3)
    weight = np.array([o.weight for o in chains])
    if np.ptp(asked) == 0:
        return 0.0
    centred = asked - np.average(asked, weights=weight)
    slope = -float(
        (weight * centred) @ np.log(first / (1 - first)) / ((weight * centred) @ centred)
    )
    return float(np.clip(slope, 0.0, 1.0)) if slope * np.ptp(asked) > ASKED_NOISE else 0.0


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
