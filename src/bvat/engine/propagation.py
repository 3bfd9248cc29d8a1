"""Random propagation: sums of powers of Â, and the perceptron behind them, with gradients in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bvat.engine.matrix import Matrix


class LayerSource(Protocol):
    """What the layers get their input (N, H) from, and where its gradient goes."""

    def forward(self, given: Tensor, /) -> Tensor:
        """Return a new tensor (N, H)."""

    def backward(self, grad: Tensor, /) -> Tensor:
        """Return the gradient for what was given."""


@dataclass(frozen=True)
class Spread:
    """``sum_{k <= steps} (ratio Â)^k (share ∘ P)`` as a function of P (N, H); share is a number or (N, 1)."""

    adjacency: Matrix
    ratio: float
    steps: int
    share: Any

    def sum(self, start: Tensor, *, transposed: bool = False) -> Tensor:
        power_sum = self.adjacency.engine.power_sum
        summed: Tensor = power_sum(self.adjacency, self.ratio, self.steps, start, transposed=transposed)
        return summed

    def forward(self, projected: Tensor) -> Tensor:
        return self.sum(projected * self.share)

    def backward(self, grad: Tensor) -> Tensor:
        summed = self.sum(grad, transposed=True)
        # without steps the sum is the gradient itself, which is not ours to change
        return summed.mul_(self.share) if self.steps else summed * self.share


@dataclass(frozen=True)
class SpreadFeatures:
    """The same of ``P = X (m ∘ W0)``, as a function of W0; columns is m (D) or None."""

    features: Any
    columns: Tensor | None
    spread: Spread

    def forward(self, weight: Tensor) -> Tensor:
        return self.spread.sum(self._product(self._masked(weight)))

    def backward(self, grad: Tensor) -> Tensor:
        return self._masked(self._product(self.spread.sum(grad, transposed=True), transposed=True))

    def _product(self, dense: Tensor, *, transposed: bool = False) -> Tensor:
        kept_product = self.features.engine.kept_product
        found: Tensor = kept_product(self.features, dense, self.spread.share, transposed=transposed)
        return found

    def _masked(self, weight: Tensor) -> Tensor:
        return weight if self.columns is None else weight * self.columns[:, None]


class _FromSource(torch.autograd.Function):
    """The input of the layers alone."""

    @staticmethod
    def forward(ctx: Any, source: LayerSource, given: Tensor) -> Tensor:
        ctx.source = source
        return source.forward(given)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, ctx.source.backward(grads[0])


def from_source(source: LayerSource, given: Tensor) -> Tensor:
    """Return ``source.forward(given)``, differentiable."""
    found: Tensor = _FromSource.apply(source, given)  # type: ignore[no-untyped-call]
    return found


class _TwoLayers(torch.autograd.Function):
    """``mask * relu(Z + b0) @ W1 + b1`` with its gradients; keeps one array of N x H numbers."""

    @staticmethod
    def forward(
        ctx: Any, engine: Any, source: LayerSource, given: Tensor, mask: Tensor | None, factor: float,
        *weights: Tensor,
    ) -> Tensor:  # fmt: skip
        b0, w1, b1 = weights
        hidden = source.forward(given).add_(b0).clamp_min_(0)
        if mask is not None:
            hidden.mul_(mask)
        ctx.save_for_backward(hidden, w1)
        ctx.engine, ctx.source, ctx.factor = engine, source, 1.0 if mask is None else factor
        logits: Tensor = engine.narrow_times(hidden, w1).add_(b1)
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (hidden, w1), grad, engine = ctx.saved_tensors, grads[0], ctx.engine
        # dropout and relu together pass the gradient on, times ``factor``, where their output is positive
        for_state = torch.ops.aten.threshold_backward(engine.times(grad, (ctx.factor * w1).t()), hidden, 0)
        sums = engine.column_sums(for_state), engine.node_product(hidden, grad), engine.column_sums(grad)
        return None, None, ctx.source.backward(for_state), None, None, *sums


class _NormalisedLayers(torch.autograd.Function):
    """``mask * norm(relu(Z + b0)) @ W1 + b1`` with its gradients; g and b are those of the normalisation."""

    @staticmethod
    def forward(
        ctx: Any, engine: Any, source: LayerSource, norm: Any, given: Tensor, mask: Tensor | None,
        *weights: Tensor,
    ) -> Tensor:  # fmt: skip
        b0, w1, b1, g, b = weights
        r = source.forward(given).add_(b0).clamp_min_(0)
        running = norm.running_mean, norm.running_var
        hidden, mean, unit = torch.native_batch_norm(
            r, g, b, *running, norm.training, norm.momentum, norm.eps
        )
        norm.num_batches_tracked += norm.training
        if mask is not None:
            hidden.mul_(mask)
        ctx.save_for_backward(r, hidden, mask, w1, g, mean, unit)
        ctx.engine, ctx.source, ctx.norm, ctx.batch = engine, source, norm, norm.training
        logits: Tensor = engine.narrow_times(hidden, w1).add_(b1)
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        r, hidden, mask, w1, g, mean, unit = ctx.saved_tensors
        norm, grad, engine = ctx.norm, grads[0], ctx.engine
        for_hidden = engine.times(grad, w1.t())
        if mask is not None:
            for_hidden.mul_(mask)
        for_r, for_g, for_b = torch.ops.aten.native_batch_norm_backward(
            for_hidden, r, g, norm.running_mean, norm.running_var, mean, unit, ctx.batch, norm.eps, [True] * 3
        )
        for_state = torch.ops.aten.threshold_backward(for_r, r, 0)
        sums = engine.column_sums(for_state), engine.node_product(hidden, grad), engine.column_sums(grad)
        return None, None, None, ctx.source.backward(for_state), None, *sums, for_g, for_b


class PropagationMath:
    """The operations of random propagation on tensors."""

    def kept_product(
        self, features: Any, dense: Tensor, share: Tensor | float, *, transposed: bool = False
    ) -> Tensor:
        """Return ``share ∘ (X dense)``, or transposed ``Xᵀ (share ∘ dense)``, without autograd.

        Shapes: X (N, D), dense (D, H) or transposed (N, H); share is a number or (N, 1), with zeros for the
        nodes that are dropped.
        """
        if transposed:
            found: Tensor = features.transposed_product(dense * share)
            return found
        found = features.product(dense)
        return found.mul_(share)

    def power_sum(
        self, adjacency: Matrix, ratio: float, steps: int, start: Tensor, *, transposed: bool = False
    ) -> Tensor:
        """Return ``sum_{k <= K} (rÂ)^k start`` by Horner's rule, without autograd; start, result (N, H)."""
        product = adjacency.transposed_product if transposed else adjacency.product
        state = start
        for _ in range(steps):
            state = product(state).mul_(ratio).add_(start)
        return state

    def two_layers(
        self, source: LayerSource, given: Tensor, mask: Tensor | None, factor: float, weights: Any
    ) -> Tensor:
        """Return ``mask * relu(Z + b0) @ W1 + b1`` with ``Z = source.forward(given)``, differentiable.

        Shapes: mask (N, H) with entries 0 and ``factor``, weights b0 (H), W1 (H, C), b1 (C); result (N, C).
        """
        logits: Tensor = _TwoLayers.apply(self, source, given, mask, factor, *weights)  # type: ignore[no-untyped-call]
        return logits

    def normalised_layers(
        self, source: LayerSource, norm: nn.BatchNorm1d, given: Tensor, mask: Tensor | None, weights: Any
    ) -> Tensor:
        """Return the same with the batch normalisation of the hidden layer before its mask."""
        parameters = (*weights, norm.weight, norm.bias)
        logits: Tensor = _NormalisedLayers.apply(self, source, norm, given, mask, *parameters)  # type: ignore[no-untyped-call]
        return logits
