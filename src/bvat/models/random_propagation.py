"""Random propagation: a perceptron on features that spread over the graph from a random half of the nodes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bvat.engine.compiled import backend, rowwise
from bvat.engine.compiled.layout import narrow_product, times
from bvat.engine.sparse import SparseMatrix
from bvat.engine.world import current
from bvat.errors import SettingsError
from bvat.graph.inputs import GraphInputs
from bvat.models.base import coarse_dropout_mask, dropout_factor
from bvat.models.layered import LayeredModel, glorot, layer_widths


@dataclass(frozen=True)
class PropagationMasks:
    """Masks of one pass: factors 0 or 1 / (1 - rate); None where the rate is 0.

    Shapes: features (D), one factor per column of X; nodes (N, 1); hidden: one (N, H_l) per hidden layer.
    """

    features: Tensor | None
    nodes: Tensor | None
    hidden: tuple[Tensor, ...]


class _Source(Protocol):
    """What the layers get their input (N, H) from, and where its gradient goes."""

    def forward(self, given: Tensor, /) -> Tensor:
        """Return a new tensor (N, H)."""

    def backward(self, grad: Tensor, /) -> Tensor:
        """Return the gradient for what was given."""


class _TwoLayers(torch.autograd.Function):
    """``mask * relu(sum_k (rÂ)^k (s ∘ P) + b0) @ W1 + b1`` with its gradients in closed form.

    It keeps one array of N x H numbers, the hidden layer. Backwards, the sum is that over Âᵀ.
    Shapes: P (N, H), s a number or (N, 1), mask (N, H) or None, b0 (H), W1 (H, C), b1 (C); result (N, C).
    """

    @staticmethod
    def forward(
        ctx: Any, spread: _Source, projected: Tensor, mask: Tensor | None, factor: float, *weights: Tensor
    ) -> Tensor:
        b0, w1, b1 = weights
        hidden = spread.forward(projected).add_(b0).clamp_min_(0)
        if mask is not None:
            hidden.mul_(mask)
        ctx.save_for_backward(hidden, w1)
        ctx.spread, ctx.factor = spread, 1.0 if mask is None else factor
        return narrow_product(hidden, w1).add_(b1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, w1 = ctx.saved_tensors
        grad = grads[0]
        # dropout and relu together pass the gradient on, times ``factor``, where their output is positive
        for_state = torch.ops.aten.threshold_backward(times(grad, (ctx.factor * w1).t()), hidden, 0)
        here = current()
        sums = here.column_sums(for_state), here.node_product(hidden, grad), here.column_sums(grad)
        return None, ctx.spread.backward(for_state), None, None, *sums


class _NormalisedLayers(torch.autograd.Function):
    """The same with the batch normalisation of the hidden layer before its mask.

    Shapes: as in :class:`_TwoLayers`, and g (H) and b (H), the factors and shifts of the normalisation.
    """

    @staticmethod
    def forward(
        ctx: Any, spread: _Source, norm: nn.BatchNorm1d, projected: Tensor, mask: Tensor | None, *rest: Tensor
    ) -> Tensor:
        b0, w1, b1, g, b = rest
        r = spread.forward(projected).add_(b0).clamp_min_(0)
        running = norm.running_mean, norm.running_var
        hidden, mean, unit = torch.native_batch_norm(
            r, g, b, *running, norm.training, norm.momentum, norm.eps
        )
        if norm.training:
            norm.num_batches_tracked += 1  # type: ignore[operator]
        if mask is not None:
            hidden.mul_(mask)
        ctx.save_for_backward(r, hidden, mask, w1, g, mean, unit)
        ctx.spread, ctx.norm, ctx.batch = spread, norm, norm.training
        return narrow_product(hidden, w1).add_(b1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        r, hidden, mask, w1, g, mean, unit = ctx.saved_tensors
        norm, grad = ctx.norm, grads[0]
        for_hidden = grad @ w1.t()
        if mask is not None:
            for_hidden.mul_(mask)
        for_r, for_g, for_b = torch.ops.aten.native_batch_norm_backward(
            for_hidden, r, g, norm.running_mean, norm.running_var, mean, unit, ctx.batch, norm.eps, [True] * 3
        )
        for_state = torch.ops.aten.threshold_backward(for_r, r, 0)
        rest = for_state.sum(0), hidden.t() @ grad, grad.sum(0), for_g, for_b
        return None, None, ctx.spread.backward(for_state), None, *rest


class _PowerSum(torch.autograd.Function):
    """``sum_k (rÂ)^k (s ∘ P)`` alone; shapes: P and result (N, H)."""

    @staticmethod
    def forward(ctx: Any, spread: _Source, projected: Tensor) -> Tensor:
        ctx.spread = spread
        return spread.forward(projected)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, ctx.spread.backward(grads[0])


@dataclass(frozen=True)
class _Spread:
    """``sum_{k <= steps} (ratio Â)^k (share ∘ P)``; share is a number or (N, 1)."""

    adjacency: SparseMatrix
    ratio: float
    steps: int
    share: Any

    def forward(self, projected: Tensor) -> Tensor:
        return power_sum(self.adjacency, self.ratio, self.steps, projected * self.share)

    def backward(self, grad: Tensor) -> Tensor:
        summed = power_sum(self.adjacency, self.ratio, self.steps, grad, transposed=True)
        # without steps the sum is the gradient itself, which is not ours to change
        return summed.mul_(self.share) if self.steps else summed * self.share


@dataclass(frozen=True)
class _SpreadFeatures:
    """The same of ``P = X (m ∘ W0)``, as a function of W0; columns is m (D) or None.

    Rows that are dropped, and their gradients, are not computed.
    """

    features: Any
    columns: Tensor | None
    spread: _Spread

    def forward(self, weight: Tensor) -> Tensor:
        spread, kept = self.spread, self._masked(weight)
        start = self.features.product(kept) * spread.share
        return power_sum(spread.adjacency, spread.ratio, spread.steps, start)

    def backward(self, grad: Tensor) -> Tensor:
        spread = self.spread
        summed = power_sum(spread.adjacency, spread.ratio, spread.steps, grad, transposed=True)
        return self._masked(self.features.transposed_product(summed * spread.share))

    def _masked(self, weight: Tensor) -> Tensor:
        return weight if self.columns is None else weight * self.columns[:, None]


def power_sum(
    adjacency: SparseMatrix, ratio: float, steps: int, start: Tensor, *, transposed: bool = False
) -> Tensor:
    """Return ``sum_{k <= K} (rÂ)^k start`` by Horner's rule, without autograd; start and result (N, H)."""
    if start.device.type == "cpu" and not rowwise.active():
        crow, col, values = adjacency.transposed_arrays if transposed else adjacency.arrays
        scaled = values if ratio == 1 else values * values.dtype.type(ratio)
        twin = backend.power_sum((crow, col, scaled), start, steps)
        if twin is not None:
            return twin
    product = adjacency.transposed_product if transposed else adjacency.product
    state = start
    for _ in range(steps):
        state = product(state).mul_(ratio).add_(start)
    return state


def spreading_weights(kind: str, steps: int, teleport: float) -> tuple[float, float]:
    """Return theta_0 and r of the weights ``theta_k = theta_0 r^k``, k <= K, which sum to 1.

    All are equal ("mean", r = 1), or they fall by r = 1 - t ("pagerank").
    """
    ratio = 1.0 if kind == "mean" else 1 - teleport
    return 1 / sum(ratio**k for k in range(steps + 1)), ratio


class RandomPropagation(LayeredModel):
    """Random propagation, the model of GRAND (Feng et al., 2020, https://arxiv.org/abs/2005.11079).

    ``Z = sum_k theta_k Â^k D X (m ∘ W0)``, ``logits = dropout(relu(Z + b0)) W1 + b1`` for two layers, where
    D drops whole nodes and m drops columns of X, the same for all nodes. Propagation is linear, so it
    commutes with W0 and runs on N x H instead of N x D. Nothing is dropped in evaluation mode.

    Args:
        in_features: D.
        classes: C.
        hidden: width of the hidden layers.
        layers: number of linear maps, at least 1.
        dropout: rate for the hidden layers.
        generator: source of the Glorot-uniform weights; biases start at 0.
        power_steps: K, how far features spread.
        teleport: t of the weights "pagerank".
        spread: weights theta: "pagerank" (``∝ (1 - t)^k``) or "mean" (all equal).
        node_dropout: share of the nodes whose features are dropped.
        input_dropout: share of the columns of X that are dropped.
        batch_norm: whether the hidden layers are normalised over the nodes, before their dropout, and W0
            stands for ``g ∘ W0`` with a learnt factor g per column of X. That is all that GRAND's
            normalisation of its propagated input does for features whose columns have been scaled.

    Example:
        >>> logits = RandomPropagation(graph.num_features, graph.num_classes).eval()(graph)  # (N, C)
    """

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        hidden: int = 32,
        layers: int = 2,
        dropout: float = 0.5,
        generator: torch.Generator | None = None,
        power_steps: int = 10,
        teleport: float = 0.1,
        spread: Literal["pagerank", "mean"] = "pagerank",
        node_dropout: float = 0.5,
        input_dropout: float = 0.5,
        batch_norm: bool = False,
    ) -> None:
        if power_steps < 0 or not 0 <= teleport <= 1 or spread not in ("pagerank", "mean"):
            raise SettingsError(
                "RandomPropagation needs power_steps >= 0, teleport from 0 to 1 and spread 'pagerank' "
                f"or 'mean', not {power_steps}, {teleport} and {spread!r}"
            )
        if not 0 <= node_dropout < 1 or not 0 <= input_dropout < 1:
            raise SettingsError(
                f"node_dropout and input_dropout must be at least 0 and below 1, not {node_dropout} and "
                f"{input_dropout}"
            )
        widths = layer_widths(in_features, classes, hidden, layers)
        super().__init__(
            (glorot(rows, columns, generator) for rows, columns in pairwise(widths)),
            biases=widths[1:],
            dropout=dropout,
            hidden_widths=widths[1:-1],
        )
        self.power_steps = power_steps
        self.first_share, self.ratio = spreading_weights(spread, power_steps, teleport)
        self.node_dropout, self.input_dropout = node_dropout, input_dropout
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in widths[1:-1] if batch_norm)
        self.columns = nn.Parameter(torch.ones(in_features)) if batch_norm else None

    def projection(self) -> Tensor:
        """W0 with the factors of the columns of X, shape (D, H)."""
        return self.first_weight if self.columns is None else self.first_weight * self.columns[:, None]

    @property
    def depth(self) -> int:
        """K, the number of power steps."""
        return self.power_steps

    def draw_masks(
        self, inputs: GraphInputs, generator: torch.Generator | None = None, *, features: bool = True
    ) -> PropagationMasks | None:
        """Draw the masks of one pass; None in eval mode or if nothing is dropped."""
        if not self.training or not (self.dropout or self.node_dropout or self.input_dropout):
            return None
        like, rows = self.first_weight.detach(), inputs.propagation.shape[0]

        def draw(shape: tuple[int, ...], rate: float) -> Tensor | None:
            return coarse_dropout_mask(shape, rate, like, generator) if rate else None

        hidden = (draw((rows, width), self.dropout) for width in self.hidden_widths)
        return PropagationMasks(
            features=draw((inputs.features.shape[1],), self.input_dropout) if features else None,
            nodes=draw((rows, 1), self.node_dropout),
            hidden=tuple(mask for mask in hidden if mask is not None),
        )

    def restrict_masks(self, masks: PropagationMasks | None, inputs: GraphInputs, nodes: Tensor) -> Any:
        """Return the part of the masks that concerns the subgraph on ``nodes``."""
        if masks is None:
            return None
        kept = None if masks.nodes is None else masks.nodes[nodes]
        return PropagationMasks(masks.features, kept, tuple(m[nodes] for m in masks.hidden))

    def project(self, inputs: GraphInputs, masks: PropagationMasks | None = None) -> Tensor:  # type: ignore[override]
        """Return ``X (m ∘ W0)``, shape (N, H)."""
        first = self.projection()
        if masks is not None and masks.features is not None:
            return inputs.features @ (first * masks.features[:, None])
        return inputs.features @ first

    def propagate(
        self, inputs: GraphInputs, projected: Tensor, masks: PropagationMasks | None = None
    ) -> Tensor:
        """Turn projected features (N, H) into logits (N, C)."""
        return self._layers(self._spread(inputs, masks), projected, masks)

    def whole_pass(self, inputs: GraphInputs, masks: PropagationMasks | None = None) -> Tensor:
        """Return what ``propagate`` returns for ``project``, without computing what is dropped."""
        if current().rowwise:
            return self.propagate(inputs, self.project(inputs, masks), masks)
        columns = None if masks is None else masks.features
        source = _SpreadFeatures(inputs.features, columns, self._spread(inputs, masks))
        return self._layers(source, self.projection(), masks)

    def forward(
        self, inputs: GraphInputs, masks: Any = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the logits, shape (N, C); see :meth:`LayeredModel.forward`."""
        return self.whole_pass(inputs, self.draw_masks(inputs, generator) if masks is None else masks)

    def _spread(self, inputs: GraphInputs, masks: PropagationMasks | None) -> _Spread:
        share: Any = self.first_share
        if masks is not None and masks.nodes is not None:
            share = masks.nodes * share
        return _Spread(inputs.propagation, self.ratio, self.power_steps, share)

    def _layers(self, source: _Source, given: Tensor, masks: PropagationMasks | None) -> Tensor:
        """Return the logits of ``source.forward(given)``, (N, H)."""
        if len(self.weights) == 2:
            mask = masks.hidden[0] if masks is not None and masks.hidden else None
            weights: Any = (self.biases[0], self.weights[1], self.biases[1])
            logits: Tensor
            if not len(self.norms):
                factor = dropout_factor(self.dropout, 8)
                logits = _TwoLayers.apply(source, given, mask, factor, *weights)  # type: ignore[no-untyped-call]
                return logits if logits.requires_grad else logits.contiguous()  # argmax is faster along rows
            norm: Any = self.norms[0]
            weights += norm.weight, norm.bias
            logits = _NormalisedLayers.apply(source, norm, given, mask, *weights)  # type: ignore[no-untyped-call]
            return logits if logits.requires_grad else logits.contiguous()
        state: Tensor = _PowerSum.apply(source, given)  # type: ignore[no-untyped-call]
        for layer, weight in enumerate(self.weights):
            if layer:
                state = torch.relu(state)
                if len(self.norms):
                    state = self.norms[layer - 1](state)
                if masks is not None and masks.hidden:
                    state = state * masks.hidden[layer - 1]
                state = current().times(state, weight)
            state = current().plus(state, self.biases[layer])
        return state
