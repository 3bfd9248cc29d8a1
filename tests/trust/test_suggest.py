"""Suggestions: every cluster gets a node, undecided nodes matter, and bad input gets a sentence."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import bvat
import suggest as benchmark
from bvat.baselines.table import AutoOptions
from bvat.errors import GraphError, SettingsError
from bvat.training.trained import predict
from bvat.trust.suggest import PENALTY, _design, representative_rows, suggest
from bvat.tuning import auto

CLUSTERS, SIZE = 6, 20
NODES = CLUSTERS * SIZE


def planted(edges: bool = True) -> bvat.Graph:
    """Clusters that have words, and if there are edges also neighbours, of their own; two classes."""
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(CLUSTERS), SIZE)
    features = (rng.random((NODES, CLUSTERS * 8)) < 0.03).astype(np.float32)
    features[np.arange(NODES)[:, None], cluster[:, None] * 8 + rng.integers(0, 8, (NODES, 5))] = 1
    inside = (cluster[:, None] == cluster) & (rng.random((NODES, NODES)) < 0.3)
    graph = bvat.Graph.build(
        features,
        sp.csr_array(inside if edges else np.zeros((NODES, NODES))),
        cluster % 2,
        train=[0, SIZE],
        class_names=["cats", "dogs"],
    )
    return graph.with_engine("tensor")


@pytest.fixture(scope="module")
def graph() -> bvat.Graph:
    return planted()


def unsure(nodes: torch.Tensor | None = None) -> torch.Tensor:
    """Probabilities that are even at some nodes, by default all, and certain elsewhere."""
    p = torch.tensor([1.0, 0.0]).repeat(NODES, 1)
    p[slice(None) if nodes is None else nodes] = 0.5
    return p


@pytest.mark.parametrize("edges", [True, False])
@pytest.mark.parametrize("labelled", [[], [0, 1, SIZE]])
def test_every_cluster_without_a_label_gets_a_node_first(edges: bool, labelled: list[int]) -> None:
    known = torch.tensor(labelled, dtype=torch.int64)
    without = set(range(CLUSTERS)) - {node // SIZE for node in labelled}
    found = suggest(planted(edges), unsure(), known, len(without))
    assert {node // SIZE for node in found.nodes.tolist()} == without
    assert all(reason.startswith("far from labels") for reason in found.reasons)
    assert found.similar.tolist() == pytest.approx([SIZE] * len(without), abs=3)
    assert float(found.gains.sum()) == pytest.approx(1)


def test_what_is_decided_comes_later(graph: bvat.Graph) -> None:
    known = torch.arange(0, NODES, SIZE)  # one of every cluster
    doubtful = torch.arange(3 * SIZE, 4 * SIZE)
    found = suggest(graph, unsure(doubtful), known, 3)
    assert set((found.nodes // SIZE).tolist()) == {3}
    assert all("undecided between cats and dogs" in reason for reason in found.reasons)


def test_each_node_reduces_the_uncertainty_most(graph: bvat.Graph) -> None:
    """The rank-one updates agree with the inverse that they avoid."""
    z, u = representative_rows(graph).numpy(), np.linspace(0.1, 1, NODES)

    def left(nodes: list[int]) -> float:
        m = np.linalg.inv(PENALTY * np.eye(z.shape[1]) + z[nodes].T @ z[nodes])
        return float((u * ((z @ m) * z).sum(1)).sum())

    chosen, gains = _design(z, u, np.array([0, 5]), np.arange(6, NODES), 4)
    nodes = [0, 5]
    for node, gain in zip(chosen.tolist(), gains.tolist(), strict=True):
        each = {k: left([*nodes, k]) for k in range(6, NODES) if k not in nodes}
        assert each[node] == pytest.approx(min(each.values()))
        assert gain == pytest.approx(left(nodes) - each[node])
        nodes.append(node)


def test_the_same_again_among_candidates_without_labels(graph: bvat.Graph) -> None:
    candidates, known = torch.arange(10, 50), torch.arange(10, 20)
    first, second = (suggest(graph, unsure(), known, 30, candidates=candidates) for _ in range(2))
    assert sorted(first.nodes.tolist()) == list(range(20, 50))
    assert torch.equal(first.nodes, second.nodes)
    assert first.reasons == second.reasons


def test_labels_and_splits_are_not_read(graph: bvat.Graph) -> None:
    other = bvat.Graph.build(
        graph.features.to_scipy(), graph.adjacency.to_scipy(), np.arange(NODES) % 2, train=[3, 4]
    )
    known = torch.tensor([0, SIZE])
    assert torch.equal(suggest(graph, unsure(), known, 5).nodes, suggest(other, unsure(), known, 5).nodes)


@pytest.mark.parametrize("count", [0, -1, 119])
def test_a_count_that_cannot_be_met_says_how_many_nodes_there_are(graph: bvat.Graph, count: int) -> None:
    with pytest.raises(SettingsError, match=f"count is {count}, and 118 nodes .* use 1 to 118"):
        suggest(graph, unsure(), torch.tensor([0, SIZE]), count)


def test_nothing_is_left_to_suggest(graph: bvat.Graph) -> None:
    with pytest.raises(GraphError, match="have a label"):
        suggest(graph, unsure(), torch.arange(NODES), 1)


@pytest.mark.parametrize("p", [torch.full((NODES, 3), 0.3), torch.full((NODES, 2), torch.nan)])
def test_probabilities_that_do_not_fit(graph: bvat.Graph, p: torch.Tensor) -> None:
    with pytest.raises(GraphError, match=r"finite numbers of shape \(120, 2\)"):
        suggest(graph, p, torch.tensor([0]), 1)


def test_the_benchmark_predicts_as_auto_does(graph: bvat.Graph) -> None:
    work = auto.Work(graph, AutoOptions(effort=1), np.zeros(0, np.int64), [], False)
    train = torch.arange(0, NODES, 10)
    labelled = bvat.Graph.build(
        graph.features.to_scipy(), graph.adjacency.to_scipy(), graph.labels, train=train, normalize=False
    )
    expected = predict(auto.fit(labelled, 0, AutoOptions(effort=1)).model, labelled).softmax(1)
    torch.testing.assert_close(
        benchmark.probabilities(work, train.numpy()).float(), expected, atol=1e-4, rtol=1e-3
    )
