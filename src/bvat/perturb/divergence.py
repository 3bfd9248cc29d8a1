"""How far apart two predictions are, and the losses built on predictions, with closed-form gradients.

A softmax over a few classes works class-major, on (C, n): it vectorises over the nodes that way and is
twenty times faster than over the rows of (n, C).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bvat.kernels.compile import usable


class _KnownGradient(torch.autograd.Function):
    """A scalar whose gradient with respect to the logits has been worked out beside it."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, value: Tensor, gradient: Tensor, scale: float) -> Tensor:
        ctx.gradient, ctx.scale = gradient, scale
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.gradient * (grads[0] * ctx.scale), None, None, None


def with_gradient(logits: Tensor, value: Tensor, gradient: Tensor, scale: float = 1.0) -> Tensor:
    """Return ``value`` as a function of ``logits`` (n, C) with the gradient ``scale * gradient`` (n, C)."""
    attached: Tensor = _KnownGradient.apply(logits, value, gradient, scale)  # type: ignore[no-untyped-call]
    return attached


CLASS_MAJOR_UP_TO = 32
"""Number of classes up to which class-major is faster; beyond, the transposition costs more than it saves."""


def _layout(logits: Tensor) -> tuple[Tensor, int]:
    """Return the logits in the faster layout, (C, n) or (n, C), and which dimension holds the classes."""
    logits = logits.detach()
    if logits.shape[1] > CLASS_MAJOR_UP_TO:
        return logits, 1
    return logits.t().contiguous(), 0


def _rows(values: Tensor, dim: int) -> Tensor:
    """Undo :func:`_layout`: return (n, C), lying in memory as it is."""
    return values if dim == 1 else values.t()


def entropy(logits: Tensor) -> Tensor:
    """Mean conditional entropy ``1/n sum_u E(p_u)``, ``E(p) = -sum_k p_k log p_k`` (second term of Eq. 6).

    Shapes: logits (n, C); result a scalar. Gradient: ``dE/dl_k = -p_k (log p_k + E)``.
    """
    values, dim = _layout(logits)
    if values.dtype == torch.float32 and usable(values) and values.is_contiguous():
        from bvat.kernels.entropy import entropy_by_classes, entropy_by_nodes

        gradient = torch.empty_like(values)
        kernel = entropy_by_nodes if dim == 1 else entropy_by_classes
        total = kernel(values.numpy(), gradient.numpy())
        size = logits.shape[0]
        return with_gradient(logits, values.new_tensor(total / size), _rows(gradient, dim), -1 / size)
    log_p = torch.log_softmax(values, dim)
    p = log_p.exp()
    negative = torch.linalg.vecdot(p, log_p, dim=dim)  # -E of each node
    gradient = p.mul_(log_p.sub_(negative.unsqueeze(dim)))
    return with_gradient(logits, -negative.mean(), _rows(gradient, dim), -1 / negative.numel())


class Target(NamedTuple):
    """The clean side of a divergence, in the layout of :func:`_layout`."""

    p: Tensor
    log_p: Tensor
    size: int
    """How many nodes."""


def _target(logits: Tensor) -> Target:
    values, dim = _layout(logits)
    log_p = torch.log_softmax(values, dim)
    return Target(log_p.exp(), log_p, logits.shape[0])


class Divergence(Protocol):
    """A measure of how far a perturbed prediction is from the clean one, node by node."""

    def target(self, logits: Tensor) -> Target:
        """Prepare the clean side once from its logits (n, C); it carries no gradient."""

    def gradient(self, target: Target, logits: Tensor) -> Tensor:
        """Return the gradient of the sum over the nodes with respect to the logits, (n, C)."""

    def value_and_gradient(self, target: Target, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the divergence of each node (n) and its gradient with respect to the logits (n, C)."""


class KL:
    """``D_KL(p || q) = sum_k p_k (log p_k - log q_k)``, the divergence of the paper; gradient ``q - p``."""

    def target(self, logits: Tensor) -> Target:
        """Return p and log p."""
        return _target(logits)

    def gradient(self, target: Target, logits: Tensor) -> Tensor:
        """Return ``q - p`` (n, C)."""
        values, dim = _layout(logits)
        return _rows(torch.softmax(values, dim).sub_(target.p), dim)

    def value_and_gradient(self, target: Target, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return KL of each node (n) and ``q - p`` (n, C)."""
        values, dim = _layout(logits)
        log_q = torch.log_softmax(values, dim)
        # rounding can push a vanishing KL below zero by 1e-8
        value = (target.log_p - log_q).mul_(target.p).sum(dim).clamp_min_(0)
        return value, _rows(log_q.exp_().sub_(target.p), dim)


class SquaredError:
    """``sum_k (q_k - p_k)^2``, bounded by 2 where KL is not; as in the mean-teacher literature."""

    def target(self, logits: Tensor) -> Target:
        """Return p and log p."""
        return _target(logits)

    def gradient(self, target: Target, logits: Tensor) -> Tensor:
        """Return ``2 q (d - sum q d)``, d = q - p, (n, C)."""
        return self.value_and_gradient(target, logits)[1]

    def value_and_gradient(self, target: Target, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the squared error of each node (n) and ``2 q (d - sum q d)``, d = q - p, (n, C)."""
        values, dim = _layout(logits)
        q = torch.softmax(values, dim)
        d = q - target.p
        gradient = 2 * q * (d - (q * d).sum(dim, keepdim=True))
        return (d * d).sum(dim), _rows(gradient, dim)


DIVERGENCES: dict[str, type[KL] | type[SquaredError]] = {"kl": KL, "squared": SquaredError}
