"""The searches in compiled functions against the same ones made of tensor operations."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bvat.data.synthetic import synthetic_graph
from bvat.graph import Graph
from bvat.models import GCN
from bvat.perturb import OBVAT, SBVAT
from bvat.perturb.regulariser import Outcome, Regulariser
from core_helpers import gradients, seeded


@pytest.fixture(scope="module", params=[2, 3, 5, 9], ids=lambda classes: f"{classes} classes")
def graph(request: pytest.FixtureRequest) -> Graph:
    return synthetic_graph(nodes=500, edges=900, features=64, classes=request.param, seed=2)


def model_for(graph: Graph, hidden: int = 16, dropout: float = 0.5) -> GCN:
    model = GCN(graph.num_features, graph.num_classes, hidden=hidden, dropout=dropout, generator=seeded(1))
    with torch.no_grad():
        for weight in model.weights:
            weight.mul_(6)  # predictions that differ from node to node
    return model


def call(regulariser: Regulariser, graph: Graph, model: GCN) -> tuple[Outcome, list[torch.Tensor]]:
    masks = model.draw_masks(graph, seeded(3))
    projected = model.project(graph, masks)
    logits = model.propagate(graph, projected, masks)
    outcome = regulariser(model, graph, logits, masks, projected)
    return outcome, gradients(outcome.loss, model)


def compare(one: tuple[Outcome, Any], other: tuple[Outcome, Any], tolerance: float) -> None:
    (ours, our_gradients), (theirs, their_gradients) = one, other
    assert theirs.r_vadv > 1e-3
    assert ours.nodes == theirs.nodes
    assert ours.space == theirs.space == "factored"
    for name in ("r_vadv", "row_norm", "max_row_norm"):
        assert float(getattr(ours, name)) == pytest.approx(float(getattr(theirs, name)), rel=tolerance)
    for a, b in zip(our_gradients, their_gradients, strict=True):
        assert float((a - b).norm()) <= tolerance * float(b.norm())


@pytest.mark.parametrize("hidden", [16, 48])
@pytest.mark.parametrize("norm", ["row", "field"])
@pytest.mark.parametrize("policy", ["fresh", "pair", "reuse"])
def test_power_iteration_on_fields(graph: Graph, policy: Any, norm: Any, hidden: int) -> None:
    model = model_for(graph, hidden)
    results = []
    for data in (graph, graph.with_engine("tensor")):
        regulariser = SBVAT(epsilon=0.1, count=12, norm=norm, dropout=policy, generator=seeded(5))
        results.append(call(regulariser, data, model))
    assert type(results[0][0].loss.grad_fn) is not type(results[1][0].loss.grad_fn)  # two ways indeed
    compare(results[0], results[1], 1e-3)


def test_tensor_operations_where_nothing_is_compiled_for(graph: Graph) -> None:
    """Double precision, other widths, other depths: the same calls work."""
    for model, data in (
        (model_for(graph, hidden=12), graph),
        (model_for(graph).double(), graph.to(dtype=torch.float64)),
        (GCN(graph.num_features, graph.num_classes, layers=3, generator=seeded(1)), graph),
    ):
        for make in (SBVAT, OBVAT):
            outcome, _ = call(make(dropout="reuse", generator=seeded()), data, model)
            assert outcome.r_vadv >= 0
