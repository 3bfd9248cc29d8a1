"""Graph partition neural networks: messages within clusters, then between them."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bvat.engine.sparse import SparseMatrix
from bvat.graph.inputs import GraphInputs
from bvat.models.base import Masks
from bvat.models.layered import LayeredModel, dropped, glorot, side_by_side
from bvat.models.table import GPNNOptions

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
    smallest = np.bincount(clusters[clusters >= 0], minlength=count).argmin()
    return np.where(clusters < 0, smallest, clusters)


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
    ``h <- GRU(mean over these, h)``, with one GRU for all. ``logits = h U + X V + c``. X is read through
    ``X [W | V]`` only.

    Which nodes the clusters grow from is drawn with the weights and kept with them: a trained model divides a
    graph in the same way every time. Edge weights are not used.

    Args:
        in_features, classes: as for :class:`GCN`.
        hidden: width of the states.
        layers: T, at least 1.
        dropout: rate for the features and for the final states.
        generator: source of the Glorot-uniform weights and of the partition.
        clusters: number of clusters, see :func:`flood`.

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
    ) -> None:
        GPNNOptions(hidden=hidden, layers=layers, dropout=dropout, clusters=clusters)  # checks them
        states, direct = glorot(in_features, hidden, generator), glorot(in_features, classes, generator)
        first = nn.Parameter(torch.cat([states, direct], 1).detach())
        super().__init__(
            [first, glorot(hidden, classes, generator)],
            biases=[hidden, classes],
            dropout=dropout,
            hidden_widths=[hidden],
        )
        self.passes, self.clusters = layers, clusters
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
        seed, made = self.partition_seed, getattr(self, "_seed", None)
        if made is None or made[0] is not seed or made[1] != seed._version:  # reading it waits for a GPU
            self._seed = made = seed, seed._version, int(seed)
        key = (made[2], self.clusters)
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
        """Turn projected features (N, H + C) into logits (N, C)."""
        divided, width = self.divided(inputs), self.from_reset.shape[0]
        state = projected[:, :width] + self.biases[0]
        for _ in range(self.passes):
            state = self._update(divided.within @ state, state)
            if divided.border.numel():
                border = self._update(divided.between @ state, state.index_select(0, divided.border))
                state = state.index_copy(0, divided.border, border)
        readout: Tensor = torch.mm(dropped(state, masks, 0), self.weights[1]) + self.biases[1]
        return readout + projected[:, width:]


def _clusters(propagation: SparseMatrix, seed: int, count: int) -> Any:
    """Return the cluster of each node of a whole graph, (N)."""
    rows, col = propagation.rows.cpu().numpy(), propagation.col.cpu().numpy()
    other = rows != col
    pattern = sp.csr_array((np.ones(int(other.sum())), (rows[other], col[other])), shape=propagation.shape)
    if not propagation.symmetric:
        pattern = pattern.maximum(pattern.T).tocsr()  # clusters grow along an edge in both directions
    return flood(pattern, count, np.random.default_rng(seed))


def _divide(propagation: SparseMatrix, clusters: Any) -> Divided:
    """Return the means over neighbours within and between clusters; clusters (N)."""
    rows, col = propagation.rows.cpu().numpy(), propagation.col.cpu().numpy()
    same, other = clusters[rows] == clusters[col], rows != col

    def mean(kept: NDArray[np.bool_]) -> Any:
        share = 1 / np.bincount(rows[kept], minlength=len(clusters))[rows[kept]]
        return sp.csr_array((share, (rows[kept], col[kept])), shape=propagation.shape)

    within, between = mean(same & other), mean(~same)
    border = np.flatnonzero(np.diff(between.indptr))
    first, second = (
        SparseMatrix.of(SparseMatrix.from_scipy(matrix, propagation.dtype), propagation.engine).to(
            propagation.device
        )
        for matrix in (within, between[border])
    )
    return Divided(first, second, torch.from_numpy(border).to(propagation.device))
