"""What pages compute."""

from __future__ import annotations

import pytest
import torch

from bvat.report.run_page import calibration, confusion


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
