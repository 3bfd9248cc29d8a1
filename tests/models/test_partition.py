"""Partitions: every node in one cluster, the same for the same seed, and sensible ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse import csgraph

from bvat.models.gpnn import PARTITIONS, flood, spectral

every_partition = pytest.mark.parametrize("name", PARTITIONS)


def blocks(count: int, size: int, alone: int = 0, seed: int = 0) -> Any:
    """A ring of dense blocks, joined by one edge each, and isolated nodes at the end."""
    rng = np.random.default_rng(seed)
    nodes = count * size + alone
    matrix = sp.lil_array((nodes, nodes))
    for k in range(count):
        for i in range(size):
            here = k * size + i
            matrix[here, k * size + (i + 1) % size] = 1  # connected
            matrix[here, k * size + rng.choice(size, size // 3, replace=False)] = 1
        matrix[k * size, ((k + 1) % count) * size + 1] = 1
    matrix.setdiag(0)
    both = sp.csr_array(matrix)
    both = both.maximum(both.T)
    both.eliminate_zeros()
    return sp.csr_array(both)


@every_partition
def test_clusters_are_complete_and_repeat_with_the_seed(name: str) -> None:
    adjacency = blocks(4, 20, alone=5)
    found = [PARTITIONS[name](adjacency, 4, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert found[0].shape == (85,)
    assert set(found[0].tolist()) == {0, 1, 2, 3}
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


@every_partition
def test_what_no_cluster_reaches_joins_the_smallest(name: str) -> None:
    adjacency = blocks(3, 16, alone=9)
    clusters = PARTITIONS[name](adjacency, 3, np.random.default_rng(0))
    reached = np.bincount(clusters[:48], minlength=3)
    assert set(clusters[48:].tolist()) == {int(reached.argmin())}


@every_partition
@pytest.mark.parametrize("count", [1, 3, 50])
def test_graphs_that_are_smaller_than_the_partition(name: str, count: int) -> None:
    pair = sp.csr_array(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=float))
    for adjacency in (pair, sp.csr_array((4, 4))):
        clusters = PARTITIONS[name](adjacency, count, np.random.default_rng(0))
        assert clusters.shape == (adjacency.shape[0],)
        assert clusters.min() >= 0
        assert clusters.max() < count


def test_flooded_clusters_are_connected_and_balanced() -> None:
    adjacency = blocks(5, 30)
    clusters = flood(adjacency, 5, np.random.default_rng(3))
    for k in range(5):
        inside = np.flatnonzero(clusters == k)
        assert csgraph.connected_components(adjacency[inside][:, inside])[0] == 1
    # on a ring all clusters grow at the same speed
    ring = sp.csr_array(np.roll(np.eye(200), 1, 0) + np.roll(np.eye(200), -1, 0))
    sizes = np.bincount(flood(ring, 4, np.random.default_rng(0)))
    assert sizes.max() <= 200 - sizes.min()
    assert sizes.min() > 10


def test_spectral_clusters_are_the_blocks() -> None:
    clusters = spectral(blocks(4, 25), 4, np.random.default_rng(0))
    parts = clusters.reshape(4, 25)
    assert (parts == parts[:, :1]).all()
    assert len(set(parts[:, 0].tolist())) == 4
