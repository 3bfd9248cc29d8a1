"""GPNN against a loop over nodes; its partition: every node in one cluster, the same for the same seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse import csgraph
from torch import Tensor

import bvat
from bvat.errors import SettingsError
from bvat.models import GPNN
from bvat.models.gpnn import _clusters, flood


def made(graph: bvat.Graph, seed: int = 0, **options: object) -> GPNN:
    generator = torch.Generator().manual_seed(seed)
    sizes = {"hidden": 4, "layers": 2, "clusters": 3, **options}
    return GPNN(graph.num_features, graph.num_classes, generator=generator, **sizes).double().eval()


def gru(model: GPNN, message: Tensor, state: Tensor) -> Tensor:
    """The cell as its paper writes it, with a matrix per gate."""
    x_update, x_reset, x_new = model.from_mean.chunk(3, 1)
    h_update, h_reset = model.from_state.chunk(2, 1)
    b_update, b_reset, b_new = model.gates.chunk(3)
    update = torch.sigmoid(message @ x_update + state @ h_update + b_update)
    reset = torch.sigmoid(message @ x_reset + state @ h_reset + b_reset)
    new = torch.tanh(message @ x_new + (reset * state) @ model.from_reset + b_new)
    return update * state + (1 - update) * new


def test_equals_a_loop_over_nodes(graph64: bvat.Graph) -> None:
    model = made(graph64)
    with torch.no_grad():
        for bias in model.biases:
            bias.normal_()
    clusters = _clusters(graph64.propagation, int(model.partition_seed), 3)
    near = graph64.adjacency.to_dense() > 0
    x = graph64.features.to_dense()
    first = model.projection()
    state = x @ first[:, :4] + model.biases[0]
    for _ in range(2):
        for within in (True, False):
            after = state.clone()
            for v in range(graph64.num_nodes):
                others = [u for u in near[v].nonzero().flatten() if (clusters[u] == clusters[v]) == within]
                mean = torch.stack([state[u] for u in others]).mean(0) if others else torch.zeros(4)
                if others or within:
                    after[v] = gru(model, mean.double(), state[v])
            state = after
    direct = first[:, 4:]
    out = torch.cat([state, x], 1) @ torch.cat([model.weights[1], direct]) + model.biases[1]
    torch.testing.assert_close(model(graph64), out)
    assert len(model.divided(graph64).border)


def test_the_partition_is_drawn_with_the_weights_and_kept_with_them(graph64: bvat.Graph) -> None:
    one, other = made(graph64), made(graph64, seed=1)
    assert int(one.partition_seed) != int(other.partition_seed)
    before = graph64.propagation.values.clone()
    logits = one(graph64)
    assert not torch.equal(logits, other(graph64))
    other.load_state_dict(one.state_dict())
    assert torch.equal(logits, other(graph64))
    assert torch.equal(before, graph64.propagation.values)


def test_a_saved_classifier_predicts_the_same(graph: bvat.Graph, tmp_path: Path) -> None:
    classifier = bvat.NodeClassifier("vat", model="gpnn", epochs=6, hidden=8, clusters=4).fit(graph)
    classifier.save(tmp_path / "saved")
    again = bvat.NodeClassifier.load(tmp_path / "saved")
    assert (classifier.predict_proba(graph) == again.predict_proba(graph)).all()


def test_a_graph_without_edges(graph: bvat.Graph) -> None:
    alone = bvat.Graph.build(
        graph.features.to_scipy(), sp.csr_array((40, 40)), graph.labels, train=graph.train
    )
    model = GPNN(alone.num_features, alone.num_classes, hidden=4).eval()
    assert model(alone).isfinite().all()


def test_impossible_partitions_are_refused() -> None:
    with pytest.raises(SettingsError, match="clusters must be at least 1"):
        GPNN(10, 2, clusters=0)


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


def test_clusters_are_complete_and_repeat_with_the_seed() -> None:
    adjacency = blocks(4, 20, alone=5)
    found = [flood(adjacency, 4, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert found[0].shape == (85,)
    assert set(found[0].tolist()) == {0, 1, 2, 3}
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_what_no_cluster_reaches_joins_the_smallest() -> None:
    adjacency = blocks(3, 16, alone=9)
    clusters = flood(adjacency, 3, np.random.default_rng(0))
    reached = np.bincount(clusters[:48], minlength=3)
    assert set(clusters[48:].tolist()) == {int(reached.argmin())}


@pytest.mark.parametrize("count", [1, 3, 50])
def test_graphs_that_are_smaller_than_the_partition(count: int) -> None:
    pair = sp.csr_array(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=float))
    for adjacency in (pair, sp.csr_array((4, 4))):
        clusters = flood(adjacency, count, np.random.default_rng(0))
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
