"""APPNP: a perceptron whose predictions spread over the graph."""

from __future__ import annotations

import torch
from torch import Tensor

from bvat.graph.inputs import GraphInputs
from bvat.models.base import Masks
from bvat.models.mlp import MLP
from bvat.models.table import APPNPOptions


class APPNP(MLP):
    """Approximate personalised propagation of neural predictions (https://arxiv.org/abs/1810.05997).

    ``Z_0 = H``, ``Z_{k+1} = (1 - t) dropout(Â) Z_k + t H`` for k < K, logits Z_K, where H (N, C) is what a
    perceptron without biases makes of the features.

    Args:
        in_features, classes: as for :class:`GCN`.
        hidden: width of the perceptron's hidden layers.
        layers: its number of linear maps, at least 1.
        dropout: rate for the input of every linear map and for the entries of Â in every step.
        generator: source of the Glorot-uniform weights.
        power_steps: K, how far predictions spread.
        teleport: t, the paper's alpha: how much of its own prediction a node keeps in each step.

    Example:
        >>> logits = APPNP(graph.num_features, graph.num_classes).eval()(graph)  # (N, C)
    """

    has_biases = False

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        power_steps: int = 10,
        teleport: float = 0.1,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        APPNPOptions(power_steps=power_steps, teleport=teleport)  # checks them
        super().__init__(
            in_features, classes, hidden=hidden, layers=layers, dropout=dropout, generator=generator
        )
        self.edge_widths = (1,) * power_steps
        self.power_steps, self.teleport = power_steps, teleport

    @property
    def depth(self) -> int:
        """K, the number of power steps."""
        return self.power_steps

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None) -> Tensor:
        own = super().propagate(inputs, projected, masks)
        state, adjacency = own, inputs.propagation
        for step in range(self.power_steps):
            if masks is not None:
                adjacency = inputs.propagation.masked(masks.edges[step])
            state = (1 - self.teleport) * (adjacency @ state) + self.teleport * own
        return state
