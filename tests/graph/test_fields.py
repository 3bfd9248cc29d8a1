"""Receptive fields against the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

import bvat.engine.compile
from bvat.engine.sparse import SparseMatrix
from bvat.graph import Graph
from bvat.graph.inputs import ReceptiveFields, _collect
from bvat.models import linearize
from core_helpers import gradients, make_gcn, seeded

CHOSEN = {
    "one": [5],
    "some": [20, 3, 39],  # not ascending, in two parts of the graph
    "isolated": [33],
    "isolated and others": [8, 33, 0, 34],
    "all": list(range(40)),
    "all, last first": list(range(39, -1, -1)),
}
DEPTHS = [1, 2, 3]
every_choice = pytest.mark.parametrize("chosen", CHOSEN.values(), ids=CHOSEN)


@pytest.mark.parametrize("depth", DEPTHS)
@every_choice
def test_nodes_are_in_order_of_their_distance(graph: Graph, chosen: list[int], depth: int) -> None:
    fields = ReceptiveFields.around(graph, torch.tensor(chosen), depth)
    hops = shortest_path(graph.adjacency.to_scipy(), unweighted=True, indices=chosen).min(axis=0)
    nodes = fields.nodes.tolist()
    assert nodes[: len(chosen)] == chosen
    assert sorted(nodes) == np.flatnonzero(hops <= depth).tolist()
    assert (np.diff(hops[nodes]) >= 0).all()
    # layer k of K computes what lies within K - k hops from what lies one hop further
    within = [int((hops <= k).sum()) for k in range(depth + 1)]
    assert [block.shape for block in fields.layers] == list(zip(within[-2::-1], within[:0:-1], strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("depth", DEPTHS)
@every_choice
def test_layers_are_blocks_of_the_matrix(
    graph: Graph, chosen: list[int], depth: int, dtype: torch.dtype
) -> None:
    whole = graph.to(dtype=dtype)
    fields, dense = ReceptiveFields.around(whole, torch.tensor(chosen), depth), whole.propagation.to_dense()
    assert len(fields.layers) == depth
    for block in fields.layers:
        rows, columns = block.shape
        own = dense[fields.nodes[:rows]]
        assert block.dtype == dtype
        assert block.nnz == int(block.crow[-1]) == int((own != 0).sum()), "no entry lies outside"
        assert torch.equal(block.to_dense(), own[:, fields.nodes[:columns]])
    assert fields.propagation is fields.layers[0]


def test_rows_of_a_matrix_that_is_not_symmetric() -> None:
    """A field follows what a row reads, not who reads the row."""
    dense = torch.tensor([[0, 2, 0, 0], [0, 0, 3, 0], [0, 0, 5, 0], [7, 0, 0, 0]], dtype=torch.float32)
    whole: Any = SimpleNamespace(propagation=SparseMatrix.from_scipy(dense.numpy()))
    fields = ReceptiveFields.around(whole, torch.tensor([0]), 2)
    assert fields.nodes.tolist() == [0, 1, 2]
    assert [block.to_dense().tolist() for block in fields.layers] == [[[0, 2, 0], [0, 0, 3]], [[0, 2]]]


@pytest.mark.parametrize("depth", DEPTHS)
@every_choice
def test_compiled_and_plain_walk_agree(graph: Graph, chosen: list[int], depth: int) -> None:
    arguments = (*graph.propagation.arrays, np.array(chosen), depth)
    for ours, theirs in zip(_collect(*arguments), _collect.python(*arguments), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dense", [False, True])
def test_features_of_the_nodes(make_graph: Callable[..., Graph], dense: bool) -> None:
    graph = make_graph(dense=dense)
    fields = ReceptiveFields.around(graph, torch.tensor([20, 3]), 2)
    ours, theirs = (x.to_dense() for x in (fields.features, graph.features))
    assert torch.equal(ours, theirs[fields.nodes])


@pytest.mark.parametrize("with_numba", [True, False], ids=["compiled", "without numba"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("hidden", [5, 16])
@pytest.mark.parametrize("depth", DEPTHS)
@every_choice
def test_logits_and_gradients_are_those_of_the_whole_graph(
    graph64: Graph,
    monkeypatch: pytest.MonkeyPatch,
    chosen: list[int],
    depth: int,
    hidden: int,
    dropout: float,
    with_numba: bool,
) -> None:
    model = make_gcn(graph64, layers=depth, hidden=hidden, dropout=dropout)
    masks = model.draw_masks(graph64, seeded())
    expected = model(graph64, masks)[chosen]
    weigh = torch.randn_like(expected)
    if not with_numba:
        monkeypatch.setattr(bvat.engine.compile, "has_numba", lambda: False)
    fields = ReceptiveFields.around(graph64, torch.tensor(chosen), depth)
    own_masks = model.restrict_masks(masks, graph64, fields.nodes)
    logits = model(fields, own_masks)
    assert torch.allclose(logits, expected, rtol=0, atol=1e-12)
    ours, theirs = (gradients((found * weigh).sum(), model) for found in (logits, expected))
    assert all(torch.allclose(a, b, rtol=0, atol=1e-11) for a, b in zip(ours, theirs, strict=True))

    # and the closed form: what is pulled back to a node of the fields, nothing being pulled to others
    projected = model.project(graph64, masks).detach()
    weigh_whole = torch.zeros(40, 3, dtype=torch.float64).index_copy_(0, torch.tensor(chosen), weigh)
    there = linearize(model, graph64, projected, masks)[1](weigh_whole)
    here_logits, pullback = linearize(model, fields, projected[fields.nodes], own_masks)
    assert torch.allclose(here_logits, expected, rtol=0, atol=1e-12)
    assert torch.allclose(pullback(weigh), there[fields.nodes], rtol=0, atol=1e-12)
    assert not there.index_fill(0, fields.nodes, 0).any()


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("hidden", [3, 8])
@pytest.mark.parametrize("depth", DEPTHS)
def test_gradients_against_finite_differences(
    make_graph: Callable[..., Graph], depth: int, hidden: int, dropout: float
) -> None:
    graph = make_graph(nodes=20, features=6, edges=12, seed=2).to(dtype=torch.float64)
    model = make_gcn(graph, layers=depth, hidden=hidden, dropout=dropout)
    fields = ReceptiveFields.around(graph, torch.tensor([4, 0]), depth)
    masks = model.draw_masks(fields, seeded())
    projected = model.project(fields, masks).detach().requires_grad_()

    def whole(*weights: Tensor) -> Tensor:
        named = {f"weights.{k}": weight for k, weight in enumerate(weights)}
        logits: Tensor = torch.func.functional_call(model, named, (fields, masks))
        return logits

    assert model.propagate(fields, projected, masks).shape == (2, 3)
    assert torch.autograd.gradcheck(lambda p: model.propagate(fields, p, masks), projected)
    assert torch.autograd.gradcheck(
        whole, tuple(weight.detach().clone().requires_grad_() for weight in model.weights)
    )


@pytest.mark.parametrize("depth", DEPTHS)
def test_masks_have_the_rows_that_are_computed(graph: Graph, depth: int) -> None:
    model = make_gcn(graph, layers=depth, dropout=0.5)
    fields = ReceptiveFields.around(graph, torch.tensor([20, 3]), depth)
    masks = model.draw_masks(fields, seeded())
    assert [mask.shape for mask in masks.hidden] == [(block.shape[0], 5) for block in fields.layers[:-1]]
