"""The multilayer perceptron, which does not see the graph."""

from __future__ import annotations

import torch
from torch import Tensor

from bvat.graph.inputs import GraphInputs
from bvat.models.base import Masks
from bvat.models.layered import LayeredModel, dropped, linear_layers


class MLP(LayeredModel):
    """Multilayer perceptron, ``logits = dropout(relu(dropout(X) W0 + b0)) W1 + b1`` for two layers.

    Args:
        in_features, classes, hidden, dropout, generator: as for every :class:`LayeredModel`.
        layers: number of linear maps, at least 1.
        bias: whether there are biases.

    Example:
        >>> logits = MLP(graph.num_features, graph.num_classes).eval()(graph)  # (N, C)
    """

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        generator: torch.Generator | None = None,
        bias: bool = True,
    ) -> None:
        shared = linear_layers(in_features, classes, hidden, layers, generator)
        super().__init__(**shared | ({} if bias else {"biases": ()}), dropout=dropout)

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
