"""Shapes of draft trees against counting, brute force and the engine's rules."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from best_trees import DraftTree, best_tree
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from specsim.errors import InputError
from specsim.tree import Beam, beam_tree, tree_capacity

Steps = list[NDArray[np.float64]]

# Sums of at most 64 products of doubles: rounding only.
ROUNDING = 1e-12

# Sequoia's acceptance-rate-vector.pt, first six ranks.
SEQUOIA_RANKS = (0.634, 0.108, 0.057, 0.0225, 0.0195, 0.015)

probabilities = st.floats(0, 1, allow_subnormal=False)


def beam_steps(
    rng: np.random.Generator, contexts: int, topk: int, steps: int, levels: int | None = None
) -> Steps:
    """Draw confidences; a few `levels` only makes many ties, zeros and ones among them."""
    shapes = [(1 if step == 0 else topk, topk, contexts) for step in range(steps)]
    draws = [rng.random(shape) for shape in shapes]
    return draws if levels is None else [np.rint(d * levels) / levels for d in draws]


def falling(steps: Steps) -> Steps:
    """Put children in the order of their rank, as a drafter's choices come."""
    return [-np.sort(-step, axis=1) for step in steps]


@st.composite
def beams(draw: st.DrawFn) -> tuple[Steps, Steps, int]:
    """Draw (q_steps, p_steps, num_draft_tokens) of a valid beam."""
    topk, steps = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    q = falling(beam_steps(rng, 3, topk, steps, draw(st.sampled_from([None, 1, 2, 4]))))
    p = beam_steps(rng, 3, topk, steps)
    return q, p, draw(st.integers(1, tree_capacity(topk, steps)))


def reference_beam(q: Steps, p: Steps, n: int, context: int) -> dict[tuple[int, ...], float]:
    """Write the engine's algorithm out, one context, node by node: {path: true product}."""
    frontier: list[tuple[tuple[int, ...], float, float]] = [((), 1.0, 1.0)]
    pool: list[tuple[tuple[int, ...], float, float]] = []
    for q_step, p_step in zip(q, p, strict=True):
        candidates = [
            ((*path, rank), score * q_step[slot, rank, context], true * p_step[slot, rank, context])
            for slot, (path, score, true) in enumerate(frontier)
            for rank in range(q_step.shape[1])
        ]
        pool += candidates
        frontier = sorted(candidates, key=lambda c: -c[1])[: q_step.shape[1]]  # stable
    return {path: true for path, _, true in sorted(pool, key=lambda c: -c[1])[: n - 1]}


def closed_under_ancestors(beam: Beam, n: int) -> bool:
    selected = beam.selected(n)
    kept = np.pad(selected, ((0, 1), (0, 0)), constant_values=True)  # the root is row -1
    parent_kept = np.take_along_axis(kept, beam.parent % len(kept), axis=0)
    return bool(np.all(~selected | parent_kept))


def accept_lengths(beam: Beam, n: int) -> NDArray[np.float64]:
    return np.asarray(1.0 + beam.survival([n])[0].sum(axis=0))


def path(beam: Beam, context: int, node: int) -> tuple[int, ...]:
    """Ranks from the root to a candidate."""
    above = int(beam.parent[node, context])
    return (*(path(beam, context, above) if above >= 0 else ()), int(beam.rank[node]))


def tree_of(parents: Sequence[int], ranks: Sequence[int]) -> DraftTree:
    depth = [0]
    for parent in parents[1:]:
        depth.append(depth[parent] + 1)
    return DraftTree(tuple(parents), tuple(ranks), tuple(depth))


def chain(steps: int) -> DraftTree:
    return tree_of(range(-1, steps), (0,) * (steps + 1))


def expected_accept_length(tree: DraftTree, probs: ArrayLike) -> float:
    """Sum of path products: at most one child of a node is accepted [@sequoia2024]."""
    own, product = np.asarray(probs), [1.0]
    for node in range(1, tree.size):
        accepted = float(own[tree.depth[node] - 1, tree.rank[node]])
        product.append(product[tree.parent[node]] * accepted)
    return sum(product)


def by_depth(ranks: list[float], depths: int) -> NDArray[np.float64]:
    return np.tile(np.array(ranks), (depths, 1))


@functools.cache
def forests(nodes: int, branching: int) -> tuple[tuple[object, ...], ...]:
    """Return all ordered forests of `nodes` nodes and at most `branching` trees, nested tuples."""
    return tuple(
        (first, *rest)
        for own in range(nodes, 0, -1)
        if branching > 0
        for first in forests(own - 1, 3)
        for rest in forests(nodes - own, branching - 1)
    ) or ((),) * (nodes == 0)


def all_trees(size: int) -> Iterator[DraftTree]:
    """Yield all trees of `size` nodes with at most 3 children each."""
    for forest in forests(size - 1, 3):
        parents, ranks, pending = [-1], [0], [(0, forest)]
        while pending:
            node, children = pending.pop(0)
            for rank, child in enumerate(children):
                assert isinstance(child, tuple)
                pending.append((len(parents), child))
                parents.append(node)
                ranks.append(rank)
        yield tree_of(parents, ranks)


# --- counts


@pytest.mark.parametrize(
    ("topk", "steps", "capacity"),
    [
        (2, 2, 7),  # 1 + k + k^2 at S = 2
        (4, 2, 21),
        (4, 1, 5),  # 1 + k at S = 1
        (1, 5, 6),  # S + 1 at k = 1
        (4, 7, 101),
        (8, 8, 457),
        (3, 0, 1),
    ],
)
def test_capacity_follows_the_engines_formula(topk: int, steps: int, capacity: int) -> None:
    assert tree_capacity(topk, steps) == capacity


@given(st.integers(1, 12), st.integers(0, 8))
def test_capacity_is_the_full_tree_only_up_to_two_steps(topk: int, steps: int) -> None:
    full = sum(topk**level for level in range(steps + 1))
    assert tree_capacity(topk, steps) <= full
    assert (tree_capacity(topk, steps) == full) == (steps <= 2 or topk == 1)


def test_number_of_trees_is_the_known_sequence() -> None:
    # Ordered trees with at most three children: OEIS A036765.
    assert [sum(1 for _ in all_trees(size)) for size in range(1, 8)] == [1, 1, 2, 5, 13, 36, 104]


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (lambda: tree_capacity(0, 2), "topk 0"),
        (lambda: tree_capacity(2, -1), "steps -1"),
    ],
)
def test_impossible_input_is_named(call: object, value: str) -> None:
    assert callable(call)
    with pytest.raises(InputError, match=value):
        call()


# --- the engine's beam


@settings(deadline=None, max_examples=60)
@given(beams())
def test_beam_is_the_engines_algorithm_written_out(beam: tuple[Steps, Steps, int]) -> None:
    q, p, n = beam
    result = beam_tree(q, p)
    for context, kept in enumerate(result.selected(n).T):
        expected = reference_beam(q, p, n, context)
        assert {path(result, context, node) for node in np.flatnonzero(kept)} == set(expected)
        tokens = 1 + sum(expected.values())
        assert accept_lengths(result, n)[context] == pytest.approx(tokens, rel=ROUNDING)


@settings(deadline=None, max_examples=100)
@given(beams())
def test_beam_trees_are_trees_of_the_asked_size(beam: tuple[Steps, Steps, int]) -> None:
    q, p, n = beam
    result = beam_tree(q, p)
    selected = result.selected(n)
    assert len(selected) == tree_capacity(q[0].shape[1], len(q)) - 1
    assert (selected.sum(axis=0) == n - 1).all()
    assert closed_under_ancestors(result, n)
    survival = result.survival([1, n])
    assert survival.shape == (2, len(q), q[0].shape[2])
    assert not survival[0].any()
    kept = np.where(selected, result.p, 0.0)
    np.testing.assert_allclose(survival[1].sum(axis=0), kept.sum(axis=0), rtol=ROUNDING)


@settings(deadline=None, max_examples=60)
@given(beams())
def test_a_larger_budget_keeps_the_smaller_tree(beam: tuple[Steps, Steps, int]) -> None:
    q, p, n = beam
    assume(n < tree_capacity(q[0].shape[1], len(q)))
    beam = beam_tree(q, p)
    assert (beam.selected(n) <= beam.selected(n + 1)).all()
    assert (accept_lengths(beam, n) <= accept_lengths(beam, n + 1) + ROUNDING).all()


@settings(deadline=None, max_examples=60)
@given(beams())
def test_no_selection_beats_the_best_subtree_of_the_pool(beam: tuple[Steps, Steps, int]) -> None:
    q, p, n = beam
    for beam, slack in ((beam_tree(q, p), np.inf), (beam_tree(q, q), ROUNDING)):
        bound = 1 + np.sort(beam.p, axis=0)[::-1][: n - 1].sum(axis=0)
        tokens = accept_lengths(beam, n)
        assert (tokens <= bound + ROUNDING).all()
        assert (tokens >= bound - slack).all()


@given(beams())
@settings(deadline=None, max_examples=30)
def test_power_of_the_confidence_changes_nothing(beam: tuple[Steps, Steps, int]) -> None:
    # One power on every score leaves the order of path products. Squares of the
    # few-level scores are exact enough not to break ties; random ones have none.
    q, p, n = beam
    squared = beam_tree([score**2 for score in q], p)
    plain = accept_lengths(beam_tree(q, p), n)
    np.testing.assert_allclose(accept_lengths(squared, n), plain, rtol=ROUNDING)


def test_at_full_budget_and_two_steps_confidence_plays_no_part() -> None:
    rng = np.random.default_rng(1)
    p = beam_steps(rng, 8, 2, 2)
    # Slots are numbered by confidence, so equal confidence keeps the slots in rank order.
    flat = [np.full_like(step, 0.5) for step in p]
    everything = accept_lengths(beam_tree(flat, p), 7)
    by_hand = 1 + p[0].sum(axis=(0, 1)) + (p[0].reshape(2, 1, 8) * p[1]).sum(axis=(0, 1))
    np.testing.assert_allclose(everything, by_hand, rtol=ROUNDING)


def test_chain_beam_is_a_chain() -> None:
    steps = [np.full((1, 1, 1), 0.7)] * 3
    result = beam_tree(steps, steps)
    assert result.parent.tolist() == [[-1], [0], [1]]
    assert accept_lengths(result, 4)[0] == pytest.approx(1 + 0.7 + 0.49 + 0.343, rel=ROUNDING)


def test_confidence_above_one_is_clipped() -> None:
    rng = np.random.default_rng(2)
    q = [1.5 * step for step in falling(beam_steps(rng, 16, 3, 4))]
    assert closed_under_ancestors(beam_tree(q, beam_steps(rng, 16, 3, 4)), 9)


def test_beam_refuses_more_nodes_than_it_has() -> None:
    """The engine dies with "selected index k out of range" (SGLang issue 5160)."""
    steps = beam_steps(np.random.default_rng(3), 2, 2, 2)
    with pytest.raises(InputError, match=r"1\.\.7 nodes"):
        beam_tree(steps, steps).survival([8])


# --- the best tree


@settings(deadline=None, max_examples=40)
@given(st.lists(probabilities, min_size=3, max_size=3), st.integers(1, 7))
def test_sequoias_programme_finds_the_best_of_all_trees(probs: list[float], size: int) -> None:
    rows = by_depth(probs, size)
    tree, tokens = best_tree(rows, size)
    brute = max(expected_accept_length(other, rows) for other in all_trees(size))
    assert tree.size == size
    assert tokens == pytest.approx(brute, rel=ROUNDING)
    assert expected_accept_length(tree, rows) == pytest.approx(tokens, rel=ROUNDING)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(probabilities, min_size=3, max_size=3), min_size=2, max_size=3),
    st.integers(1, 7),
)
def test_depthwise_programme_finds_the_best_of_all_trees(
    probs: list[list[float]], size: int
) -> None:
    tree, tokens = best_tree(probs, size)
    fitting = (other for other in all_trees(size) if other.max_depth <= len(probs))
    brute = max(expected_accept_length(other, probs) for other in fitting)
    assert tree.max_depth <= len(probs)
    assert tokens == pytest.approx(brute, rel=ROUNDING)
    assert expected_accept_length(tree, probs) == pytest.approx(tokens, rel=ROUNDING)


@given(st.lists(probabilities, min_size=1, max_size=4), st.integers(1, 12))
@settings(deadline=None, max_examples=40)
def test_more_nodes_and_more_depth_never_hurt(probs: list[float], size: int) -> None:
    tokens = best_tree(by_depth(probs, size), size)[1]
    assert tokens <= best_tree(by_depth(probs, size), size + 1)[1] + ROUNDING
    for depth in range(1, size):
        if sum(len(probs) ** level for level in range(depth + 1)) >= size:
            assert best_tree(by_depth(probs, depth), size)[1] <= tokens + ROUNDING


@given(st.integers(1, 16), st.integers(1, 5))
@settings(deadline=None, max_examples=30)
def test_a_positional_beam_never_beats_the_best_tree(size: int, steps: int) -> None:
    ranks = np.array(SEQUOIA_RANKS[:3])
    assume(size <= tree_capacity(3, steps))
    q = [np.tile(ranks[:, None], (3 if step else 1, 1, 1)) for step in range(steps)]
    engine = accept_lengths(beam_tree(q, q), size)[0]
    assert engine <= best_tree(np.tile(ranks, (steps, 1)), size)[1] + ROUNDING


@given(probabilities, st.integers(1, 12))
def test_the_best_chain_gives_the_geometric_sum(alpha: float, steps: int) -> None:
    # Leviathan et al., Eq. 1: (1 - alpha^(S+1)) / (1 - alpha), written as the sum that it is.
    tree, tokens = best_tree([[alpha]] * steps, steps + 1)
    assert tree == chain(steps)
    assert tokens == pytest.approx(sum(alpha**depth for depth in range(steps + 1)), rel=ROUNDING)


def test_sure_drafter_gets_a_chain_and_hopeless_one_loses_nothing() -> None:
    assert best_tree(by_depth([1.0, 0.0], 4), 5) == (chain(4), 5.0)
    assert best_tree(by_depth([0.0, 0.0], 4), 5)[1] == 1.0
