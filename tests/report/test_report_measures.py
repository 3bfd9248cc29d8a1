"""What pages compute."""

from __future__ import annotations

import torch

from bvat.report.run_page import confusion


def test_confusion_counts_true_by_predicted() -> None:
    found = confusion(torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 1, 2]), 3)
    assert found.tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
