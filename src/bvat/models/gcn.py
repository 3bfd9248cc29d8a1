"""The graph convolutional network of Kipf and Welling (2017), with a closed-form backward pass."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bvat.engine.compiled import backend
from bvat.engine.compiled.backend import LayeredPass
from bvat.engine.compiled.layout import thin_product, times
from bvat.engine.world import current
from bvat.graph.inputs import GraphInputs, layer_matrices
from bvat.models.base import Masks, Pullback, dropout_factor, dropout_mask, feature_mask
from bvat.models.layered import LayeredModel, glorot, layer_widths


class Trace(NamedTuple):
    """What the backward pass needs of the forward pass."""

    hidden: list[Tensor]  # H_l = dropout(relu(A_l)), (N, H_l)
    inputs: list[Tensor]  # what W_l was multiplied with: H_l, or Â H_l, (N, H_l)


def forward_pass(step: LayeredPass, projected: Tensor) -> tuple[Tensor, Trace]:
    """Return the logits of a GCN given its projected features, without autograd.

    ``A_1 = Â P``, then for each further layer ``A_{l+1} = Â dropout(relu(A_l)) W_l``, where Â is applied on
    the narrower side of W_l.

    Shapes: projected P (N, H_1); logits (N, C).
    """
    twin = backend.forward(step, projected)
    if twin is not None:
        logits, hidden_layers = twin
        return logits, Trace(hidden_layers, hidden_layers)
    trace = Trace([], [])
    state = step.matrices[0].product(projected)
    for layer, weight in enumerate(step.weights):
        hidden = state.clamp_min_(0)
        if step.masks:
            hidden.mul_(step.masks[layer][: hidden.shape[0]])
        matrix = step.matrices[layer + 1]
        multiplied = matrix.product(hidden) if _widens(weight) else hidden
        state = times(multiplied, weight) if _widens(weight) else matrix.product(thin_product(hidden, weight))
        trace.hidden.append(hidden)
        trace.inputs.append(multiplied)
    return state, trace


def backward_pass(
    step: LayeredPass, trace: Trace, grad: Tensor, *, for_weights: bool
) -> tuple[Tensor, list[Tensor]]:
    """Pull a gradient with respect to the logits back to the projected features and the weights.

    One recursion through Âᵀ: ``B = Âᵀ G``, ``dW_l = H_lᵀ B``, ``G = factor (B W_lᵀ) where H_l > 0``. Dropout
    and relu together pass the gradient on, times ``factor``, exactly where their output is positive.

    Shapes: grad (N, C); result (N, H_1) and one (H_l, H_{l+1}) per weight (none unless ``for_weights``).
    """
    twin = backend.backward(step, trace.hidden, grad, for_weights=for_weights)
    if twin is not None:
        return twin
    weight_grads: list[Tensor] = []
    for matrix, weight, hidden, multiplied in zip(
        reversed(step.matrices[1:]),
        reversed(step.weights),
        reversed(trace.hidden),
        reversed(trace.inputs),
        strict=True,
    ):
        if not _widens(weight):
            grad = matrix.transposed_product(grad)
        if for_weights:
            weight_grads.append(current().node_product(multiplied, grad))
        grad = times(grad, (step.factor * weight).t())
        if _widens(weight):
            grad = matrix.transposed_product(grad)
        grad = torch.ops.aten.threshold_backward(grad, hidden, 0)
    return step.matrices[0].transposed_product(grad), weight_grads[::-1]


def _widens(weight: Tensor) -> bool:
    return weight.shape[1] > weight.shape[0]


class _Propagate(torch.autograd.Function):
    """The layers after the projection as one node of the autograd graph."""

    @staticmethod
    def forward(ctx: Any, step: LayeredPass, projected: Tensor, *weights: Tensor) -> Tensor:
        logits, trace = forward_pass(step._replace(weights=weights), projected)
        ctx.step, ctx.trace = step, trace
        ctx.save_for_backward(*weights)  # torch then notices weights that change before the backward pass
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        step = ctx.step._replace(weights=ctx.saved_tensors)
        projected, weights = backward_pass(step, ctx.trace, grads[0], for_weights=True)
        return None, projected, *weights


class GCN(LayeredModel):
    """Graph convolutional network, ``logits = Â dropout(relu(Â dropout(X) W0)) W1`` for two layers.

    Args:
        in_features: D.
        classes: C.
        hidden: width of the hidden layers.
        layers: K, at least 1; the receptive field of a node is its K-hop ball.
        dropout: rate for the input of every layer.
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

    @property
    def depth(self) -> int:
        """K, the number of layers."""
        return len(self.weights)

    def draw_masks(
        self, inputs: GraphInputs, generator: torch.Generator | None = None, *, features: bool = True
    ) -> Masks | None:
        """Draw the dropout masks of one pass; None in eval mode or with a rate of 0.

        The hidden layers come first, each with as many rows as its layer computes.
        """
        if not self.training or self.dropout == 0:
            return None
        like = self.projection().detach()
        hidden = tuple(
            dropout_mask((matrix.shape[0], width), self.dropout, like, generator)
            for matrix, width in zip(layer_matrices(inputs, self.depth), self.hidden_widths, strict=False)
        )
        first = feature_mask(inputs, self.dropout, generator) if features else None
        return Masks(first, hidden, dropout_factor(self.dropout))

    def layered_pass(self, inputs: GraphInputs, masks: Masks | None = None) -> LayeredPass:
        """Describe a pass in the form that compiled searches take."""
        weights = tuple(weight.detach() for weight in list(self.weights)[1:])
        matrices = layer_matrices(inputs, self.depth)
        return (
            LayeredPass(matrices, weights)
            if masks is None
            else LayeredPass(matrices, weights, masks.hidden, masks.factor)
        )

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None) -> Tensor:
        """Turn projected features (N, H) into logits (N, C)."""
        logits: Tensor = _Propagate.apply(  # type: ignore[no-untyped-call]
            self.layered_pass(inputs, masks), projected, *list(self.weights)[1:]
        )
        return logits

    def linearize(
        self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None
    ) -> tuple[Tensor, Pullback]:
        """Return the logits (N, C) and their pullback in closed form, without autograd."""
        step = self.layered_pass(inputs, masks)
        logits, trace = forward_pass(step, projected)

        def pullback(grad: Tensor) -> Tensor:
            return backward_pass(step, trace, grad, for_weights=False)[0]

        return logits, pullback
