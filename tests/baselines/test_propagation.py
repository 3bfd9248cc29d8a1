"""Label propagation against its closed form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bvat.baselines.lp import fit, one_hot, spread, symmetric
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


def test_nodes_that_no_label_reaches_get_the_most_common_class(graph: Graph) -> None:
    """The isolated node, and the part of the graph in which no node is labelled for training."""
    train = torch.tensor([1, 2, 4, 5, 8])  # classes 1, 2, 1, 2, 2, all in the first part
    rest = torch.tensor([k for k in range(40) if k not in train.tolist()])
    blind = replace(graph, train=train, val=rest[:5], test=rest[5:])
    found = fit(blind, 0)
    assert found.unscored is not None
    assert found.unscored[33:].all()
    assert not found.unscored[train].any()
    logits = found.model(blind)
    assert logits[found.unscored].argmax(1).tolist() == [2] * int(found.unscored.sum())
    torch.testing.assert_close(logits[33].exp(), torch.tensor([0.0, 0.4, 0.6]))


def test_the_weight_is_chosen_on_validation_labels_only(small: Graph) -> None:
    found = fit(small, 0)
    labels = small.labels.clone()
    labels[small.test] = 0
    again = fit(replace(small, labels=labels), 0)
    assert again.chosen == found.chosen
    assert torch.equal(again.model(small), found.model(small))
    val = found.model(small)[small.val].argmax(1)
    for alpha in (0.5, 0.8, 0.9, 0.95, 0.99):
        scores = spread(symmetric(small.adjacency.to_scipy()), one_hot(small), alpha)
        other = torch.from_numpy(scores)[small.val].argmax(1)
        assert (val == small.labels[small.val]).sum() >= (other == small.labels[small.val]).sum()
