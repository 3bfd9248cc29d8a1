"""Label propagation: nothing but edges and training labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bvat.baselines.base import Fit, choose, node_table, validation_accuracy
from bvat.graph import Graph

ALPHAS = (0.9, 0.5, 0.8, 0.95, 0.99)
"""Weights of the neighbours; the first is used where there are no validation nodes."""

Scores = NDArray[np.floating[Any]]


def fit(graph: Graph, seed: int) -> Fit:
    known, smooth = one_hot(graph), symmetric(graph.adjacency.to_scipy().astype(np.float32))

    def fitted(alpha: float) -> tuple[float, Scores]:
        scores = spread(smooth, known, alpha)
        return validation_accuracy(graph, scores), scores

    (alpha,), scores = choose(graph, ALPHAS, fit=fitted)
    return node_table(graph, scores, {"alpha": alpha})


def one_hot(graph: Graph) -> Scores:
    """Return Y: the training labels as rows with a single 1, zero elsewhere, (N, C)."""
    known = np.zeros((graph.num_nodes, graph.num_classes), np.float32)
    train = graph.train.numpy()
    known[train, graph.labels.numpy()[train]] = 1
    return known


def symmetric(adjacency: Any) -> Any:
    """Return S = D^-1/2 A D^-1/2."""
    degree = adjacency.sum(axis=1)
    scale = sp.diags_array(np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1)), 0))
    return (scale @ adjacency @ scale).tocsr()


def spread(smooth: Any, known: Scores, alpha: float, rounds: int = 50) -> Scores:
    """Local and global consistency: repeat F = alpha S F + (1 - alpha) Y.

    Its limit is (1 - alpha) (I - alpha S)^-1 Y.
    """
    scores = known
    for _ in range(rounds):
        scores = alpha * (smooth @ scores) + (1 - alpha) * known
    return scores
