"""Members of the ensemble of ``auto``: what they share, and the linear ones."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bvat.baselines.table import AutoOptions
from bvat.data.splits import folds
from bvat.errors import GraphError
from bvat.graph import Graph, Latent
from bvat.graph.neighbours import agreement, unit_rows
from bvat.models.ensemble import LINEAR, VIEWS, make_graphs, spread_view
from bvat.training.memory import give_back
from bvat.tuning.cross_validation import FEW, FOLDS

PRIOR = {
    "x": 0.25,
    "given-far": 2.0,
    "given-near": 1.0,
    "features-far": 0.5,
    "both-far": 1.0,
    "given-and-features": 2.0,
}
"""Weights of the linear members before any label is seen, where edges say something of the features."""
NETWORK_PRIOR, LATER_NETWORK_PRIOR = 2.0, 6.0
"""Weight of a network before any label is seen, with few labels and with enough of them: the linear members
together have 6.75."""
STRENGTH = 10.0
"""Inverse L2 penalty of the linear members."""
PSEUDO, PSEUDO_PER_LABEL, PSEUDO_WEIGHT = 700, 14, 0.1
"""Nodes of the self-training, at least and for each label, and the weight of each."""
ENOUGH = 10.0
"""With at least so many labels per class, calibrated probabilities choose the nodes of the self-training."""
SURE, SURE_MOST, SURE_WEIGHT, ROUNDS = 0.85, 3000, 0.3, 2
"""Then these are nodes with a larger probability than this, at most so many, of this weight each, and they
are chosen again in every round. In more rounds predictions drift (Pubmed)."""
ROWS_AT_ONCE = 4096
SAME = 1e-5
"""Latent features that differ by less are equal."""

Nodes = NDArray[np.int64]
Scores = NDArray[np.float64]
Rows = NDArray[np.float32]
Pseudo = tuple[Nodes, Nodes]
"""Nodes and the classes that they are predicted to have."""


@dataclass(frozen=True)
class Fold:
    """Training nodes, and the held-out nodes whose predictions count; int64 each."""

    train: Nodes
    held_out: Nodes


@dataclass(eq=False)
class Work:
    """A graph with what all members share: its labels, folds, latent features and other graphs."""

    graph: Graph
    options: AutoOptions
    train: Nodes
    folds: list[Fold]
    validated: bool
    enough: bool = False
    """Whether calibrated probabilities can be believed; validation nodes may say that they cannot."""

    @classmethod
    def on(cls, graph: Graph, options: AutoOptions) -> Work:
        train, val = graph.train.numpy(), graph.val.numpy()
        labels = graph.labels.numpy()
        if val.size < FEW:
            train = np.sort(np.concatenate([train, val]))
        if np.unique(labels[train]).size < 2:
            raise GraphError(
                f"all labels of {graph.name} are {graph.class_names[labels[train][0]]}: label nodes of "
                "another class too"
            )
        if val.size >= FEW:
            return cls(graph, options, train, [Fold(train, val)], True, True)
        sizes = np.bincount(labels[train])
        count = int(np.clip(np.median(sizes[sizes > 1]), 2, FOLDS)) if (sizes > 1).any() else 0
        parts = folds(graph, count) if count else []  # a fold takes about as many labels of every class
        each = [Fold(part.train.numpy(), part.val.numpy()) for part in parts]
        return cls(graph, options, train, each, False, train.size >= ENOUGH * graph.num_classes)

    @cached_property
    def labels(self) -> Nodes:
        """Class numbers (N); those of nodes that are neither for training nor for validation are not read."""
        return self.graph.labels.numpy()

    @cached_property
    def latent(self) -> Latent:
        found = Latent.fit(self.graph.features)
        give_back()
        rows = found.rows(self.graph.features)
        if float((rows.amax(0) - rows.amin(0)).max()) < SAME:
            raise GraphError(
                f"all nodes of {self.graph.name} have the same features: add others, or leave them out, and "
                "each node gets its own"
            )
        return found

    @cached_property
    def graphs(self) -> dict[str, Any]:
        """The graphs by name; without edges, or if asked for, only that of similar nodes."""
        wanted = {"given": {"given"}, "features": {"features"}, "both": {"both"}}
        every = {"given", "features", "both"} if self.graph.num_edges else {"features"}
        names = wanted.get(self.options.neighbours, every)
        made = make_graphs(self.graph, names, self.options.k, self.options.metric, self.latent)
        return {name: made[name] for name in names}

    @cached_property
    def edges_agree(self) -> float:
        """How far the given edges can be trusted, from 0.1 to 1, judged without labels."""
        if "given" not in self.graphs or "features" not in self.graphs:
            return 1.0
        found = agreement(
            self.latent.rows(self.graph.features),
            self.graph.adjacency.to_scipy(),
            self.graphs["features"].adjacency.to_scipy(),
        )
        return float(np.clip(found / 0.2, 0.1, 1))

    def linear_names(self) -> list[str]:
        return [
            name
            for name, views in LINEAR.items()
            if all(VIEWS[view][0] in ("", *self.graphs) for view in views)
        ]

    def prior(self, name: str) -> float:
        if name in LINEAR:
            trusted = self.edges_agree if name.startswith("given-") and "and" not in name else 1.0
            extra = 1.5 * (1 - self.edges_agree) if name == "features-far" else 0.0
            return PRIOR[name] * trusted + extra
        return LATER_NETWORK_PRIOR if self.enough else NETWORK_PRIOR

    def release(self) -> None:
        """Free the rows of the views, which take much memory; they are computed again when they are read."""
        self.means  # noqa: B018
        self.__dict__.pop("views", None)
        give_back()

    @cached_property
    def means(self) -> dict[str, Tensor]:
        """The mean (r) of every view."""
        return {name: mean for name, (mean, _) in self.views.items()}

    @cached_property
    def views(self) -> dict[str, tuple[Tensor, NDArray[np.float32]]]:
        """The mean (r) and the centred rows of length 1 (N, r) of every view."""
        latent = self.latent.rows(self.graph.features)
        found = {}
        for name in {view for member in self.linear_names() for view in LINEAR[member]}:
            spread = spread_view(name, self.graphs.get(VIEWS[name][0], self.graph), latent)
            mean = spread.mean(0)
            found[name] = (mean, unit_rows(spread - mean).numpy())
            give_back()  # what spreading has freed lies between the views
        return found

    def inputs_of(self, member: str, nodes: Nodes | slice) -> Scores:
        """Return what a linear member reads of some nodes, (n, r) or (n, 2 r)."""
        return np.concatenate([self.views[view][1][nodes] for view in LINEAR[member]], 1, dtype=np.float64)

    @cached_property
    def held_out(self) -> Nodes:
        return np.concatenate([fold.held_out for fold in self.folds]) if self.folds else np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Member:
    """A fitted member: its tensors, its logits at all nodes (N, C), and at all nodes for each fold.

    ``folds`` may have fewer entries than there are folds.
    """

    name: str
    tensors: dict[str, Tensor]
    logits: Rows
    folds: list[Rows]
    seconds: float = 0.0

    def held_out(self, work: Work) -> Scores:
        """Return the out-of-fold logits, (h, C), of the folds that it was trained in."""
        pairs = zip(self.folds, work.folds, strict=False)
        return np.concatenate([logits[fold.held_out] for logits, fold in pairs], dtype=np.float64)


@dataclass(frozen=True)
class Lessons:
    """Confident predictions to learn from beside all labels, and beside those of each fold.

    ``share`` is how much of their weight they have, from 0 to 1.
    """

    share: float
    whole: Pseudo
    folds: list[Pseudo]


def linear_member(work: Work, name: str, lessons: Lessons | None = None) -> Member:
    """Fit a linear member to all labels, and without validation nodes once per fold."""
    started = time.perf_counter()
    trains = [fold.train for fold in work.folds if not work.validated]
    taught = [lessons.whole, *lessons.folds] if lessons else repeat(None)
    share = lessons.share if lessons else 0.0
    pairs = zip([work.train, *trains], taught, strict=False)
    fits = [regression(work, name, train, pseudo, share) for train, pseudo in pairs]
    logits, *folds = (linear_logits(work, name, *fitted) for fitted in fits)
    give_back()
    folds = [logits] if work.validated else folds
    return Member(name, linear_tensors(name, *fits[0]), logits, folds, time.perf_counter() - started)


def linear_logits(work: Work, name: str, weight: Scores, bias: Scores) -> Rows:
    """Return ``Z W + b`` of all nodes, computed in double precision, some rows at a time."""
    found = np.empty((work.graph.num_nodes, weight.shape[1]), np.float32)
    for start in range(0, len(found), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        found[rows] = work.inputs_of(name, rows) @ weight + bias
    return found


def linear_tensors(name: str, weight: Scores, bias: Scores) -> dict[str, Tensor]:
    found = {f"linear.{name}.weight": weight, f"linear.{name}.bias": bias}
    return {key: torch.from_numpy(value.astype(np.float32)) for key, value in found.items()}


def regression(
    work: Work, name: str, train: Nodes, pseudo: Pseudo | None = None, share: float = 0.0
) -> tuple[Scores, Scores]:
    """Return weight (r, C) and bias (C) of a logistic regression; classes without a label get a low bias.

    ``pseudo`` has further nodes, with a share of their weight.
    """
    from sklearn.linear_model import LogisticRegression

    nodes, labels, counts, classes = train, work.labels[train], None, work.graph.num_classes
    if pseudo is not None:
        each = share * (SURE_WEIGHT if work.enough else PSEUDO_WEIGHT)
        nodes, labels = (np.concatenate(pair) for pair in ((nodes, pseudo[0]), (labels, pseudo[1])))
        counts = np.concatenate([np.ones(train.size), np.full(pseudo[0].size, each)])
    present = np.unique(labels)
    weight, bias = np.zeros((len(LINEAR[name]) * work.latent.shift.shape[0], classes)), np.full(classes, -8.0)
    model = LogisticRegression(C=STRENGTH, max_iter=100, tol=1e-3)
    model.fit(work.inputs_of(name, nodes), labels, counts)
    if present.size == 2:  # one logit: half for each class
        weight[:, present] = model.coef_.T * np.array([-0.5, 0.5])
        bias[present] = model.intercept_ * np.array([-0.5, 0.5])
    else:
        weight[:, present], bias[present] = model.coef_.T, model.intercept_
    return weight, bias


def confident(work: Work, p: Scores, train: Nodes) -> Pseudo:
    """Return nodes whose predicted class is trusted, and these classes.

    With few labels they are of the more confident half of each predicted class, as many of each. With enough,
    all classes have one threshold: then frequent ones have more nodes, as they should.

    Shapes: p (N, C), calibrated if there are enough labels.
    """
    classes = work.graph.num_classes
    predicted, confidence = p.argmax(1), p.max(1)
    free = np.ones(p.shape[0], bool)
    free[train] = False
    if work.validated:  # what judges is not taught
        free[work.held_out] = False
    rng, chosen = np.random.default_rng(0), []
    if work.enough:
        nodes = rng.permutation(np.flatnonzero(free & (confidence > SURE)))[:SURE_MOST]
        return nodes, predicted[nodes]
    most = max(PSEUDO, PSEUDO_PER_LABEL * train.size) // classes
    for k in range(classes):
        nodes = np.flatnonzero(free & (predicted == k))
        upper = nodes[np.argsort(-confidence[nodes], kind="stable")][: (nodes.size + 1) // 2]
        chosen.append(rng.permutation(upper)[: max(1, most)])
    nodes = np.concatenate(chosen)
    return nodes, predicted[nodes]
