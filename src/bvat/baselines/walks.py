"""Uniform random walks, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bvat.engine.compile import Compiled

NOWHERE = -1
"""What a walk holds after a node without neighbours."""

Nodes = NDArray[np.int32]


def _walk(crow: Any, col: Any, starts: Any, seed: int, walks: Any) -> None:
    """Fill walks (n, length)."""
    for k in range(walks.shape[0]):
        # splitmix64, from a place of its own for every walk
        state = np.uint64(seed) * np.uint64(0xD1342543DE82EF95) + np.uint64(k) * np.uint64(0x2545F4914F6CDD1D)
        node = starts[k]
        walks[k, 0] = node
        for step in range(1, walks.shape[1]):
            degree = crow[node + 1] - crow[node] if node >= 0 else 0
            if degree == 0:
                node = NOWHERE
            else:
                state += np.uint64(0x9E3779B97F4A7C15)
                bits = state
                bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                bits = bits ^ (bits >> np.uint64(31))
                node = col[crow[node] + np.int64((bits >> np.uint64(33)) % np.uint64(degree))]
            walks[k, step] = node


walk = Compiled(_walk, nogil=True)


def random_walks(adjacency: Any, starts: Nodes, length: int, seed: int) -> Nodes:
    """Return one walk per start, int32 (n, length).

    Shapes: adjacency scipy CSR (N, N), starts int32 (n).
    """
    walks = np.empty((len(starts), length), np.int32)
    crow, col = adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int32)
    with np.errstate(over="ignore"):  # without numba, numpy warns of the intended overflow
        walk(crow, col, starts, seed, walks)
    return walks


def walks_per_node(nodes: int, length: int, most: int, total: int) -> int:
    """Return how many walks start at each node: ``most``, or fewer if all would have over ``total`` nodes."""
    return min(most, -(-total // (nodes * length)))


def walks_from_all(adjacency: Any, rounds: int, length: int, seed: int) -> Nodes:
    """Return ``rounds`` walks from every node that has a neighbour, in a random order in every round."""
    nodes = np.flatnonzero(np.diff(adjacency.indptr)).astype(np.int32)
    rng = np.random.default_rng(seed)
    starts = np.concatenate([rng.permutation(nodes) for _ in range(rounds)])
    return random_walks(adjacency, starts, length, seed)
