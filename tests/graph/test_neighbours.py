"""Neighbours from features: the nearest nodes, latent dimensions, and the graphs made of them."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.neighbors import NearestNeighbors

import bvat
from bvat.audit.audit import audit
from bvat.errors import SettingsError
from bvat.graph import Latent
from bvat.graph.neighbours import agreement, nearest_nodes, unit_rows


@pytest.fixture
def rows():
    return unit_rows(torch.randn(200, 6, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_the_nearest_nodes_are_those_of_scikit_learn(rows, metric):
    found = NearestNeighbors(n_neighbors=5, metric=metric).fit(rows).kneighbors(return_distance=False)
    theirs = np.zeros((200, 200), bool)
    theirs[np.arange(200)[:, None], found] = True
    assert (nearest_nodes(rows, 5, metric).toarray() > 0).tolist() == (theirs | theirs.T).tolist()


@pytest.mark.slow  # pynndescent compiles for a minute,
@pytest.mark.no_cover  # and for more than two where lines are traced
def test_approximate_neighbours_are_mostly_the_same(rows):
    exact, threads = nearest_nodes(rows, 5), torch.get_num_threads()
    close = nearest_nodes(rows, 5, exact=100)
    assert torch.get_num_threads() == threads  # more of them would round differently
    assert exact.multiply(close).sum() > 0.95 * exact.sum()
    assert abs(close - close.T).sum() == 0
    assert not close.diagonal().any()
    assert (nearest_nodes(rows, 5, exact=100) != close).nnz == 0  # the same each time


def test_nodes_without_features_have_no_neighbours(rows):
    rows[7] = 0
    assert nearest_nodes(rows, 5)[[7]].nnz == 0


@pytest.mark.parametrize(
    ("k", "metric"), [(0, "cosine"), (2.5, "cosine"), (True, "cosine"), (3, "manhattan")]
)
def test_what_cannot_be_asked_for(rows, k, metric):
    with pytest.raises(SettingsError):
        nearest_nodes(rows, k, metric)


def test_one_node_alone():
    assert nearest_nodes(torch.ones(1, 3), 10).shape == (1, 1)


def test_latent_features_are_linear_before_their_rows_get_length_one():
    graph = bvat.synthetic_graph(nodes=200, features=300, seed=0)
    latent = Latent.fit(graph.features)
    assert latent.weight.shape == (300, 128)
    expected = unit_rows(graph.features.to_dense() @ latent.weight - latent.shift)
    assert torch.allclose(latent.rows(graph.features), expected, atol=1e-6)
    again = Latent.fit(graph.features)
    assert torch.equal(again.weight, latent.weight)


def test_dense_columns_are_standardised():
    x = torch.randn(300, 4, dtype=torch.float64) * torch.tensor([1.0, 100.0, 1e-3, 0.0]) + 5
    graph = bvat.Graph.build(
        x, sp.csr_array((300, 300)), [0] * 150 + [1] * 150, train=[0, 299], normalize=False
    )
    latent = Latent.fit(graph.features)
    h = graph.features.to(dtype=torch.float32) @ latent.weight - latent.shift
    assert torch.allclose(h[:, :3].std(0), torch.ones(3), atol=0.05)
    assert not h[:, 3].any()


def test_edges_replace_the_given_ones_or_join_them():
    graph = bvat.synthetic_graph(nodes=150, edges=400, features=60, seed=1)
    given = graph.adjacency.to_scipy().toarray() > 0
    alone = graph.with_feature_neighbours(k=4)
    joined = graph.with_feature_neighbours(k=4, keep_edges=True)
    similar = alone.adjacency.to_scipy().toarray() > 0
    assert ((joined.adjacency.to_scipy().toarray() > 0) == (given | similar)).all()
    assert (similar.sum(1) >= 1).all()
    assert alone.features is graph.features
    assert torch.allclose(alone.propagation.to_dense(), alone.propagation.to_dense().T)


def test_regularisers_and_audits_work_on_the_new_graph():
    graph = bvat.synthetic_graph(nodes=120, edges=300, features=60, seed=1).with_feature_neighbours(k=4)
    trained = bvat.train(graph, bvat.preset("", "sbvat", epochs=6))
    model = bvat.models.GCN(graph.num_features, graph.num_classes, hidden=64)
    model.load_state_dict(trained.weights)
    found = audit(model, graph, nodes=torch.arange(5))
    assert torch.isfinite(found.smallest).any()


def test_agreement_tells_edges_along_features_from_random_ones(rows):
    similar = nearest_nodes(rows, 5)
    shuffled = np.random.default_rng(0).permutation(200)
    random = similar[shuffled][:, shuffled]
    assert agreement(rows, similar, similar) > 0.9
    assert abs(agreement(rows, random, similar)) < 0.2
