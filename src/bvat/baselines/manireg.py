"""Manifold regularisation (Belkin, Niyogi, Sindhwani 2006) of a linear classifier, without test nodes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bvat.baselines.base import Fit, Frozen, VisiblePart, choose, visible_part
from bvat.baselines.smooth import Plan, Weights, train_smooth
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.graph.inputs import FeatureMatrix
from bvat.graph.repair import normalize_rows

DECAYS, SMOOTHNESS = (5e-4, 1e-4, 1e-3), (0.3, 0.0, 3.0)
"""The grid; the first of each is used where there are no validation nodes."""
RIDGES, LAPLACIANS = (1e-4, 1e-3, 1e-2), (0.0, 1e-6, 1e-4)
MOST_FEATURES = 20_000
"""Beyond this the matrix that LapRLS solves with is too large."""


class Linear(Frozen):
    """Logits X W + b. Shapes: weight (D, C), bias (C)."""

    shapes: ClassVar = {"weight": "DC", "bias": "C"}
    weight: Tensor
    bias: Tensor

    def forward(self, graph: Graph) -> Tensor:
        """Return the logits (N, C)."""
        return normalize_rows(graph.features) @ self.weight + self.bias


def fit(graph: Graph, variant: str, seed: int) -> Fit:
    """Fit with the strengths that are best on the validation nodes, which are hidden like the test nodes."""
    features = normalize_rows(graph.features)
    part = visible_part(graph, features)
    solver, grid = (laprls, (RIDGES, LAPLACIANS)) if variant == "laprls" else (gradient, (DECAYS, SMOOTHNESS))
    held_out, expected = features.select(graph.val), graph.labels[graph.val]

    def fitted(*strengths: float) -> tuple[float, Linear]:
        model = Linear(**solver(part, graph.num_classes, *strengths))
        scores = held_out @ model.weight + model.bias
        return float((scores.argmax(1) == expected).sum()), model

    strengths, model = choose(graph, *grid, fit=fitted)
    names = ("gamma_a", "gamma_i") if variant == "laprls" else ("weight_decay", "smoothness")
    return Fit(model, dict(zip(names, strengths, strict=True)))


def gradient(part: VisiblePart, classes: int, weight_decay: float, smoothness: float) -> Weights:
    """Minimise the loss of :mod:`bvat.baselines.smooth` with h = softmax of the logits, from zero."""
    dtype = part.features.dtype
    start = {
        "weight": torch.zeros(part.features.shape[1], classes, dtype=dtype),
        "bias": torch.zeros(classes, dtype=dtype),
    }

    def network(features: FeatureMatrix, weights: Weights) -> tuple[Tensor, Tensor]:
        logits = features @ weights["weight"] + weights["bias"]
        return logits.softmax(1), logits

    plan = Plan(epochs=100, lr=0.2, weight_decay=weight_decay, smoothness=smoothness)
    return train_smooth(part, network, start, plan, torch.Generator().manual_seed(0))


def laprls(part: VisiblePart, classes: int, gamma_a: float, gamma_i: float) -> Weights:
    """Solve W = (X_l' X_l / l + gamma_a I + gamma_i X' L X)^-1 X_l' Y_l / l, L the Laplacian D - A."""
    x: Any = sp.csr_array(part.features.to_scipy()).astype(np.float64)
    if x.shape[1] > MOST_FEATURES:
        raise SettingsError(
            f"laprls solves a system with as many unknowns as features, and {x.shape[1]} are too many: "
            "use --variant gradient"
        )
    labelled, count = x[part.train.numpy()], part.train.numel()
    onehot = np.eye(classes)[part.labels.numpy()]
    laplacian = sp.diags_array(part.adjacency.sum(axis=1)) - part.adjacency
    system = (labelled.T @ labelled / count + gamma_i * (x.T @ laplacian @ x)).toarray()
    system[np.diag_indices(x.shape[1])] += gamma_a
    weight = np.linalg.solve(system, labelled.T @ onehot / count)
    dtype = part.features.dtype
    return {"weight": torch.from_numpy(weight).to(dtype), "bias": torch.zeros(classes, dtype=dtype)}
