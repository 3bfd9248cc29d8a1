"""Prediction sets: the classes of a node that cannot be excluded (conformal prediction).

The score of node v and class y is ``s(v, y) = sum of p(v, k) over the classes k that are more likely than y,
plus p(v, y) / 2`` (Romano, Sesia and Candes, 2020): near 0 for a class that is certain. Held-out labels say
how large the score of the true class is. Class y is in the set of v unless too few of them are as large:

    (1 + number of held-out labels i of class y with s(i, y_i) >= s(v, y)) / (1 + n_y)  >  1 - coverage

Labels are often drawn per class, and then say nothing of how many nodes a class has. So each class is
compared with its own labels (Mondrian), and every class is covered as often as asked. If a class has too few
labels for that, or if it is not asked for, the labels of all classes are compared at once, each with the
weight ``q_c / n_c``, where q_c is the share of class c in the predictions (Podkopaev and Ramdas, 2021): the
sets are smaller, and the coverage is right on average over the nodes, as far as q_c is right. A class without
any held-out label cannot be excluded: it is in every set.

Scores that spread over the edges (DAPS; Zargarbashi et al., 2023) did not make the sets smaller: the
probabilities of ``auto`` have spread already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bvat.errors import SettingsError
from bvat.trust.held_out import HeldOut

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class PredictionSets:
    """Sets of classes: ``member`` bool (N, C). ``labels`` held-out labels say how large they are.

    ``missing`` is how many labels classes lack to be compared with their own, ``unknown`` how many classes
    have none.
    """

    member: NDArray[np.bool_]
    coverage: float
    per_class: bool
    labels: int
    missing: int = 0
    unknown: int = 0

    @property
    def about(self) -> dict[str, Any]:
        sizes = self.member.sum(1)
        return {
            "coverage": self.coverage,
            "mean_size": float(sizes.mean()),
            "single": float((sizes == 1).mean()),
            "quantiles": "per class" if self.per_class else "weighted",
            "labels": self.labels,
            "missing": self.missing,
        }

    @property
    def text(self) -> str:
        about = self.about
        how = (
            "those of its own class" if self.per_class else "all of them, weighted by the size of their class"
        )
        are = "label is" if self.missing == 1 else "labels are"
        lacks = f"; {self.missing} {are} missing to compare each with its own" if self.missing else ""
        if self.unknown:
            lacks += f"; {self.unknown} without a held-out label cannot be excluded anywhere"
        return (
            f"sets for a coverage of {self.coverage:g}: {about['mean_size']:.2f} classes on average, one for "
            f"{about['single']:.0%} of the nodes; of {self.labels} held-out labels, each class is compared "
            f"with {how}{lacks}"
        )


def adaptive_scores(probabilities: Scores) -> Scores:
    """Return s(v, y), shape (N, C), for probabilities (N, C)."""
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ranked = np.take_along_axis(probabilities, order, 1)
    below = np.cumsum(ranked, 1) - ranked / 2
    found = np.empty_like(below)
    np.put_along_axis(found, order, below, 1)
    return found


def prediction_sets(
    held: HeldOut,
    probabilities: NDArray[Any],
    coverage: float,
    name: str = "this run",
    *,
    per_class: bool = True,
) -> PredictionSets:
    """Return a set of classes for every node; on average the share ``coverage`` of them has the true class.

    Args:
        held: labels and predictions to judge by.
        probabilities: of all nodes, calibrated, (N, C).
        coverage: between 0 and 1.
        name: what errors call it.
        per_class: compare each class with its own labels, if there are enough.

    Raises:
        SettingsError: there are too few labels for this coverage; it says how many are needed.
    """
    if not 0 < coverage < 1:
        raise SettingsError(f"coverage is {coverage:g}: use a number between 0 and 1, such as 0.9")
    p = np.asarray(probabilities, dtype=np.float64)
    classes, most = p.shape[1], 1 - coverage
    needed = math.ceil(1 / most - 1e-9) - 1  # with n labels, p-values are at least 1 / (n + 1)
    counts, size = np.bincount(held.labels, minlength=classes), held.labels.size
    alone = per_class and bool(counts.min() >= needed)
    if not alone and size < max(needed, 2 * classes):
        raise SettingsError(
            f"{name} has {size} held-out labels, too few for a coverage of {coverage:g}: label at least "
            f"{needed} nodes of each class, {needed * classes} in all, or ask for less"
        )
    weights = np.ones(size)
    if not alone:
        shares = np.bincount(p.argmax(1), minlength=classes) / len(p)
        weights = (shares / np.maximum(counts, 1))[held.labels]
        weights = weights / weights.sum() * size
    scores, own = adaptive_scores(p), adaptive_scores(held.probabilities)[np.arange(size), held.labels]
    member = np.zeros(p.shape, dtype=np.bool_)
    for k in np.flatnonzero(counts):
        judges = held.labels == k if alone else slice(None)
        member[:, k] = _chance(own[judges], weights[judges], scores[:, k]) > most + 1e-12
    member[:, counts == 0] = True  # nothing speaks against a class that no label tells of
    member[np.arange(len(p)), p.argmax(1)] = True  # no set is empty
    missing = int(np.maximum(needed - counts, 0).sum()) if per_class else 0
    return PredictionSets(member, coverage, alone, size, missing, int((counts == 0).sum()))


def _chance(known: Scores, weights: Scores, scores: Scores) -> Scores:
    """Return the weighted share of ``known`` scores (n) that are at least as large as each of ``scores``.

    The node itself counts as one of them, with weight 1.
    """
    order = np.argsort(known)
    total = np.concatenate([np.cumsum(weights[order][::-1])[::-1], [0.0]])
    place = np.searchsorted(known[order], scores - 1e-9, side="left")
    found: Scores = (1 + total[place]) / (1 + total[0])
    return found
