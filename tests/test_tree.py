"""Shapes of draft trees against counting, brute force and the engine's rules."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from specsim.errors import InputError
from specsim.tree import (
    BeamResult,
    DraftTree,
    beam_tree,
    best_subtree,
    best_tree,
    best_tree_depthwise,
    expected_accept_length,
    full_kary_size,
    tree_capacity,
)

Steps = list[NDArray[np.float64]]

# Sums of at most 64 products of doubles: rounding only.
ROUNDING = 1e-12

# Sequoia's acceptance-rate-vector.pt, first six ranks (PHYSICS 1.4).
SEQUOIA_RANKS = (0.634, 0.108, 0.057, 0.0225, 0.0195, 0.015)

probabilities = st.floats(0, 1, allow_subnormal=False)


def beam_steps(
    rng: np.random.Generator, contexts: int, topk: int, steps: int, levels: int | None = None
) -> Steps:
    """Draw confidences; a few `levels` only makes many ties, zeros and ones among them."""
    shapes = [(contexts, 1 if step == 0 else topk, topk) for step in range(steps)]
    draws = [rng.random(shape) for shape in shapes]
    return draws if levels is None else [np.rint(d * levels) / levels for d in draws]


@st.composite
def beams(draw: st.DrawFn) -> tuple[Steps, Steps, int]:
    """Draw (q_steps, p_steps, num_draft_tokens) of a valid beam."""
    topk, steps = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    q = beam_steps(rng, 3, topk, steps, draw(st.sampled_from([None, 1, 2, 4])))
    p = beam_steps(rng, 3, topk, steps)
    return q, p, draw(st.integers(1, tree_capacity(topk, steps)))


def reference_beam(q: Steps, p: Steps, n: int, context: int) -> dict[tuple[int, ...], float]:
    """Write the engine's algorithm out, one context, node by node: {path: true product}."""
    frontier: list[tuple[tuple[int, ...], float, float]] = [((), 1.0, 1.0)]
    pool: list[tuple[tuple[int, ...], float, float]] = []
    for q_step, p_step in zip(q, p, strict=True):
        candidates = [
            ((*path, rank), score * q_step[context, slot, rank], true * p_step[context, slot, rank])
            for slot, (path, score, true) in enumerate(frontier)
            for rank in range(q_step.shape[2])
        ]
        pool += candidates
        frontier = sorted(candidates, key=lambda c: -c[1])[: q_step.shape[2]]  # stable
    return {path: true for path, _, true in sorted(pool, key=lambda c: -c[1])[: n - 1]}


def closed_under_ancestors(result: BeamResult) -> bool:
    root_kept = np.ones((result.selected.shape[0], 1), dtype=np.bool_)
    kept = np.hstack([result.selected, root_kept])  # the root is column -1
    parent_kept = np.take_along_axis(kept, result.parent % kept.shape[1], axis=1)
    return bool(np.all(~result.selected | parent_kept))


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
        yield DraftTree(tuple(parents), tuple(ranks))


# --- counts


@pytest.mark.parametrize(
    ("topk", "steps", "capacity"),
    [
        (2, 2, 7),  # ENGINES A1: 1 + k + k^2 at S = 2
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
    full = full_kary_size(topk, steps)
    assert tree_capacity(topk, steps) <= full
    assert (tree_capacity(topk, steps) == full) == (steps <= 2 or topk == 1)


@given(st.integers(1, 3), st.integers(0, 4))
def test_full_tree_has_the_size_it_says(topk: int, depth: int) -> None:
    tree = DraftTree.full_kary(topk, depth)
    assert tree.size == full_kary_size(topk, depth)
    assert tree.max_depth == depth


def test_number_of_trees_is_the_known_sequence() -> None:
    # Ordered trees with at most three children: OEIS A036765.
    assert [sum(1 for _ in all_trees(size)) for size in range(1, 8)] == [1, 1, 2, 5, 13, 36, 104]


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (lambda: tree_capacity(0, 2), "topk 0"),
        (lambda: tree_capacity(2, -1), "steps -1"),
        (lambda: full_kary_size(0, 2), "full tree of 0"),
        (lambda: DraftTree((-1, 1), (0, 0)), "node 1 has parent 1"),
        (lambda: DraftTree((-1, 0, 0), (0, 1, 1)), "different ranks"),
        (lambda: DraftTree((-1, 0), (0,)), "2 parents but 1 ranks"),
        (lambda: DraftTree((0,), (0,)), "start with the root"),
        (lambda: DraftTree.from_paths([[0, 1]]), r"parent \[0\] is not in the tree"),
        (lambda: best_tree([0.5], 4, max_depth=2), "1..3 nodes"),
        (lambda: best_tree([[0.5]], 2), "best_tree_depthwise"),
        (lambda: best_tree_depthwise([0.5], 2), "one row of ranks per depth"),
        (lambda: best_tree([1.5], 3), "0..1"),
        (lambda: best_subtree([0.5, 0.6], [-1, 0], 2), "fall from parent to child"),
        (lambda: best_subtree([0.5, 0.5], [1, -1], 2), "before their children"),
        (lambda: best_subtree([0.5], [-1], 3), "1..2 nodes"),
        (lambda: expected_accept_length(DraftTree.chain(3), [[0.5], [0.5]]), "depth 3"),
    ],
)
def test_impossible_input_is_named(call: object, value: str) -> None:
    assert callable(call)
    with pytest.raises(InputError, match=value):
        call()


# --- one tree


@given(st.integers(2, 6), st.data())
def test_mask_paths_and_table_agree(size: int, data: st.DataObject) -> None:
    tree = data.draw(st.sampled_from(list(all_trees(size))))
    assert DraftTree.from_paths(tree.paths()) == tree
    mask = tree.ancestor_mask()
    assert mask.sum(axis=1).tolist() == [depth + 1 for depth in tree.depth]
    assert mask[:, 0].all()
    assert not np.triu(mask, 1).any()
    assert (mask.astype(int) @ mask.astype(int) > 0).tolist() == mask.tolist()  # transitive
    table = tree.node_table()
    assert table["parent"].tolist() == list(tree.parent)
    assert table["depth"].tolist() == [len(path) for path in tree.paths()]


def test_static_tree_of_paths() -> None:
    tree = DraftTree.from_paths([[0, 0], [0], [1], [0, 0, 2], [0, 1]])
    assert tree.parent == (-1, 0, 0, 1, 1, 3)
    assert tree.rank == (0, 0, 1, 0, 1, 2)


@given(probabilities, st.integers(0, 12))
def test_chain_gives_the_geometric_sum(alpha: float, steps: int) -> None:
    # PHYSICS 1.1: (1 - alpha^(S+1)) / (1 - alpha), written as the sum that it is.
    expected = sum(alpha**depth for depth in range(steps + 1))
    found = expected_accept_length(DraftTree.chain(steps), [alpha])
    assert found == pytest.approx(expected, rel=ROUNDING)


def test_depth_dependent_probabilities() -> None:
    tree = DraftTree.full_kary(2, 2)
    rows = [[0.5, 0.2], [0.4, 0.1]]
    assert expected_accept_length(tree, rows) == pytest.approx(1 + 0.7 + 0.7 * 0.5, rel=ROUNDING)


# --- the engine's beam


@settings(deadline=None, max_examples=60)
@given(beams())
def test_beam_is_the_engines_algorithm_written_out(beam: tuple[Steps, Steps, int]) -> None:
    q, p, n = beam
    result = beam_tree(q, p, n)
    for context in range(result.selected.shape[0]):
        expected = reference_beam(q, p, n, context)
        tree = result.tree(context)
        assert set(tree.paths()) == {(), *expected}
        tokens = 1 + sum(expected.values())
        assert result.accept_length()[context] == pytest.approx(tokens, rel=ROUNDING)


@settings(deadline=None, max_examples=100)
@given(beams())
def test_beam_trees_are_trees_of_the_asked_size(beam: tuple[Steps, Steps, int]) -> None:
    q, p, n = beam
    result = beam_tree(q, p, n)
    assert result.selected.shape[1] == tree_capacity(q[0].shape[2], len(q)) - 1
    assert (result.selected.sum(axis=1) == n - 1).all()
    assert closed_under_ancestors(result)
    assert result.survival().shape == (q[0].shape[0], len(q))
    np.testing.assert_allclose(
        1 + result.survival().sum(axis=1), result.accept_length(), rtol=ROUNDING
    )


@settings(deadline=None, max_examples=60)
@given(beams())
def test_a_larger_budget_keeps_the_smaller_tree(beam: tuple[Steps, Steps, int]) -> None:
    q, p, n = beam
    assume(n < tree_capacity(q[0].shape[2], len(q)))
    small, large = beam_tree(q, p, n), beam_tree(q, p, n + 1)
    assert (small.selected <= large.selected).all()
    assert (small.accept_length() <= large.accept_length() + ROUNDING).all()


@settings(deadline=None, max_examples=60)
@given(beams())
def test_no_selection_beats_the_best_subtree_of_the_pool(beam: tuple[Steps, Steps, int]) -> None:
    q, p, n = beam
    result, honest = beam_tree(q, p, n), beam_tree(q, q, n)
    for context, tokens in enumerate(result.accept_length()):
        _, bound = best_subtree(result.p[context], result.parent[context], n)
        assert tokens <= bound + ROUNDING
        _, bound = best_subtree(honest.p[context], honest.parent[context], n)
        assert honest.accept_length()[context] == pytest.approx(bound, rel=ROUNDING)


@given(beams())
@settings(deadline=None, max_examples=30)
def test_power_of_the_confidence_changes_nothing(beam: tuple[Steps, Steps, int]) -> None:
    # PHYSICS 1.11: one power on every score leaves the order of path products. Squares of the
    # few-level scores are exact enough not to break ties; random ones have none.
    q, p, n = beam
    squared = beam_tree([score**2 for score in q], p, n)
    np.testing.assert_allclose(
        squared.accept_length(), beam_tree(q, p, n).accept_length(), rtol=ROUNDING
    )


def test_at_full_budget_and_two_steps_confidence_plays_no_part() -> None:
    rng = np.random.default_rng(1)
    p = beam_steps(rng, 8, 2, 2)
    # Slots are numbered by confidence, so equal confidence keeps the slots in rank order.
    flat = [np.full_like(step, 0.5) for step in p]
    everything = beam_tree(flat, p, 7).accept_length()
    by_hand = 1 + p[0].sum(axis=(1, 2)) + (p[0].reshape(8, 2, 1) * p[1]).sum(axis=(1, 2))
    np.testing.assert_allclose(everything, by_hand, rtol=ROUNDING)


def test_chain_beam_is_a_chain() -> None:
    steps = [np.full((1, 1, 1), 0.7)] * 3
    result = beam_tree(steps, steps, 4)
    assert result.tree(0) == DraftTree.chain(3)
    assert result.accept_length()[0] == pytest.approx(1 + 0.7 + 0.49 + 0.343, rel=ROUNDING)


def test_confidence_above_one_is_clipped() -> None:
    rng = np.random.default_rng(2)
    q = [1.5 * step for step in beam_steps(rng, 16, 3, 4)]
    assert closed_under_ancestors(beam_tree(q, beam_steps(rng, 16, 3, 4), 9))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda q, p: (q, p, 8), "1..7 nodes"),  # "selected index k out of range", issue 5160
        (lambda q, p: (q, p[:1], 3), "shapes"),
        (lambda q, p: ([], [], 1), "beam steps"),
        (lambda q, p: ([q[0] * np.nan, q[1]], p, 3), "not all finite"),
        (lambda q, p: (q, [p[0] + 1, p[1]], 3), "0..1"),
    ],
)
def test_beam_refuses_what_it_cannot_build(change: object, reason: str) -> None:
    assert callable(change)
    rng = np.random.default_rng(3)
    q, p, n = change(beam_steps(rng, 2, 2, 2), beam_steps(rng, 2, 2, 2))
    with pytest.raises(InputError, match=reason):
        beam_tree(q, p, n)


# --- the best tree


@settings(deadline=None, max_examples=40)
@given(st.lists(probabilities, min_size=3, max_size=3), st.integers(1, 7))
def test_sequoias_programme_finds_the_best_of_all_trees(probs: list[float], size: int) -> None:
    tree, tokens = best_tree(probs, size)
    brute = max(expected_accept_length(other, probs) for other in all_trees(size))
    assert tree.size == size
    assert tokens == pytest.approx(brute, rel=ROUNDING)
    assert expected_accept_length(tree, probs) == pytest.approx(tokens, rel=ROUNDING)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(probabilities, min_size=3, max_size=3), min_size=2, max_size=3),
    st.integers(1, 7),
)
def test_depthwise_programme_finds_the_best_of_all_trees(
    probs: list[list[float]], size: int
) -> None:
    tree, tokens = best_tree_depthwise(probs, size)
    fitting = (other for other in all_trees(size) if other.max_depth <= len(probs))
    brute = max(expected_accept_length(other, probs) for other in fitting)
    assert tree.max_depth <= len(probs)
    assert tokens == pytest.approx(brute, rel=ROUNDING)
    assert expected_accept_length(tree, probs) == pytest.approx(tokens, rel=ROUNDING)


@given(st.lists(probabilities, min_size=1, max_size=4), st.integers(1, 12))
@settings(deadline=None, max_examples=40)
def test_more_nodes_and_more_depth_never_hurt(probs: list[float], size: int) -> None:
    tokens = best_tree(probs, size)[1]
    assert tokens <= best_tree(probs, size + 1)[1] + ROUNDING
    for depth in range(1, size):
        if full_kary_size(len(probs), depth) >= size:
            assert best_tree(probs, size, depth)[1] <= tokens + ROUNDING


@given(st.integers(1, 16), st.integers(1, 5))
@settings(deadline=None, max_examples=30)
def test_a_positional_beam_never_beats_the_best_tree(size: int, steps: int) -> None:
    ranks = np.array(SEQUOIA_RANKS[:3])
    assume(size <= tree_capacity(3, steps))
    q = [np.broadcast_to(ranks, (1, 1 if step == 0 else 3, 3)) for step in range(steps)]
    engine = beam_tree(q, q, size).accept_length()[0]
    assert engine <= best_tree(ranks, size, steps)[1] + ROUNDING


def test_sure_drafter_gets_a_chain_and_hopeless_one_loses_nothing() -> None:
    assert best_tree([1.0, 0.0], 5) == (DraftTree.chain(4), 5.0)
    assert best_tree([0.0, 0.0], 5)[1] == 1.0


def test_ties_are_broken_towards_the_lower_index() -> None:
    mask, tokens = best_subtree([0.5, 0.5, 0.5], [-1, 0, 1], 3)
    assert mask.tolist() == [True, True, False]
    assert tokens == 2.0


@given(st.integers(2, 6), st.lists(probabilities, min_size=12, max_size=12))
@settings(deadline=None, max_examples=40)
def test_greedy_subtree_is_exact(size: int, child: list[float]) -> None:
    # A pool of the full binary tree of depth 2 over three top nodes: all subsets are tried.
    parent = [-1, -1, -1, 0, 0, 1, 1, 2, 2, 3, 3, 5]
    path: list[float] = []
    for own, above in zip(child, parent, strict=True):
        path.append(own * (1.0 if above < 0 else path[above]))
    _, tokens = best_subtree(path, parent, size)
    brute = max(
        1 + sum(path[node] for node in nodes)
        for nodes in itertools.combinations(range(12), size - 1)
        if all(parent[node] < 0 or parent[node] in nodes for node in nodes)
    )
    assert tokens == pytest.approx(brute, rel=ROUNDING)
