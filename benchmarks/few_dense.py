"""Write a graph whose neighbours disagree and whose features are dense, as TF-IDF of long texts is.

python benchmarks/few_dense.py FILE.npz && bvat compare FILE.npz --val 0 --methods ...
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import bvat
from bvat.data import save_graph

NODES, WORDS, CLASSES, DEGREE, SAME = 1200, 800, 8, 16, 0.35
"""``SAME`` is the share of edges within a class; at random it would be an eighth."""


def disagreeing_graph(seed: int = 0) -> bvat.Graph:
    """Draw texts of 600 words from the topic of their class and one for all, and weight them by TF-IDF."""
    rng = np.random.default_rng(seed)
    kind = np.arange(NODES) % CLASSES
    topics = rng.dirichlet(np.full(WORDS, 0.5), CLASSES + 1)
    share = rng.uniform(0.05, 0.35, (NODES, 1))
    counts = np.stack([rng.multinomial(600, p) for p in share * topics[kind] + (1 - share) * topics[-1]])
    rarity = np.log((1 + NODES) / (1 + (counts > 0).sum(0))) + 1
    features = (np.log1p(counts) + 0.1) * rarity  # the 0.1 leaves no zero
    start = rng.integers(0, NODES, NODES * DEGREE // 2)
    end = rng.integers(0, NODES, start.size)
    near = rng.random(start.size) < SAME - (1 - SAME) / (CLASSES - 1)
    end = np.where(near, (end // CLASSES * CLASSES + kind[start]) % NODES, end)
    edges = np.zeros((NODES, NODES), np.float32)
    edges[start, end] = edges[end, start] = start != end
    return bvat.Graph.build(
        features.astype(np.float32), sp.csr_array(edges), kind, train=np.arange(CLASSES), name="dense"
    )


if __name__ == "__main__":
    save_graph(disagreeing_graph(), Path(sys.argv[1]))
