"""Graph: what it repairs, what it refuses and how it says so."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from bvat.engine.dense import DenseMatrix
from bvat.engine.sparse import SparseMatrix, SymmetricMatrix
from bvat.errors import GraphError
from bvat.graph import Graph
from bvat.graph.repair import normalize_rows, repaired_adjacency

EDGES = [(0, 1), (1, 2), (2, 3)]


def adjacency(edges: list[tuple[int, int]], size: int = 4, weight: Any = 1.0) -> sp.coo_array:
    row, col = zip(*edges, strict=True)
    return sp.coo_array((np.broadcast_to(weight, len(edges)).copy(), (row, col)), shape=(size, size))


def out_of_range_csr() -> sp.csr_array:
    """An edge to node 7 of 4, which scipy itself does not notice in CSR form."""
    return sp.csr_array((np.ones(2), np.array([1, 7]), np.array([0, 1, 2, 2, 2])), shape=(4, 4))


def features(entry: float = 0.5, at: tuple[int, int] = (2, 1)) -> np.ndarray:
    x = np.ones((4, 3))
    x[at] = entry
    return x


def build(**changes: Any) -> Graph:
    given: dict[str, Any] = {
        "features": features(),
        "adjacency": adjacency(EDGES),
        "labels": [0, 1, 0, -1],
        "train": [0],
        "val": [1],
        "test": [2],
    }
    return Graph.build(**(given | changes))


FAULTS = {
    "edge to a node that does not exist": ({"adjacency": out_of_range_csr()}, "does not exist"),
    "adjacency not square": ({"adjacency": sp.coo_array((4, 3))}, "4 x 3: it must be square"),
    "adjacency of another size": ({"adjacency": sp.coo_array((5, 5))}, "4 labels but the adjacency is 5 x 5"),
    "negative edge weight": ({"adjacency": adjacency(EDGES, weight=-1.0)}, "use positive weights"),
    "NaN edge weight": ({"adjacency": adjacency(EDGES, weight=math.nan)}, "use positive weights"),
    "infinite edge weight": ({"adjacency": adjacency(EDGES, weight=math.inf)}, "use positive weights"),
    "NaN feature": ({"features": features(math.nan)}, "node 2 in column 1 is NaN or infinite"),
    "infinite feature": ({"features": features(-math.inf)}, "node 2 in column 1 is NaN or infinite"),
    "NaN feature, sparse": (
        {"features": sp.csr_array(features(math.nan, (3, 2)))},
        "node 3 in column 2 is NaN or infinite",
    ),
    "NaN feature, not normalised": (
        {"features": features(math.nan), "normalize": False},
        "node 2 in column 1 is NaN or infinite",
    ),
    "too few feature rows": ({"features": np.ones((3, 2))}, "features of shape (3, 2): one row per node"),
    "flat features": ({"features": np.ones(4)}, "features of shape (4,): one row per node"),
    "no feature columns": ({"features": np.ones((4, 0))}, "no feature columns"),
    "no nodes": (
        {
            "features": np.ones((0, 3)),
            "adjacency": sp.coo_array((0, 0)),
            "labels": [],
            "train": [],
            "val": [],
            "test": [],
        },
        "the graph has no nodes",
    ),
    "label below -1": ({"labels": [0, 1, 0, -2]}, "node 3 has label -2"),
    "label out of range": (
        {"labels": [0, 1, 2, -1], "class_names": ["a", "b"]},
        "node 2 has label 2, but there are 2 classes: use 0 to 1",
    ),
    "label between two numbers": ({"labels": [0, 0.5, 1, -1]}, "labels must be whole numbers"),
    "NaN label": ({"labels": [0, math.nan, 1, -1]}, "labels must be whole numbers"),
    "labels in words": ({"labels": ["a", "b", "a", "b"]}, "labels must be whole numbers"),
    "one-hot labels": ({"labels": np.eye(4)}, "labels must be a flat list"),
    "labels in a column": ({"labels": [[0], [1], [0], [-1]]}, "labels must be a flat list"),
    "overlapping splits": ({"test": [1, 2]}, "node 1 is in test and in another split too"),
    "repeated node": ({"train": [0, 0]}, "the train split names a node twice"),
    "unlabelled node in a split": ({"test": [2, 3]}, "node 3 of the test split has no label"),
    "split beyond the graph": ({"val": [4]}, "the val split names node 4, but nodes are 0 to 3"),
    "negative node in a split": ({"val": [-1]}, "the val split names node -1"),
    "mask for a split": ({"val": [False, True, False, False]}, "the val split must be numbers, not true"),
    "no labelled node": ({"train": []}, "no node is labelled for training"),
    "too few node names": ({"node_names": ("a", "b")}, "4 nodes but 2 node names"),
    "a node name twice": (
        {"node_names": ("a", "b", "c", "b")},
        "nodes 1 and 3 are both called 'b': give each its own name",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault: str) -> None:
    changes, message = FAULTS[fault]
    with pytest.raises(GraphError, match=re.escape(message)):
        build(**changes)


def symmetric(edges: list[tuple[int, int]], weight: float = 1.0) -> SymmetricMatrix:
    part = SparseMatrix.from_scipy(adjacency(edges, weight=weight))
    return SymmetricMatrix(part.crow, part.col, part.values, part.shape)


BOTH_WAYS = [(0, 1), (1, 0), (1, 2), (2, 1)]
A = symmetric(BOTH_WAYS)
BROKEN = {
    "one direction missing": (symmetric([(0, 1), (1, 0), (1, 2)]), "not symmetric"),
    "self-loop": (symmetric([(0, 1), (1, 0), (2, 2)]), "node 2 has an edge to itself"),
    "negative weight": (symmetric(BOTH_WAYS, -1.0), "use positive weights"),
    "edge to a node that does not exist": (
        SymmetricMatrix(A.crow, torch.tensor([1, 0, 9, 1], dtype=torch.int32), A.values, A.shape),
        "points at column 9",
    ),
    "edge to a negative node": (
        SymmetricMatrix(A.crow, torch.tensor([1, 0, -2, 1], dtype=torch.int32), A.values, A.shape),
        "points at column -2",
    ),
    "row pointers too short": (SymmetricMatrix(A.crow[:-1], A.col, A.values, A.shape), "row pointers"),
    "entries without a row": (
        SymmetricMatrix(torch.zeros_like(A.crow), A.col, A.values, A.shape),
        "number of entries does not match",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_constructor_checks_what_build_would_have_repaired(fault: str) -> None:
    matrix, message = BROKEN[fault]
    with pytest.raises(GraphError, match=message):
        dataclasses.replace(build(), adjacency=matrix)


def test_constructor_accepts_what_build_makes() -> None:
    graph = dataclasses.replace(build(), adjacency=A)
    assert graph.num_edges == 2


NOTHING = {"self_loops": 0, "duplicate_edges": 0, "one_way_edges": 0, "unequal_weights": 0}
REPAIRS: dict[str, tuple[sp.coo_array, dict[str, int], dict[tuple[int, int], float]]] = {
    "nothing": (adjacency(BOTH_WAYS), {}, {(0, 1): 1, (1, 2): 1}),
    "all kinds": (
        adjacency([(0, 1), (1, 0), (1, 2), (1, 2), (1, 2), (3, 2), (0, 0), (3, 3)]),
        {"self_loops": 2, "duplicate_edges": 2, "one_way_edges": 2},
        {(0, 1): 1, (1, 2): 1, (2, 3): 1},
    ),
    "two directions with different weights; the largest of duplicate edges counts": (
        adjacency([(0, 1), (1, 0), (1, 2), (2, 1), (2, 1), (2, 3)], weight=[2.0, 3.0, 5.0, 4.0, 5.0, 1.0]),
        {"duplicate_edges": 1, "one_way_edges": 1, "unequal_weights": 1},
        {(0, 1): 3, (1, 2): 5, (2, 3): 1},
    ),
    "an explicit zero": (
        adjacency([(0, 1), (1, 2)], weight=[0.0, 1.0]), {"one_way_edges": 1}, {(1, 2): 1}
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REPAIRS)
def test_repairs(what: str) -> None:
    given, counts, edges = REPAIRS[what]
    clean, found = repaired_adjacency(given)
    assert found == NOTHING | counts
    expected = torch.zeros(4, 4)
    for (a, b), weight in edges.items():
        expected[a, b] = expected[b, a] = weight
    assert torch.equal(clean.to_dense(), expected)


def test_repairs_of_the_caller_are_added() -> None:
    graph = build(adjacency=adjacency([(0, 1), (0, 0)]), repairs={"isolated": 3, "self_loops": 5})
    assert graph.repairs == NOTHING | {"self_loops": 6, "one_way_edges": 1, "isolated": 3}


def test_a_graph_without_edges() -> None:
    graph = build(adjacency=sp.coo_array((4, 4)))
    assert graph.num_edges == 0
    assert torch.equal(graph.propagation.to_dense(), torch.eye(4))


@pytest.mark.parametrize("sparse", [True, False])
def test_row_normalisation(sparse: bool) -> None:
    """Absolute values count: a row that sums to nothing must not explode, a row of zeros stays."""
    x = torch.tensor([[1.0, 3.0, 0.0], [2.0, -2.0, 0.0], [0.0, 0.0, 0.0], [-1.0, 0.0, -3.0]])
    expected = torch.tensor([[0.25, 0.75, 0], [0.5, -0.5, 0], [0, 0, 0], [-0.25, 0, -0.75]])
    given = SparseMatrix.from_scipy(sp.csr_array(x.numpy())) if sparse else DenseMatrix(x)
    assert torch.equal(normalize_rows(given).to_dense(), expected)


def test_features_sparse_and_dense_alike() -> None:
    x = features(0.0)
    one, other = build(features=x), build(features=sp.csr_array(x))
    assert isinstance(other.features, SparseMatrix)
    assert torch.allclose(one.features.to_dense(), other.features.to_dense())
    assert torch.allclose(one.features.to_dense().sum(1), torch.ones(4))
    raw = build(features=x, normalize=False)
    assert torch.equal(raw.features.to_dense(), torch.as_tensor(x, dtype=torch.float32))


def test_propagation_against_the_dense_formula(graph64: Graph) -> None:
    a = graph64.adjacency.to_dense() + torch.eye(graph64.num_nodes, dtype=torch.float64)
    scale = a.sum(1).rsqrt()
    assert torch.allclose(graph64.propagation.to_dense(), scale[:, None] * a * scale[None, :], atol=1e-12)


def test_propagation_of_weighted_edges() -> None:
    graph = build(adjacency=adjacency([(0, 1), (1, 2)], weight=[2.0, 5.0]))
    assert graph.propagation.to_dense()[0, 1] == pytest.approx(2 / math.sqrt(3 * 8))


def test_induced_keeps_the_weights_of_the_whole_graph(graph: Graph) -> None:
    nodes = torch.tensor([0, 3, 4, 9, 20])
    part = graph.induced(nodes)
    assert torch.equal(part.propagation.to_dense(), graph.propagation.to_dense()[nodes][:, nodes])
    assert torch.equal(part.features.to_dense(), graph.features.to_dense()[nodes])  # type: ignore[union-attr]


def test_graph_is_immutable() -> None:
    graph = build()
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.labels = torch.zeros(4)  # type: ignore[misc]


def test_graph_does_not_follow_the_arrays_it_was_built_from() -> None:
    x, y, train = features().astype(np.float32), np.array([0, 1, 0, -1]), np.array([0])
    tensor = torch.from_numpy(x.copy())
    for given in (x, tensor):
        graph = build(features=given, labels=y, train=train, normalize=False)
        given[0, 0], y[0], train[0] = math.nan, 7, 9
        assert graph.features.to_dense()[0, 0] == 1
        assert graph.labels[0] == 0
        assert graph.train[0] == 0
        y[0], train[0] = 0, 0


@pytest.mark.parametrize("dense", [True, False])
def test_precision(dense: bool) -> None:
    graph = build(features=features() if dense else sp.csr_array(features()))
    double = graph.to(dtype=torch.float64)
    assert double.features.dtype == double.propagation.dtype == torch.float64
    assert double.labels.dtype == torch.int64
    assert double.to(dtype=torch.float32).propagation.to_dense().equal(graph.propagation.to_dense())
    assert graph.features.dtype == torch.float32


def test_facts() -> None:
    graph = build(name="tiny", node_names=("a", "b", "c", "d"))
    assert (graph.num_nodes, graph.num_features, graph.num_classes, graph.num_edges) == (4, 3, 2, 3)
    assert graph.class_names == ("0", "1")
    assert "'tiny'" in repr(graph)
    assert "1/1/1" in repr(graph)
