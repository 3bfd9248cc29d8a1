"""Algorithm 1 on random graphs: distances, maximality, owners."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import shortest_path

import bvat
from bvat.engine.fields import grow as grow_fields
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.perturb import AllNodes, DisjointFields


def graph_of(nodes: int, edges: list[tuple[int, int]]) -> Graph:
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    adjacency = sp.coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(nodes, nodes))
    return Graph.build(np.ones((nodes, 1)), adjacency, np.zeros(nodes, dtype=int), train=[0])


def test_far_fewer_nodes_than_asked_for_are_mentioned_once() -> None:
    """Around a hub all fields meet: one node is found, of 20 that are asked for."""
    star = graph_of(40, [(0, k) for k in range(1, 40)])
    logits = torch.zeros(40, 2)
    regulariser = bvat.SBVAT(count=20, generator=0)
    model = bvat.GCN(1, 2, hidden=4, generator=torch.Generator().manual_seed(0))
    with pytest.warns(match="S-BVAT finds fewer than half of the 20 nodes asked for") as said:
        assert regulariser(model, star, logits).nodes == 1
    assert "receptive fields of 2 hops" in str(said[0].message)
    with warnings.catch_warnings(action="error"):
        regulariser(model, star, logits)
        bvat.SBVAT(count=20, generator=0)(model, graph_of(40, []), logits)


def distances(graph: Graph) -> np.ndarray:
    return shortest_path(graph.adjacency.to_scipy(), directed=False, unweighted=True)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Up to 40 nodes: often isolated ones, several components, or one dense lump."""
    nodes = draw(st.integers(1, 40))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=2 * nodes))
    if draw(st.booleans()):
        edges += [(k, k + 1) for k in range(nodes - 1) if k % 10 != 9]  # chains: long distances
    return graph_of(nodes, edges)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(graphs(), st.integers(1, 3), st.integers(1, 60), st.integers(0, 2**31))
@example(graph_of(1, []), 2, 5, 0)
@example(graph_of(30, []), 3, 100, 0)
@example(graph_of(30, [(k, k + 1) for k in range(29)]), 1, 100, 1)
def test_sampler(graph: Graph, depth: int, count: int, seed: int) -> None:
    selection = DisjointFields(count).choose(graph, depth, torch.Generator().manual_seed(seed))
    assert selection.chosen is not None
    assert selection.owner is not None
    chosen, owner, far = selection.chosen.numpy(), selection.owner.numpy(), distances(graph)

    assert 1 <= len(chosen) <= count
    between = far[np.ix_(chosen, chosen)]
    np.fill_diagonal(between, np.inf)
    assert (between > 2 * depth).all(), "receptive fields meet"

    if len(chosen) < count:
        left = (far[:, chosen] > 2 * depth).all(axis=1)
        assert not left.any(), "it stopped although another node could be chosen"

    inside = far[:, chosen] <= depth  # (N, b)
    assert (inside.sum(axis=1) <= 1).all()
    assert np.array_equal(owner, np.where(inside.any(axis=1), inside.argmax(axis=1), -1))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(graphs(), st.integers(1, 3), st.integers(1, 60), st.randoms(use_true_random=False))
def test_compiled_function_equals_the_plain_one(graph: Graph, depth: int, count: int, random: object) -> None:
    matrix, size = graph.propagation, graph.num_nodes
    candidates = np.array([random.randrange(size) for _ in range(3 * size)], dtype=np.int64)  # type: ignore[attr-defined]
    results = []
    for grow in (grow_fields, grow_fields.python):  # type: ignore[attr-defined]
        owner, rejected = np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=np.bool_)
        chosen = np.full(min(count, size), -7, dtype=np.int64)
        found = grow((matrix.crow.numpy(), matrix.col.numpy()), depth, candidates, owner, rejected, chosen, 0)
        results.append((found, owner.tolist(), rejected.tolist(), chosen.tolist()))
    assert results[0] == results[1]


def test_isolated_nodes_are_all_chosen_when_asked_for() -> None:
    selection = DisjointFields(100).choose(graph_of(7, []), 2, torch.Generator().manual_seed(0))
    assert selection.chosen is not None
    assert sorted(selection.chosen.tolist()) == list(range(7))


def test_same_seed_same_nodes(large_graph: Graph) -> None:
    def draw(seed: int) -> list[int]:
        selection = DisjointFields(10).choose(large_graph, 2, torch.Generator().manual_seed(seed))
        assert selection.chosen is not None
        return selection.chosen.tolist()

    assert draw(1) == draw(1)
    assert len({tuple(draw(seed)) for seed in range(5)}) == 5


def test_first_choice_is_uniform() -> None:
    """On a star with isolated nodes every node has the same chance to be first."""
    graph = graph_of(8, [(0, 1), (0, 2), (0, 3), (0, 4)])
    generator = torch.Generator().manual_seed(0)
    first = [int(DisjointFields(3).choose(graph, 1, generator).chosen[0]) for _ in range(4000)]  # type: ignore[index]
    counts = np.bincount(first, minlength=8)
    assert ((counts - 500) ** 2 / 500).sum() < 24.3  # chi-squared, 7 degrees of freedom, p = 0.001


def test_all_nodes(graph: Graph) -> None:
    selection = AllNodes().choose(graph, 2, None)
    assert selection.chosen is None
    assert selection.owner is None


@pytest.mark.parametrize("count", [0, -3])
def test_bad_count(count: int) -> None:
    with pytest.raises(SettingsError, match=f"at least 1, not {count}"):
        DisjointFields(count)
