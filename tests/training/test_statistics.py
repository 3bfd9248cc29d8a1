"""Intervals of accuracies."""

import pytest
from scipy.stats import binomtest

from bvat.training.statistics import wilson


@pytest.mark.parametrize(("right", "nodes"), [(0, 7), (12, 20), (20, 20), (411, 999)])
def test_the_interval_is_wilsons(right: int, nodes: int) -> None:
    expected = binomtest(right, nodes).proportion_ci(method="wilson")
    assert wilson(100 * right / nodes, nodes) == pytest.approx(
        (100 * expected.low, 100 * expected.high), abs=1e-4
    )
