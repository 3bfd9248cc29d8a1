"""The graph convolutional network of Kipf and Welling (2017), with a closed-form backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bvat.errors import SettingsError
from bvat.graph import GraphInputs
from bvat.graph.fields import Fields
from bvat.graph.sparse import SparseMatrix
from bvat.kernels.compile import usable
from bvat.models.base import (
    Masks,
    Pullback,
    dropout_factor,
    dropout_mask,
    dropped_features,
    feature_mask,
)

Layers = Sequence[SparseMatrix]
"""Â once a layer; for receptive fields each layer has its own rows of it."""


class Trace(NamedTuple):
    """What the backward pass needs of the forward pass."""

    hidden: list[Tensor]  # dropout(relu(A_l)), (N, H_l)
    inputs: list[Tensor]  # what W_l was multiplied with: hidden, or Â hidden, (N, H_l)


def layers_of(inputs: GraphInputs, depth: int) -> Layers:
    """Return the matrix of each of ``depth`` layers, first layer first."""
    return inputs.layers if isinstance(inputs, Fields) else (inputs.propagation,) * depth


def gcn_forward(
    layers: Layers, projected: Tensor, weights: tuple[Tensor, ...], masks: tuple[Tensor, ...]
) -> tuple[Tensor, Trace]:
    """Return the logits of a GCN given its projected features, without autograd.

    ``A_1 = Â P``, then for each further layer ``A_{l+1} = Â dropout(relu(A_l)) W_l``, where Â is applied on
    the narrower side of W_l.

    Shapes: projected (N, H_1), weights W_l (H_l, H_{l+1}), masks (N, H_l); logits (N, C).
    """
    if runs_compiled(projected, weights) and _fit(layers, projected, weights, masks):
        return _compiled_forward(layers, projected, weights, masks)
    trace = Trace([], [])
    state = layers[0].product(projected)
    for layer, weight in enumerate(weights):
        hidden = state.clamp_min_(0)
        if masks:
            hidden.mul_(masks[layer][: hidden.shape[0]])
        trace.hidden.append(hidden)
        matrix = layers[layer + 1]
        if _widens(weight):
            trace.inputs.append(matrix.product(hidden))
            state = trace.inputs[-1] @ weight
        else:
            trace.inputs.append(hidden)
            # by columns: a product with few columns is several times faster that way, and so is softmax
            state = matrix.product((weight.t() @ hidden.t()).t())
    return state, trace


def gcn_backward(
    layers: Layers,
    weights: tuple[Tensor, ...],
    trace: Trace,
    grad: Tensor,
    *,
    factor: float,
    for_weights: bool,
) -> tuple[Tensor, list[Tensor]]:
    """Pull a gradient with respect to the logits back to the projected features and the weights.

    One recursion through Âᵀ: ``B = Âᵀ G``, ``dW_l = H_lᵀ B``, ``G = factor (B W_lᵀ) where H_l > 0``. Dropout
    and relu together let the gradient through, times ``factor``, exactly where their output is positive.

    Shapes: grad (N, C); result (N, H_1) and one (H_l, H_{l+1}) a weight (none unless ``for_weights``).
    """
    compiled = runs_compiled(grad, weights) and all(hidden.is_contiguous() for hidden in trace.hidden)
    if compiled:
        grad = _packed(grad)
    weight_grads: list[Tensor] = []
    for matrix, weight, hidden, multiplied in zip(
        reversed(layers[1:]), reversed(weights), reversed(trace.hidden), reversed(trace.inputs), strict=True
    ):
        widens = _widens(weight)
        if not widens:
            grad = matrix.transposed_product(grad)
        if for_weights:
            weight_grads.append((multiplied.t() @ grad)[:, : weight.shape[1]])
        if compiled:
            grad = _compiled_step_back(grad, weight, hidden, factor)
            continue
        grad = grad @ (factor * weight).t()
        if widens:
            grad = matrix.transposed_product(grad)
        grad = torch.ops.aten.threshold_backward(grad, hidden, 0)
    return layers[0].transposed_product(grad), weight_grads[::-1]


def _widens(weight: Tensor) -> bool:
    return weight.shape[1] > weight.shape[0]


def runs_compiled(tensor: Tensor, weights: tuple[Tensor, ...]) -> bool:
    """Tell whether the compiled layers fit: hidden layers of whole vectors, none wider than the last."""
    return (
        bool(weights)
        and all(not _widens(weight) and weight.shape[0] % 16 == 0 for weight in weights)
        and usable(tensor, *weights)
    )


def _fit(layers: Layers, projected: Tensor, weights: tuple[Tensor, ...], masks: tuple[Tensor, ...]) -> bool:
    """Tell whether shapes, precisions and the masks' layout match, which compiled loops do not check.

    Those that torch cannot multiply either, it refuses.
    """
    widths = [projected.shape[1], *(weight.shape[1] for weight in weights)]
    return (
        projected.shape[0] == layers[0].shape[1]
        and all(weight.shape[0] == width for weight, width in zip(weights, widths, strict=False))
        and all(
            mask.is_contiguous()
            and mask.shape[1] == width
            and (mask.shape[0] == 1 or mask.shape[0] >= matrix.shape[0])
            for mask, width, matrix in zip(masks, widths, layers, strict=False)
        )
        and usable(projected, *masks, *(matrix.values for matrix in layers))
    )


def _compiled_forward(
    layers: Layers, projected: Tensor, weights: tuple[Tensor, ...], masks: tuple[Tensor, ...]
) -> tuple[Tensor, Trace]:
    """Do what :func:`gcn_forward` does: each layer in one pass over its rows."""
    from bvat.kernels import products

    hidden_layers: list[Tensor] = []
    state = projected.detach().contiguous()
    for layer, weight in enumerate(weights):
        matrix, width = layers[layer], weight.shape[0]
        hidden = state.new_empty(matrix.shape[0], width)
        out = state.new_empty(matrix.shape[0], products.padded_width(weight.shape[1]))
        mask = masks[layer] if masks else state.new_ones(1, width)
        products.layer_forward(
            *matrix.arrays, state.numpy(), mask.numpy(), weight.detach().numpy(), hidden.numpy(), out.numpy()
        )
        hidden_layers.append(hidden)
        state = out
    logits = state.new_empty(weights[-1].shape[1], layers[-1].shape[0])
    products.product_by_columns(*layers[-1].arrays, state.numpy(), logits.numpy())
    return logits.t(), Trace(hidden_layers, hidden_layers)


def _packed(grad: Tensor) -> Tensor:
    """Return a gradient (N, C) by rows, with columns of zeros up to whole vectors."""
    from bvat.kernels import products

    result = grad.new_empty(grad.shape[0], products.padded_width(grad.shape[1]))
    products.pack(grad.detach().t().contiguous().numpy(), result.numpy())
    return result


def _compiled_step_back(summed: Tensor, weight: Tensor, hidden: Tensor, factor: float) -> Tensor:
    """Return ``factor (summed Wᵀ) where hidden > 0``; summed (N, C) padded, weight (H, c), hidden (N, H)."""
    from bvat.kernels import products

    result = torch.empty_like(hidden)
    products.layer_backward(summed.numpy(), weight.detach().numpy(), hidden.numpy(), factor, result.numpy())
    return result


class _Propagate(torch.autograd.Function):
    """The layers after the projection as one node of the autograd graph."""

    @staticmethod
    def forward(ctx: Any, layers: Layers, masks: Masks | None, projected: Tensor, *weights: Tensor) -> Tensor:
        logits, trace = gcn_forward(layers, projected, weights, masks.hidden if masks else ())
        ctx.layers, ctx.trace, ctx.factor = layers, trace, masks.factor if masks else 1.0
        ctx.save_for_backward(*weights)  # torch then notices weights that change before the backward pass
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        projected, weights = gcn_backward(
            ctx.layers, ctx.saved_tensors, ctx.trace, grads[0], factor=ctx.factor, for_weights=True
        )
        return None, None, projected, *weights


class GCN(nn.Module):
    """Graph convolutional network, ``logits = Â dropout(relu(Â dropout(X) W0)) W1`` for two layers.

    Args:
        in_features: D.
        classes: C.
        hidden: width of the hidden layers.
        layers: K, at least 1; the receptive field of a node is its K-hop ball.
        dropout: rate for the input of every layer.
        generator: source of the Glorot-uniform weights; there are no biases.

    Example:
        >>> model = GCN(graph.num_features, graph.num_classes)
        >>> logits = model(graph)  # (N, C)
    """

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
        super().__init__()
        if layers < 1 or hidden < 1:
            raise SettingsError(f"a GCN needs layers >= 1 and hidden >= 1, not {layers} and {hidden}")
        if not 0 <= dropout < 1:
            raise SettingsError(f"dropout must be at least 0 and below 1, not {dropout}")
        widths = [in_features, *[hidden] * (layers - 1), classes]
        self.dropout = dropout
        self.weights = nn.ParameterList(
            glorot(rows, columns, generator) for rows, columns in pairwise(widths)
        )

    takes_fields = True
    """Whether inputs may be :class:`bvat.graph.fields.Fields`, which a regulariser then uses."""

    @property
    def depth(self) -> int:
        """K, the number of layers."""
        return len(self.weights)

    def projection(self) -> Tensor:
        """W0, shape (D, H)."""
        first: Tensor = self.weights[0]
        return first

    def _later_weights(self) -> list[Tensor]:
        return list(self.weights)[1:]

    def draw_masks(
        self, inputs: GraphInputs, generator: torch.Generator | None = None, *, features: bool = True
    ) -> Masks | None:
        """Draw the dropout masks of one pass; None when the model is in eval mode or its rate is 0."""
        if not self.training or self.dropout == 0:
            return None
        weights = self._later_weights()
        hidden = tuple(
            dropout_mask((matrix.shape[0], weight.shape[0]), self.dropout, weight.detach(), generator)
            for matrix, weight in zip(layers_of(inputs, self.depth), weights, strict=False)
        )
        first = feature_mask(inputs, self.dropout, generator) if features else None
        return Masks(first, hidden, dropout_factor(self.dropout))

    def restrict_masks(self, masks: Masks | None, inputs: GraphInputs, nodes: Tensor) -> Masks | None:
        """Return the part of the masks that concerns the subgraph on ``nodes``."""
        return None if masks is None else masks.restrict(inputs.features, nodes)

    def project(self, inputs: GraphInputs, masks: Masks | None = None) -> Tensor:
        """Return dropout(X) W0, shape (N, H)."""
        return dropped_features(inputs.features, masks.features if masks else None) @ self.projection()

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None) -> Tensor:
        """Turn projected features (N, H) into logits (N, C)."""
        logits: Tensor = _Propagate.apply(  # type: ignore[no-untyped-call]
            layers_of(inputs, self.depth), masks, projected, *self._later_weights()
        )
        return logits

    def linearize(
        self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None
    ) -> tuple[Tensor, Pullback]:
        """Return the logits (N, C) and their pullback in closed form, without autograd."""
        weights = tuple(weight.detach() for weight in self._later_weights())
        layers, factor = layers_of(inputs, self.depth), masks.factor if masks else 1.0
        logits, trace = gcn_forward(layers, projected, weights, masks.hidden if masks else ())

        def pullback(grad: Tensor) -> Tensor:
            return gcn_backward(layers, weights, trace, grad, factor=factor, for_weights=False)[0]

        return logits, pullback

    def forward(self, inputs: GraphInputs, masks: Masks | None = None) -> Tensor:
        """Return the logits, shape (N, C); in training mode masks are drawn unless they are given."""
        if masks is None:
            masks = self.draw_masks(inputs)
        return self.propagate(inputs, self.project(inputs, masks), masks)


def glorot(rows: int, columns: int, generator: torch.Generator | None = None) -> nn.Parameter:
    """Return a parameter drawn uniformly from ±sqrt(6 / (rows + columns)); shape (rows, columns)."""
    bound = (6.0 / (rows + columns)) ** 0.5
    return nn.Parameter(torch.empty(rows, columns).uniform_(-bound, bound, generator=generator))
