"""The multilayer perceptron, which does not see the graph."""

from __future__ import annotations

import torch
from torch import Tensor

from bvat.graph.inputs import GraphInputs
from bvat.models.base import Masks
from bvat.models.layered import LinearLayers, dropped


class MLP(LinearLayers):
    """Multilayer perceptron, ``logits = dropout(relu(dropout(X) W0 + b0)) W1 + b1`` for two layers.

    Args:
        in_features, classes, hidden, dropout, generator: as for :class:`GCN`.
        layers: number of linear maps, at least 1.

    Example:
        >>> logits = MLP(graph.num_features, graph.num_classes).eval()(graph)  # (N, C)
    """

    @property
    def depth(self) -> int:
        """0: a node's prediction depends on its own features only."""
        return 0

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None) -> Tensor:
        state, engine = projected, inputs.engine
        for layer, weight in enumerate(self.weights):
            if layer:
                state = engine.times(dropped(torch.relu(state), masks, layer - 1), weight)
            if len(self.biases):
                state = engine.plus(state, self.biases[layer])
        return state
