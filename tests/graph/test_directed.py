"""Directed graphs: what a node reads, products and gradients against dense ones, disjoint fields, storing."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import shortest_path

import bvat
from bvat.audit import audit
from bvat.audit.copied_fields import copied_fields
from bvat.data.store import graph_from_bytes, graph_to_bytes
from bvat.engine.sparse import SymmetricMatrix
from bvat.errors import GraphError, SettingsError
from bvat.graph import Graph
from bvat.models import MODELS
from bvat.parts.parts import assign
from bvat.perturb import DisjointFields
from bvat.testing.common import seeded, small_graph
from bvat.testing.models import MODEL_CHECKS, SPLIT_CHECKS, ModelCase
from bvat.training.provenance import graph_fingerprint
from graph_helpers import one_way, rebuilt

every_engine = pytest.mark.parametrize("engine", ["tensor", "compiled"])


@cache
def directed_graph() -> Graph:
    return one_way(small_graph())


def path_graph(*, directed: bool = True) -> Graph:
    """Return 0 -> 1 -> 2, and 3 alone; row i has what node i reads."""
    edges = sp.coo_array((np.ones(2), ([1, 2], [0, 1])), shape=(4, 4))
    return Graph.build(np.eye(4), edges, [0, 1, 0, 1], train=[0, 1], directed=directed)


def test_a_node_reads_where_edges_come_from() -> None:
    graph = path_graph()
    expected = torch.tensor([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1]])
    assert torch.equal(graph.propagation.to_dense(), expected)
    assert graph.as_data.edge_index.tolist() == [[0, 1], [1, 2]]  # from source to target
    assert graph.num_edges == 2
    assert (
        repr(graph)
        == "Graph('graph', 4 nodes, 2 directed edges, 4 features, 2 classes, 2/0/0 train/val/test)"
    )
    assert path_graph(directed=False).num_edges == 2


def test_propagation_is_the_weighted_mean_of_what_a_node_reads() -> None:
    graph = directed_graph()
    assert not graph.propagation.symmetric
    loops = graph.adjacency.to_dense() + torch.eye(graph.num_nodes)
    torch.testing.assert_close(graph.propagation.to_dense(), loops / loops.sum(1, keepdim=True))
    assert not torch.equal(loops, loops.T)


@every_engine
@pytest.mark.parametrize("width", [3, 4000])  # rows added here and there, and the stored transpose
def test_products_and_their_gradients_are_the_dense_ones(engine: object, width: int) -> None:
    graph = directed_graph().to(dtype=torch.float32).with_engine(engine)  # type: ignore[arg-type]
    dense = graph.propagation.to_dense()
    h = torch.randn(graph.num_nodes, width, generator=seeded(0)).requires_grad_()
    toward = torch.randn(graph.num_nodes, width, generator=seeded(1))
    product = graph.propagation @ h
    (found,) = torch.autograd.grad(product, h, toward)
    torch.testing.assert_close(product.detach(), dense @ h.detach())
    torch.testing.assert_close(found, dense.T @ toward)


@pytest.mark.parametrize("check", [*MODEL_CHECKS, *SPLIT_CHECKS], ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", MODELS)
def test_contract_of_models(name: str, check: object) -> None:
    """Gradients against finite differences, factored against dense perturbations, parts against the whole."""
    check(ModelCase(name, directed_graph()))  # type: ignore[operator]


def test_a_gcn_is_a_dense_computation() -> None:
    """Also on a symmetric graph, where directions change the normalisation only."""
    symmetric = small_graph()
    mean = rebuilt(symmetric, directed=True).to(dtype=torch.float64)
    for graph in (mean, directed_graph()):
        loops = graph.adjacency.to_dense() + torch.eye(graph.num_nodes, dtype=torch.float64)
        p = loops / loops.sum(1, keepdim=True)
        model = ModelCase("gcn", graph).build().eval()
        first, second = model.weights
        expected = p @ torch.relu(p @ graph.features.to_dense() @ first) @ second
        torch.testing.assert_close(model(graph), expected)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_disjoint_fields_do_not_meet(depth: int) -> None:
    graph = directed_graph()
    hops = shortest_path(graph.adjacency.to_scipy(), unweighted=True)  # along what a node reads
    for seed in range(5):
        found = DisjointFields(30, tell=lambda _: None).choose(graph, depth, seeded(seed))
        balls = hops[found.chosen.numpy()] <= depth
        assert (balls.sum(0) <= 1).all()
        assert np.array_equal(found.owner.numpy(), np.where(balls.any(0), balls.argmax(0), -1))
        left = hops <= depth
        meets = (left.astype(int) @ balls.T.astype(int)).any(1)
        assert meets.all() or len(found.chosen) == 30, "another node could be chosen"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_an_audit_sees_the_logits_and_gradients_of_the_whole_graph(name: str) -> None:
    graph, nodes = directed_graph(), torch.arange(8)
    model = ModelCase(name, graph).build().eval()
    found = audit(model, graph, nodes=nodes)
    logits = model(graph).detach()
    assert torch.equal(found.predicted, logits[:8].argmax(1))
    projected = model.project(graph).detach()
    for fields in copied_fields(graph, model.depth, nodes, layered=name == "gcn"):
        part = projected[fields.nodes].requires_grad_()
        whole = projected.clone().requires_grad_()
        rows = torch.arange(fields.centres.numel()) if fields.rows is None else fields.rows
        for place in range(rows.numel()):
            ours = torch.autograd.grad(model.propagate(fields, part)[rows[place]].max(), part)[0]
            theirs = torch.autograd.grad(model.propagate(graph, whole)[fields.centres[place]].max(), whole)[0]
            own = fields.owner == place
            torch.testing.assert_close(ours[own], theirs[fields.nodes[own]])


def test_edges_keep_their_direction_from_every_source() -> None:
    """scipy, NetworkX and PyG mean the same edge, and the copies that they get are those given."""
    labels = [0, 1, 0, 1]
    matrix = sp.coo_array(([2.0, 1.0, 3.0, 5.0], ([0, 1, 0, 2], [1, 2, 1, 2])), shape=(4, 4))
    graph = bvat.from_scipy(matrix, np.eye(4), labels, directed=True)
    assert graph.as_data.edge_index.tolist() == [[0, 1], [1, 2]]
    assert graph.as_data.edge_weight.tolist() == [3, 1]
    assert graph.repairs == {"self_loops": 1, "duplicate_edges": 1, "one_way_edges": 0, "unequal_weights": 0}
    again = bvat.from_scipy(*bvat.to_scipy(graph), directed=True)
    assert torch.equal(again.adjacency.to_dense(), graph.adjacency.to_dense())
    assert graph.notes[:3] == (
        "self-loops removed: 1",
        "duplicate edges merged, keeping the largest weight: 1",
        "nodes that no edge leads to, classified by their features alone: 2",
    )


def test_networkx_and_pyg() -> None:
    networkx = pytest.importorskip("networkx")
    network = networkx.DiGraph([("a", "b"), ("b", "c")])
    for node, label in zip("abc", "xyx", strict=True):
        network.nodes[node]["label"] = label
    graph = bvat.from_networkx(network, directed=True)  # no warning
    assert graph.as_data.edge_index.tolist() == [[0, 1], [1, 2]]
    with pytest.raises(GraphError, match="the network has no directions"):
        bvat.from_networkx(network.to_undirected(), directed=True)
    pytest.importorskip("torch_geometric")
    data = bvat.to_pyg(graph)
    assert data.edge_index.tolist() == [[0, 1], [1, 2]]
    again = bvat.from_pyg(data, directed=True)
    assert torch.equal(again.adjacency.to_dense(), graph.adjacency.to_dense())


def test_it_is_stored_and_has_a_fingerprint_of_its_own() -> None:
    graph = directed_graph()
    again = graph_from_bytes(graph_to_bytes(graph), "graph")
    assert again.directed
    assert again.recipe == {"directed": True}
    assert torch.equal(again.propagation.to_dense(), graph.propagation.to_dense())
    ring = sp.diags_array([1.0, 1.0], offsets=[1, -1], shape=(6, 6))
    both = [bvat.from_scipy(ring, labels=[0, 1] * 3, directed=each) for each in (False, True)]
    assert torch.equal(*(each.adjacency.to_dense() for each in both))
    assert len({graph_fingerprint(each) for each in both}) == 2


def test_joined_with_similar_nodes_it_stays_directed() -> None:
    graph = directed_graph()
    similar = graph.with_feature_neighbours(3)
    assert not similar.directed
    assert isinstance(similar.adjacency, SymmetricMatrix)
    assert "directed" not in similar.recipe
    both = graph.joined(similar)
    assert both.directed
    expected = torch.maximum(graph.adjacency.to_dense(), similar.adjacency.to_dense())
    assert torch.equal(both.adjacency.to_dense(), expected)
    assert graph.with_feature_neighbours(3, keep_edges=True).directed


def test_what_needs_both_directions_refuses() -> None:
    graph = directed_graph()
    with pytest.raises(SettingsError, match="lp needs undirected edges"):
        bvat.train(graph, bvat.preset("", "lp"))
    with pytest.raises(SettingsError, match="only undirected graphs can be cut into parts"):
        assign(graph, 2, "order")
    with pytest.raises(GraphError, match="not symmetric"):
        replace(graph, directed=False)


def test_an_ensemble_follows_directions() -> None:
    graph = directed_graph().to(dtype=torch.float32)
    turned = rebuilt(graph, graph.adjacency.to_scipy().T)
    classifier = bvat.NodeClassifier("auto", effort=1).fit(graph)
    ours, theirs = (classifier.predict_proba(each) for each in (graph, turned))
    assert not np.allclose(ours, theirs)


def test_a_model_predicts_graphs_of_its_kind(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "nodes.csv").write_text(
        "id,label,a\n" + "".join(f"n{k},{'xy'[k % 2]},{k % 3}\n" for k in range(9))
    )
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"n{k},n{k + 1}\n" for k in range(8)))
    graph = bvat.load(folder, directed=True)
    assert graph.as_data.edge_index.tolist() == [list(range(8)), list(range(1, 9))]
    assert bvat.load(folder, like=graph).directed
    fitted = bvat.NodeClassifier("none", epochs=2).fit(graph)
    fitted.save(tmp_path / "model.safetensors")
    fitted = bvat.NodeClassifier.load(tmp_path / "model.safetensors")
    fitted.predict(bvat.load(folder, like=graph))
    with pytest.raises(GraphError, match=r"mine is undirected, but the graph that .* on is directed"):
        fitted.predict(bvat.load(folder))
