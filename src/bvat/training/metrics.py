"""What predictions of test nodes are measured by: accuracy, F1, ranking, and how well probabilities fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bvat.errors import SettingsError
from bvat.graph import targets_of

Probabilities = NDArray[Any]
Labels = NDArray[np.int64]
LEAST = 1e-7
"""The smallest probability that counts in a log-loss."""


@dataclass(frozen=True)
class Metric:
    """A number that says how good predictions are.

    Args:
        name: what ``bvat compare --metric`` calls it.
        title: its name in tables and on axes.
        measure: returns it from probabilities (m, C) and labels (m) or (m, C); nan where it has no value.
        percent: whether it is shown in percent, with one decimal; else with three.
        lower: whether lower is better.
    """

    name: str
    title: str
    measure: Callable[[Probabilities, Labels], float]
    percent: bool = True
    lower: bool = False

    @property
    def digits(self) -> int:
        return 1 if self.percent else 3

    @property
    def unit(self) -> str:
        return "points" if self.percent else "nats"


def calibration_bins(
    probabilities: Probabilities, labels: Labels, bins: int = 10
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], float]:
    """Return confidence, accuracy and number of nodes of each bin of equal width, and the calibration error.

    The error is the mean of |confidence - accuracy| of a node's bin over the nodes (ECE).

    Shapes: probabilities (m, C), labels (m); results (bins) each, nan in empty bins.
    """
    confidence = probabilities.max(1)
    right = probabilities.argmax(1) == labels
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins)
    sure, hits = (np.bincount(place, values, minlength=bins) for values in (confidence, right))
    with np.errstate(invalid="ignore"):
        return sure / count, hits / count, count, float(np.abs(sure - hits).sum() / max(1, labels.size))


def _accuracy(p: Probabilities, y: Labels) -> float:
    targets = targets_of(y)
    return 100 * float(targets.right(targets.decided(p), y).mean())


def _f1(average: str) -> Callable[[Probabilities, Labels], float]:
    """Return F1 over classes or labels; a label that neither holds nor is predicted is left out."""

    def measure(p: Probabilities, y: Labels) -> float:
        from sklearn.metrics import f1_score

        return 100 * float(f1_score(y, targets_of(y).decided(p), average=average, zero_division=np.nan))

    return measure


def _over_classes(score: str) -> Callable[[Probabilities, Labels], float]:
    """Return the mean of a score of scikit-learn over the classes, each against all others.

    A class that no node or every node has does not count.
    """

    def measure(p: Probabilities, y: Labels) -> float:
        from sklearn import metrics

        found = [
            getattr(metrics, score)(own, p[:, k])
            for k in range(p.shape[1])
            if 0 < (own := targets_of(y).having(y, k)).sum() < len(y)
        ]
        return 100 * math.fsum(found) / len(found) if found else math.nan

    return measure


def _log_loss(p: Probabilities, y: Labels) -> float:
    from sklearn.metrics import log_loss

    p, y = targets_of(y).decisions(1 - p, p, y)
    return float(log_loss(y, p, labels=range(p.shape[1])))


def _ece(p: Probabilities, y: Labels) -> float:
    p, y = targets_of(y).decisions(1 - p, p, y)
    return 100 * calibration_bins(p, y, 15)[3]


_ROWS = [
    Metric("accuracy", "test accuracy (%)", _accuracy),
    Metric("macro_f1", "macro F1 (%)", _f1("macro")),
    Metric("micro_f1", "micro F1 (%)", _f1("micro")),
    Metric("roc_auc", "ROC AUC (%)", _over_classes("roc_auc_score")),
    Metric("average_precision", "average precision (%)", _over_classes("average_precision_score")),
    Metric("log_loss", "log-loss", _log_loss, percent=False, lower=True),
    Metric("ece", "calibration error (%)", _ece, lower=True),
]
METRICS: dict[str, Metric] = {metric.name: metric for metric in _ROWS}
"""By name, in the order of tables; the first is the default."""
ACCURACY = _ROWS[0].name


def chosen_metrics(names: Sequence[str]) -> list[str]:
    """Return names of metrics without repetitions; SettingsError for an unknown one, or for none."""
    for name in names:
        if name not in METRICS:
            raise SettingsError(f"there is no metric {name!r}: use some of {', '.join(METRICS)}")
    if not names:
        raise SettingsError(f"--metric is empty: use some of {', '.join(METRICS)}")
    return list(dict.fromkeys(names))


def all_metrics(probabilities: Probabilities, labels: Labels) -> dict[str, float | None]:
    """Return every metric of the nodes with known labels; None for one that has no value.

    With several labels per node, log-loss and calibration error are means over the labels of all nodes, and
    a node counts as right if all its labels are.

    Shapes: probabilities (m, C), labels int64 (m) or (m, C).

    Example:
        >>> p, y = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]]), np.array([0, 1, 0])
        >>> found = all_metrics(p, y)
        >>> [round(found[name], 2) for name in ("accuracy", "roc_auc", "log_loss", "ece")]
        [66.67, 100.0, 0.41, 30.0]
    """
    p = np.asarray(probabilities, dtype=np.float64)
    p = targets_of(labels).normalised(p)  # scikit-learn warns of the rounding of float32
    found = {metric.name: metric.measure(p, labels) for metric in _ROWS}
    return {name: value if math.isfinite(value) else None for name, value in found.items()}


def softmax(logits: Probabilities) -> Probabilities:
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    found: Probabilities = shifted / shifted.sum(1, keepdims=True)
    return found


def log_losses(probabilities: Probabilities, labels: Labels) -> Probabilities:
    found: Probabilities = -np.log(np.maximum(probabilities[np.arange(labels.size), labels], LEAST))
    return found


def temperature_of(logits: Probabilities, labels: Labels, centre: float = 1.0, width: float = 0.7) -> float:
    """Return the factor of the logits with the least log-loss; its logarithm has a normal prior.

    Few labels say little, and the factor stays near ``centre``.

    Shapes: logits (m, C), labels (m).
    """
    from scipy.optimize import minimize_scalar

    def loss(power: float) -> float:
        prior = 0.5 * ((power - np.log(centre)) / width) ** 2
        return float(log_losses(softmax(logits * np.exp(power)), labels).sum() + prior)

    return float(np.exp(minimize_scalar(loss, bounds=(-3, 4), method="bounded").x))
