"""Predictions of labelled nodes by models that had not seen their labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bvat.errors import DataError
from bvat.graph import Graph, targets_of
from bvat.inference.classifier import Classifier
from bvat.inference.runs import SavedRun
from bvat.training.metrics import softmax


@dataclass(frozen=True)
class HeldOut:
    """Labelled nodes and what was predicted without their labels.

    Shapes: nodes and labels int64 (m), probabilities float64 (m, C), calibrated.
    """

    nodes: NDArray[np.int64]
    labels: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    def __post_init__(self) -> None:
        instead = "read the probabilities that bvat predict writes"
        targets_of(self.labels).require_one_class("a review of labels or a set of classes", instead)

    @classmethod
    def read(cls, stored: Mapping[str, Any], temperature: float) -> HeldOut:
        """Return what :func:`bvat.tuning.cross_validation.held_out_logits` has kept."""
        nodes, labels = (np.array(stored[name], dtype=np.int64) for name in ("nodes", "labels"))
        return cls(nodes, labels, softmax(temperature * np.array(stored["logits"], dtype=np.float64)))

    @classmethod
    def of_validation(cls, classifier: Classifier, graph: Graph) -> HeldOut:
        """Return what a model says of its validation nodes, whose labels chose only the epoch."""
        found = classifier.probabilities(graph)[graph.val].double().cpu().numpy()
        return cls(graph.val.cpu().numpy(), classifier.labels(graph)[graph.val].cpu().numpy(), found)


def held_out(run: SavedRun) -> HeldOut:
    """Return the held-out predictions of a run: of its folds, or of its validation nodes."""
    if run.out_of_fold is not None:
        return HeldOut.read(run.out_of_fold, run.temperature)
    graph = run.graph()
    if not graph.val.numel():
        raise no_held_out(run.name)
    with torch.no_grad():
        return HeldOut.of_validation(run.classifier(graph), graph)


def no_held_out(name: str) -> DataError:
    return DataError(
        f"{name} has no prediction of a labelled node by a model that had not seen its label: label at least "
        "two nodes of each class, and train again"
    )
