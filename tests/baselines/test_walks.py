"""Random walks and skip-gram: along edges, and as good as gensim's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from bvat.baselines.deepwalk import class_probabilities
from bvat.baselines.skipgram import embed, huffman, noise_table
from bvat.baselines.walks import NOWHERE, random_walks, walk, walks_from_all
from bvat.graph import Graph


def test_walks_go_along_edges(graph: Graph) -> None:
    adjacency = graph.adjacency.to_scipy()
    walks = walks_from_all(adjacency, 3, 8, seed=0)
    linked = np.flatnonzero(np.diff(adjacency.indptr)).tolist()
    assert len(linked) < 40
    assert sorted(walks[: len(linked), 0].tolist()) == linked
    assert (walks >= 0).all()
    assert (adjacency.toarray()[walks[:, :-1], walks[:, 1:]] > 0).all()
    assert len(np.unique(walks, axis=0)) > 90


def test_steps_are_uniform(graph: Graph) -> None:
    adjacency = graph.adjacency.to_scipy()
    node = int(np.diff(adjacency.indptr).argmax())
    walks = random_walks(adjacency, np.full(20_000, node, np.int32), 2, seed=1)
    _, counts = np.unique(walks[:, 1], return_counts=True)
    degree = adjacency.indptr[node + 1] - adjacency.indptr[node]
    assert len(counts) == degree
    assert np.abs(counts / 20_000 - 1 / degree).max() < 0.02


def test_a_walk_from_a_node_without_edges_ends(graph: Graph) -> None:
    assert random_walks(graph.adjacency.to_scipy(), np.array([33], np.int32), 3, 0).tolist() == [
        [33, NOWHERE, NOWHERE]
    ]


def test_an_embedding_depends_on_the_seed_alone(small: Graph) -> None:
    walks = walks_from_all(small.adjacency.to_scipy(), 2, 10, 0)
    one, again, other = (embed(walks, small.num_nodes, seed, 8, 3) for seed in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_compiled_walks_are_those_of_python(graph: Graph) -> None:
    adjacency = graph.adjacency.to_scipy()
    crow, col = adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int32)
    starts = np.arange(20, dtype=np.int32)
    walks = np.zeros((2, 20, 6), np.int32)
    walk(crow, col, starts, 7, walks[0])
    with np.errstate(over="ignore"):
        walk.python(crow, col, starts, 7, walks[1])
    assert np.array_equal(*walks)


def test_huffman_codes_are_a_tree() -> None:
    counts = np.array([8, 1, 1, 2, 4])
    paths, codes, lengths = huffman(counts)
    assert lengths.tolist() == [1, 4, 4, 3, 2]
    words = {
        tuple(zip(paths[k, : lengths[k]], codes[k, : lengths[k]], strict=True)) for k in range(len(counts))
    }
    assert len(words) == 5
    assert sum(2.0**-length for length in lengths) == 1
    assert len({path[0] for path in paths}) == 1  # the root


def test_noise_is_drawn_by_the_counts() -> None:
    table = noise_table(np.array([16, 0, 1]))
    assert np.bincount(table, minlength=3) / len(table) == pytest.approx([8 / 9, 0, 1 / 9], abs=1e-4)


def planted(size: int = 60, groups: int = 3) -> tuple[Any, np.ndarray[Any, Any]]:
    """Return walks in a graph of dense groups, and the group of every node."""
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    group = np.arange(size) % groups
    p = np.where(group[:, None] == group, 0.4, 0.02)
    upper = np.triu(rng.random((size, size)) < p, 1)
    adjacency = sp.csr_array((upper | upper.T).astype(float))
    return walks_from_all(adjacency, 20, 20, 0), group


def separation(vectors: np.ndarray[Any, Any], group: np.ndarray[Any, Any]) -> float:
    """Return the share of nodes whose nearest other node is in their group."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    near = unit @ unit.T
    np.fill_diagonal(near, -2)
    return float((group[near.argmax(1)] == group).mean())


def test_the_embedding_is_as_good_as_gensims() -> None:
    walks, group = planted()
    ours = separation(embed(np.tile(walks, (3, 1)), 60, 0, 16, 5), group)
    assert ours > 0.9
    gensim = pytest.importorskip("gensim.models")
    model = gensim.Word2Vec(
        [[str(node) for node in walk] for walk in walks], vector_size=16, window=5, min_count=0, sg=1,
        hs=1, negative=0, sample=0, workers=1, epochs=3, seed=0,
    )  # fmt: skip
    theirs = separation(np.stack([model.wv[str(node)] for node in range(60)]), group)
    assert ours > theirs - 0.1


@pytest.mark.parametrize("classes", [2, 3])
def test_softmax_regression_is_at_its_minimum(classes: int) -> None:
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((40, 5)), rng.integers(0, classes, 40)

    def loss(flat: Any) -> float:
        weight, bias = flat[: 5 * classes].reshape(5, classes), flat[5 * classes :]
        logits = x @ weight + bias
        fit = logsumexp(logits, axis=1) - logits[np.arange(40), labels]
        return float(0.5 * fit.sum() + (weight**2).sum() / 2)

    best = minimize(loss, np.zeros(6 * classes), options={"gtol": 1e-6}).x
    logits = x @ best[: 5 * classes].reshape(5, classes) + best[5 * classes :]
    found = class_probabilities(x, np.arange(40), labels, classes, 0.5)
    np.testing.assert_allclose(found, softmax(logits, axis=1), atol=1e-4)


def test_classes_without_a_label_are_never_predicted() -> None:
    x, train = np.eye(4), np.array([0, 1])
    assert class_probabilities(x, train, np.array([2, 2]), 3, 1.0).tolist() == [[0, 0, 1]] * 4
    assert not class_probabilities(x, train, np.array([0, 2]), 3, 1.0)[:, 1].any()
