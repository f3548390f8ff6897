"""Accept tables of many settings at once: trees of one shape grow from one beam.

The engine's beam does not depend on the number of draft tokens, only the selection from its pool
does (the best n - 1 by confidence). So all budgets of one topk and depth are prefix sums over one
sorted pool; `specsim.acceptance.accept_table` gives the same numbers one setting at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from specsim import acceptance as law
from specsim.acceptance import CONTEXTS, Acceptance, AcceptTable, accept_table
from specsim.setting import SpecSetting
from specsim.tree import BeamResult, beam_tree, tree_capacity

if TYPE_CHECKING:
    from specsim.arrays import Floats


def accept_tables(
    acceptance: Acceptance, settings: Sequence[SpecSetting]
) -> tuple[AcceptTable, ...]:
    """Return the accept table of every setting, cached by value.

    Examples
    --------
    >>> two = (SpecSetting.of(2, 3, 6), SpecSetting.of(2, 3, 8))
    >>> shared = accept_tables(Acceptance(), two)
    >>> [abs(t.accept_length - accept_table(Acceptance(), s).accept_length) < 1e-12
    ...  for t, s in zip(shared, two)]
    [True, True]
    """
    plain = replace(acceptance, dataset="", temperature=0.0, evidence="assumed", source="")
    sizes: dict[tuple[int, int], set[int]] = {}
    for setting in settings:
        if setting.topk > 1:
            shape = (setting.topk, setting.num_steps)
            sizes.setdefault(shape, set()).add(setting.num_draft_tokens)
    return tuple(
        _of_beam(plain, s.topk, s.num_steps, tuple(sorted(sizes[s.topk, s.num_steps])))[
            s.num_draft_tokens
        ]
        if s.topk > 1
        else accept_table(plain, s)
        for s in settings
    )


@lru_cache(maxsize=1024)
def _of_beam(
    acceptance: Acceptance, topk: int, num_steps: int, sizes: tuple[int, ...]
) -> dict[int, AcceptTable]:
    """Tables of several budgets of one topk and depth."""
    shift = acceptance.level + law._request_shifts(acceptance.request_spread)
    beam = _beam(acceptance, law._centres(acceptance, num_steps), shift, topk)
    order = np.argsort(-beam.q, axis=1, kind="stable")[:, : sizes[-1] - 1]  # ties: by pool index
    truth = np.take_along_axis(beam.p, order, axis=1)
    depth = beam.depth[order]
    chosen = np.array(sizes) - 2
    survival = np.ones((len(sizes), len(shift), num_steps + 1))
    for d in range(1, num_steps + 1):
        total = np.cumsum(np.where(depth == d, truth, 0.0), axis=1)[:, chosen]
        survival[:, :, d] = total.reshape(len(shift), CONTEXTS, -1).mean(axis=1).T
    survival.setflags(write=False)  # cached and shared
    return {
        size: AcceptTable(table, 1.0 / float(np.mean(1.0 / table.sum(axis=1))))
        for size, table in zip(sizes, survival, strict=True)
    }


def _beam(acceptance: Acceptance, centre: Floats, shift: Floats, topk: int) -> BeamResult:
    """Grow the whole pool of all contexts (ACC-1 to ACC-6, as `acceptance._tree_survival`)."""
    ranks = law.rank_mass(topk, acceptance.rank_scale)
    spread = acceptance.context_spread * law._normal_quantiles(CONTEXTS)
    q_steps, p_steps, slot = [], [], 0
    for depth, mu in enumerate(centre, start=1):
        width = 1 if depth == 1 else topk
        z = np.stack([spread[law._lattice(slot + j)] for j in range(width)], axis=1)
        slot += width
        log_odds, doubt = mu + shift[:, None, None] + z[None], acceptance.confidence_shift * depth
        if abs(mu) >= law._LARGE:
            log_odds, doubt = np.full_like(log_odds, mu), 0.0
        log_odds = np.clip(log_odds, -law._LARGE, law._LARGE).reshape(-1, width)
        truth = 1.0 / (1.0 + np.exp(-log_odds))
        believed = 1.0 / (1.0 + np.exp(doubt - log_odds))
        mean = truth.reshape(len(shift), -1).mean(axis=1)
        known = np.repeat(law.sibling_share(mean), CONTEXTS)[:, None, None] * ranks
        p_steps.append(law._with_siblings(truth, known))
        siblings = np.minimum((1.0 - believed)[..., None] * known, believed[..., None])
        q_steps.append(np.concatenate([believed[..., None], siblings], axis=-1))
    return beam_tree(q_steps, p_steps, tree_capacity(topk, len(centre)))
