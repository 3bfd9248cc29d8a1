"""The graph convolutional network of Kipf and Welling (2017), with a closed-form backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bvat.engine.draws import Source, as_draws, dropout_factor
from bvat.graph.inputs import GraphInputs, layer_matrices
from bvat.models.base import Masks, Pullback
from bvat.models.layered import LinearLayers


class _Pass:
    """One pass of a GCN after its projection, and its backward pass in closed form, without autograd.

    ``A_1 = S_0 P``, then ``A_{l+1} = S_l (m_l * relu(A_l)) W_l`` for each further layer, where S_l, that is Â
    or the rows of it that a layer on receptive fields needs, is applied on the narrower side of W_l.

    Shapes: matrices S_l (n_l, n_{l-1}), weights W_l (H_l, H_{l+1}), masks m_l (>= n_l, H_l), projected P
    (N, H_1), logits (n_K, C).
    """

    def __init__(
        self, inputs: GraphInputs, masks: Masks | None, projected: Tensor, weights: Sequence[Tensor]
    ) -> None:
        self.engine, self.factor = inputs.engine, 1.0 if masks is None else masks.factor
        self.matrices = layer_matrices(inputs, len(weights) + 1)
        self.hidden: list[Tensor] = []  # H_l = m_l * relu(A_l), (n_l, H_l)
        self.inputs: list[Tensor] = []  # what W_l was multiplied with: H_l, or S_l H_l
        state = self.matrices[0].product(projected)
        for layer, weight in enumerate(weights):
            hidden = state.clamp_min_(0)
            if masks is not None:
                hidden.mul_(masks.hidden[layer][: hidden.shape[0]])
            matrix = self.matrices[layer + 1]
            multiplied = matrix.product(hidden) if _widens(weight) else hidden
            if _widens(weight):
                state = self.engine.times(multiplied, weight)
            else:
                state = matrix.product(self.engine.narrow_times(hidden, weight))
            self.hidden.append(hidden)
            self.inputs.append(multiplied)
        self.logits = state

    def pull(
        self, grad: Tensor, weights: Sequence[Tensor], *, for_weights: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Pull a gradient with respect to the logits back to the projected features and the weights.

        One recursion through Âᵀ: ``B = Âᵀ G``, ``dW_l = H_lᵀ B``, ``G = factor (B W_lᵀ) where H_l > 0``.
        Dropout and relu together pass the gradient on, times ``factor``, exactly where their output is
        positive.

        Shapes: grad (n_K, C); result (N, H_1) and, if ``for_weights``, one (H_l, H_{l+1}) per weight.
        """
        weight_grads: list[Tensor] = []
        layers = zip(self.matrices[1:], weights, self.hidden, self.inputs, strict=True)
        for matrix, weight, hidden, multiplied in reversed(list(layers)):
            if not _widens(weight):
                grad = matrix.transposed_product(grad)
            if for_weights:
                weight_grads.append(self.engine.node_product(multiplied, grad))
            grad = self.engine.times(grad, (self.factor * weight).t())
            if _widens(weight):
                grad = matrix.transposed_product(grad)
            grad = torch.ops.aten.threshold_backward(grad, hidden, 0)
        return self.matrices[0].transposed_product(grad), weight_grads[::-1]


def _widens(weight: Tensor) -> bool:
    return weight.shape[1] > weight.shape[0]


class _Propagate(torch.autograd.Function):
    """The layers after the projection as one node of the autograd graph."""

    @staticmethod
    def forward(
        ctx: Any, inputs: GraphInputs, masks: Masks | None, projected: Tensor, *weights: Tensor
    ) -> Tensor:
        ctx.step = _Pass(inputs, masks, projected, weights)
        ctx.save_for_backward(*weights)  # torch then notices weights that change before the backward pass
        logits: Tensor = ctx.step.logits
        del ctx.step.logits  # it would keep the graph of autograd alive
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        projected, weights = ctx.step.pull(grads[0], ctx.saved_tensors, for_weights=True)
        return None, None, projected, *weights


class GCN(LinearLayers):
    """Graph convolutional network, ``logits = Â dropout(relu(Â dropout(X) W0)) W1`` for two layers.

    Args:
        in_features, classes: D and C.
        hidden: width of the hidden layers.
        layers: K, at least 1; the receptive field of a node is its K-hop ball.
        dropout: rate for the input of every layer.
        generator: source of the Glorot-uniform weights; there are no biases.

    Example:
        >>> model = GCN(graph.num_features, graph.num_classes).eval()
        >>> logits = model(graph)  # (N, C)
    """

    perturbed_on = "fields"
    has_biases = False

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
        super().__init__(
            in_features, classes, hidden=hidden, layers=layers, dropout=dropout, generator=generator
        )

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

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None) -> Tensor:
        logits: Tensor = _Propagate.apply(inputs, masks, projected, *list(self.weights)[1:])  # type: ignore[no-untyped-call]
        return logits

    def linearize(
        self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None
    ) -> tuple[Tensor, Pullback]:
        """Return the logits (N, C) and their pullback in closed form, without autograd."""
        weights = [weight.detach() for weight in list(self.weights)[1:]]
        step = _Pass(inputs, masks, projected, weights)
        return step.logits, lambda grad: step.pull(grad, weights, for_weights=False)[0]
