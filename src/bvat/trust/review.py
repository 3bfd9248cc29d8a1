"""Labels that look wrong: those that held-out predictions contradict (confident learning).

The score of a label y is ``p(y) / (p(y) + max p(k), k != y)`` with p from models that had not seen it: .5 if
another class is as likely, near 0 if the label looks wrong. It is suspect below .2, where another class is
four times as likely: probabilities are calibrated, so a model that knows little suspects nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bvat.graph import UNKNOWN, Graph
from bvat.inference.tables import node_id
from bvat.trust.held_out import HeldOut

SUSPECT = 0.2
"""Labels with a smaller score are suspect."""


@dataclass(frozen=True)
class Review:
    """One row per label, the most doubtful first.

    Shapes: all (m): node, given and suggested class, score in [0, 1], and whether the label is suspect.
    """

    nodes: NDArray[np.int64]
    given: NDArray[np.int64]
    suggested: NDArray[np.int64]
    scores: NDArray[np.float64]
    suspect: NDArray[np.bool_]

    def columns(self, graph: Graph, probabilities: Tensor) -> dict[str, list[Any]]:
        """Return the table: id, given and suggested class, score, suspect, classes of the neighbours.

        Neighbours without a label have the class that they are predicted to have.

        Shapes: probabilities (N, C).
        """
        names, known = graph.class_names, graph.labels.cpu().numpy()
        labels = np.where(known == UNKNOWN, probabilities.argmax(1).cpu().numpy(), known)
        links = graph.adjacency.to_scipy()
        around = []
        for node in self.nodes:
            near = links.indices[links.indptr[node] : links.indptr[node + 1]]
            counts = np.bincount(labels[near[near != node]], minlength=len(names))
            around.append(", ".join(f"{names[k]} {counts[k]}" for k in np.argsort(-counts) if counts[k]))
        return {
            "id": [node_id(graph, node) for node in self.nodes.tolist()],
            "given": [names[k] for k in self.given],
            "suggested": [names[k] for k in self.suggested],
            "score": self.scores.tolist(),
            "suspect": self.suspect.tolist(),
            "neighbours": around,
        }


def review(held: HeldOut) -> Review:
    """Return the labels in the order in which they deserve a look."""
    p, y = held.probabilities, held.labels
    rows = np.arange(y.size)
    own = p[rows, y]
    others = p.copy()
    others[rows, y] = -1
    best = others.argmax(1)
    scores = own / (own + others.max(1))
    order = np.argsort(scores, kind="stable")
    return Review(held.nodes[order], y[order], best[order], scores[order], scores[order] < SUSPECT)
