"""The true radius lies between what is proved and what the attack found."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import bvat
from bvat.audit import audit
from bvat.graph import Graph
from bvat.models import GCN
from certified import fitted
from certified_exact import Node


def test_the_true_radius_beyond_a_kink() -> None:
    """``logits = (relu(y), 5 relu(x - y))`` at (0, 1): the second relu moves before the class changes."""
    x, none = np.array([[0.0, 1.0]]), np.zeros((1, 1))
    graph = Graph.build(x, none, [0], train=[0], class_names=["a", "b"], normalize=False)
    model = GCN(2, 2, hidden=2).eval()
    with torch.no_grad():
        model.weights[0].copy_(torch.tensor([[0.0, 1.0], [1.0, -1.0]]))
        model.weights[1].copy_(torch.tensor([[1.0, 0.0], [0.0, 5.0]]))
    node = Node(model, graph, 0)
    assert node.radius(10.0) == pytest.approx(6 / 61**0.5, rel=1e-6)  # to the line 5 x = 6 y
    assert node.radius(0.7) == 0.7  # there is none up to 0.7


@pytest.mark.parametrize("method", ["none", "vat"])
def test_the_true_radius_is_between(method: str) -> None:
    graph = bvat.synthetic_graph(nodes=60, edges=60, features=30, classes=3, seed=1)
    model, _ = fitted(graph, method, 0, hidden=4, epochs=40, pretrain=20)
    found = audit(model, graph, certify=True)
    ratios = []
    for node, proved, attacked in zip(
        found.nodes.tolist(), found.certified.tolist(), found.smallest.tolist(), strict=True
    ):
        here = Node(model, graph, node)
        if here.loose(attacked).sum() <= 6:
            true = here.radius(attacked)
            assert proved <= true * (1 + 1e-6)
            ratios.append(proved / true)
    assert len(ratios) > 5
    assert max(ratios) > 0.9
