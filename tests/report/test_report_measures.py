"""What pages compute, and the charts' axes."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from bvat.report.measures import calibration, confusion, flat_map
from bvat.report.run_charts import sampled
from bvat.report.svg import Line, line_chart, ticks


def test_confusion_counts_true_by_predicted() -> None:
    found = confusion(torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 1, 2]), 3)
    assert found.tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]


def test_calibration_error_by_hand() -> None:
    # two nodes at confidence 0.9, one right: |0.9 - 0.5|; two at 0.6, both right: |0.6 - 1|
    p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.4, 0.6]], dtype=torch.float64)
    found = calibration(p.log(), torch.tensor([0, 1, 0, 1]), bins=4)
    assert found.count.tolist() == [0, 0, 2, 2]
    assert found.accuracy[2:].tolist() == [1.0, 0.5]
    assert found.confidence[2:].tolist() == pytest.approx([0.6, 0.9])
    assert found.error == pytest.approx(0.4)
    assert calibration(torch.tensor([[1000.0, 0.0]]), torch.tensor([0])).error == 0


def test_map_separates_classes_and_does_not_depend_on_the_order() -> None:
    centres = torch.tensor([[9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 9.0]])
    labels = torch.arange(60) % 3
    logits = centres[labels] + torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    flat = flat_map(logits)
    assert flat.shape == (60, 2)
    means = torch.stack([flat[labels == k].mean(0) for k in range(3)])
    apart = torch.pdist(means).min()
    assert (flat - means[labels]).norm(dim=1).max() < apart / 2
    order = torch.randperm(60, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(flat_map(logits[order]), flat[order])
    assert flat_map(torch.ones(4, 1)).shape == (4, 2)
    assert torch.isfinite(flat_map(torch.zeros(5, 3))).all()


def test_at_most_so_many_points_are_drawn() -> None:
    nodes = torch.arange(100, 200)
    assert sampled(nodes) is nodes
    some = sampled(nodes, 10)
    assert some.numel() == 10
    assert set(some.tolist()) <= set(nodes.tolist())
    assert torch.equal(some, sampled(nodes, 10))


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (0.23, 1.29), (76.2, 81.3), (-3.0, -2.9), (5.0, 5.0), (0, 0)]
)
def test_ticks_are_round_and_cover(low: float, high: float) -> None:
    found = ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high
    assert 2 <= len(found) <= 12
    steps = {round(b - a, 9) for a, b in pairwise(found)}
    assert len(steps) == 1


def test_a_chart_leaves_out_what_is_not_finite() -> None:
    chart = line_chart(
        [Line("a", [0, 1, 2], [1.0, math.nan, 3.0], [0.1, 0.1, math.inf], marks=True)], "x", "y"
    )
    assert "nan" not in chart
    assert "inf" not in chart
    assert "nothing to draw" in line_chart([Line("a", [0], [math.nan])], "x", "y")
    assert "nothing to draw" in line_chart([], "x", "y")
