"""Gradient training of small functions of the features that must differ little along edges.

L = CE(train) + weight_decay / 2 |weights|^2 + smoothness * mean over edges (i, j) of |h_i - h_j|^2
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bvat.baselines.base import VisiblePart
from bvat.graph.inputs import FeatureMatrix

PAIRS = 1000
"""Edges per step at most; of more, this many are drawn for each step."""

Weights = dict[str, Tensor]
Network = Callable[[FeatureMatrix, Weights], tuple[Tensor, Tensor]]
"""From features (m, D) and weights to what must be smooth (m, H) and the logits (m, C)."""


@dataclass(frozen=True)
class Plan:
    """How a function is trained."""

    epochs: int
    lr: float
    weight_decay: float
    smoothness: float


def train_smooth(
    part: VisiblePart, network: Network, weights: Weights, plan: Plan, generator: torch.Generator
) -> Weights:
    """Train by Adam from ``weights`` on all training nodes per step; return the trained weights."""
    trained = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
    optimizer = torch.optim.Adam(trained.values(), lr=plan.lr)
    batches = _batches(part, plan, generator)
    for _ in range(plan.epochs):
        features, train, pairs = next(batches)
        hidden, logits = network(features, trained)
        loss = F.cross_entropy(logits[train], part.labels)
        for name, tensor in trained.items():
            if not name.startswith("bias"):
                loss = loss + plan.weight_decay / 2 * tensor.square().sum()
        if pairs.numel():
            gap = hidden.index_select(0, pairs[0]) - hidden.index_select(0, pairs[1])
            loss = loss + plan.smoothness * gap.square().sum(1).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {name: tensor.detach() for name, tensor in trained.items()}


def _batches(
    part: VisiblePart, plan: Plan, generator: torch.Generator
) -> Iterator[tuple[Any, Tensor, Tensor]]:
    """Yield features, the rows of the training nodes in them, and pairs of rows (2, e) for every step."""
    edges = part.edges if plan.smoothness else torch.zeros(2, 0, dtype=torch.int64)
    fixed = _cut(part, edges) if edges.shape[1] <= PAIRS else None
    while True:
        if fixed is not None:
            yield fixed
        else:
            drawn = torch.randint(edges.shape[1], (PAIRS,), generator=generator)
            yield _cut(part, edges[:, drawn])


def _cut(part: VisiblePart, pairs: Tensor) -> tuple[Any, Tensor, Tensor]:
    """Return the features of the training nodes and the ends of the pairs, and where both are in them."""
    used, place = torch.cat([part.train, pairs.flatten()]).unique(return_inverse=True)  # type: ignore[no-untyped-call]
    count = part.train.numel()
    return part.features.select(used), place[:count], place[count:].view(2, -1)
