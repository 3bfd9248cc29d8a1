"""A module of somebody else's, which knows nothing of bvat; tests name its classes as ``own_models:Net``."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor, nn

import bvat

if "OWN_MODELS_MARK" in os.environ:  # whoever imports this leaves a trace
    Path(os.environ["OWN_MODELS_MARK"]).write_text("imported")


class Net(nn.Module):
    """Two layers with batch normalisation and a sum over the neighbours."""

    def __init__(self, in_features: int, classes: int, rate: float = 0.5) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(in_features, 8, bias=False), nn.Linear(8, classes)
        self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout(rate)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.drop(self.norm(self.first(self.drop(x))).relu())
        spread = torch.zeros_like(h).index_add_(0, edge_index[1], h[edge_index[0]])
        logits: Tensor = self.last(h + spread)
        return logits


class Weighted(Net):
    """Takes edge weights, which it adds up."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        logits = super().forward(x, edge_index)
        return logits if edge_weight is None else logits * edge_weight.mean()


class Attributed(nn.Module):
    """Weighs neighbours by two attributes of the edges."""

    def __init__(self, in_features: int, classes: int) -> None:
        super().__init__()
        self.first, self.edges = nn.Linear(in_features, classes), nn.Linear(2, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        h = self.first(x)
        return h.index_add(0, edge_index[1], self.edges(edge_attr) * h[edge_index[0]])


class Curved(nn.Module):
    """Not linear in x, not even in its first layer."""

    def __init__(self, in_features: int, classes: int) -> None:
        super().__init__()
        self.last = nn.Linear(in_features, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(x.tanh())
        return logits


class NoSizes(nn.Module):
    """Cannot be called with two sizes."""

    def __init__(self) -> None:
        super().__init__()


def deep(in_features: int, classes: int) -> bvat.models.WrappedModule:
    """Return the module with what cannot be found out about it."""
    return bvat.wrap(Net(in_features, classes), depth=1)


def yes_or_no(in_features: int, classes: int) -> bvat.models.WrappedModule:
    """Return a module with one logit."""
    return bvat.wrap(Net(in_features, 1), depth=1)
