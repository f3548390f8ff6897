"""What a round buys: the tokens that a draft tree gets accepted, and their distribution.

One drafter on one dataset and temperature. Everything adds up in log-odds:

    logit c = mu_d + u + s z         truth: P(rank-1 child accepted | its parent accepted)  (ACC-1)
    logit q = logit c - delta d      the drafter's own confidence in it                     (ACC-2)
    rank r >= 2: truth (1 - c) h_r, confidence (1 - q) h_r                                  (ACC-3)

d is the depth, z the spread between contexts, u the spread between requests; mu_d is set so that
the mean of c over z at u = 0 is `accept_prob` alpha_d. The engine ranks nodes by products of q
and never sees c (ACC-2): a drafter that is less sure than it should be spends its budget on
breadth. The shift grows with depth because a drafter's confidence at depth d is about "the text
goes on like this", not about "given that the first d - 1 tokens were right", which is what a
verification asks; on 63 published pairs of settings a constant shift left 10 % error at
(7, 4, 8), the growing one 8 %, none 29 % (benchmarks/figures_acceptance.py).

    survival_d = E[sum over selected nodes at depth d of the path product of c]             (ACC-4)
    accept length = 1 + sum_d survival_d, pooled over requests by tokens / rounds           (ACC-5)

For a chain (ACC-4) is the product of alpha_i, and without request spread and with constant alpha
(ACC-5) is Eq. 1 of Leviathan et al. [@leviathan2023]. Contexts are a fixed lattice, so results
are smooth in the parameters and need no random numbers; they lie within 1 % of what independent
contexts give.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from specsim.errors import InputError, UnknownNameError
from specsim.setting import SpecSetting
from specsim.tree import Beam, beam_tree
from specsim.uncertainty import ORDER, Evidence, normal_lattice, normal_quantiles

if TYPE_CHECKING:
    from specsim.arrays import Floats, Ints

RANK_MASS = (0.28, 0.13, 0.08)
"""h_2..h_4 [@medusa-heads, @sequoia2024]; beyond, h_r = h_4 (4/r)^1.5."""

MOST_MASS = 0.85
"""Most that all siblings take of what the first choice leaves; times at most 1.11 of (ACC-6)."""

TREND_DEPTHS = 3  # measured, that make a trend

CONTEXTS, GENERATOR = 127, 45  # of the lattice of contexts of a request quantile

REQUESTS = 8  # equally likely quantiles of them

FEW_TOKENS = 32  # of an answer, of which the last round's surplus is a part that counts

LARGE = 40.0  # log-odds at which a float probability is 0 or 1


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Acceptance of one drafter on one dataset and temperature."""

    dataset: str = ""  # what it was observed on
    temperature: float = 0.0
    # alpha_1, alpha_2, ..: P(draft at depth d accepted | depth d - 1 accepted) of a chain, for the
    # median request, all rounds counted
    accept_prob: tuple[float, ...] = (0.6,)
    decay: float = 0.97  # beyond the last given depth, per depth (TREND)
    rank_scale: float = 1.0  # multiplies the rank masses h_r of siblings
    confidence_shift: float = 1.0  # delta: log-odds per depth by which the drafter is too unsure
    context_spread: float = 1.4  # s: standard deviation of logit c between contexts of a request
    request_spread: float = 0.45  # standard deviation of u between requests
    level: float = 0.0  # added to every log-odds: one number that moves all depths together
    draft_share: float = 1.0  # mean draft of a round as a share of the asked one: lookups may fail
    evidence: Evidence = "assumed"
    source: str = ""
    algorithm: str = ""  # whose, if not that of the server's own drafter
    asked_depth: int = 0  # at which accept_prob was measured; 0 where the asked depth is no matter
    asked_loss: float = 0.0  # log-odds lost at every depth per unit of ln(asked depth)
    shape: str = "contexts"  # how a round's accepted drafts scatter: see SHAPES

    def __post_init__(self) -> None:
        for alpha in self.accept_prob:
            if not 0 <= alpha <= 1:
                raise InputError(
                    f"accept probability {alpha}", "must lie in 0..1", "give fractions, not percent"
                )
        if self.shape not in SHAPES:
            raise UnknownNameError("shape", self.shape, SHAPES)
        if self.evidence not in ORDER:
            raise UnknownNameError("evidence", self.evidence, ORDER)
        if not self.accept_prob:
            raise InputError("accept_prob", "is empty", "give at least the first depth")
        for name, (low, high) in _BOUNDS.items():
            number = getattr(self, name)
            if not low <= number <= high:
                raise InputError(
                    f"{name} {number}", f"must lie in {low}..{high}", "check the profile"
                )

    @property
    def by_depth(self) -> bool:
        """Whether its accept probabilities by depth were measured."""
        return self.source == MEASURED_DEPTHS


MEASURED_DEPTHS = "measured survival"  # the source of accept probabilities by depth
SHAPES = ("contexts", "whole", "constant")  # (ACC-1), and how engines fake it: :mod:`.faked`

_BOUNDS = {
    "decay": (0.0, 1.5),
    "rank_scale": (0.0, 2.0),
    "confidence_shift": (-5.0, 10.0),
    "context_spread": (0.0, 5.0),
    "request_spread": (0.0, 3.0),
    "level": (-20.0, 20.0),
    "draft_share": (0.01, 1.0),
    "asked_depth": (0, 64),
    "asked_loss": (-1.0, 2.0),
}


def accept_prob_at(acceptance: Acceptance, num_steps: int) -> Floats:
    """alpha_1 .. alpha_S before `level` is applied; beyond three measured depths by (TREND).

    >>> accept_prob_at(Acceptance(accept_prob=(0.8, 0.7, 0.65), decay=1.0), 5).round(3).tolist()
    [0.8, 0.7, 0.65, 0.627, 0.608]
    """
    known = acceptance.accept_prob
    if num_steps > len(known) >= TREND_DEPTHS:
        from specsim.acceptance.trend import continued  # few drafters have three measured depths

        return continued(known, acceptance.decay, num_steps)
    further = num_steps - len(known)
    beyond = [known[-1] * acceptance.decay**d for d in range(1, further + 1)]
    return np.minimum(np.array([*known[:num_steps], *beyond], np.float64), 1.0)


def _centres(acceptance: Acceptance, num_steps: int) -> Floats:
    """mu_d: the median log-odds whose mean over contexts is alpha_d (then exact ends).

    Less `asked_loss` ln(S / `asked_depth`), where asking for more costs (ASKED).
    """
    alpha = accept_prob_at(acceptance, num_steps)
    mu = _medians(tuple(alpha.tolist()), acceptance.context_spread).copy()
    if acceptance.asked_depth and num_steps:
        mu -= acceptance.asked_loss * math.log(num_steps / acceptance.asked_depth)
    mu[alpha <= 1e-9], mu[alpha >= 1 - 1e-9] = -LARGE, LARGE
    return mu


@lru_cache(maxsize=1024)
def _medians(alpha: tuple[float, ...], context_spread: float) -> Floats:
    """Find the median log-odds by Newton's method."""
    inside = np.clip(np.array(alpha), 1e-9, 1 - 1e-9)
    mu: Floats = np.log(inside / (1 - inside)) * math.sqrt(1 + math.pi * context_spread**2 / 8)
    spread = context_spread * normal_quantiles(CONTEXTS)
    for _ in range(50):
        c = _logistic(mu[:, None] + spread)
        slope = (c * (1 - c)).mean(axis=1)
        step = np.clip((c.mean(axis=1) - inside) / slope, -2.0, 2.0)
        mu = mu - step
        if np.abs(step).max(initial=0.0) < 1e-13:
            break
    return mu


def rank_mass(topk: int, scale: float = 1.0) -> Floats:
    """h_2 .. h_topk, scaled; the sum stays below 1 with (ACC-6) at any topk.

    >>> rank_mass(4).tolist()
    [0.28, 0.13, 0.08]
    """
    beyond = [RANK_MASS[-1] * (4.0 / r) ** 1.5 for r in range(5, topk + 1)]
    mass = scale * np.array([*RANK_MASS, *beyond], np.float64)[: topk - 1]
    capped: Floats = mass * (MOST_MASS / max(float(mass.sum()), MOST_MASS))
    return capped


def sibling_share(accept_prob: Floats) -> Floats:
    """Factor on the rank masses by how good the drafter is at that depth             (ACC-6).

    alpha / (alpha + 0.2), normalised to 1 at the alpha of 0.6 that `RANK_MASS` was observed at: a
    drafter that is never right in its first choice is not right in its second either. Medusa's
    deeper heads, alpha 0.36 and 0.22, keep two thirds and a half of the mass [@medusa-heads].

    >>> sibling_share(np.array([0.0, 0.22, 0.36, 0.6])).round(2).tolist()
    [0.0, 0.7, 0.86, 1.0]
    """
    share: Floats = accept_prob / (accept_prob + 0.2) * (0.8 / 0.6)
    return share


def _logistic(log_odds: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-log_odds)))


@dataclass(frozen=True, slots=True)
class AcceptTable:
    """The distribution of accepted tokens for one setting."""

    survival: Floats  # (requests, S + 1): P(at least d drafts accepted), d = 0..S, by quantile
    accept_length: float  # tokens per request and round over long runs, bonus included (ACC-5)
    draft_share: float = 1.0  # of the acceptance

    @classmethod
    def of(cls, survival: Floats, draft_share: float = 1.0) -> AcceptTable:
        """Return the table of requests that are equally likely (ACC-5)."""
        return cls(survival, 1.0 / float((1.0 / survival.sum(axis=1)).mean()), draft_share)

    @property
    def per_request(self) -> Floats:
        """Accept length of each request quantile."""
        lengths: Floats = self.survival.sum(axis=1)
        return lengths

    @property
    def per_round(self) -> Floats:
        """P(a round emits j + 1 tokens), j = 0..S, of each request quantile."""
        emitted = self.survival.copy()
        emitted[:, :-1] -= self.survival[:, 1:]
        return emitted

    @property
    def pooled_survival(self) -> Floats:
        """P(at least d drafts accepted), d = 1..S, over all rounds, as an engine counts them."""
        rounds = 1.0 / self.per_request
        survival: Floats = rounds @ self.survival[:, 1:] / rounds.sum()
        return survival

    def mean_rounds(self, tokens: float) -> float:
        """Mean rounds until a request has emitted `tokens`, the last round's surplus included."""
        return float(self.rounds_by_request(tokens).mean())

    def rounds_by_request(self, tokens: float) -> Floats:
        """Mean rounds of each request quantile until it has emitted `tokens`, surplus included.

        Renewal theory: (tokens + E[surplus]) / accept length, with the stationary surplus
        (E[A^2]/E[A] - 1) / 2; exact for large `tokens`. Few are counted as they come, by the
        renewal equation N(t) = 1 + sum_j P(j) N(t - j), linear between whole ones.
        """
        if tokens <= FEW_TOKENS:
            per_round = self.per_round
            counted = [np.zeros(len(per_round))]
            for _ in range(math.ceil(tokens)):
                before = counted[: -per_round.shape[1] - 1 : -1]  # the latest first
                steps = (per_round[:, j] * rounds for j, rounds in enumerate(before))
                counted.append(1.0 + np.sum(list(steps), axis=0))
            part = math.ceil(tokens) - tokens
            return np.asarray(counted[-1] * (1.0 - part) + part * counted[max(-2, -len(counted))])
        mean = self.per_request
        square = self.survival @ np.arange(1.0, 2.0 * self.survival.shape[1], 2.0)
        rounds: Floats = (tokens + (square / mean - 1.0) / 2.0) / mean
        return rounds

    def emitted(self, requests: Ints, uniform: Floats) -> NDArray[np.int16]:
        """Return the tokens emitted in each round, bonus included, for given uniform numbers.

        Parameters
        ----------
        requests
            Request quantile of each row; a table with a single one has it for all.
        uniform
            (rows, rounds) numbers in 0..1.

        Returns
        -------
        (rows, rounds) integers in 1..S+1.
        """
        survival = self.survival[np.minimum(requests, len(self.survival) - 1), 1:]
        tokens = np.ones(uniform.shape, dtype=np.int16)
        for depth in range(survival.shape[1]):
            tokens += uniform < survival[:, depth, None]
        return tokens


def accept_table(acceptance: Acceptance, setting: SpecSetting) -> AcceptTable:
    """Return the distribution of accepted tokens of one setting (ACC-1 to ACC-6).

    Examples
    --------
    >>> same = Acceptance(accept_prob=(0.8,), decay=1.0, request_spread=0.0)
    >>> round(accept_table(same, SpecSetting.of(1, 3)).accept_length, 6)  # (1-.8^4)/(1-.8)
    2.952
    """
    return accept_tables(acceptance, (setting,))[0]


def accept_tables(
    acceptance: Acceptance, settings: Sequence[SpecSetting]
) -> tuple[AcceptTable, ...]:
    """Return the distributions of many settings; those of one topk share a beam.

    The beam does not depend on the tokens verified, only the selection from its pool does. Cached
    by value.
    """
    law = replace(
        acceptance, dataset="", temperature=0.0, evidence="assumed", source="", algorithm=""
    )
    beams: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for s in settings:  # one per topk, unless the asked depth counts or nothing is drafted
        depth = s.num_steps if law.asked_depth or not s.num_steps else -1
        beams.setdefault((s.topk, depth), set()).add((s.num_steps, s.num_draft_tokens))
    tables = {
        (topk, *shape): table
        for (topk, _), shapes in beams.items()
        for shape, table in _tables(law, topk, tuple(sorted(shapes))).items()
    }
    return tuple(tables[s.topk, s.num_steps, s.num_draft_tokens] for s in settings)


@lru_cache(maxsize=4096)
def _tables(
    acceptance: Acceptance, topk: int, asked: tuple[tuple[int, int], ...]
) -> Mapping[tuple[int, int], AcceptTable]:
    """Tables of depths and sizes (tokens verified) of one topk, from a common beam."""
    spread, deepest = acceptance.request_spread, asked[-1][0]
    requests = spread * normal_quantiles(REQUESTS) if spread and deepest else np.zeros(1)
    shift, centre = acceptance.level + requests, _centres(acceptance, deepest)
    sizes: dict[int, list[int]] = {}
    for steps, size in asked:
        sizes.setdefault(steps, []).append(size)
    if topk == 1:
        found = _chain_survival(acceptance, centre, shift, sizes)
    else:
        found = _tree_survival(acceptance, centre, shift, topk, sizes)
    tables = {}
    for (steps, of), deeper in zip(sizes.items(), found, strict=True):
        if acceptance.shape != "contexts":
            from specsim.acceptance.faked import faked  # benchmarks that fake it alone

            deeper = faked(deeper, acceptance.shape)
        survival = np.concatenate([np.ones((*deeper.shape[:2], 1)), deeper], axis=2)
        survival.setflags(write=False)  # cached and shared
        for size, table in zip(of, survival, strict=True):
            tables[steps, size] = AcceptTable.of(table, acceptance.draft_share)
    return tables


def _chain_survival(
    acceptance: Acceptance, centre: Floats, shift: Floats, sizes: Mapping[int, Sequence[int]]
) -> Iterator[Floats]:
    """Survival by depth of chains, (sizes, requests, S): contexts of depths are independent."""
    spread = acceptance.context_spread * normal_quantiles(CONTEXTS)
    log_odds = np.clip(centre[None, :, None] + shift[:, None, None] + spread, -LARGE, LARGE)
    alpha = _logistic(log_odds).mean(axis=2)
    certain = np.abs(centre) >= LARGE
    alpha[:, certain] = centre[certain] > 0
    whole = np.cumprod(alpha, axis=1)
    for steps, of in sizes.items():
        verified = np.arange(1, steps + 1) < np.array(of)[:, None]
        yield whole[:, :steps] * verified[:, None, :]


def _tree_survival(
    acceptance: Acceptance,
    centre: Floats,
    shift: Floats,
    topk: int,
    sizes: Mapping[int, Sequence[int]],
) -> Iterator[Floats]:
    """Survival by depth of the engine's beam trees, (sizes, requests, S)."""
    odds, slot = [], 0
    for depth, mu in enumerate(centre.tolist()):
        width = topk if depth else 1
        z = acceptance.context_spread * normal_lattice(CONTEXTS, GENERATOR, slot, width)[:, None]
        log_odds = mu + shift[:, None] + z
        odds.append(np.full_like(log_odds, mu) if abs(mu) >= LARGE else log_odds)
        slot += width
    for survival in draft_beam(acceptance, odds, topk).survivals(sizes, len(shift)):
        yield survival.swapaxes(1, 2)


def draft_beam(acceptance: Acceptance, log_odds: Sequence[Floats], topk: int) -> Beam:
    """Grow the engine's beam where the first choices have these log-odds (ACC-2, ACC-3, ACC-6).

    `log_odds` are of every depth: (slots, requests, contexts) of logit c, one slot at first, `topk`
    after. The beam is over all contexts of all requests, in that order.
    """
    ranks = rank_mass(topk, acceptance.rank_scale)
    q_steps, p_steps = [], []
    for depth, odds in enumerate(log_odds, start=1):
        against = np.exp(-np.clip(odds, -LARGE, LARGE))
        # no doubt moves what is certain
        most = math.exp(min(acceptance.confidence_shift * depth, 600.0))  # a finite number
        doubt = np.where(np.abs(odds) >= LARGE, 1.0, most)
        q, p = np.empty((2, len(odds), topk, *odds.shape[1:]))
        q[:, 0], p[:, 0] = 1.0 / (1.0 + against * doubt), 1.0 / (1.0 + against)
        mass = ranks[:, None, None] * sibling_share(p[:, 0].mean(axis=(0, 2)))[:, None]
        for store in (q, p):
            np.multiply(1.0 - store[:, :1], mass, out=store[:, 1:])
        # ranks are by the drafter's own confidence: no sibling is above the first
        np.minimum(q[:, 1:], q[:, :1], out=q[:, 1:])
        q_steps.append(q.reshape(len(odds), topk, -1))
        p_steps.append(p.reshape(len(odds), topk, -1))
    return beam_tree(q_steps, p_steps)
