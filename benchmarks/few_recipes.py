"""Fixed recipes of scikit-learn for few labels, which benchmarks/few_labels.py compares with ``auto``.

A recipe reads the features, the edges and the training labels; nothing of it is tuned.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from bvat.graph import UNKNOWN, Graph

K, SPREADING_K = 10, 7
"""Similar nodes of the recipe with two graphs, and scikit-learn's default of LabelSpreading."""
STEPS, TELEPORT = 10, 0.1
RANK = 128
LARGE, LARGE_TO_REFIT = 25_000_000, 1_500_000
"""With more entries of the features than these, a recipe reads 128 components: where spread features would
not fit in memory, and where many fits on most nodes would take more than 20 s."""
MANY = 10_000
"""With more nodes than this, neighbours are found among 128 components."""

Rows = NDArray[np.float32]


class Inputs:
    """A graph as recipes read it; what needs no labels is computed once, for all draws.

    Features that are counts are weighted by TF-IDF; others, or ``columns``, are centred and scaled.
    """

    def __init__(self, graph: Graph, columns: NDArray[np.float64] | None = None) -> None:
        content: Any = graph.features.to_scipy() if columns is None else columns
        self.size = graph.num_nodes * graph.num_features
        self.text = sp.issparse(content) and (not content.nnz or content.data.min() >= 0)
        if self.text:
            self.x: Any = TfidfTransformer().fit_transform(sp.csr_matrix(content)).astype(np.float32)
        else:
            self.x = StandardScaler().fit_transform(dense(content))
        self.given = normal_adjacency(graph.adjacency.to_scipy())
        self.has_edges = graph.num_edges > 0

    @cached_property
    def reduced(self) -> Rows:
        """The 128 largest components of the features, (N, 128)."""
        rank = min(RANK, self.x.shape[1] - 1)
        found: Rows = TruncatedSVD(rank, random_state=0).fit_transform(self.x).astype(np.float32)
        return found

    @cached_property
    def nearest(self) -> NDArray[np.int64]:
        """The 10 nearest nodes of each, nearest first, (N, 10); rows of text have length 1, so by cosine."""
        rows = normalize(self.reduced) if reduces(self, "spreading") else self.x
        if self.text:  # the origin is nearer to most rows than they are to each other
            empty = (np.diff(self.x.indptr) == 0).astype(np.float32)[:, None]
            rows = sp.hstack([rows, empty]).tocsr() if sp.issparse(rows) else np.hstack([rows, empty])
        found: NDArray[np.int64] = NearestNeighbors(n_neighbors=K).fit(rows).kneighbors(return_distance=False)
        return found

    @cached_property
    def similar(self) -> Any:
        """Normalised adjacency of the graph that joins nodes with their 10 nearest ones, (N, N)."""
        found = _joined(self.nearest)
        return normal_adjacency(found.maximum(found.T))

    @cached_property
    def spreading_neighbours(self) -> Any:
        """What ``LabelSpreading(kernel="knn")`` computes in each fit: itself and the nearest ones, (N, N)."""
        itself = np.arange(self.nearest.shape[0])[:, None]
        return _joined(np.concatenate([itself, self.nearest[:, : SPREADING_K - 1]], 1))

    def rows(self, most: int) -> Any:
        """Return the features, or their components if there are more than ``most`` entries."""
        return self.reduced if self.size > most else self.x

    def twice(self, most: int) -> Any:
        """Return the features after two propagations over the given edges, dense."""
        return dense(self.given @ (self.given @ self.rows(most)))

    @cached_property
    def ranked(self) -> Rows:
        """Personalised PageRank over given edges and over similar nodes, rows of length 1, (N, 2 D)."""
        x = dense(self.rows(LARGE))
        return np.concatenate([normalize(personalised(a, x)) for a in (self.given, self.similar)], axis=1)


def _joined(ends: NDArray[np.int64]) -> Any:
    """Return a matrix with a 1 from each node to its k neighbours; ends (N, k), the result (N, N)."""
    count, k = ends.shape
    starts = np.arange(0, ends.size + 1, k)
    return sp.csr_matrix((np.ones(ends.size), ends.ravel(), starts), shape=(count, count))


def dense(rows: Any) -> Rows:
    return np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float32)


def normal_adjacency(adjacency: Any) -> Any:
    """Return D^-1/2 (A + I) D^-1/2 of a scipy matrix (N, N)."""
    with_loops = sp.csr_array(adjacency) + sp.eye_array(adjacency.shape[0], format="csr")
    scale = sp.diags_array(1 / np.sqrt(with_loops.sum(axis=1)))
    return (scale @ with_loops @ scale).astype(np.float32).tocsr()


def personalised(adjacency: Any, x: Rows) -> Rows:
    """Return features (N, D) spread by personalised PageRank."""
    z = x
    for _ in range(STEPS):
        z = (1 - TELEPORT) * (adjacency @ z) + TELEPORT * x
    return z


def logistic(c: float) -> LogisticRegression:
    return LogisticRegression(C=c, max_iter=500)


def _features(inputs: Inputs, labels: NDArray[np.int64]) -> Any:
    return _supervised(logistic(10 if inputs.text else 1), inputs.x, labels)


def _propagated(inputs: Inputs, labels: NDArray[np.int64]) -> Any:
    return _supervised(logistic(100), inputs.twice(LARGE), labels)


def _two_graphs(inputs: Inputs, labels: NDArray[np.int64]) -> Any:
    return _supervised(logistic(10), inputs.ranked, labels)


def _supervised(model: Any, rows: Any, labels: NDArray[np.int64]) -> Any:
    known = np.flatnonzero(labels != UNKNOWN)
    return model.fit(rows[known], labels[known]).predict(rows)


def _spreading(inputs: Inputs, labels: NDArray[np.int64]) -> Any:
    model = LabelSpreading(kernel=lambda x, y: inputs.spreading_neighbours)  # of all nodes, found once
    return model.fit(np.zeros((labels.size, 1)), labels).transduction_


def _self_training(inputs: Inputs, labels: NDArray[np.int64]) -> Any:
    rows = inputs.twice(LARGE_TO_REFIT) if inputs.has_edges else inputs.rows(LARGE_TO_REFIT)
    base = logistic(100 if inputs.has_edges else 10 if inputs.text else 1)
    return SelfTrainingClassifier(base).fit(rows, labels).predict(rows)


RECIPES: dict[str, tuple[str, Callable[[Inputs, NDArray[np.int64]], Any]]] = {
    "features": ("logistic regression on features", _features),
    "propagated": ("two propagations + logistic regression", _propagated),
    "spreading": ("LabelSpreading(knn)", _spreading),
    "self-training": ("two propagations + SelfTrainingClassifier", _self_training),
    "two-graphs": ("logistic regression on PPR over edges and over similar nodes", _two_graphs),
}
"""Title and function of every recipe; the function returns the predicted class of every node."""


def reduces(inputs: Inputs, recipe: str) -> bool:
    """Return whether a recipe reads 128 components instead of all features."""
    if recipe == "spreading":
        return inputs.text and inputs.x.shape[0] > MANY
    most = {"propagated": LARGE, "two-graphs": LARGE, "self-training": LARGE_TO_REFIT}
    return recipe in most and inputs.size > most[recipe]


def measure_recipe(inputs: Inputs, graph: Graph, recipe: str) -> dict[str, Any]:
    """Return the test accuracy of a recipe in percent, and its processor seconds."""
    labels = np.full(graph.num_nodes, UNKNOWN)
    labels[graph.train.numpy()] = graph.labels.numpy()[graph.train.numpy()]
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "y contains no unlabeled samples", UserWarning)
        predicted = RECIPES[recipe][1](inputs, labels)
    test = graph.test.numpy()
    return {
        "accuracy": 100 * float((predicted[test] == graph.labels.numpy()[test]).mean()),
        "cpu_seconds": round(time.process_time() - started, 2),
        "reduced": reduces(inputs, recipe),
    }
