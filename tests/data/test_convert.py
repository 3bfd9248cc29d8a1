from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from bvat import Graph
from bvat.data import synthetic_graph
from bvat.data.convert import from_networkx, from_pyg, from_scipy, to_pyg, to_scipy
from bvat.engine.sparse import SparseMatrix
from bvat.errors import GraphError

A = np.array([[0, 2, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]])


def dense(graph: Graph) -> torch.Tensor:
    return graph.features.to_dense()


def assert_same(one: Graph, two: Graph) -> None:
    assert torch.equal(dense(one), dense(two))
    assert (one.adjacency.to_scipy() != two.adjacency.to_scipy()).nnz == 0
    for part in ("labels", "train", "val", "test"):
        assert torch.equal(getattr(one, part), getattr(two, part))


@pytest.fixture
def graph() -> Graph:
    return synthetic_graph(60, 120, 30, 3, train_per_class=3, val=10, test=10)


def test_scipy_there_and_back(graph: Graph) -> None:
    adjacency, features, labels = to_scipy(graph)
    splits = {part: getattr(graph, part) for part in ("train", "val", "test")}
    again = from_scipy(adjacency, features, labels, normalize=False, **splits)
    assert_same(graph, again)
    adjacency.data[:] = 7  # copies: the graph stays as it is
    features.data[:] = 7
    labels[:] = 0
    assert_same(graph, again)


def test_scipy_makes_what_is_missing() -> None:
    graph = from_scipy(sp.coo_array(A), None, ["b", "a", None, "b"], node_names=[10, 20, 30, 40])
    assert graph.class_names == ("a", "b")
    assert graph.labels.tolist() == [1, 0, -1, 1]
    assert graph.node_names == ("10", "20", "30", "40")
    assert torch.equal(dense(graph), torch.eye(4))
    assert graph.num_edges == 2
    assert graph.repairs["self_loops"] == 1
    assert graph.validation == "none: all 3 labelled nodes are training nodes"
    mask = np.array([True, True, False, False])
    graph = from_scipy(A, np.eye(4) * 2, [0, 1, -1, 5], train=mask)
    assert graph.train.tolist() == [0, 1]
    assert graph.num_classes == 6
    assert torch.equal(dense(graph), torch.eye(4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"adjacency": np.ones((2, 3))}, r"the adjacency has shape \(2, 3\): it must be square"),
        ({"adjacency": -A}, "negative, NaN or infinite: use positive weights"),
        ({"adjacency": A + 1j}, "the adjacency holds complex128: use positive weights"),
        ({"labels": None}, "there are no labels: give one per node"),
        ({"labels": [0, 1]}, r"labels have shape \(2,\), but there are 4 nodes"),
        ({"labels": [0, 0, 0, -1]}, "nothing to learn"),
        ({"labels": [0, 1, 0.5, 1]}, "labels must be whole numbers"),
        ({"labels": list("abca"), "class_names": ["a", "b"]}, "label 'c' is not one of class_names"),
        ({"features": np.eye(3)}, r"features: the matrix has shape \(3, 3\), but there are 4 nodes"),
        ({"features": [["x"]] * 4}, "features are not a matrix"),
        ({"features": np.diag([1, np.nan, 1, 1])}, "NaN, infinite or beyond .* in row 2, column 2"),
        ({"train": [True]}, r"a mask has shape \(1,\), but there are 4 nodes"),
        ({"train": [0.5]}, "a split must be a flat list of node numbers"),
        ({"train": [9]}, "the train split names node 9, but nodes are 0 to 3"),
    ],
)
def test_scipy_refuses(arguments: dict[str, Any], message: str) -> None:
    good = {"adjacency": A, "features": np.eye(4), "labels": [0, 1, 0, 1]}
    with pytest.raises(GraphError, match=message):
        from_scipy(**{**good, **arguments})


class TestPyg:
    @pytest.fixture(autouse=True)
    def pyg(self) -> None:
        with _quiet():
            self.data = pytest.importorskip("torch_geometric.data")

    def test_there_and_back(self, graph: Graph) -> None:
        data = to_pyg(graph)
        data.validate()
        assert data.num_nodes == graph.num_nodes
        assert data.edge_index.shape == (2, 2 * graph.num_edges)
        assert data.is_undirected()
        assert "edge_weight" not in data
        assert_same(graph, from_pyg(data, normalize=False))

    def test_several_kinds_of_nodes_are_refused(self) -> None:
        hetero = self.data.HeteroData()
        hetero["paper"].x = torch.eye(2)
        both = self.data.Data(x=(torch.eye(2), torch.eye(2)), edge_index=torch.tensor([[0], [1]]))
        for data in (hetero, both):
            with pytest.raises(GraphError, match=r"several kinds of nodes .* use data\.to_homogeneous"):
                from_pyg(data)

    def test_weights_and_2d_masks(self) -> None:
        data = self.data.Data(
            x=torch.eye(3),
            edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
            edge_weight=torch.tensor([2.0, 2.0, 1.0, 1.0]),
            y=torch.tensor([[0], [1], [-1]]),
            train_mask=torch.tensor([[True, False], [True, True], [False, False]]),
        )
        graph = from_pyg(data, mask=1, name="mine", class_names=["no", "yes"])
        assert (graph.name, graph.class_names, graph.train.tolist()) == ("mine", ("no", "yes"), [1])
        assert to_pyg(graph).edge_weight.tolist() == [2, 2, 1, 1]
        with pytest.raises(GraphError, match="train_mask has 2 columns: use mask=0 to 1"):
            from_pyg(data, mask=2)

    def test_without_features_and_masks(self) -> None:
        both_ways = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        data = self.data.Data(edge_index=both_ways, y=torch.tensor([0, 1, 1]), num_nodes=3)
        graph = from_pyg(data, train_per_class=1, val_size=0)
        assert torch.equal(dense(graph), torch.eye(3))
        assert (len(graph.train), len(graph.val), len(graph.test)) == (2, 0, 1)

    def test_sparse_features(self) -> None:
        data = self.data.Data(
            x=torch.eye(3).to_sparse(), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([0, 1, 1])
        )
        assert isinstance(from_pyg(data).features, SparseMatrix)

    @pytest.mark.parametrize(
        ("more", "note"),
        [
            ({}, ""),
            ({"edge_attr": torch.ones(4, 3)}, ""),
            ({"time": torch.ones(4), "pos": torch.ones(3, 2)}, "not used: pos, time"),
            ({"edge_attr": torch.arange(4)}, "more than once, whose attributes are averaged: 2"),
            ({"edge_index": torch.tensor([[0, 1, 1], [1, 0, 2]])}, "one direction only and count in both: 1"),
            ({"x": torch.full((3, 2), 0.1, dtype=torch.float64)}, "x is float64 and was rounded to float32"),
            ({"edge_weight": torch.tensor([1.0, 3, 1, 1])}, "weights, of which the larger is kept: 1"),
        ],
    )
    def test_what_is_lost_is_named(self, more: dict[str, Any], note: str) -> None:
        both_ways = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        given = {"x": torch.eye(3), "edge_index": both_ways, "y": torch.tensor([0, 1, 1]), **more}
        data = self.data.Data(**given, train_mask=torch.tensor([True, True, False]))
        with pytest.warns(match=note) if note else nullcontext():
            graph = from_pyg(data)
        assert any(note in text for text in graph.notes) if note else graph.notes == ()

    def test_refuses(self) -> None:
        y = torch.tensor([0, 1])
        with pytest.raises(GraphError, match=r"no edge_index of shape \(2, E\)"):
            from_pyg(self.data.Data(x=torch.eye(2), y=y))
        with pytest.raises(GraphError, match=r"edge_index or edge_weight is wrong .*5.*nodes from 0 to 1"):
            from_pyg(self.data.Data(x=torch.eye(2), y=y, edge_index=torch.tensor([[0], [5]])))
        edge = torch.tensor([[0], [1]])
        with pytest.raises(GraphError, match="one weight per edge"):
            from_pyg(self.data.Data(x=torch.eye(2), y=y, edge_index=edge, edge_weight=torch.ones(2)))


class TestNetworkx:
    @pytest.fixture(autouse=True)
    def networkx(self) -> None:
        self.nx = pytest.importorskip("networkx")

    def test_attributes(self) -> None:
        network = self.nx.MultiDiGraph()
        network.add_node("a", kind="red", age=1, size=3)
        network.add_node("b", kind="blue", age=1, size=1)
        network.add_node(3, age=0, size=2)
        network.add_edges_from([("a", "b", {"weight": 2}), ("a", "b"), (3, 3)])
        with pytest.warns(match="one direction only and count in both: 1$"):
            graph = from_networkx(network, label="kind", features=["age", "size"])
        assert graph.node_names == ("a", "b", "3")
        assert graph.class_names == ("blue", "red")
        assert graph.labels.tolist() == [1, 0, -1]
        assert dense(graph).tolist() == [[0.25, 0.75], [0.5, 0.5], [0, 1]]
        assert graph.adjacency.to_dense().max() == 2
        assert graph.repairs["duplicate_edges"] == 1

    def test_edge_attributes_that_are_lost_are_named(self) -> None:
        network = self.nx.Graph()
        network.add_nodes_from([(1, {"label": "x"}), (2, {"label": "y"})])
        network.add_edge(1, 2, weight=2, kind="road", since=1990)
        with pytest.warns(match="edge attributes that are not used: kind, since"):
            graph = from_networkx(network)
        assert graph.notes[0] == "edge attributes that are not used: kind, since"

    def test_karate_club(self) -> None:
        graph = from_networkx(self.nx.karate_club_graph(), label="club", train_per_class=2)
        assert (graph.num_nodes, graph.num_edges, graph.class_names) == (34, 78, ("Mr. Hi", "Officer"))

    @pytest.mark.parametrize(
        ("nodes", "edges", "message"),
        [
            ([], [], "the network has no nodes"),
            ([(1, {"label": "x"}), ("1", {"label": "y"})], [], "the same name when written as text"),
            ([(1, {"label": "x", "x": [1]}), (2, {"label": "y"})], [], "node 2 has no attribute 'x'"),
            ([(1, {"label": "x", "x": [1]}), (2, {"label": "y", "x": [1, 2]})], [], "their lengths differ"),
            ([(1, {"label": "x", "split": "dev"}), (2, {"label": "y"})], [], "a node has split 'dev'"),
            ([(1, {"label": "x"}), (2, {"label": "y"})], [(1, 2, {"weight": "far"})], "weight that is not a"),
            ([(1, {"label": "x"}), (2, {})], [], "nothing to learn"),
        ],
    )  # fmt: skip
    def test_refuses(self, nodes: Any, edges: Any, message: str) -> None:
        network = self.nx.Graph()
        network.add_nodes_from(nodes)
        network.add_edges_from(edges)
        with pytest.raises(GraphError, match=message):
            from_networkx(network)


def _quiet() -> Any:
    """torch_geometric warns about torch when it is imported."""
    import warnings

    return warnings.catch_warnings(action="ignore")
