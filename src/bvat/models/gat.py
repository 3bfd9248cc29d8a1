"""The graph attention network."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bvat.engine.draws import Draws
from bvat.errors import GraphError, SettingsError
from bvat.graph.inputs import GraphInputs
from bvat.models.base import Masks
from bvat.models.layered import LayeredModel, side_by_side
from bvat.models.table import GATOptions


class GAT(LayeredModel):
    """Graph attention network (https://arxiv.org/abs/1710.10903).

    ``h'_i = elu(sum_{j in N(i) + i} dropout(alpha_ij) dropout(h_j W) + b)``, ``alpha_ij`` the softmax over j
    of ``leaky_relu(s . h_j W + t . h_i W)`` (slope 0.2), each head by itself and the heads side by side; the
    heads of the last layer are averaged and there is no elu. Every head draws its own dropout of its input
    ``h_j``, as in the authors' code. Edge weights are not used. Attributes e_ij add ``e_ij U`` to the scores
    before the leaky relu, as in PyG with ``edge_dim``; those of j = i are the mean of what i reads.

    Args:
        in_features, classes, layers, generator: as for :class:`GCN`.
        hidden: width of the hidden layers, all heads together: a multiple of ``heads``.
        dropout: rate for the input of every head, for what it projects the input to, and for the attention.
        heads: number of heads of the hidden layers.
        output_heads: number of heads of the last layer, which are averaged.
        edge_features: F, number of attributes of an edge; each layer has U (F, heads).

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
        output_heads: int = 1,
        edge_features: int = 0,
    ) -> None:
        GATOptions(hidden=hidden, layers=layers, dropout=dropout)  # checks them
        GATOptions(heads=heads, output_heads=output_heads)
        widths = [in_features, *[hidden] * (layers - 1), classes]
        if hidden % heads:
            raise SettingsError(f"hidden must be a multiple of the {heads} attention heads, not {hidden}")
        shapes = [*[(heads, hidden // heads)] * (layers - 1), (output_heads, classes)]  # heads and F
        inputs = [width * count for width, (count, _) in zip(widths[1:-1], shapes[1:], strict=True)]
        super().__init__(
            (
                side_by_side(rows, f, count, generator)
                for rows, (count, f) in zip(widths[:-1], shapes, strict=True)
            ),
            biases=widths[1:],
            dropout=dropout,
            hidden_widths=[*inputs, *[count * f for count, f in shapes]],  # inputs of heads, then projections
            edge_widths=[count for count, _ in shapes],
        )
        self.source = nn.ParameterList(_scoring(*shape, generator) for shape in shapes)  # s, (heads, F)
        self.target = nn.ParameterList(_scoring(*shape, generator) for shape in shapes)  # t, (heads, F)
        self.edge_features = edge_features
        of_edges = (count for count, _ in shapes if edge_features)
        self.edge = nn.ParameterList(side_by_side(edge_features, 1, n, generator) for n in of_edges)  # U

    def draw_feature_mask(self, inputs: GraphInputs, draws: Draws) -> Tensor:
        """Draw the mask of the features, one per head, which is the last axis."""
        values, heads = inputs.features.values, len(self.source[0])
        return draws.coarse_mask((*values.shape, heads), self.dropout, values)

    def draw_hidden_mask(self, shape: tuple[int, int], like: Tensor, draws: Draws) -> Tensor:
        """Draw the mask of a hidden layer, for all heads side by side."""
        return draws.coarse_mask(shape, self.dropout, like)

    def project(self, inputs: GraphInputs, masks: Masks | None = None) -> Tensor:
        """Return dropout(X) W0 with a mask for the columns of each head, shape (N, H)."""
        if masks is None or masks.features is None:
            return super().project(inputs)
        weight = self.projection().view(-1, *self.source[0].shape)
        heads = zip(masks.features.unbind(-1), weight.unbind(1), strict=True)
        return torch.cat([inputs.features.masked(kept) @ part.contiguous() for kept, part in heads], 1)

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None) -> Tensor:
        pattern, state, engine = inputs.propagation, projected, inputs.engine
        attributes = self._attributes(inputs)
        for layer, (source, target) in enumerate(zip(self.source, self.target, strict=True)):
            h = self._heads(F.elu(state), masks, layer) if layer else state.view(-1, *source.shape)
            of_source, of_target = (h.flatten(1) @ _scoring_matrix(source, target)).chunk(2, 1)
            of_edges = None if attributes is None else attributes @ self.edge[layer]
            if masks is None:
                state = engine.attention(pattern, of_source, of_target, h, None, of_edges)
            else:
                kept = h * masks.hidden[self.depth - 1 + layer].view_as(h)
                state = engine.attention(pattern, of_source, of_target, kept, masks.edges[layer], of_edges)
            last = layer == self.depth - 1
            state = (state.mean(1) if last else state.flatten(1)) + self.biases[layer]
        return state

    def _attributes(self, inputs: GraphInputs) -> Tensor | None:
        """Return the attributes (nnz, F) of the entries of Â; None if the model reads none."""
        if not self.edge_features:
            return None
        found = inputs.edge_inputs
        if found is None or found.shape[1] != self.edge_features:
            there = 0 if found is None else found.shape[1]
            raise GraphError(
                f"the model reads {self.edge_features} edge attributes, and the graph has {there}: give a "
                "graph with those of the training graph"
            )
        return found

    def _heads(self, state: Tensor, masks: Masks | None, layer: int) -> Tensor:
        """Return the input of a layer projected by each of its heads; state (N, H), result (N, heads, F)."""
        shape, weight = self.source[layer].shape, self.weights[layer]
        if masks is None:
            return torch.mm(state, weight).view(-1, *shape)
        mask = masks.hidden[layer - 1].view(-1, shape[0], state.shape[1])
        return torch.einsum("nhi,ihf->nhf", state[:, None] * mask, weight.view(-1, *shape))


def _scoring_matrix(*vectors: Tensor) -> Tensor:
    """Return the matrix (heads F, heads k) that scores (n, heads F) by k vectors (heads, F) of each head."""
    return torch.cat([torch.block_diag(*vector.unsqueeze(2)) for vector in vectors], 1)  # type: ignore[no-untyped-call]


def _scoring(heads: int, width: int, generator: torch.Generator | None) -> nn.Parameter:
    """Return the vectors that score the nodes, Glorot-uniform for one output each; shape (heads, width)."""
    return nn.Parameter(side_by_side(width, 1, heads, generator).detach().t().contiguous())
