"""Random propagation: sums of powers of Â with gradients in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
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
