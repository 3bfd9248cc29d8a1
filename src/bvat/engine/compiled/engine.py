"""The engine of a CPU: compiled loops where they pay, tensor operations elsewhere.

Every method decides by itself whether its loop applies (device, precision, shapes, numba installed) and calls
the tensor operations of :class:`bvat.engine.tensor.TensorEngine` otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bvat.engine.compiled import attention, backend
from bvat.engine.compiled.backend import LayeredPass
from bvat.engine.matrix import Matrix
from bvat.engine.tensor import TensorEngine, Trace
from bvat.errors import SettingsError


class CompiledEngine(TensorEngine):
    """One process with compiled loops."""

    def product(self, matrix: Matrix, dense: Tensor) -> Tensor:
        found = backend.product(matrix.crow, matrix.col, matrix.values, dense, matrix.shape[1])
        return super().product(matrix, dense) if found is None else found

    def transposed_product(self, matrix: Matrix, dense: Tensor) -> Tensor:
        found = backend.product(*matrix.transposed_tensors, dense, matrix.shape[0])
        return super().transposed_product(matrix, dense) if found is None else found

    def scattered_product(self, matrix: Matrix, dense: Tensor) -> Tensor:
        found = backend.scattered_product(matrix, dense)
        return super().scattered_product(matrix, dense) if found is None else found

    def gcn_forward(self, step: LayeredPass, projected: Tensor) -> tuple[Tensor, Trace]:
        found = backend.forward(step, projected)
        if found is None:
            return super().gcn_forward(step, projected)
        logits, hidden = found
        return logits, Trace(hidden, hidden)

    def gcn_backward(
        self, step: LayeredPass, trace: Trace, grad: Tensor, *, for_weights: bool
    ) -> tuple[Tensor, list[Tensor]]:
        found = backend.backward(step, trace.hidden, grad, for_weights=for_weights)
        return super().gcn_backward(step, trace, grad, for_weights=for_weights) if found is None else found

    def power_step(self, problem: Any, search: Any, last: Callable[[], Any]) -> tuple[Tensor, Tensor]:
        """Make search and loss in one loop: KL, factored space, receptive fields, a stack of GCN layers."""
        described = problem.layered_pass(None)
        fits = (
            described is not None
            and problem.space.name == "factored"
            and problem.divergence.name == "kl"
            and problem.rows is None
            and problem.owner is not None
            and backend.steps_on_fields(described, problem.clean_logits)
        )
        if not fits:
            return super().power_step(problem, search, last)
        (search_masks, search_base), (last_masks, last_base) = problem.next_pass(), last()
        first, second = list(problem.model.parameters())
        fixed = first.detach()
        step = backend.power_step_on_fields(
            (problem.layered_pass(search_masks), search_base),
            (problem.layered_pass(last_masks), last_base),
            problem.clean_logits,
            fixed.t() @ fixed,
            search.epsilon,
            problem.owner if search.norm == "field" else None,
        )
        gradients = step.for_base, step.direction.t() @ step.for_base, step.for_weight
        loss: Tensor = _StepLoss.apply(last_base, first, second, step.value, gradients)
        return loss if problem.share == 1 else problem.share * loss, step.row_squares

    def attention(
        self,
        pattern: Matrix,
        source: Tensor,
        target: Tensor,
        h: Tensor,
        mask: Tensor | None = None,
        slope: float = 0.2,
    ) -> Tensor:
        found = attention.attention(pattern.crow, pattern.col, source, target, slope, mask, h)
        if found is None:
            return super().attention(pattern, source, target, h, mask, slope)
        out: Tensor = _Attention.apply(pattern, source, target, slope, mask, h, found)
        return out

    def power_sum(
        self, adjacency: Matrix, ratio: float, steps: int, start: Tensor, *, transposed: bool = False
    ) -> Tensor:
        found = None
        if start.device.type == "cpu":
            crow, col, values = adjacency.transposed_arrays if transposed else adjacency.arrays
            scaled = values if ratio == 1 else values * values.dtype.type(ratio)
            found = backend.power_sum((crow, col, scaled), start, steps)
        if found is None:
            return super().power_sum(adjacency, ratio, steps, start, transposed=transposed)
        return found

    def kept_product(
        self, features: Any, dense: Tensor, share: Tensor | float, *, transposed: bool = False
    ) -> Tensor:
        found = backend.kept_product(features, dense, share, transposed=transposed)
        return super().kept_product(features, dense, share, transposed=transposed) if found is None else found


class _StepLoss(torch.autograd.Function):
    """The mean KL over chosen nodes with its gradients known: of P (m, H), of W1, and of W0 as Ŵ0 S."""

    @staticmethod
    def forward(
        ctx: Any, base: Tensor, first: Tensor, second: Tensor, value: Tensor, gradients: tuple[Tensor, ...]
    ) -> Tensor:
        ctx.save_for_backward(first, *gradients)
        return value.mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        first, for_base, for_first, for_second = ctx.saved_tensors
        scale = grads[0]
        return for_base * scale, first @ (for_first * scale), for_second * scale, None, None


class _Attention(torch.autograd.Function):
    """Attention from its result: all of it in one pass over the entries."""

    @staticmethod
    def forward(
        ctx: Any,
        pattern: Matrix,
        source: Tensor,
        target: Tensor,
        slope: float,
        mask: Tensor | None,
        h: Tensor,
        found: tuple[Tensor, Tensor],
    ) -> Tensor:
        ctx.pattern, ctx.slope = pattern, slope
        ctx.save_for_backward(source, target, mask, h, found[1])
        return found[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        source, target, mask, h, alpha = ctx.saved_tensors
        for_source, for_target, for_h = attention.attention_gradients(
            ctx.pattern.crow, ctx.pattern.col, source, target, ctx.slope, mask, h, alpha, grads[0]
        )
        return None, for_source, for_target, None, None, for_h, None


DEFAULT_ENGINE = CompiledEngine()
"""What matrices and graphs have unless they were given another: it keeps nothing."""


def find_engine(engine: str | TensorEngine) -> TensorEngine:
    """Return the engine of a name, "tensor" or "compiled", or the one given."""
    if not isinstance(engine, str):
        return engine
    named = {"tensor": TensorEngine(), "compiled": DEFAULT_ENGINE}
    if engine not in named:
        raise SettingsError(f"there is no engine {engine!r}: use tensor or compiled")
    return named[engine]
