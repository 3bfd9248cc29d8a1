"""An epoch is scored on the receptive fields of the labelled nodes, with the same numbers."""

from __future__ import annotations

import pytest
import torch

from bvat.data import synthetic_graph
from bvat.engine.dense import DenseMatrix
from bvat.graph import Graph
from bvat.graph.inputs import ReceptiveFields
from bvat.training.loop import run_epoch
from bvat.training.settings import preset
from bvat.training.state import start_training
from bvat.training.trained import accuracy, predict, scored_part

FEW = {"edges": 500, "train_per_class": 5, "val": 10, "test": 20}


def graph_of(**rest: int) -> Graph:
    return synthetic_graph(nodes=300, features=40, classes=3, seed=1, **{**FEW, **rest})


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_rows_are_those_of_the_whole_graph(layers: int) -> None:
    graph = graph_of()
    state = start_training(graph, preset("cora", "vat", epochs=3, hidden=8, layers=layers), 0)
    for _ in range(3):
        row = run_epoch(state)
    part, whole = state.scored, predict(state.model, state.graph)
    assert isinstance(part.inputs, ReceptiveFields)
    logits = predict(state.model, part.inputs)
    assert logits.shape[0] < graph.num_nodes
    for name in ("train", "val", "test"):
        nodes, rows = getattr(graph, name), getattr(part, name)
        torch.testing.assert_close(logits[rows], whole[nodes])
        assert torch.equal(part.labels[rows], graph.labels[nodes])
        assert row[f"{name}_accuracy"] == accuracy(whole, graph, nodes)


@pytest.mark.parametrize(
    ("preset_name", "settings", "test_nodes"),
    [("cora", {"model": "gat"}, 20), ("cora", {"select": "loss"}, 20), ("none", {}, 20), ("cora", {}, 200)],
    ids=["another model", "the largest class counts", "two phases", "many labels"],
)
def test_the_whole_graph_where_it_is_needed(
    preset_name: str, settings: dict[str, object], test_nodes: int
) -> None:
    state = start_training(graph_of(test=test_nodes), preset(preset_name, "vat", epochs=3, **settings), 0)
    assert state.scored.inputs is state.graph


@pytest.mark.parametrize("edges", [150, 2000])
def test_dense_features_are_copied_only_in_part(edges: int) -> None:
    sparse = graph_of(edges=edges)
    dense = sparse.with_features(DenseMatrix(sparse.features.to_dense()))
    model = start_training(dense, preset("cora", "none", hidden=8), 0).model
    read = ReceptiveFields.around(dense, torch.cat([dense.train, dense.val, dense.test]), 2).nodes.numel()
    whole = scored_part(dense, model, every=False).inputs is dense
    assert whole == (read > 150)
    assert whole == (edges == 2000)
