"""Calibration: one factor for all logits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST = 1e-7
"""The smallest probability that counts."""

Scores = NDArray[np.float64]
Nodes = NDArray[np.int64]


def softmax(logits: Scores) -> Scores:
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    found: Scores = shifted / shifted.sum(1, keepdims=True)
    return found


def log_losses(probabilities: Scores, labels: Nodes) -> Scores:
    found: Scores = -np.log(np.maximum(probabilities[np.arange(labels.size), labels], LEAST))
    return found


def temperature_of(logits: Scores, labels: Nodes, centre: float = 1.0, width: float = 0.7) -> float:
    """Return the factor of the logits with the least log-loss; its logarithm has a normal prior.

    Few labels say little, and the factor stays near ``centre``.

    Shapes: logits (m, C), labels (m).
    """
    from scipy.optimize import minimize_scalar

    def loss(power: float) -> float:
        prior = 0.5 * ((power - np.log(centre)) / width) ** 2
        return float(log_losses(softmax(logits * np.exp(power)), labels).sum() + prior)

    return float(np.exp(minimize_scalar(loss, bounds=(-3, 4), method="bounded").x))
