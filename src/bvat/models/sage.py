"""GraphSAGE with mean aggregation over whole neighbourhoods."""

from __future__ import annotations

import torch
from torch import Tensor

from bvat.graph.inputs import GraphInputs
from bvat.models.base import Masks
from bvat.models.layered import LinearLayers, dropped


class GraphSAGE(LinearLayers):
    """GraphSAGE (https://arxiv.org/abs/1706.02216), ``h'_v = relu(W_n mean_{u in N(v)} h_u + W_s h_v + b)``.

    Neighbourhoods are taken whole, their means are weighted by the edges, and the states are not scaled to
    unit length. Each layer's two maps lie side by side in one matrix ``[W_n | W_s]``. In the subgraph of
    K-hop balls the means of inner nodes are those of the whole graph; a rim node lacks neighbours, but its
    mean is never used.

    Args:
        in_features, classes, layers, dropout, generator: as for :class:`GCN`.
        hidden: width of the hidden layers; W0 is (D, 2 * hidden).

    Example:
        >>> logits = GraphSAGE(graph.num_features, graph.num_classes).eval()(graph)  # (N, C)
    """

    maps_per_layer = 2

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None) -> Tensor:
        """Turn projected features (N, 2 H) into logits (N, C)."""
        matrix, state, engine = inputs.propagation, projected, inputs.engine
        mean = matrix.kept("neighbour mean", matrix.neighbour_mean)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if layer:
                state = engine.times(dropped(torch.relu(state), masks, layer - 1), weight)
            from_neighbours, from_self = state.chunk(2, 1)
            state = engine.plus(mean @ from_neighbours.contiguous() + from_self, bias)
        return state
