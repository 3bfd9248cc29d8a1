"""The graph convolutional network of Kipf and Welling (2017), with a closed-form backward pass."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bvat.engine.draws import Source, as_draws, dropout_factor
from bvat.engine.tensor import LayeredPass
from bvat.graph.inputs import GraphInputs, layer_matrices
from bvat.models.base import Masks, Pullback
from bvat.models.layered import LayeredModel, glorot, layer_widths


class _Propagate(torch.autograd.Function):
    """The layers after the projection as one node of the autograd graph."""

    @staticmethod
    def forward(ctx: Any, engine: Any, step: LayeredPass, projected: Tensor, *weights: Tensor) -> Tensor:
        logits, trace = engine.gcn_forward(step._replace(weights=weights), projected)
        ctx.engine, ctx.step, ctx.trace = engine, step, trace
        ctx.save_for_backward(*weights)  # torch then notices weights that change before the backward pass
        found: Tensor = logits
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        step = ctx.step._replace(weights=ctx.saved_tensors)
        projected, weights = ctx.engine.gcn_backward(step, ctx.trace, grads[0], for_weights=True)
        return None, None, projected, *weights


class GCN(LayeredModel):
    """Graph convolutional network, ``logits = Â dropout(relu(Â dropout(X) W0)) W1`` for two layers.

    Args:
        in_features, classes, hidden, dropout: as for every :class:`LayeredModel`.
        layers: K, at least 1; the receptive field of a node is its K-hop ball.
        generator: source of the Glorot-uniform weights; there are no biases.

    Example:
        >>> model = GCN(graph.num_features, graph.num_classes).eval()
        >>> logits = model(graph)  # (N, C)
    """

    perturbed_on = "fields"

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        hidden: int = 16,
        layers: int = 2,
        dropout: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        widths = layer_widths(in_features, classes, hidden, layers)
        weights = (glorot(rows, columns, generator) for rows, columns in pairwise(widths))
        super().__init__(weights, dropout=dropout, hidden_widths=widths[1:-1])

    def draw_masks(
        self, inputs: GraphInputs, generator: Source | None = None, *, features: bool = True
    ) -> Masks | None:
        """Draw the dropout masks of one pass; None in eval mode or with a rate of 0.

        The hidden layers come first, each with as many rows as its layer computes.
        """
        if not self.training or self.dropout == 0:
            return None
        draws, like = as_draws(generator), self.projection().detach()
        hidden = tuple(
            draws.dropout_mask((matrix.shape[0], width), self.dropout, like)
            for matrix, width in zip(layer_matrices(inputs, self.depth), self.hidden_widths, strict=False)
        )
        first = draws.entry_mask(inputs.features, self.dropout) if features else None
        return Masks(first, hidden, dropout_factor(self.dropout))

    def layered_pass(self, inputs: GraphInputs, masks: Masks | None = None) -> LayeredPass:
        """Describe a pass in the form that compiled searches take."""
        weights = tuple(weight.detach() for weight in list(self.weights)[1:])
        matrices = layer_matrices(inputs, self.depth)
        drawn = () if masks is None else (masks.hidden, masks.factor)
        return LayeredPass(matrices, weights, *drawn)

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None) -> Tensor:
        logits: Tensor = _Propagate.apply(  # type: ignore[no-untyped-call]
            inputs.engine, self.layered_pass(inputs, masks), projected, *list(self.weights)[1:]
        )
        return logits

    def linearize(
        self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None
    ) -> tuple[Tensor, Pullback]:
        """Return the logits (N, C) and their pullback in closed form, without autograd."""
        step = self.layered_pass(inputs, masks)
        logits, trace = inputs.engine.gcn_forward(step, projected)

        def pullback(grad: Tensor) -> Tensor:
            return inputs.engine.gcn_backward(step, trace, grad, for_weights=False)[0]

        return logits, pullback
