"""The graph attention network."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bvat.errors import SettingsError
from bvat.graph.inputs import GraphInputs
from bvat.models.attention import attend, edge_softmax
from bvat.models.layered import EdgeMasks, LayeredModel, dropped, glorot, layer_widths


class GAT(LayeredModel):
    """Graph attention network (https://arxiv.org/abs/1710.10903).

    ``h'_i = elu(sum_{j in N(i) + i} dropout(alpha_ij) h_j W + b)``, ``alpha_ij`` the softmax over j of
    ``leaky_relu(s . h_j W + t . h_i W)`` (slope 0.2), each head by itself and the heads side by side; the
    last layer has one head and no elu. Edge weights are not used.

    Args:
        in_features: D.
        classes: C.
        hidden: width of the hidden layers, all heads together: a multiple of ``heads``.
        layers: K, at least 1.
        dropout: rate for the input of every layer and for the attention.
        generator: source of the Glorot-uniform weights; biases start at 0.
        heads: number of heads of the hidden layers.

    Example:
        >>> logits = GAT(graph.num_features, graph.num_classes).eval()(graph)  # (N, C)
    """

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.6,
        generator: torch.Generator | None = None,
        heads: int = 8,
    ) -> None:
        widths = layer_widths(in_features, classes, hidden, layers)
        if heads < 1 or hidden % heads:
            raise SettingsError(f"hidden must be a multiple of the {heads} attention heads, not {hidden}")
        heads_of = [*[heads] * (layers - 1), 1]
        super().__init__(
            (glorot(rows, columns, generator) for rows, columns in pairwise(widths)),
            biases=widths[1:],
            dropout=dropout,
            hidden_widths=widths[1:-1],
            edge_widths=heads_of,
        )
        shapes = [(h, width // h) for h, width in zip(heads_of, widths[1:], strict=True)]
        self.source = nn.ParameterList(glorot(*shape, generator) for shape in shapes)  # s, (heads, F)
        self.target = nn.ParameterList(glorot(*shape, generator) for shape in shapes)  # t, (heads, F)

    @property
    def depth(self) -> int:
        """K, the number of layers."""
        return len(self.weights)

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: EdgeMasks | None = None) -> Tensor:
        """Turn projected features (N, H) into logits (N, C)."""
        pattern, state = inputs.propagation, projected
        for layer, (source, target) in enumerate(zip(self.source, self.target, strict=True)):
            if layer:
                state = dropped(F.elu(state), masks, layer - 1) @ self.weights[layer]
            h = state.view(-1, *source.shape)  # (N, heads, F)
            scores = (h * source).sum(2).index_select(0, pattern.col)
            scores = scores + (h * target).sum(2).index_select(0, pattern.rows)
            alpha = edge_softmax(pattern, F.leaky_relu(scores, 0.2))
            if masks is not None:
                alpha = alpha * masks.edges[layer]
            state = attend(pattern, alpha, h).flatten(1) + self.biases[layer]
        return state
