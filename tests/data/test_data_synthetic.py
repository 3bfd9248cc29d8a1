from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bvat.data import synthetic_graph
from bvat.data.synthetic import _pair
from bvat.errors import SettingsError
from bvat.graph import Graph


def _edges(graph: Graph) -> Any:
    a = graph.adjacency.to_scipy().tocoo()
    return np.stack([a.row, a.col])


def _homophily(graph: Graph) -> float:
    source, target = _edges(graph)
    labels = graph.labels.numpy()
    return float((labels[source] == labels[target]).mean())


def test_defaults_give_what_they_say() -> None:
    graph = synthetic_graph()
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (1000, 4000, 200, 4)
    assert len(graph.train) == 80
    assert torch.bincount(graph.labels[graph.train]).tolist() == [20] * 4
    assert torch.bincount(graph.labels).tolist() == [250] * 4
    assert (len(graph.val), len(graph.test)) == (306, 614)
    assert _homophily(graph) == pytest.approx(0.8, abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(
    nodes=st.integers(8, 60),
    classes=st.integers(2, 4),
    share=st.floats(0, 1),
    homophily=st.floats(0, 1),
    seed=st.integers(0, 2**40),
)
def test_edges_are_exact_different_and_homophilous(
    nodes: int, classes: int, share: float, homophily: float, seed: int
) -> None:
    inside = sum(k * (k - 1) // 2 for k in (nodes // classes + (c < nodes % classes) for c in range(classes)))
    between = nodes * (nodes - 1) // 2 - inside
    most = int(min(inside / max(homophily, 1e-9), between / max(1 - homophily, 1e-9)))
    edges = max(0, int(share * most) - 1)  # up to all the pairs there are
    graph = synthetic_graph(
        nodes,
        edges,
        features=9,
        classes=classes,
        homophily=homophily,
        words_per_node=3,
        train_per_class=1,
        seed=seed,
    )
    source, target = _edges(graph)
    assert len(source) == 2 * edges == len(np.unique(source * nodes + target))
    assert (source != target).all()
    assert np.array_equal(np.sort(source * nodes + target), np.sort(target * nodes + source))
    if edges:
        assert _homophily(graph) == pytest.approx(homophily, abs=0.51 / edges)


def test_pairs_are_numbered_exactly_where_the_square_root_is_not() -> None:
    last = np.unique(np.geomspace(2, 2**31 - 1, 5000).astype(np.int64))
    start = last * (last - 1) // 2
    for rank, first, second in ((start, 0 * last, last), (start - 1, last - 2, last - 1)):
        i, j = _pair(rank)
        assert np.array_equal(i, first)
        assert np.array_equal(j, second)


def test_every_pair_can_be_drawn() -> None:
    graph = synthetic_graph(
        7, 21, features=4, classes=2, homophily=9 / 21, words_per_node=1, train_per_class=1
    )
    assert graph.adjacency.to_dense().tolist() == (1 - torch.eye(7)).tolist()


def test_same_seed_same_graph() -> None:
    one, same, other = (synthetic_graph(200, 500, seed=seed) for seed in (3, 3, 4))
    for graph, equal in ((same, True), (other, False)):
        assert torch.equal(one.adjacency.col, graph.adjacency.col) == equal
        assert torch.equal(one.labels, graph.labels) == equal
        assert torch.equal(one.train, graph.train) == equal
        assert torch.equal(one.features.col, graph.features.col) == equal


def test_words_show_the_class_and_rows_sum_to_one() -> None:
    graph = synthetic_graph(400, 800, features=40, classes=4, words_per_node=6, topic_share=0.6)
    x = graph.features
    torch.testing.assert_close(x.to_dense().sum(1), torch.ones(400))
    per_row = torch.bincount(x.rows)
    assert int(per_row.min()) >= 1
    assert int(per_row.max()) <= 6
    on_topic = (x.col // 10 == graph.labels[x.rows]).float().mean()
    assert 0.6 < float(on_topic) < 0.75  # 0.6 + 0.4 / 4, less what is drawn twice
    blind = synthetic_graph(400, 800, features=40, classes=4, words_per_node=6, topic_share=0).features
    assert (blind.col // 10 == graph.labels[blind.rows]).float().mean() < 0.3


def test_a_large_graph_never_lists_all_pairs() -> None:
    """The graph has 5e9 pairs of nodes; memory is for its nodes, words and edges only."""
    tracemalloc.start()
    graph = synthetic_graph(100_000, 1_000_000, features=500)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200e6
    assert graph.num_edges == 1_000_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": 1}, "nodes is 1: use a whole number from 2"),
        ({"nodes": 10.5}, "nodes is 10.5"),
        ({"edges": -1}, "edges is -1"),
        ({"classes": 1}, "classes is 1"),
        ({"classes": 2000}, "classes is 2000: use a whole number from 2 to 1000"),
        ({"features": 3}, "features is 3: use a whole number from 4"),
        ({"words_per_node": 0}, "words_per_node is 0"),
        ({"words_per_node": 201}, "words_per_node is 201: use a whole number from 1 to 200"),
        ({"homophily": 1.5}, "homophily is 1.5: use a number from 0 to 1"),
        ({"homophily": float("nan")}, "homophily is nan"),
        ({"homophily": "high"}, "homophily is 'high'"),
        ({"topic_share": -0.1}, "topic_share is -0.1"),
        ({"train_per_class": 251}, "train_per_class is 251: use a whole number from 1 to 250"),
        ({"val": 921}, "val is 921: use a whole number from 0 to 920"),
        ({"val": 900, "test": 21}, "test is 21: use a whole number from 0 to 20"),
        ({"seed": -1}, "seed is -1: use a whole number from 0 up"),
        ({"edges": 125_000, "homophily": 1.0}, "only 124500 such pairs: use fewer edges"),
        ({"edges": 400_000, "homophily": 0.0}, "only 375000 such pairs"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        synthetic_graph(**arguments)
    assert message in str(caught.value)
