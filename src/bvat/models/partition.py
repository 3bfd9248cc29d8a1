"""Dividing the nodes of a graph into clusters."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse import csgraph
from scipy.sparse.linalg import lobpcg

Clusters = NDArray[np.int64]
"""The number of each node's cluster, (N)."""


def flood(adjacency: sp.csr_array, count: int, rng: np.random.Generator) -> Clusters:
    """Grow clusters breadth-first from random nodes, drawn with probability proportional to their degree.

    In each round every cluster, in random order, takes the neighbours of its oldest node that are free. Nodes
    that no cluster reaches join the smallest.

    Args:
        adjacency: symmetric, without self-loops, (N, N).
        count: number of clusters; with fewer nodes that have neighbours, there are fewer.
        rng: source of the starting nodes and of the order.
    """
    degrees = np.diff(adjacency.indptr)
    clusters = np.full(degrees.size, -1, dtype=np.int64)
    count = min(count, int((degrees > 0).sum()))
    if not count:
        return np.zeros(degrees.size, dtype=np.int64)
    starts = rng.choice(degrees.size, size=count, replace=False, p=degrees / degrees.sum())
    clusters[starts] = np.arange(count)
    waiting = [deque([int(start)]) for start in starts]
    while any(waiting):
        for cluster in rng.permutation(count):
            if waiting[cluster]:
                node = waiting[cluster].popleft()
                near = adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]]
                free = near[clusters[near] < 0]
                clusters[free] = cluster
                waiting[cluster].extend(free.tolist())
    return _completed(clusters, count)


def spectral(adjacency: sp.csr_array, count: int, rng: np.random.Generator) -> Clusters:
    """Cluster the largest component by the leading eigenvectors of D^-1/2 A D^-1/2.

    Their rows, scaled to length 1, are clustered by k-means (Ng, Jordan and Weiss, 2002). Nodes of other
    components join the smallest cluster.
    """
    from sklearn.cluster import KMeans  # takes a second to import, and flood does not need it

    _, component = csgraph.connected_components(adjacency, directed=False)
    largest = np.flatnonzero(component == np.bincount(component).argmax())
    count = min(count, largest.size)
    clusters = np.full(component.size, -1, dtype=np.int64)
    if largest.size <= 5 * count:  # too small for the eigensolver, and for clusters to mean anything
        clusters[largest] = np.arange(largest.size) * count // largest.size
        return _completed(clusters, count)
    inside = adjacency[largest][:, largest].astype(np.float64)
    root = sp.diags_array(1 / np.sqrt(inside.sum(axis=1)))
    # shifted by I, so that the eigenvalues are not negative
    matrix = sp.csr_array(root @ inside @ root + sp.eye_array(largest.size))
    guess = rng.standard_normal((largest.size, count))
    vectors = lobpcg(matrix, guess, largest=True, tol=1e-4, maxiter=500)[1]
    rows = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    means = KMeans(count, n_init=1, random_state=int(rng.integers(2**31)))
    clusters[largest] = means.fit_predict(rows)
    return _completed(clusters, count)


def _completed(clusters: Clusters, count: int) -> Clusters:
    """Put nodes without a cluster, which have -1, into the smallest."""
    smallest = np.bincount(clusters[clusters >= 0], minlength=count).argmin()
    return np.where(clusters < 0, smallest, clusters)


PARTITIONS: dict[str, Callable[[Any, int, np.random.Generator], Clusters]] = {
    "flood": flood,
    "spectral": spectral,
}
"""By name: from an adjacency matrix and a number of clusters to the cluster of each node."""
