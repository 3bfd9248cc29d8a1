"""Metrics of test nodes against scikit-learn and by hand."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn import metrics as sk

from bvat.cli.compare import compare
from bvat.errors import SettingsError
from bvat.training.metrics import METRICS, all_metrics, calibration_bins, chosen_metrics


def drawn(nodes: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(classes)
    p = rng.dirichlet(np.ones(classes), nodes)
    return p, np.array([rng.choice(classes, p=row) for row in p])


def test_several_classes_as_scikit_learn_says() -> None:
    p, y = drawn(200, 4)
    found = all_metrics(p, y)
    assert found["accuracy"] == pytest.approx(100 * sk.accuracy_score(y, p.argmax(1)))
    assert found["macro_f1"] == pytest.approx(100 * sk.f1_score(y, p.argmax(1), average="macro"))
    assert found["roc_auc"] == pytest.approx(100 * sk.roc_auc_score(y, p, multi_class="ovr"))
    one_hot = np.eye(4)[y]
    assert found["average_precision"] == pytest.approx(100 * sk.average_precision_score(one_hot, p))
    assert found["log_loss"] == pytest.approx(-np.log(p[np.arange(200), y]).mean())


def test_two_classes_have_one_area() -> None:
    p, y = drawn(100, 2)
    assert all_metrics(p, y)["roc_auc"] == pytest.approx(100 * sk.roc_auc_score(y, p[:, 1]))


def test_calibration_error_by_hand() -> None:
    """In 15 bins 0.61 and 0.66 share one (0.6 to 0.667), 0.9 has its own."""
    sure = np.array([0.61, 0.66, 0.9])
    p, y = np.stack([sure, 1 - sure], 1), np.array([0, 1, 0])
    by_hand = 2 / 3 * abs((0.61 + 0.66) / 2 - 0.5) + 1 / 3 * (1 - 0.9)
    assert all_metrics(p, y)["ece"] == pytest.approx(100 * by_hand)
    assert calibration_bins(p, y, 15)[2].sum() == 3


def test_a_class_that_no_test_node_has() -> None:
    p, y = drawn(50, 3)
    y = np.minimum(y, 1)
    expected = np.mean([sk.roc_auc_score(y == k, p[:, k]) for k in (0, 1)])
    assert all_metrics(p, y)["roc_auc"] == pytest.approx(100 * expected)
    alone = all_metrics(p, np.zeros(50, int))
    assert alone["roc_auc"] is None
    assert alone["accuracy"] is not None


def test_names() -> None:
    assert chosen_metrics(["ece", "accuracy", "ece"]) == ["ece", "accuracy"]
    for wrong in (["auc"], []):
        with pytest.raises(SettingsError, match="use some of accuracy, macro_f1"):
            chosen_metrics(wrong)
    annotation = inspect.signature(compare, eval_str=True).parameters["metric"].annotation
    assert annotation.__metadata__[0].help.startswith(", ".join(METRICS))  # repeated there: imports are slow
