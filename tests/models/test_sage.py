"""GraphSAGE on weighted and on directed graphs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bvat.models.sage import GraphSAGE
from graph_helpers import one_way, random_graph


@pytest.mark.parametrize("directed", [False, True])
def test_means_are_weighted_by_the_edges(directed: bool) -> None:
    graph = random_graph(weighted=True).to(dtype=torch.float64)
    graph = one_way(graph) if directed else graph
    weights = graph.adjacency.to_dense()
    sums = weights.sum(1, keepdim=True)
    mean = torch.where(sums > 0, weights / sums, 0.0)
    model = GraphSAGE(graph.num_features, graph.num_classes, hidden=5).double().eval()
    (w0, w1), (b0, b1) = model.weights, model.biases
    neighbours, own = (graph.features.to_dense() @ w0).chunk(2, 1)
    neighbours, own = (torch.relu(mean @ neighbours + own + b0) @ w1).chunk(2, 1)
    torch.testing.assert_close(model(graph), mean @ neighbours + own + b1)


def test_means_without_weights_are_exact() -> None:
    """Weights are found by dividing what was rounded; 1 is 1 all the same."""
    graph = random_graph(nodes=300, edges=900)
    mean = graph.propagation.neighbour_mean().to_dense().numpy()
    there = graph.adjacency.to_dense().numpy() > 0
    counts = np.maximum(there.sum(1, keepdims=True), 1).astype(np.float32)
    np.testing.assert_array_equal(mean, there * (np.float32(1) / counts))
