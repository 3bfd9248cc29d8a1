"""ManiReg and SemiEmb: small functions of the features that must differ little along edges.

They minimise L = CE(train) + weight_decay / 2 |weights|^2 + smoothness * mean over edges (i, j) of
|h_i - h_j|^2 without the validation and test nodes. Manifold regularisation (Belkin, Niyogi, Sindhwani 2006)
is a linear classifier with h = its predictions; deep learning via semi-supervised embedding (Weston, Ratle,
Mobahi, Collobert 2012) has a hidden layer h.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import coo_array, triu
from torch import Tensor

from bvat.baselines.base import Fit, Frozen, VisiblePart, choose, glorot, visible_part
from bvat.graph import Graph
from bvat.graph.inputs import FeatureMatrix
from bvat.graph.repair import normalize_rows

PAIRS = 1000
"""Edges per step at most; of more, this many are drawn for each step."""
LINEAR_GRID = (5e-4, 1e-4, 1e-3), (0.3, 0.0, 3.0)
"""Weight decays and smoothness of ManiReg; the first of each is used where there are no validation nodes."""
WIDTH = 50
DECAYS, SMOOTHNESS = (5e-3, 1e-3), (1.0, 0.0, 0.01, 0.1)
"""The grid of SemiEmb."""
FEW_CLASSES = 10
"""With more classes the decays are lower in proportion, as the share of a class in the gradient is. The 105
classes of NELL validate at 9.6 with those of Cora, and at 23 with a tenth of them."""

Weights = dict[str, Tensor]


class Smooth(Frozen):
    """A network of the features."""

    epochs: ClassVar[int]
    lr: ClassVar[float]

    @staticmethod
    def network(features: FeatureMatrix, weights: Weights) -> tuple[Tensor, Tensor]:
        """Return from features (m, D) what must be smooth (m, H), and the logits (m, C)."""
        raise NotImplementedError

    def forward(self, graph: Graph) -> Tensor:
        return self.network(normalize_rows(graph.features), dict(self.named_parameters()))[1]


class Linear(Smooth):
    """Logits X W + b, h their softmax. Shapes: weight (D, C), bias (C)."""

    shapes: ClassVar = {"weight": "DC", "bias": "C"}
    epochs, lr = 100, 0.2

    @staticmethod
    def network(features: FeatureMatrix, weights: Weights) -> tuple[Tensor, Tensor]:
        logits = features @ weights["weight"] + weights["bias"]
        return logits.softmax(1), logits


class Embedding(Smooth):
    """Logits h W2 + b2, h = ReLU(X W1 + b1). Shapes: weight1 (D, H), bias1 (H), weight2 (H, C), bias2 (C)."""

    shapes: ClassVar = {"weight1": "DH", "bias1": "H", "weight2": "HC", "bias2": "C"}
    epochs, lr = 150, 0.01

    @staticmethod
    def network(features: FeatureMatrix, weights: Weights) -> tuple[Tensor, Tensor]:
        hidden = (features @ weights["weight1"] + weights["bias1"]).relu()
        return hidden, hidden @ weights["weight2"] + weights["bias2"]


def fit_manireg(graph: Graph, seed: int) -> Fit:
    return _fit(Linear, graph, LINEAR_GRID)


def fit_semiemb(graph: Graph, seed: int) -> Fit:
    lower = min(1.0, FEW_CLASSES / graph.num_classes)
    grid = tuple(decay * lower for decay in DECAYS), SMOOTHNESS
    return _fit(Embedding, graph, grid, torch.Generator().manual_seed(seed))


def _fit(kind: type[Smooth], graph: Graph, grid: Any, generator: torch.Generator | None = None) -> Fit:
    """Fit with the strengths that are best on the validation nodes, which are hidden like the test nodes.

    Weights start at zero, or with a generator as Glorot and Bengio draw them.
    """
    features = normalize_rows(graph.features)
    part, held_out = visible_part(graph, features), features.select(graph.val)
    sizes = {"D": graph.num_features, "H": WIDTH, "C": graph.num_classes}
    start: Weights = {}
    for name, letters in kind.shapes.items():
        first, *rest = (sizes[letter] for letter in letters)
        start[name] = torch.zeros(first, *rest, dtype=features.dtype)
        if generator is not None and rest:
            start[name] = glorot(first, rest[0], generator, features.dtype)

    def fitted(*strengths: float) -> tuple[float, Weights]:
        weights = train_smooth(kind, part, start, strengths, generator or torch.Generator().manual_seed(0))
        right = kind.network(held_out, weights)[1].argmax(1) == graph.labels[graph.val]
        return float(right.sum()), weights

    (decay, smoothness), weights = choose(graph, *grid, fit=fitted)
    return Fit(kind(**weights), {"weight_decay": decay, "smoothness": smoothness})


def train_smooth(
    kind: type[Smooth],
    part: VisiblePart,
    start: Weights,
    strengths: tuple[float, ...],
    generator: torch.Generator,
) -> Weights:
    """Train by Adam from ``start`` on all training nodes per step; return the trained weights."""
    weight_decay, smoothness = strengths
    trained = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
    optimizer = torch.optim.Adam(trained.values(), lr=kind.lr)
    batches = _batches(part, smoothness, generator)
    for _ in range(kind.epochs):
        features, train, pairs = next(batches)
        hidden, logits = kind.network(features, trained)
        loss = F.cross_entropy(logits[train], part.labels)
        for name, tensor in trained.items():
            if not name.startswith("bias"):
                loss = loss + weight_decay / 2 * tensor.square().sum()
        if pairs.numel():
            gap = hidden.index_select(0, pairs[0]) - hidden.index_select(0, pairs[1])
            loss = loss + smoothness * gap.square().sum(1).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {name: tensor.detach() for name, tensor in trained.items()}


def _batches(
    part: VisiblePart, smoothness: float, generator: torch.Generator
) -> Iterator[tuple[Any, Tensor, Tensor]]:
    """Yield features, the rows of the training nodes in them, and pairs of rows (2, e) for every step."""
    once = triu(part.adjacency, 1) if smoothness else coo_array((0, 0))
    edges = torch.from_numpy(np.stack([once.row, once.col])).long()
    if edges.shape[1] <= PAIRS:
        yield from repeat(_cut(part, edges))
    while True:
        drawn = torch.randint(edges.shape[1], (PAIRS,), generator=generator)
        yield _cut(part, edges[:, drawn])


def _cut(part: VisiblePart, pairs: Tensor) -> tuple[Any, Tensor, Tensor]:
    """Return the features of the training nodes and the ends of the pairs, and where both are in them."""
    used, place = torch.cat([part.train, pairs.flatten()]).unique(return_inverse=True)  # type: ignore[no-untyped-call]
    count = part.train.numel()
    return part.features.select(used), place[:count], place[count:].view(2, -1)
