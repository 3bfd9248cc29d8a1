"""ManiReg and SemiEmb: small functions of the features that must differ little along edges.

They minimise L = CE(train) + weight_decay / 2 |weights|^2 + smoothness * mean over edges (i, j) of
|h_i - h_j|^2 without the validation and test nodes. Manifold regularisation (Belkin, Niyogi, Sindhwani 2006)
is a linear classifier with h = its predictions; deep learning via semi-supervised embedding (Weston, Ratle,
Mobahi, Collobert 2012) has a hidden layer h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise, repeat
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
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
Network = Callable[[FeatureMatrix, Weights], tuple[Tensor, Tensor]]
"""From features (m, D) and weights to what must be smooth (m, H) and the logits (m, C)."""


def train_smooth(
    part: VisiblePart,
    network: Network,
    weights: Weights,
    generator: torch.Generator,
    *,
    epochs: int,
    lr: float,
    strengths: tuple[float, float],
) -> Weights:
    """Train by Adam from ``weights`` on all training nodes per step; return the trained weights.

    ``strengths`` are the weight decay and the smoothness.
    """
    weight_decay, smoothness = strengths
    trained = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
    optimizer = torch.optim.Adam(trained.values(), lr=lr)
    batches = _batches(part, smoothness, generator)
    for _ in range(epochs):
        features, train, pairs = next(batches)
        hidden, logits = network(features, trained)
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
    edges = part.edges if smoothness else torch.zeros(2, 0, dtype=torch.int64)
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


class Linear(Frozen):
    """Logits X W + b. Shapes: weight (D, C), bias (C)."""

    shapes: ClassVar = {"weight": "DC", "bias": "C"}
    weight: Tensor
    bias: Tensor

    def forward(self, graph: Graph) -> Tensor:
        return normalize_rows(graph.features) @ self.weight + self.bias


def fit_manireg(graph: Graph, seed: int) -> Fit:
    """Fit with the strengths that are best on the validation nodes, which are hidden like the test nodes."""
    features = normalize_rows(graph.features)
    part = visible_part(graph, features)
    held_out, expected = features.select(graph.val), graph.labels[graph.val]

    def fitted(weight_decay: float, smoothness: float) -> tuple[float, Linear]:
        model = Linear(**gradient(part, graph.num_classes, weight_decay, smoothness))
        scores = held_out @ model.weight + model.bias
        return float((scores.argmax(1) == expected).sum()), model

    (weight_decay, smoothness), model = choose(graph, *LINEAR_GRID, fit=fitted)
    return Fit(model, {"weight_decay": weight_decay, "smoothness": smoothness})


def gradient(part: VisiblePart, classes: int, weight_decay: float, smoothness: float) -> Weights:
    """Minimise the loss with h = softmax of the logits, from zero."""
    shapes = {"weight": (part.features.shape[1], classes), "bias": (classes,)}
    start = {name: torch.zeros(shape, dtype=part.features.dtype) for name, shape in shapes.items()}

    def network(features: FeatureMatrix, weights: Weights) -> tuple[Tensor, Tensor]:
        logits = features @ weights["weight"] + weights["bias"]
        return logits.softmax(1), logits

    generator, strengths = torch.Generator().manual_seed(0), (weight_decay, smoothness)
    return train_smooth(part, network, start, generator, epochs=100, lr=0.2, strengths=strengths)


class Embedding(Frozen):
    """Logits ReLU(X W1 + b1) W2 + b2. Shapes: weight1 (D, H), bias1 (H), weight2 (H, C), bias2 (C)."""

    shapes: ClassVar = {"weight1": "DH", "bias1": "H", "weight2": "HC", "bias2": "C"}

    def forward(self, graph: Graph) -> Tensor:
        return embedding_network(normalize_rows(graph.features), dict(self.named_parameters()))[1]


def embedding_network(features: FeatureMatrix, weights: Weights) -> tuple[Tensor, Tensor]:
    """Return the hidden layer (m, H), which must be smooth, and the logits (m, C)."""
    hidden = (features @ weights["weight1"] + weights["bias1"]).relu()
    return hidden, hidden @ weights["weight2"] + weights["bias2"]


def fit_semiemb(graph: Graph, seed: int) -> Fit:
    """Fit with the strengths that are best on the validation nodes, which are hidden like the test nodes."""
    features = normalize_rows(graph.features)
    part, held_out = visible_part(graph, features), features.select(graph.val)
    generator = torch.Generator().manual_seed(seed)
    start: Weights = {}
    for number, (inputs, outputs) in enumerate(pairwise((graph.num_features, WIDTH, graph.num_classes)), 1):
        start[f"weight{number}"] = glorot(inputs, outputs, generator, graph.features.dtype)
        start[f"bias{number}"] = torch.zeros(outputs, dtype=graph.features.dtype)
    lower = min(1.0, FEW_CLASSES / graph.num_classes)

    def fitted(*strengths: float) -> tuple[float, Weights]:
        options: dict[str, Any] = {"epochs": 150, "lr": 0.01, "strengths": strengths}
        weights = train_smooth(part, embedding_network, start, generator, **options)
        right = embedding_network(held_out, weights)[1].argmax(1) == graph.labels[graph.val]
        return float(right.sum()), weights

    decays = tuple(decay * lower for decay in DECAYS)
    (decay, smoothness), weights = choose(graph, decays, SMOOTHNESS, fit=fitted)
    return Fit(Embedding(**weights), {"weight_decay": decay, "smoothness": smoothness})
