"""``auto`` on draw after draw of one graph: what does not depend on labels is computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from bvat.baselines.table import AutoOptions
from bvat.data import load
from bvat.graph import Graph
from bvat.training.metrics import LEAST, softmax
from bvat.trust.held_out import HeldOut
from bvat.tuning.auto import fitted_members
from bvat.tuning.members import Work
from bvat.tuning.mixture import Mixture

LABEL_FREE = ("latent", "graphs", "views", "edges_agree")


@lru_cache(maxsize=1)
def prepared(source: str, effort: int) -> Work:
    """Return a graph, by name or path, with what does not depend on labels."""
    work = Work(load(source), AutoOptions(effort=effort), np.zeros(0, np.int64), [], False)
    for name in LABEL_FREE:
        getattr(work, name)
    return work


@dataclass(frozen=True)
class Fitted:
    """Calibrated probabilities of all nodes, (N, C); those of labelled nodes that were held out.

    ``folds`` has for each fold its held-out nodes and the probabilities of all nodes, (N, C), without their
    labels. ``held`` and ``folds`` are empty where no class has two labels.
    """

    p: NDArray[np.float64]
    held: HeldOut | None
    folds: list[tuple[NDArray[np.int64], NDArray[np.float64]]]


def fitted(shared: Work, graph: Graph) -> Fitted:
    """Fit ``auto`` to the training labels of a graph that differs from the shared one in labels alone."""
    work = Work.on(graph, shared.options)
    work.__dict__.update({name: getattr(shared, name) for name in LABEL_FREE})
    with threadpool_limits(1, "blas"):  # as in auto.fit
        members, mixture = fitted_members(work, 0)

    def calibrated(p: Any) -> NDArray[np.float64]:
        return softmax(mixture.temperature * np.log(np.maximum(p, LEAST)))

    p, held, folds = calibrated(mixture.probabilities(work, members)), None, []
    if mixture.held_out is not None:
        nodes = work.held_out[: len(mixture.held_out)]
        held = HeldOut(nodes, work.labels[nodes], calibrated(mixture.held_out))
        folds = [(fold.held_out, calibrated(_at_fold(work, members, mixture, k)))
                 for k, fold in enumerate(work.folds)]  # fmt: skip
    return Fitted(p, held, folds)


def _at_fold(work: Work, members: Any, mixture: Mixture, number: int) -> Any:
    there = {n: m.folds[number] for n, m in members.items() if number < len(m.folds)}
    return mixture.smoothing(work, mixture.mean(there))
