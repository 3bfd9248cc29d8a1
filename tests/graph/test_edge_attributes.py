"""Attributes of edges: their order, what merges and refuses them, and the models that read them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import bvat
import own_models
from bvat.audit.copied_fields import copied_fields
from bvat.data.store import graph_from_bytes, graph_to_bytes
from bvat.errors import GraphError, SettingsError
from bvat.graph import Graph
from bvat.inference.export import exported
from bvat.parts.parts import assign
from bvat.testing.common import small_graph
from bvat.testing.models import MODEL_CHECKS, SPLIT_CHECKS, ModelCase
from bvat.training.provenance import graph_fingerprint
from graph_helpers import one_way, rebuilt

both_kinds = pytest.mark.parametrize("directed", [False, True])


@cache
def attributed(*, directed: bool = False) -> Graph:
    """Return a graph in double precision with two attributes per edge."""
    graph = one_way(small_graph()) if directed else small_graph()
    edges = sp.coo_array(graph.adjacency.to_scipy())
    low, high = np.minimum(edges.row, edges.col), np.maximum(edges.row, edges.col)
    given = np.stack([np.sin(low + 3.0 * high), np.cos(7.0 * low * high)], 1)
    return rebuilt(graph, edges, edge_attr=given).to(dtype=torch.float64).with_engine("tensor")


@both_kinds
def test_rows_follow_the_entries_of_the_adjacency(directed: bool) -> None:
    source, target = np.array([0, 3, 1, 0, 2, 2]), np.array([2, 1, 0, 2, 2, 3])  # 0-2 twice, a loop
    given = np.array([1.0, 2, 4, 3, 9, 8])
    edges = sp.coo_array((np.ones(6), (source, target)), shape=(4, 4))
    graph = bvat.from_scipy(edges, np.eye(4), [0, 1, 0, 1], directed=directed, edge_attr=given)
    found = dict(zip(zip(*graph.as_data.edge_index.tolist(), strict=True), graph.edge_attr, strict=True))
    expected = {(0, 2): 2.0, (3, 1): 2, (1, 0): 4, (2, 3): 8}
    if not directed:
        expected |= {(b, a): value for (a, b), value in expected.items()}
    assert {ends: float(row[0]) for ends, row in found.items()} == expected
    assert "edges given more than once, whose attributes are averaged: 1" in graph.notes
    assert graph.recipe["edge_attr"] == {"names": ["0"]}


def test_a_graph_without_edges_has_no_attributes() -> None:
    graph = bvat.from_scipy(sp.coo_array((3, 3)), np.eye(3), [0, 1, 0], edge_attr=np.zeros(0))
    assert graph.edge_attr.shape == (0, 1)


def test_two_directions_with_different_attributes_get_their_mean() -> None:
    edges = sp.coo_array((np.ones(3), ([0, 1, 1], [1, 0, 2])), shape=(3, 3))
    graph = bvat.from_scipy(edges, np.eye(3), [0, 1, 0], edge_attr=[[0.1, 1], [0.2, 1], [0.7, 5]])
    assert graph.as_data.edge_index.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    expected = torch.tensor([[0.15, 1], [0.15, 1], [0.7, 5], [0.7, 5]])
    torch.testing.assert_close(graph.edge_attr, expected)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1.0], "there are 3 edges, but edge attributes of shape .1, 1.: give one row per edge"),
        ([1.0, np.nan, 2], "attribute 0 of edge 1 is NaN, infinite or beyond 1e.30: fill it in"),
        (["a", "b", "c"], "edge attributes must be numbers of shape"),
        (np.zeros((3, 0)), "but edge attributes of shape"),
        (np.zeros((3, 1, 1)), "edge attributes must be numbers of shape"),
    ],
)
def test_wrong_attributes(given: object, message: str) -> None:
    edges = sp.coo_array((np.ones(3), ([0, 1, 1], [1, 0, 2])), shape=(3, 3))
    with pytest.raises(GraphError, match=message):
        bvat.from_scipy(edges, np.eye(3), [0, 1, 0], edge_attr=given)


def test_the_constructor_only_checks() -> None:
    graph = attributed()
    for wrong, message in (
        (torch.zeros(3, 1), "edge_attr has shape"),
        (torch.arange(graph.adjacency.nnz).double()[:, None], "other attributes in its other direction"),
        (torch.full((graph.adjacency.nnz, 1), torch.nan), "an edge attribute is NaN"),
    ):
        with pytest.raises(GraphError, match=message):
            replace(graph, edge_attr=wrong)


@both_kinds
def test_they_are_stored_and_count_in_the_fingerprint(directed: bool) -> None:
    graph = attributed(directed=directed)
    again = graph_from_bytes(graph_to_bytes(graph), "graph")
    assert torch.equal(again.edge_attr, graph.edge_attr)
    other = rebuilt(graph, edge_attr=2 * graph.edge_attr)
    assert graph_fingerprint(other) != graph_fingerprint(graph) == graph_fingerprint(again)


@both_kinds
def test_pyg_gets_and_gives_them(directed: bool) -> None:
    pytest.importorskip("torch_geometric")
    graph = attributed(directed=directed).to(dtype=torch.float32)
    data = bvat.to_pyg(graph)
    again = bvat.from_pyg(data, directed=directed)
    torch.testing.assert_close(again.edge_attr, graph.edge_attr)
    data.edge_attr = data.edge_attr[1:]
    with pytest.raises(GraphError, match="give one row per edge"):
        bvat.from_pyg(data, directed=directed)


FOLDER = "id,label,a\n" + "".join(f"n{k},{'xy'[k % 2]},{k % 3}\n" for k in range(9))


def folder_with(tmp_path: Path, edges: str) -> Path:
    (tmp_path / "nodes.csv").write_text(FOLDER)
    (tmp_path / "edges.csv").write_text(edges)
    return tmp_path


def test_columns_of_a_table(tmp_path: Path) -> None:
    rows = [f"n{k},n{k + 1},{k % 4},word,{7 * k + 1},{k % 2 + 1}" for k in range(8)]
    edges = "\n".join(["source,target,delay,kind,edge_id,weight", *rows])
    graph = bvat.load(folder_with(tmp_path, edges), directed=True)
    delay = np.arange(8) % 4
    assert np.allclose(graph.edge_attr[:, 0], (delay - delay.mean()) / delay.std())
    assert graph.edge_attr.shape[1] == 1
    assert {
        "unused columns of edges.csv: 'kind'",
        "column 'edge_id' of the edges is left out because it looks like an id",
        "1 edge attributes were scaled to mean 0 and standard deviation 1",
    } <= set(graph.notes)
    (tmp_path / "edges.csv").write_text("source,target,delay\nn0,n1,3\nn1,n2,5\n")
    again = bvat.load(tmp_path, like=graph)
    assert np.allclose(again.edge_attr[:, 0], (np.array([3, 5]) - delay.mean()) / delay.std())
    (tmp_path / "edges.csv").write_text("source,target,other\nn0,n1,3\nn1,n2,5\n")
    assert bvat.load(tmp_path, like=graph).edge_attr is None


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            "nan",
            "line 3, column 'delay': 'nan' is not a number up to 1e.30: write one, or remove the column$",
        ),
        ("late", "line 3, column 'delay': 'late' is not a number"),
        ("", "line 3, column 'delay': the cell is empty"),
        ("1,2", "line 3"),
    ],
)
def test_wrong_cells(tmp_path: Path, cell: str, message: str) -> None:
    with pytest.raises(GraphError, match=f"edges.csv, {message}"):
        bvat.load(folder_with(tmp_path, f"source,target,delay\nn0,n1,3\nn1,n2,{cell}\n"))


@pytest.mark.parametrize("kind", ["adjacency", "list"])
def test_npz_files_of_benchmarks(tmp_path: Path, kind: str) -> None:
    source, target = np.array([2, 0, 0]), np.array([0, 1, 2])
    given, about = np.array([5.0, 1, 7]), {"labels": np.array([0, 1, 0])}
    if kind == "adjacency":
        matrix = sp.csr_array(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]]))
        about |= {f"adj_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr", "shape")}
        given = np.array([1.0, 7, 5])
    else:
        about = {"node_labels": about["labels"], "edges": np.stack([source, target], 1)}
        about["node_features"] = np.eye(3)
    path = tmp_path / "mine.npz"
    np.savez(path, edge_attr=given, **about)
    graph = bvat.load(path, directed=True)
    assert graph.as_data.edge_index.tolist() == [[2, 0, 0], [0, 1, 2]]
    assert graph.as_data.edge_attr.tolist() == [[5], [1], [7]]
    np.savez(path, edge_attr=given[1:], **about)
    with pytest.raises(GraphError, match=r"mine\.npz: there are 3 edges, but edge attributes of shape"):
        bvat.load(path)


@both_kinds
@pytest.mark.parametrize("check", [*MODEL_CHECKS, *SPLIT_CHECKS], ids=lambda check: check.__name__)
def test_contract_of_gat(directed: bool, check: object) -> None:
    check(ModelCase("gat", attributed(directed=directed)))


@both_kinds
def test_gat_is_that_of_pyg(directed: bool) -> None:
    layers = pytest.importorskip("torch_geometric.nn")
    graph = attributed(directed=directed)
    model = ModelCase("gat", graph).build(layers=1).eval()
    theirs = layers.GATConv(graph.num_features, graph.num_classes, edge_dim=2, concat=False).double().eval()
    with torch.no_grad():
        theirs.lin.weight.copy_(model.weights[0].t())
        theirs.att_src.copy_(model.source[0][None])
        theirs.att_dst.copy_(model.target[0][None])
        theirs.bias.copy_(model.biases[0])
        unit = torch.zeros(1, 1, graph.num_classes)
        unit[0, 0, 0] = 1
        theirs.att_edge.copy_(unit)
        theirs.lin_edge.weight.zero_()
        theirs.lin_edge.weight[0] = model.edge[0][:, 0]
    data = graph.as_data
    expected = theirs(data.x, data.edge_index, data.edge_attr)
    torch.testing.assert_close(model(graph), expected)
    changed = theirs(data.x, data.edge_index, torch.zeros_like(data.edge_attr))
    assert not torch.allclose(changed, expected)


@both_kinds
def test_an_audit_of_gat_reads_them(directed: bool) -> None:
    graph = attributed(directed=directed)
    model = ModelCase("gat", graph).build().eval()
    whole, projected = model(graph), model.project(graph)
    for fields in copied_fields(graph, model.depth, torch.arange(graph.num_nodes), rows_at_once=200):
        logits = model.propagate(fields, projected[fields.nodes])[fields.rows]
        torch.testing.assert_close(logits, whole[fields.centres])


def test_a_module_gets_them_in_training_and_after_it() -> None:
    graph = attributed().to(dtype=torch.float32)
    classifier = bvat.NodeClassifier("vat", model=own_models.Attributed, epochs=3, scale="none").fit(graph)
    predicted = classifier.predict_proba(graph)
    other = rebuilt(graph, edge_attr=torch.zeros_like(graph.edge_attr))
    assert not np.allclose(classifier.predict_proba(other), predicted)
    trained = bvat.train(graph, bvat.preset("", "none", epochs=4, scale="none"), model=own_models.Attributed)
    module = own_models.Attributed(graph.num_features, graph.num_classes)
    module.load_state_dict(trained.weights)
    right = module(*(getattr(graph.as_data, name) for name in ("x", "edge_index", "edge_attr"))).argmax(1)
    share = (right == graph.labels)[graph.test].double().mean()
    assert trained.selected["test"] == pytest.approx(100 * float(share))
    assert not trained.events
    with pytest.raises(
        GraphError, match=r"lacks the edge attributes that the model was trained with \(0, 1\)"
    ):
        classifier.predict(small_graph().to(dtype=torch.float32))


def test_a_run_says_if_they_are_not_used() -> None:
    graph = attributed().to(dtype=torch.float32)
    for model in ("gcn", "sage", own_models.Net):
        events = bvat.train(graph, bvat.preset("", "none", epochs=1, scale="none"), model=model).events
        assert any("does not use the edge attributes of" in text for text in events), model
    assert not bvat.train(graph, bvat.preset("", "none", epochs=1), model="gat").events
    events = bvat.train(graph, bvat.preset("", "auto", effort=1)).events
    assert "auto does not use the edge attributes of graph" in events


def test_a_trained_gat_needs_the_same_attributes(tmp_path: Path) -> None:
    graph = attributed().to(dtype=torch.float32)
    classifier = bvat.NodeClassifier("sbvat", model="gat", epochs=2).fit(graph)
    classifier.save(tmp_path / "gat.safetensors")
    again = bvat.NodeClassifier.load(tmp_path / "gat.safetensors")
    assert np.array_equal(again.predict_proba(graph), classifier.predict_proba(graph))
    with pytest.raises(
        GraphError, match=r"lacks the edge attributes that the model was trained with \(0, 1\)"
    ):
        again.predict(small_graph().to(dtype=torch.float32))
    with pytest.raises(SettingsError, match="models that read edge attributes cannot be exported"):
        exported(again.classifier_, graph)
    with pytest.raises(GraphError, match="the model reads 2 edge attributes, and the graph has 0"):
        again.classifier_.models[0](small_graph().to(dtype=torch.float32))


def test_engines_agree_on_gat() -> None:
    graph = attributed().to(dtype=torch.float32)
    model = ModelCase("gat", graph).build().float().eval()
    torch.testing.assert_close(model(graph.with_engine("compiled")), model(graph), rtol=1e-4, atol=1e-5)


def test_what_has_no_room_for_them() -> None:
    graph = attributed()
    with pytest.raises(SettingsError, match="has edge attributes, and only graphs without"):
        assign(graph, 2, "order")
    similar = graph.with_feature_neighbours(3, keep_edges=True)
    assert similar.edge_attr is None
    assert "edge_attr" not in similar.recipe
