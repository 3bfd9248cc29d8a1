"""Label propagation against its closed forms and against scikit-network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from bvat.baselines.lp import class_mass, fit, harmonic, one_hot, spread, symmetric
from bvat.graph import Graph


@pytest.fixture(scope="module")
def parts(graph: Graph) -> tuple[Any, Any]:
    """A and Y in double precision."""
    return graph.adjacency.to_scipy().astype(np.float64), one_hot(graph).astype(np.float64)


@pytest.mark.parametrize("alpha", [0.5, 0.9])
def test_lgc_converges_to_the_closed_form(parts: tuple[Any, Any], alpha: float) -> None:
    adjacency, known = parts
    smooth = symmetric(adjacency)
    limit = (1 - alpha) * np.linalg.inv(np.eye(len(known)) - alpha * smooth.toarray()) @ known
    np.testing.assert_allclose(spread(smooth, known, alpha, rounds=400), limit, atol=1e-12)
    assert np.abs(spread(smooth, known, alpha, rounds=2) - limit).max() > 1e-3


def test_harmonic_is_a_fixed_point(parts: tuple[Any, Any], graph: Graph) -> None:
    adjacency, known = parts
    train = graph.train.numpy()
    found = harmonic(adjacency, known, train, rounds=100_000, least=1e-13)
    np.testing.assert_array_equal(found[train], known[train])
    dense = adjacency.toarray()
    degree = dense.sum(1)
    rest = np.setdiff1d(np.flatnonzero(degree), train)
    np.testing.assert_allclose(found[rest], (dense @ found / np.maximum(degree, 1)[:, None])[rest], atol=1e-9)


def test_class_mass_makes_the_columns_as_heavy_as_the_labels(parts: tuple[Any, Any]) -> None:
    scores = np.random.default_rng(0).random(parts[1].shape) * [1, 10, 100]
    counts = parts[1].sum(0) + 1
    np.testing.assert_allclose(class_mass(scores, parts[1]).sum(0), counts / counts.sum())


def test_nodes_that_no_label_reaches_get_the_most_common_class(graph: Graph) -> None:
    """The isolated node, and the part of the graph in which no node is labelled for training."""
    train = torch.tensor([1, 2, 4, 5, 8])  # classes 1, 2, 1, 2, 2, all in the first part
    rest = torch.tensor([k for k in range(40) if k not in train.tolist()])
    blind = replace(graph, train=train, val=rest[:5], test=rest[5:])
    for variant in ("lgc", "harmonic"):
        found = fit(blind, variant, 0)
        assert found.unscored is not None
        assert found.unscored[33:].all()
        assert not found.unscored[train].any()
        logits = found.model(blind)
        assert logits[found.unscored].argmax(1).tolist() == [2] * int(found.unscored.sum())
        torch.testing.assert_close(logits[33].exp(), torch.tensor([0.0, 0.4, 0.6]))


def test_the_weight_is_chosen_on_validation_labels_only(small: Graph) -> None:
    found = fit(small, "lgc", 0)
    labels = small.labels.clone()
    labels[small.test] = 0
    again = fit(replace(small, labels=labels), "lgc", 0)
    assert again.chosen == found.chosen
    assert torch.equal(again.model(small), found.model(small))
    val = found.model(small)[small.val].argmax(1)
    for alpha in (0.5, 0.8, 0.9, 0.95, 0.99):
        scores = spread(symmetric(small.adjacency.to_scipy()), one_hot(small), alpha)
        other = torch.from_numpy(scores)[small.val].argmax(1)
        assert (val == small.labels[small.val]).sum() >= (other == small.labels[small.val]).sum()


def test_harmonic_is_scikit_networks_dirichlet_problem(small: Graph) -> None:
    regression = pytest.importorskip("sknetwork.regression")
    adjacency = small.adjacency.to_scipy().astype(np.float64)
    known = one_hot(small).astype(np.float64)
    train = small.train.numpy()
    ours = harmonic(adjacency, known, train, rounds=20_000, least=1e-12)
    reached = np.flatnonzero(ours.sum(1) > 0.999)
    for label in range(small.num_classes):
        values = {int(node): float(known[node, label]) for node in train}
        theirs = regression.Dirichlet(n_iter=20_000).fit_predict(sp.csr_matrix(adjacency), values)
        np.testing.assert_allclose(ours[reached, label], theirs[reached], atol=1e-3)
