"""Models to audit, and ordinary passes to compare an audit with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bvat.engine.dense import DenseMatrix
from bvat.graph import Graph


def build(kind: Any, graph: Graph, **options: Any) -> Any:
    """Return a model whose predictions differ from node to node."""
    generator = torch.Generator().manual_seed(3)
    model = kind(graph.num_features, graph.num_classes, generator=generator, **options).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4)
    return model


def dense_features(graph: Graph) -> Tensor:
    return graph.features.to_dense()


def logits_with(model: Any, graph: Graph, r: Tensor) -> Tensor:
    """Return the logits (N, C) of an ordinary pass over the features X + R, all N x D of them."""
    with torch.no_grad():
        return model(graph.with_features(DenseMatrix(dense_features(graph) + r, graph.engine)))
