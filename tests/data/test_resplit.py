"""Random splits and folds."""

from __future__ import annotations

import pytest
import torch

from bvat.data import synthetic_graph
from bvat.data.splits import folds, resplit
from bvat.errors import GraphError


def test_resplit_draws_what_is_asked_for() -> None:
    graph = synthetic_graph(200, 600, features=30, classes=4, seed=1)
    for seed in range(3):
        drawn = resplit(graph, 5, 40, seed)
        counts = torch.bincount(drawn.labels[drawn.train], minlength=4)
        assert counts.tolist() == [5, 5, 5, 5]
        assert len(drawn.val) == 40
        assert len(drawn.train) + len(drawn.val) + len(drawn.test) == 200
        assert torch.equal(drawn.train, resplit(graph, 5, 40, seed).train)
    assert not torch.equal(drawn.train, resplit(graph, 5, 40, 0).train)
    with pytest.raises(GraphError, match="too few labels for 50 training nodes per class"):
        resplit(graph, 50, 10, 0)
    for val in (180, 500):
        with pytest.raises(GraphError, match="leave none of the 200 labels of synthetic for testing"):
            resplit(graph, 5, val, 0)
    assert len(resplit(graph, 5, 179, 0).test) == 1


def test_folds_use_every_label_once_for_validation() -> None:
    graph = synthetic_graph(200, 600, features=30, classes=4, train_per_class=6, val=10, seed=1)
    pool = set(graph.train.tolist()) | set(graph.val.tolist())
    parts = folds(graph, 5)
    assert len(parts) == 5
    seen = [node for part in parts for node in part.val.tolist()]
    assert sorted(seen) == sorted(pool)
    for part in parts:
        assert set(part.train.tolist()) | set(part.val.tolist()) == pool
        assert set(part.labels[part.train].tolist()) == {0, 1, 2, 3}
