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


def fit(graph: Graph, variant: str, seed: int) -> Fit:
    adjacency, known = graph.adjacency.to_scipy().astype(np.float32), one_hot(graph)
    if variant == "harmonic":
        train = graph.train.numpy()
        return node_table(graph, class_mass(harmonic(adjacency, known, train), known), {})
    smooth = symmetric(adjacency)

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


def harmonic(
    adjacency: Any, known: Scores, train: NDArray[np.int64], rounds: int = 1000, least: float = 1e-6
) -> Scores:
    """Repeat F = D^-1 A F with the training rows kept at their labels, until F changes by less than least."""
    degree = adjacency.sum(axis=1)
    mean = (sp.diags_array(1 / np.where(degree > 0, degree, 1)) @ adjacency).tocsr()
    scores = known
    for _ in range(rounds):
        before, scores = scores, mean @ scores
        scores[train] = known[train]
        if np.abs(scores - before).max() < least:
            break
    return scores


def class_mass(scores: Scores, known: Scores) -> Scores:
    """Scale the columns so that their sums are as the training labels, smoothed by 1.

    Without this, long propagation predicts one class for nearly all nodes.
    """
    counts = known.sum(0) + 1
    mass = scores.sum(0)
    scaled: Scores = scores * (counts / counts.sum() / np.where(mass > 0, mass, 1))
    return scaled
