"""What the page of a run computes from its predictions: confusions, calibration, a map of the nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Calibration:
    """Confidence and accuracy in bins of equal width.

    Shapes: count, confidence, accuracy (bins); the latter two are NaN in empty bins.
    """

    count: Tensor
    confidence: Tensor
    accuracy: Tensor
    error: float
    """Expected calibration error: the mean of |confidence - accuracy| over the nodes."""


def confusion(predicted: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the number of nodes of each class (rows) predicted as each class (columns), (C, C)."""
    return torch.bincount(labels * classes + predicted, minlength=classes * classes).view(classes, classes)


def calibration(logits: Tensor, labels: Tensor, bins: int = 10) -> Calibration:
    """Compare the confidence of a model with its accuracy. Shapes: logits (m, C), labels (m)."""
    confidence, predicted = logits.double().softmax(1).max(1)
    place = (confidence * bins).long().clamp_max_(bins - 1)
    count = torch.bincount(place, minlength=bins).double()
    sure = torch.bincount(place, confidence, minlength=bins)
    right = torch.bincount(place, (predicted == labels).double(), minlength=bins)
    error = float((sure - right).abs().sum() / max(1, labels.numel()))
    return Calibration(count, sure / count, right / count, error)


def flat_map(logits: Tensor) -> Tensor:
    """Return two coordinates per node: the first two principal components of the predictions.

    The logits of each node are centred and normalised first, so that its place shows which class it leans
    towards and a few very confident nodes do not dominate the map. The sign of each direction is fixed, so
    that the same predictions give the same map.

    Shapes: logits (N, C); result (N, 2).
    """
    leaning = logits.double() - logits.double().mean(1, keepdim=True)
    leaning = leaning / leaning.norm(dim=1, keepdim=True).clamp_min(1e-12)
    centred = leaning - leaning.mean(0)
    vectors = torch.linalg.eigh(centred.t() @ centred)[1].flip(1)[:, :2]  # largest variance first
    largest = vectors.abs().argmax(0)
    flat = centred @ (vectors * vectors[largest, torch.arange(vectors.shape[1])].sign())
    return flat if flat.shape[1] == 2 else torch.cat([flat, torch.zeros_like(flat)], 1)
