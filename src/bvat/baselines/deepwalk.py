"""DeepWalk (Perozzi, Al-Rfou, Skiena 2014): skip-gram on random walks, then logistic regression."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from bvat.baselines.base import Fit, best, node_table, tried, validation_accuracy
from bvat.baselines.logistic import Matrix, logistic_regression
from bvat.baselines.skipgram import SkipGram, embed
from bvat.baselines.walks import walks_from_all, walks_per_node
from bvat.graph import Graph

STRENGTHS = (1.0, 0.01, 0.03, 0.1, 0.3, 3.0, 10.0, 100.0)
"""C of the logistic regression; the first is used where there are no validation nodes."""

MOST = 7_500_000
"""How many nodes all walks may have, as many as on Pubmed: NELL gets 3 walks from each node instead of 10,
with which it validates no worse (72.0 and 71.2 with two seeds, against 71.3)."""


@dataclass(frozen=True)
class Preset:
    """Walks per node, their length, and how the embedding is learned."""

    walks: int
    length: int
    skipgram: SkipGram = field(default_factory=SkipGram)


PRESETS = {
    "deepwalk": Preset(10, 40, SkipGram(128, 10)),
    "yang": Preset(10, 10, SkipGram(50, 3, negatives=5, passes=5)),
}


def fit(graph: Graph, variant: str, seed: int) -> Fit:
    """Embed the nodes, and fit the regression to the training nodes; nodes without edges have no score."""
    adjacency = graph.adjacency.to_scipy()
    how = PRESETS[variant]
    how = replace(how, walks=walks_per_node(graph.num_nodes, how.length, how.walks, MOST))
    embedding = embed_nodes(adjacency, how, seed, workers=torch.get_num_threads())
    x = embedding.astype(np.float64)
    alone = np.diff(adjacency.indptr) == 0
    train, labels = graph.train.numpy(), graph.labels.numpy()
    train = train[~alone[train]]
    if not train.size:
        return node_table(graph, np.zeros((graph.num_nodes, graph.num_classes)), {})

    def scored(choice: tuple[float, ...]) -> tuple[float, tuple[float, Matrix]]:
        (strength,) = choice
        weight, bias = logistic_regression(x[train], labels[train], graph.num_classes, strength)
        logits = x @ weight + bias
        p = np.exp(logits - logits.max(1, keepdims=True))
        p[alone] = 0
        return validation_accuracy(graph, p), (strength, p)

    strength, p = best(map(scored, tried(STRENGTHS, graph=graph)))
    return node_table(graph, p, {"C": strength})


def embed_nodes(adjacency: Any, how: Preset, seed: int, workers: int = 1) -> np.ndarray[Any, Any]:
    """Return the embedding of all nodes of a graph (scipy CSR), float32 (N, dim)."""
    walks = walks_from_all(adjacency, how.walks, how.length, seed, workers)
    return embed(walks, adjacency.shape[0], how.skipgram, seed)
