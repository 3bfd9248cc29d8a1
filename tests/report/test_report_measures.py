"""What pages compute."""

from __future__ import annotations

import pytest
import torch

from bvat.report.run_page import calibration, confusion, flat_map, sampled


def test_confusion_counts_true_by_predicted() -> None:
    found = confusion(torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 1, 2]), 3)
    assert found.tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]


def test_calibration_error_by_hand() -> None:
    # two nodes at confidence 0.9, one right: |0.9 - 0.5|; two at 0.6, both right: |0.6 - 1|
    p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.4, 0.6]], dtype=torch.float64)
    found = calibration(p.log(), torch.tensor([0, 1, 0, 1]), bins=4)
    assert found.nodes.tolist() == [0, 0, 2, 2]
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


def test_large_graphs_are_sampled() -> None:
    nodes = torch.arange(100, 200)
    assert sampled(nodes) is nodes
    some = sampled(nodes, 10)
    assert some.numel() == 10
    assert set(some.tolist()) <= set(nodes.tolist())
    assert torch.equal(some, sampled(nodes, 10))
