"""Skip-gram (Mikolov et al. 2013) on walks, with hierarchical softmax or negative samples.

One thread, one pair after the other: the result does not depend on the number of cores. The pairs of a
centre share their negative samples, which then stay in the cache (Ji et al. 2016).
"""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bvat.baselines.walks import Nodes
from bvat.engine.compile import Compiled

FAST: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}

LEAST_RATE = 1e-4
"""The learning rate falls linearly to this share of itself."""

Tree = tuple[Nodes, NDArray[np.float32], Nodes]
NO_TREE: Tree = (np.zeros((1, 1), np.int32), np.zeros((1, 1), np.float32), np.zeros(1, np.int32))


def embed(walks: Nodes, nodes: int, seed: int, dim: int = 128, window: int = 10) -> NDArray[np.float32]:
    """Return the embedding (N, dim) of the nodes in walks (n, length), -1 where a walk has ended.

    It is learned with hierarchical softmax.
    """
    rng = np.random.default_rng(seed)
    inputs = ((rng.random((nodes, dim), np.float32) - 0.5) / dim).astype(np.float32)
    tree = huffman(np.bincount(walks[walks >= 0], minlength=nodes))
    vectors, rates = (inputs, np.zeros_like(inputs)), (0.025, 0.025 * LEAST_RATE)
    learn(walks, window, vectors, tree, (np.zeros(1, np.int32), 0), rates, int(rng.integers(1 << 31)))
    return inputs


def noise_table(counts: NDArray[Any], size: int = 1 << 20) -> Nodes:
    """Return a table to draw negatives from: nodes occur in it in proportion to counts^0.75."""
    drawn = np.cumsum(counts**0.75)
    found: Nodes = np.searchsorted(drawn, (np.arange(size) + 0.5) / size * drawn[-1]).astype(np.int32)
    return found


def huffman(counts: NDArray[np.int64]) -> Tree:
    """Return the inner nodes on the way from the root to every leaf, the turns there, and their number.

    Shapes: counts (N); paths int32 and codes float32 (N, longest), lengths int32 (N).
    """
    size = len(counts)
    heap = [(int(count), k) for k, count in enumerate(counts)]
    heapq.heapify(heap)
    above, turn = np.zeros(2 * size, np.int64), np.zeros(2 * size, np.float32)
    for inner in range(size, 2 * size - 1):
        (a, left), (b, right) = heapq.heappop(heap), heapq.heappop(heap)
        above[left] = above[right] = inner
        turn[right] = 1
        heapq.heappush(heap, (a + b, inner))
    root = 2 * size - 2
    ways = []
    for leaf in range(size):
        way, node = [], leaf
        while node != root:
            way.append((int(above[node]) - size, turn[node]))
            node = int(above[node])
        ways.append(way[::-1])
    longest = max(1, max(map(len, ways)))
    paths, codes = np.zeros((size, longest), np.int32), np.zeros((size, longest), np.float32)
    for leaf, way in enumerate(ways):
        for k, (inner, bit) in enumerate(way):
            paths[leaf, k], codes[leaf, k] = inner, bit
    return paths, codes, np.array([len(way) for way in ways], np.int32)


def _learn(walks: Any, window: int, vectors: Any, tree: Any, noise: Any, rates: Any, seed: int) -> None:
    """Ascend log p(centre | neighbour) over all pairs within a random part of the window, in order.

    ``noise`` is a table to draw from and the number of negatives, or 0 for hierarchical softmax.
    """
    (inputs, outputs), (paths, codes, lengths), (table, negatives) = vectors, tree, noise
    first_rate, last_rate = rates
    size, length = walks.shape
    dim = inputs.shape[1]
    change = np.zeros(dim, np.float32)
    state = np.uint64(seed)
    most = max(paths.shape[1], negatives + 1)
    rows, wanted, steps = np.zeros(most, np.int64), np.zeros(most, np.float32), np.zeros(most, np.float32)
    for k in range(size):
        rate = np.float32(first_rate + (last_rate - first_rate) * (k / size))
        for at in range(length):
            centre = walks[k, at]
            if centre < 0:
                break
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            reach = window - np.int64((state >> np.uint64(33)) % np.uint64(window))
            targets = 0
            if negatives == 0:
                targets = lengths[centre]
                for j in range(targets):
                    rows[j] = paths[centre, j]
                    wanted[j] = np.float32(1) - codes[centre, j]
            else:
                rows[0] = centre
                wanted[0] = 1
                targets = 1
                for _ in range(negatives):
                    state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
                    drawn = table[np.int64((state >> np.uint64(33)) % np.uint64(len(table)))]
                    if drawn != centre:
                        rows[targets] = drawn
                        wanted[targets] = 0
                        targets += 1
            start = at - reach if at > reach else 0
            for near in range(start, min(length, at + reach + 1)):
                if near == at:
                    continue
                context = walks[k, near]
                if context < 0:
                    break
                source = inputs[context]
                # all scores before any change: independent of each other, they are computed at once
                for j in range(targets):
                    target = outputs[rows[j]]
                    score = np.float32(0)
                    for d in range(dim):
                        score += source[d] * target[d]
                    steps[j] = score
                for j in range(targets):
                    guess = np.float32(1) / (np.float32(1) + np.float32(math.exp(-steps[j])))
                    steps[j] = (wanted[j] - guess) * rate
                for d in range(dim):
                    change[d] = 0
                for j in range(targets):
                    target, step = outputs[rows[j]], steps[j]
                    for d in range(dim):
                        change[d] += step * target[d]
                        target[d] += step * source[d]
                for d in range(dim):
                    source[d] += change[d]


learn = Compiled(_learn, **FAST)
