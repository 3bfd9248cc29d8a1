"""What is predicted of a node: one class, or several labels that may hold at once.

:func:`targets_of` returns which of the two some labels are. It says how logits become probabilities,
decisions and a loss, and what counts as right; training, scores and predictions ask it.

Shapes: labels and decisions are int64 (n) with the number of the class, or (n, C) with 0 and 1 for each
label; -1, in a whole row, is unknown. Logits and probabilities are (n, C) in both cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bvat.engine.cpu import DEFAULT_ENGINE
from bvat.engine.tensor import TensorEngine
from bvat.errors import GraphError, SettingsError

UNKNOWN = -1
"""The label of a node whose class is not known."""
SEPARATOR = "|"
"""Between the labels of a node in files; alone, a node that is known to have none."""


class OneClass:
    """Each node has one class: softmax, cross-entropy, KL."""

    name: ClassVar[str] = "classes"
    words: ClassVar[str] = "one class per node"
    note: ClassVar[str] = ""
    """What somebody who reads such a graph should know."""
    score: ClassVar[str] = "accuracy"
    """What predictions are judged by."""
    independent: ClassVar[bool] = False
    """Whether each logit is a yes-or-no label of its own, see :class:`bvat.perturb.Bernoulli`."""

    def require_one_class(self, what: str, remedy: str) -> None:
        """Raise SettingsError where nodes have several labels and ``what`` cannot work with them."""

    def known(self, labels: Any) -> Any:
        """Return which nodes have labels, bool (n)."""
        return labels != UNKNOWN

    def probabilities(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits, 1)

    def predicted(self, logits: Tensor) -> Tensor:
        """Return what logits predict.

        They lie by columns, along which ``max`` is four times faster than ``argmax``.
        """
        return logits.max(1).indices

    def decided(self, probabilities: Any) -> Any:
        """Return what probabilities predict."""
        return probabilities.argmax(1)

    def confidence(self, probabilities: Tensor) -> Tensor:
        """Return how sure a prediction is, (n)."""
        return probabilities.amax(1)

    def names(self, probabilities: Tensor, class_names: Sequence[str]) -> list[str]:
        """Return what is predicted in words."""
        return [class_names[k] for k in self.decided(probabilities).tolist()]

    def right(self, predicted: Any, labels: Any) -> Any:
        """Return of which nodes all that is predicted is right, bool (n)."""
        return predicted == labels

    def loss(
        self,
        logits: Tensor,
        labels: Tensor,
        weights: Tensor | None = None,
        engine: TensorEngine = DEFAULT_ENGINE,
    ) -> Tensor:
        """Return the mean cross-entropy over the nodes, with a weight per class (C)."""
        return engine.cross_entropy(logits, labels, weights)

    def fit(self, labels: Tensor, scores: Tensor) -> bool:
        """Return whether these are known labels of the nodes that scores (n, C) are of."""
        return labels.shape == scores.shape[:1] and bool(((labels >= 0) & (labels < scores.shape[1])).all())

    def sizes(self, labels: Tensor, classes: int) -> Tensor:
        """Return how many of some nodes with known labels have each class, int64 (C)."""
        return torch.bincount(labels, minlength=classes)

    def hits(self, predicted: Tensor, labels: Tensor, classes: int) -> Tensor:
        """Return how many nodes of each class are predicted to be of it, int64 (C)."""
        return torch.bincount(labels[predicted == labels], minlength=classes)

    def strata(self, labels: Any) -> Any:
        """Return a class number per node, (n), by which labelled nodes are spread evenly over parts."""
        return labels

    def decisions(self, no: Any, yes: Any, labels: Any) -> tuple[Any, Any]:
        """Return scores of classes, (m, K), and the true class (m), of every decision that was made.

        Args:
            no, yes: the scores of the absence and of the presence of each class, arrays (n, C).
            labels: the labels, (n) or (n, C).
        """
        return yes, labels

    def having(self, labels: Any, k: int) -> Any:
        """Return which nodes have class k, bool (n)."""
        return labels == k

    def normalised(self, probabilities: Any) -> Any:
        """Return probabilities without the rounding of their sums."""
        return probabilities / probabilities.sum(1, keepdims=True)

    def renumbered(self, labels: Tensor, numbers: Sequence[int], classes: int) -> Tensor:
        """Return labels in which class k has the number ``numbers[k]`` of C ``classes``."""
        table = torch.tensor([*numbers, UNKNOWN], device=labels.device)  # the label -1 reads the last entry
        return table[labels]

    def unknown(self, nodes: int, classes: int) -> Any:
        """Return the labels of nodes of which nothing is known, as an array."""
        return np.full(nodes, UNKNOWN)


class SeveralLabels(OneClass):
    """Each node has any number of C labels: sigmoid, binary cross-entropy, the Bernoulli divergence.

    A node counts as right if all its labels are, as in scikit-learn; predictions are judged by micro F1.
    """

    name = "labels"
    words = "several labels per node"
    note = (
        "nodes have several labels: the default method is vat, micro F1 chooses the epoch, and a node is "
        "right if all its labels are"
    )
    score = "micro_f1"
    independent = True

    def require_one_class(self, what: str, remedy: str) -> None:
        raise SettingsError(f"{what} needs one class per node, and these nodes have several labels: {remedy}")

    def known(self, labels: Any) -> Any:
        return labels[:, 0] != UNKNOWN

    def probabilities(self, logits: Tensor) -> Tensor:
        return torch.sigmoid(logits)

    def predicted(self, logits: Tensor) -> Tensor:
        return (logits > 0).long()

    def decided(self, probabilities: Any) -> Any:
        return (probabilities > 0.5) * 1

    def confidence(self, probabilities: Tensor) -> Tensor:
        """Return the probability of the decision about the least certain label."""
        return torch.maximum(probabilities, 1 - probabilities).amin(1)

    def names(self, probabilities: Tensor, class_names: Sequence[str]) -> list[str]:
        return [SEPARATOR.join(compress(class_names, row)) for row in self.decided(probabilities).tolist()]

    def right(self, predicted: Any, labels: Any) -> Any:
        return (predicted == labels).all(1)

    def loss(
        self,
        logits: Tensor,
        labels: Tensor,
        weights: Tensor | None = None,
        engine: TensorEngine = DEFAULT_ENGINE,
    ) -> Tensor:
        """Return the mean over the nodes of the binary cross-entropies of their labels, summed."""
        return engine.mean((F.softplus(logits) - logits * labels).sum(1))

    def fit(self, labels: Tensor, scores: Tensor) -> bool:
        return labels.shape == scores.shape and bool(((labels == 0) | (labels == 1)).all())

    def sizes(self, labels: Tensor, classes: int) -> Tensor:
        return labels.sum(0)

    def hits(self, predicted: Tensor, labels: Tensor, classes: int) -> Tensor:
        return (predicted * labels).sum(0)

    def strata(self, labels: Any) -> Any:
        """Return the rarest label of each node; nodes without one count for the most common label."""
        given = torch.as_tensor(labels)
        known = self.known(given)
        order = given[known].sum(0).argsort(stable=True)
        first = (given[:, order] == 1).int().argmax(1)  # 0 where a node has none
        none = (given != 1).all(1)
        rarest = order[torch.where(none, len(order) - 1, first)]
        found = torch.where(known, rarest, UNKNOWN)
        return found if isinstance(labels, Tensor) else found.numpy()

    def decisions(self, no: Any, yes: Any, labels: Any) -> tuple[Any, Any]:
        """Return the scores (n C, 2) of no and yes, and which of the two is true, label by label."""
        return np.stack([no, yes], 2).reshape(-1, 2), labels.reshape(-1)

    def having(self, labels: Any, k: int) -> Any:
        return labels[:, k] == 1

    def normalised(self, probabilities: Any) -> Any:
        return probabilities

    def renumbered(self, labels: Tensor, numbers: Sequence[int], classes: int) -> Tensor:
        found = labels.new_zeros(len(labels), classes)
        found[:, list(numbers)] = labels
        found[~self.known(labels)] = UNKNOWN
        return found

    def unknown(self, nodes: int, classes: int) -> Any:
        return np.full((nodes, classes), UNKNOWN)


ONE_CLASS, SEVERAL_LABELS = OneClass(), SeveralLabels()
TARGETS: dict[str, OneClass] = {each.name: each for each in (ONE_CLASS, SEVERAL_LABELS)}


def targets_of(labels: Any) -> OneClass:
    """Return what some labels, (n) or (n, C), are."""
    return SEVERAL_LABELS if labels.ndim == 2 else ONE_CLASS


def label_sets(given: Any, where: str = "") -> Any:
    """Return labels (N, C) as int64; GraphError unless they are 0 and 1 (or bool), or -1 in a whole row."""
    values = np.asarray(given)
    if values.dtype.kind not in "biuf":
        raise GraphError(f"{where}several labels per node must be numbers, 0 or 1, not {values.dtype}")
    bad = ~np.isin(values, (0, 1, UNKNOWN))
    partly = (values == UNKNOWN).any(1) & (values != UNKNOWN).any(1)
    if bad.any():
        node, column = np.argwhere(bad)[0]
        raise GraphError(
            f"{where}node {node} has {values[node, column]:g} in column {column} of the labels: use 0 and 1, "
            "or -1 in the whole row for unknown; class numbers, one per node, are of shape (N,)"
        )
    if partly.any():
        raise GraphError(
            f"{where}only some labels of node {np.flatnonzero(partly)[0]} are known: use 0 and 1 in the "
            "whole row, or -1"
        )
    return values.astype(np.int64)


def refuse_one_hot(labels: Any, where: str = "") -> None:
    """Raise GraphError if each node has exactly one of several labels (N, C): that is a class."""
    given = labels[SEVERAL_LABELS.known(labels)]
    if len(given) and (given.sum(1) == 1).all():
        raise GraphError(
            f"{where}labels must be a flat list where each node has one class, as here: give the class "
            "numbers, labels.argmax(1), with -1 for unknown"
        )
