"""Simple graph convolution: a linear model on features that spread over the graph."""

from __future__ import annotations

import torch
from torch import Tensor

from bvat.graph.inputs import GraphInputs
from bvat.models.base import Masks
from bvat.models.layered import LinearLayers
from bvat.models.table import SGCOptions


class SGC(LinearLayers):
    """Simple graph convolution, ``logits = Â^K dropout(X) W0`` (https://arxiv.org/abs/1902.07153).

    Args:
        in_features, classes: D and C.
        layers: K, at least 1.
        dropout: rate for the features; the paper has none.
        generator: source of the Glorot-uniform weights; there are no biases.

    Example:
        >>> logits = SGC(graph.num_features, graph.num_classes).eval()(graph)  # (N, C)
    """

    has_biases = False

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        layers: int = 2,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        SGCOptions(layers=layers)  # checks them
        super().__init__(in_features, classes, layers=1, dropout=dropout, generator=generator)
        self.layers = layers

    @property
    def depth(self) -> int:
        """K, the power of Â."""
        return self.layers

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None) -> Tensor:
        """Turn projected features (N, C) into logits (N, C)."""
        state = projected
        for _ in range(self.layers):
            state = inputs.propagation @ state
        return state
