"""Graph partition neural networks: messages within clusters, then between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.sparse import csgraph
from scipy.sparse.linalg import lobpcg
from torch import Tensor, nn

from bvat.engine.sparse import SparseMatrix
from bvat.errors import SettingsError
from bvat.graph.inputs import GraphInputs
from bvat.models.base import Masks
from bvat.models.layered import LayeredModel, dropped, glorot, layer_widths, side_by_side

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


class Divided(NamedTuple):
    """The edges of a graph whose nodes are divided into clusters, as means over neighbours.

    Shapes: within (N, N), the mean over neighbours in the same cluster; between (m, N), the mean over those
    in other clusters, for the m nodes that have any; border int64 (m), these nodes.
    """

    within: SparseMatrix
    between: SparseMatrix
    border: Tensor


class GPNN(LayeredModel):
    """Graph partition neural network (https://arxiv.org/abs/1803.06272).

    The nodes are divided into clusters. States start as ``h = X W + b``. In each of T passes all nodes update
    ``h <- GRU(mean over neighbours in the same cluster, h)``, then those with neighbours in other clusters
    ``h <- GRU(mean over these, h)``, with one GRU for all. ``logits = MLP([h, X])``, linear without
    hidden layers. X is read through ``X [W | V]`` only, where V is the part of the readout for X.

    Which nodes the clusters grow from is drawn with the weights and kept with them: a trained model divides a
    graph in the same way every time. Edge weights are not used.

    Args:
        in_features, classes: as for every :class:`LayeredModel`.
        hidden: width of the states; hidden layers of the readout are twice as wide.
        layers: T, at least 1.
        dropout: rate for the features, for the final states, and for the hidden layers of the readout.
        generator: source of the Glorot-uniform weights and of the partition.
        clusters: number of clusters.
        partition: "flood" or "spectral", see :func:`flood` and :func:`spectral`.
        readout_layers: number of hidden layers of the readout, with tanh.

    Example:
        >>> logits = GPNN(graph.num_features, graph.num_classes).eval()(graph)  # (N, C)
    """

    partition_seed: Tensor

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        hidden: int = 128,
        layers: int = 3,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
        clusters: int = 5,
        partition: Literal["flood", "spectral"] = "flood",
        readout_layers: int = 0,
    ) -> None:
        layer_widths(in_features, classes, hidden, layers)
        if clusters < 1 or readout_layers < 0 or partition not in PARTITIONS:
            raise SettingsError(
                "GPNN needs clusters >= 1, readout_layers >= 0 and partition 'flood' or 'spectral', not "
                f"{clusters}, {readout_layers} and {partition!r}"
            )
        readout = [*[2 * hidden] * readout_layers, classes]
        states, direct = glorot(in_features, hidden, generator), glorot(in_features, readout[0], generator)
        first = nn.Parameter(torch.cat([states, direct], 1).detach())
        maps = [glorot(rows, columns, generator) for rows, columns in pairwise([hidden, *readout])]
        super().__init__(
            [first, *maps], biases=[hidden, *readout], dropout=dropout, hidden_widths=[hidden, *readout[:-1]]
        )
        self.passes, self.clusters, self.partition = layers, clusters, partition
        self.from_mean = side_by_side(hidden, hidden, 3, generator)  # of update gate, reset gate and proposal
        self.from_state = side_by_side(hidden, hidden, 2, generator)  # of both gates
        self.from_reset = glorot(hidden, hidden, generator)  # of the proposal
        self.gates = nn.Parameter(torch.cat([torch.ones(hidden), torch.zeros(2 * hidden)]))  # biases
        seed = torch.randint(2**31, (), generator=generator)
        self.register_buffer("partition_seed", seed)

    @property
    def depth(self) -> int:
        """2 T: a pass reaches one hop within clusters and one between them."""
        return 2 * self.passes

    def divided(self, inputs: GraphInputs) -> Divided:
        """Return the edges within and between clusters; a subgraph keeps the clusters of the whole graph."""
        key = (int(self.partition_seed), self.partition, self.clusters)
        whole, nodes = getattr(inputs, "whole", inputs).propagation, getattr(inputs, "nodes", None)

        def divide() -> Divided:
            clusters = whole.kept("clusters", lambda: _clusters(whole, *key), key)
            part = clusters if nodes is None else clusters[nodes.cpu().numpy()]
            return _divide(inputs.propagation, part)

        return inputs.propagation.kept("divided", divide, key)

    def _update(self, mean: Tensor, state: Tensor) -> Tensor:
        """Return ``GRU(mean, state)``; shapes (n, H)."""
        width = state.shape[1]
        # in place where no gradient needs the value: half of the time goes to passes over (n, H)
        from_mean = torch.addmm(self.gates, mean, self.from_mean)
        of_gates, of_proposal = torch.split(from_mean, [2 * width, width], 1)
        gates = (state @ self.from_state).add_(of_gates).sigmoid_()
        update, reset = torch.split(gates, width, 1)
        proposal = ((reset * state) @ self.from_reset).add_(of_proposal).tanh_()
        return torch.lerp(proposal, state, update)

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None) -> Tensor:
        """Turn projected features (N, H + width of the readout) into logits (N, C)."""
        divided, width = self.divided(inputs), self.from_reset.shape[0]
        state = projected[:, :width] + self.biases[0]
        for _ in range(self.passes):
            state = self._update(divided.within @ state, state)
            if divided.border.numel():
                border = self._update(divided.between @ state, state.index_select(0, divided.border))
                state = state.index_copy(0, divided.border, border)
        direct = projected[:, width:]
        for layer, weight in enumerate(self.weights[1:]):
            state = torch.mm(dropped(torch.tanh(state) if layer else state, masks, layer), weight)
            state = state + self.biases[layer + 1]
            state = state if layer else state + direct
        logits: Tensor = state
        return logits


def _clusters(propagation: SparseMatrix, seed: int, partition: str, count: int) -> Any:
    """Return the cluster of each node of a whole graph, (N)."""
    rows, col = propagation.rows.cpu().numpy(), propagation.col.cpu().numpy()
    other = rows != col
    pattern = sp.csr_array((np.ones(int(other.sum())), (rows[other], col[other])), shape=propagation.shape)
    return PARTITIONS[partition](pattern, count, np.random.default_rng(seed))


def _divide(propagation: SparseMatrix, clusters: Any) -> Divided:
    """Return the means over neighbours within and between clusters; clusters (N)."""
    rows, col = propagation.rows.cpu().numpy(), propagation.col.cpu().numpy()
    same, other = clusters[rows] == clusters[col], rows != col
    within, between = (_mean(rows[kept], col[kept], propagation.shape[0]) for kept in (same & other, ~same))
    border = np.flatnonzero(np.diff(between.indptr))
    first, second = (
        SparseMatrix.of(SparseMatrix.from_scipy(matrix, propagation.dtype), propagation.engine).to(
            propagation.device
        )
        for matrix in (within, between[border])
    )
    return Divided(first, second, torch.from_numpy(border).to(propagation.device))


def _mean(rows: Any, col: Any, size: int) -> Any:
    """Return the matrix of means over the entries (rows, col), zero in rows without any; (size, size)."""
    counts = np.bincount(rows, minlength=size)
    return sp.csr_array((1 / counts[rows], (rows, col)), shape=(size, size))
