"""Accept lengths and their distribution: formulas, bounds, published settings, sampling."""

from __future__ import annotations

import math
import runpy
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from best_trees import best_tree
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specsim.acceptance import (
    MOST_MASS,
    Acceptance,
    AcceptTable,
    accept_prob_at,
    accept_table,
    accept_tables,
    rank_mass,
    sibling_share,
)
from specsim.setting import SpecSetting
from specsim.tree import tree_capacity

FIGURES = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "figures_acceptance.py"))

# Sums of at most 64 products of doubles.
ROUNDING = 1e-12

# What 127 lattice points times 8 requests leave to independent contexts: 0.7 % in the worst of 36
# settings that were compared.
LATTICE = 0.01

# Sampled means are compared at five standard errors: a correct sampler fails 1 in 2 million.
FALSE_ALARM = 5.0

Key = tuple[int, int, int]


def table(acceptance: Acceptance, key: Key) -> AcceptTable:
    """(steps, topk, tokens), as SGLang's benchmarks write it."""
    steps, topk, tokens = key
    return accept_table(acceptance, SpecSetting("EAGLE3", topk, steps, tokens))


def length(acceptance: Acceptance, key: Key) -> float:
    return table(acceptance, key).accept_length


def uniform(alpha: float, **changes: float) -> Acceptance:
    """The same alpha everywhere: no spread, no decay."""
    still = {"decay": 1.0, "context_spread": 0.0, "request_spread": 0.0}
    return Acceptance(accept_prob=(alpha,), **(still | changes))


acceptances = st.builds(
    Acceptance,
    accept_prob=st.tuples(st.floats(0.01, 0.99)),
    decay=st.floats(0.8, 1.1),
    rank_scale=st.floats(0, 2),
    confidence_shift=st.floats(-1, 3),
    context_spread=st.floats(0, 2.5),
    request_spread=st.one_of(st.just(0.0), st.floats(0.01, 1.5)),
    level=st.floats(-2, 2),
)


@st.composite
def keys(draw: st.DrawFn, most_steps: int = 5, least_topk: int = 1) -> Key:
    steps, topk = draw(st.integers(1, most_steps)), draw(st.integers(least_topk, 4))
    return steps, topk, draw(st.integers(2, tree_capacity(topk, steps)))


# --- formulas


@given(
    alpha=st.floats(0.01, 0.99),
    steps=st.integers(1, 10),
    context_spread=st.floats(0, 2.5),
)
def test_chain_is_the_formula_of_leviathan(alpha: float, steps: int, context_spread: float) -> None:
    """(1 - alpha^(S+1)) / (1 - alpha), Leviathan et al. (2023), Eq. 1: no decay, equal requests.

    Contexts may differ, for alpha is their mean and contexts at different depths are independent.
    """
    acceptance = uniform(alpha, context_spread=context_spread)
    expected = (1 - alpha ** (steps + 1)) / (1 - alpha)
    # the median log-odds are solved for to 1e-13
    assert length(acceptance, (steps, 1, steps + 1)) == pytest.approx(expected, rel=1e-10)


@given(alphas=st.lists(st.floats(0.01, 0.99), min_size=1, max_size=8))
def test_chain_by_depth_is_a_sum_of_products(alphas: list[float]) -> None:
    """1 + alpha_1 + alpha_1 alpha_2 + .."""
    acceptance = replace(uniform(0.5), accept_prob=tuple(alphas))
    steps = len(alphas)
    survival = table(acceptance, (steps, 1, steps + 1)).survival[0]
    assert survival == pytest.approx([1.0, *np.cumprod(alphas)], rel=1e-10)


@given(alpha=st.floats(0.05, 0.95), spread=st.floats(0.01, 1.5), steps=st.integers(1, 7))
def test_requests_that_differ_pool_to_tokens_over_rounds(
    alpha: float, spread: float, steps: int
) -> None:
    """Definition: eight equally likely requests, logit alpha + u each; equal tokens of each.

    u are the midpoint octiles of a normal, scaled to the standard deviation that is stated.
    Tokens over rounds of equally long requests is the harmonic mean of their accept lengths, so
    it is not Leviathan's formula at alpha.
    """
    octiles = np.array([NormalDist().inv_cdf((i + 0.5) / 8) for i in range(8)])
    own = 1 / (1 + np.exp(-math.log(alpha / (1 - alpha)) - spread * octiles / octiles.std()))
    lengths = (1 - own ** (steps + 1)) / (1 - own)
    pooled = table(uniform(alpha, request_spread=spread), (steps, 1, steps + 1))
    assert pooled.per_request == pytest.approx(lengths, rel=1e-10)
    assert pooled.accept_length == pytest.approx(8 / np.sum(1 / lengths), rel=1e-10)


@given(alpha=st.floats(0.01, 0.99), shift=st.floats(0, 3), scale=st.floats(0, 1.5))
def test_a_full_tree_of_depth_two_by_hand(alpha: float, shift: float, scale: float) -> None:
    """topk 2, two steps, 7 tokens, equal contexts: all is verified, so no shift matters."""
    acceptance = uniform(alpha, confidence_shift=shift, rank_scale=scale)
    share = float(sibling_share(np.array(alpha)))
    per_depth = alpha + (1 - alpha) * min(0.28 * scale, MOST_MASS) * share
    expected = 1 + per_depth + per_depth**2
    assert length(acceptance, (2, 2, 7)) == pytest.approx(expected, rel=1e-10)


def test_alpha_beyond_the_given_depths_decays() -> None:
    acceptance = Acceptance(accept_prob=(0.8, 0.6), decay=0.5)
    assert accept_prob_at(acceptance, 4).tolist() == [0.8, 0.6, 0.3, 0.15]
    assert accept_prob_at(acceptance, 1).tolist() == [0.8]


@given(topk=st.integers(1, 64))
def test_rank_mass_falls_and_leaves_something_to_no_rank(topk: int) -> None:
    mass = rank_mass(topk)
    assert len(mass) == topk - 1
    assert np.all(np.diff(mass) < 0)
    assert mass.sum() <= MOST_MASS * (1 + ROUNDING)


# --- published settings


@pytest.mark.parametrize(
    "shift_from",
    [tuple(FIGURES["ISSUE_339_TREES"]), ((3, 3, 4),)],
    ids=["shift from all trees", "shift from one tree"],
)
def test_trees_of_specforge_issue_339(shift_from: tuple[Key, ...]) -> None:
    """Issue: within 4 % from the chain row and one shift; also when one tree gives the shift."""
    _, errors = FIGURES["issue_339"](shift_from)
    assert len(errors) == 5
    assert max(map(abs, errors.values())) <= 0.04


@pytest.fixture(scope="module")
def drafters() -> list[object]:
    """Evaluate as the figure does, but with equal requests: eight times faster, 0.1 % off."""
    sweep = FIGURES["spec_bundle"]().groupby(level="draft")
    return [FIGURES["evaluate"](name, rows, request_spread=0.0) for name, rows in sweep]


def test_spec_bundle_sweep(drafters: list[object]) -> None:
    """Issue: (7, 4, 8) within 10 % mean absolute error, averaged over the drafters."""
    assert len(drafters) == 9
    assert np.mean([d.error for d in drafters]) <= 0.10


def test_without_the_shift_the_sweep_is_not_explained(drafters: list[object]) -> None:
    """The mechanism counts: no shift, and the textbook's chain, are at least twice as wrong."""
    error, no_shift, textbook = (
        np.mean([getattr(d, name) for d in drafters]) for name in ("error", "no_shift", "textbook")
    )
    assert no_shift > 2 * error
    assert textbook > 2 * error


@pytest.mark.parametrize("key", [(3, 3, 8), (5, 3, 6), (7, 4, 8), (2, 4, 16)])
@pytest.mark.parametrize("alpha", [0.4, 0.8])
def test_lattice_against_independent_contexts(key: Key, alpha: float) -> None:
    """A second implementation: random contexts, medians by quadrature.

    16,000 contexts leave a standard error of 0.1 %.
    """
    acceptance = Acceptance(accept_prob=(alpha,))
    rng = np.random.default_rng(0)
    sampled = FIGURES["sampled_accept_length"](acceptance, key, rng, 2000)
    assert length(acceptance, key) == pytest.approx(sampled, rel=LATTICE)


# --- bounds and monotonicity


@settings(max_examples=50)
@given(acceptance=acceptances, key=keys())
def test_bounds_and_distribution(acceptance: Acceptance, key: Key) -> None:
    steps, _, tokens = key
    result = table(acceptance, key)
    most = min(steps, tokens - 1) + 1
    slack = 1 + ROUNDING
    assert result.accept_length * slack >= 1
    assert result.accept_length <= most * slack
    assert np.all(np.diff(result.survival, axis=1) <= ROUNDING)
    assert np.all(result.survival[:, 0] == 1)
    assert result.per_round.min() >= -ROUNDING
    np.testing.assert_allclose(result.per_round.sum(axis=1), 1, rtol=ROUNDING)
    means = result.per_round @ np.arange(1, steps + 2)
    np.testing.assert_allclose(means, result.per_request, rtol=1e-10)
    assert 1 + result.pooled_survival.sum() == pytest.approx(result.accept_length, rel=1e-10)


@settings(max_examples=30)
@given(acceptance=acceptances, steps=st.integers(1, 4), topk=st.integers(1, 3))
def test_more_verified_tokens_never_accept_less(
    acceptance: Acceptance, steps: int, topk: int
) -> None:
    """Budgets nest: the engine takes the best n - 1 of one pool."""
    lengths = [
        length(acceptance, (steps, topk, n)) for n in range(2, tree_capacity(topk, steps) + 1)
    ]
    assert np.all(np.diff(lengths) >= -ROUNDING)


@given(acceptance=acceptances, steps=st.integers(1, 8), more=st.floats(0, 2))
def test_a_better_drafter_has_longer_chains(
    acceptance: Acceptance, steps: int, more: float
) -> None:
    key = (steps, 1, steps + 1)
    better = replace(acceptance, level=acceptance.level + more)
    assert length(better, key) >= length(acceptance, key) * (1 - ROUNDING)
    deeper = (steps + 1, 1, steps + 2)
    assert length(acceptance, deeper) >= length(acceptance, key) * (1 - ROUNDING)


@settings(max_examples=40)
@given(acceptance=acceptances, steps=st.integers(1, 6), topk=st.integers(2, 4))
def test_a_calibrated_tree_beats_the_chain(acceptance: Acceptance, steps: int, topk: int) -> None:
    """At no shift and equal budget: following the best slot's best child is a chain as good.

    To the lattice, for the chain multiplies exact means.
    """
    calibrated = replace(acceptance, confidence_shift=0.0)
    tree, chain = (length(calibrated, (steps, k, steps + 1)) for k in (topk, 1))
    assert tree >= chain * (1 - LATTICE)


@settings(max_examples=40)
@given(acceptance=acceptances, key=keys(most_steps=2, least_topk=2))
def test_no_shift_selects_best_from_a_given_pool(acceptance: Acceptance, key: Key) -> None:
    """To depth two the pool does not depend on the drafter's confidence, so truth selects best.

    To the lattice: the order of the slots decides which lattice coordinate a node gets.
    """
    calibrated = replace(acceptance, confidence_shift=0.0)
    assert length(calibrated, key) >= length(acceptance, key) * (1 - LATTICE)


@settings(max_examples=40)
@given(alpha=st.floats(0.25, 0.95), shift=st.floats(-1, 3), key=keys(least_topk=2))
def test_no_beam_beats_the_best_tree(alpha: float, shift: float, key: Key) -> None:
    """Equal contexts: Sequoia's dynamic programme bounds any tree of that size and depth.

    It takes siblings in order of rank, so alpha must not be below (1 - alpha) h_2.
    """
    steps, topk, tokens = key
    assume(tokens <= 24)  # the programme is quadratic in the size
    acceptance = uniform(alpha, confidence_shift=shift)
    share = float(sibling_share(np.array(alpha)))
    ranks = np.array([alpha, *((1 - alpha) * share * rank_mass(topk))])
    _, best = best_tree(np.tile(ranks, (steps, 1)), tokens)
    assert length(acceptance, key) <= best * (1 + ROUNDING)


@given(acceptance=acceptances, key=keys())
def test_a_perfect_drafter_accepts_all_that_fits(acceptance: Acceptance, key: Key) -> None:
    steps, _, tokens = key
    perfect = replace(acceptance, accept_prob=(1.0,), decay=1.0)
    assert length(perfect, key) == min(steps, tokens - 1) + 1


@given(acceptance=acceptances, key=keys())
def test_a_useless_drafter_accepts_nothing(acceptance: Acceptance, key: Key) -> None:
    assert length(replace(acceptance, accept_prob=(0.0,)), key) == 1


def test_no_speculation_is_one_token_a_round() -> None:
    result = accept_table(Acceptance(), SpecSetting.none())
    assert result.accept_length == 1
    assert result.per_round.tolist() == [[1.0]]
    assert result.pooled_survival.size == 0
    assert result.mean_rounds(100) == 100


def test_tables_are_shared_by_value_and_read_only() -> None:
    """The name of the dataset does not matter, and nobody can spoil the cache."""
    one = table(Acceptance(dataset="a", source="x"), (3, 1, 4))
    assert table(Acceptance(dataset="b", temperature=1.0), (3, 1, 4)) is one
    with pytest.raises(ValueError, match="read-only"):
        one.survival[0, 0] = 0.5


@given(
    topk=st.integers(1, 5),
    steps=st.integers(1, 5),
    share=st.floats(0.0, 1.0),
    level=st.floats(-2.0, 2.0),
    alpha=st.sampled_from([0.0, 0.3, 0.65, 0.9, 1.0]),
)
def test_settings_that_share_a_beam_get_the_tables_of_their_own(
    topk: int, steps: int, share: float, level: float, alpha: float
) -> None:
    """Whatever is asked for together, the share of rounds that draft included."""
    acceptance = Acceptance(accept_prob=(alpha,), level=level, draft_share=0.5)
    most = tree_capacity(topk, steps)
    sizes = {2, 2 + round(share * (most - 2)), most}
    asked = [SpecSetting("EAGLE3", topk, steps, n) for n in sizes]
    for setting, of_many in zip(asked, accept_tables(acceptance, asked), strict=True):
        one = accept_table(acceptance, setting)
        np.testing.assert_allclose(of_many.survival, one.survival, atol=1e-12)
        assert of_many.accept_length == pytest.approx(one.accept_length, rel=1e-12)
        assert of_many.draft_share == one.draft_share == 0.5


# --- smooth in the parameters


@pytest.mark.parametrize(
    "name",
    ["level", "decay", "confidence_shift", "rank_scale", "context_spread", "request_spread"],
)
@pytest.mark.parametrize(
    ("key", "step", "tolerance"),
    [((3, 1, 4), 1e-3, 1e-5), ((2, 2, 7), 0.05, 0.08), ((5, 3, 6), 0.05, 0.08)],
)
def test_slopes_agree_at_two_step_sizes(key: Key, step: float, tolerance: float, name: str) -> None:
    """Chains are analytic, to the step's square; trees to 0.08 tokens per unit at steps of 0.05.

    A tree's contexts change their selection one at a time, each by up to half a token of 1016:
    secants over shorter steps count a few such jumps and scatter, so a fit must not take them.
    """
    base = Acceptance()

    def slope(h: float) -> float:
        value = getattr(base, name)
        above, below = (
            length(replace(base, **{name: value + sign * h}), key) for sign in (1.0, -1.0)
        )
        return (above - below) / (2 * h)

    assert slope(step) == pytest.approx(slope(2 * step), abs=tolerance)
