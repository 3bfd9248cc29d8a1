"""The fast search is at least as strong as ten steps of Adam, in one."""

from __future__ import annotations

import pytest

from bvat.data import synthetic_graph
from bvat.training.settings import preset
from search import measure_search


@pytest.mark.slow
def test_one_full_step_reaches_ten_of_adam() -> None:
    graph = synthetic_graph(nodes=300, edges=900, features=200, classes=3, train_per_class=5, seed=1)
    result = measure_search(graph, preset("none", "obvat", epochs=60), every=20)
    assert [point["epoch"] for point in result["points"]] == [20, 40, 60]
    assert result["least_ratio"] >= 1
    ratios = [point["fast"] / point["adam"] for point in result["points"]]
    assert result["mean_ratio"] == pytest.approx(sum(ratios) / 3)
