"""DeepWalk (Perozzi, Al-Rfou, Skiena 2014): skip-gram on random walks, then logistic regression.

The skip-gram is our own: gensim's takes 2.3 times as long on the same walks (``benchmarks/deepwalk.py``), and
with several threads its result is not repeatable.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from bvat.baselines.base import Fit, choose, node_table, validation_accuracy
from bvat.baselines.skipgram import embed
from bvat.baselines.walks import walks_from_all, walks_per_node
from bvat.graph import Graph

STRENGTHS = (1.0, 0.01, 0.03, 0.1, 0.3, 3.0, 10.0, 100.0)
"""C of the logistic regression; the first is used where there are no validation nodes."""

MOST = 7_500_000
"""How many nodes all walks may have, as many as on Pubmed: NELL gets 3 walks from each node instead of 10,
with which it validates no worse (72.0 and 71.2 with two seeds, against 71.3)."""


WALKS, LENGTH = 10, 40
"""Walks from each node, and their length."""


def fit(graph: Graph, seed: int) -> Fit:
    """Embed the nodes, and fit the regression to the training nodes; nodes without edges have no score."""
    adjacency = graph.adjacency.to_scipy()
    rounds = walks_per_node(graph.num_nodes, LENGTH, WALKS, MOST)
    walks = walks_from_all(adjacency, rounds, LENGTH, seed)
    x = embed(walks, graph.num_nodes, seed).astype(np.float64)
    alone = np.diff(adjacency.indptr) == 0
    train, labels = graph.train.numpy(), graph.labels.numpy()
    train = train[~alone[train]]
    if not train.size:
        return node_table(graph, np.zeros((graph.num_nodes, graph.num_classes)), {})

    def fitted(strength: float) -> tuple[float, Any]:
        p = class_probabilities(x, train, labels[train], graph.num_classes, strength)
        p[alone] = 0
        return validation_accuracy(graph, p), p

    (strength,), p = choose(graph, STRENGTHS, fit=fitted)
    return node_table(graph, p, {"C": strength})


def class_probabilities(
    x: NDArray[np.float64], train: NDArray[np.int64], labels: NDArray[np.int64], classes: int, strength: float
) -> NDArray[np.float64]:
    """Return the probabilities (N, C) of a softmax regression fitted to some rows of x (N, d).

    It minimises ``strength * sum of cross-entropies + |W|^2 / 2``; classes without a label get zero.
    """
    present, p = np.unique(labels), np.zeros((len(x), classes))
    if len(present) == 1:
        p[:, present] = 1
        return p
    # with two classes scikit-learn has one weight vector for their difference, which counts half in |W|^2
    strength *= 2 if len(present) == 2 else 1
    found = LogisticRegression(C=strength, tol=1e-6, max_iter=5000).fit(x[train], labels)
    p[:, present] = found.predict_proba(x)
    return p
