"""Deep learning via semi-supervised embedding (Weston, Ratle, Mobahi, Collobert 2012), without test nodes."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from bvat.baselines.base import Fit, Frozen, choose, glorot, visible_part
from bvat.baselines.smooth import Plan, Weights, train_smooth
from bvat.graph import Graph
from bvat.graph.inputs import FeatureMatrix
from bvat.graph.repair import normalize_rows

WIDTH = 50
DECAYS, SMOOTHNESS = (5e-3, 1e-3), (1.0, 0.0, 0.01, 0.1)
"""The grid; the first of each is used where there are no validation nodes."""
FEW_CLASSES = 10
"""With more classes the decays are lower in proportion, as the share of a class in the gradient is. The 105
classes of NELL validate at 9.6 with those of Cora, and at 23 with a tenth of them."""


class Embedding(Frozen):
    """Logits ReLU(X W1 + b1) W2 + b2. Shapes: weight1 (D, H), bias1 (H), weight2 (H, C), bias2 (C)."""

    shapes: ClassVar = {"weight1": "DH", "bias1": "H", "weight2": "HC", "bias2": "C"}

    def forward(self, graph: Graph) -> Tensor:
        """Return the logits (N, C)."""
        return network(normalize_rows(graph.features), dict(self.named_parameters()))[1]


def network(features: FeatureMatrix, weights: Weights) -> tuple[Tensor, Tensor]:
    """Return the hidden layer (m, H), which must be smooth, and the logits (m, C)."""
    hidden = (features @ weights["weight1"] + weights["bias1"]).relu()
    return hidden, hidden @ weights["weight2"] + weights["bias2"]


def fit(graph: Graph, variant: str, seed: int) -> Fit:
    """Fit with the strengths that are best on the validation nodes, which are hidden like the test nodes."""
    features = normalize_rows(graph.features)
    part, held_out = visible_part(graph, features), features.select(graph.val)
    generator = torch.Generator().manual_seed(seed)
    start = _start(graph, generator)
    lower = min(1.0, FEW_CLASSES / graph.num_classes)

    def fitted(decay: float, smoothness: float) -> tuple[float, Weights]:
        plan = Plan(epochs=150, lr=0.01, weight_decay=decay, smoothness=smoothness)
        weights = train_smooth(part, network, start, plan, generator)
        right = network(held_out, weights)[1].argmax(1) == graph.labels[graph.val]
        return float(right.sum()), weights

    decays = tuple(decay * lower for decay in DECAYS)
    (decay, smoothness), weights = choose(graph, decays, SMOOTHNESS, fit=fitted)
    return Fit(Embedding(**weights), {"weight_decay": decay, "smoothness": smoothness})


def _start(graph: Graph, generator: torch.Generator) -> Weights:
    weights, dtype = {}, graph.features.dtype
    for number, (inputs, outputs) in enumerate(pairwise((graph.num_features, WIDTH, graph.num_classes)), 1):
        weights[f"weight{number}"] = glorot(inputs, outputs, generator, dtype)
        weights[f"bias{number}"] = torch.zeros(outputs, dtype=dtype)
    return weights
