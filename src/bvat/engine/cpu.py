"""The engine of a CPU: compiled loops where they pay, tensor operations elsewhere.

Every method decides by itself whether its loop applies (device, precision, shapes that fill whole vectors,
numba installed) and calls the tensor operations of :class:`bvat.engine.tensor.TensorEngine` otherwise. Loops
check nothing. Shapes that torch cannot multiply either are left to torch, which refuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bvat.engine.compiled import arrays_of, usable
from bvat.engine.compiled.attention import Attention
from bvat.engine.matrix import Matrix, padded_width
from bvat.engine.tensor import LayeredPass, TensorEngine, Trace
from bvat.errors import SettingsError


class CompiledEngine(TensorEngine):
    """One process with compiled loops."""

    def scattered_product(self, matrix: Matrix, dense: Tensor) -> Tensor:
        if dense.shape[0] != matrix.shape[0] or not usable(matrix.values, dense):
            return super().scattered_product(matrix, dense)
        from bvat.engine.compiled import loops

        result = dense.new_empty(matrix.shape[1], dense.shape[1])
        loops.scattered_product(matrix.arrays, *arrays_of(dense, result))
        return result

    def power_sum(
        self, adjacency: Matrix, ratio: float, steps: int, start: Tensor, *, transposed: bool = False
    ) -> Tensor:
        fits = start.shape[0] == adjacency.shape[0] and start.shape[1] % 16 == 0 and steps
        if not fits or not usable(start, adjacency.values):
            return super().power_sum(adjacency, ratio, steps, start, transposed=transposed)
        from bvat.engine.compiled import loops

        crow, col, values = adjacency.transposed_arrays if transposed else adjacency.arrays
        scaled = values if ratio == 1 else values * values.dtype.type(ratio)
        result, other = start.new_empty(start.shape), start.new_empty(start.shape)
        loops.power_sum((crow, col, scaled), *arrays_of(start), steps, *arrays_of(result, other))
        return result

    def gcn_forward(self, step: LayeredPass, projected: Tensor) -> tuple[Tensor, Trace]:
        if not _layers_fit(step, projected):
            return super().gcn_forward(step, projected)
        from bvat.engine.compiled import loops

        state, hidden_layers = projected, []
        for layer, weight in enumerate(step.weights):
            matrix, width = step.matrices[layer], weight.shape[0]
            hidden = state.new_empty(matrix.shape[0], width)
            out = state.new_empty(matrix.shape[0], padded_width(weight.shape[1]))
            mask = step.masks[layer] if step.masks else state.new_ones(1, width)
            loops.layer_forward(matrix.arrays, *arrays_of(state, mask, weight, hidden, out))
            hidden_layers.append(hidden)
            state = out
        logits = step.matrices[-1].product(state)[:, : step.weights[-1].shape[1]]
        return logits, Trace(hidden_layers, hidden_layers)

    def gcn_backward(
        self, step: LayeredPass, trace: Trace, grad: Tensor, *, for_weights: bool
    ) -> tuple[Tensor, list[Tensor]]:
        fits = _widths_fit(step.weights) and all(hidden.is_contiguous() for hidden in trace.hidden)
        if not fits or not usable(grad, *step.weights):
            return super().gcn_backward(step, trace, grad, for_weights=for_weights)
        from bvat.engine.compiled import loops

        weight_grads = []
        slopes, grad = grad, grad.new_zeros(grad.shape[0], padded_width(grad.shape[1]))
        grad[:, : slopes.shape[1]] = slopes
        layers = zip(step.matrices[1:], step.weights, trace.hidden, strict=True)
        for matrix, weight, hidden in reversed(list(layers)):
            summed = matrix.transposed_product(grad)
            if for_weights:
                weight_grads.append(self.node_product(hidden, summed)[:, : weight.shape[1]])
            grad = torch.empty_like(hidden)
            given, back = arrays_of(summed, weight)
            loops.layer_backward(given, back, np.float32(step.factor), *arrays_of(hidden, grad))
        return step.matrices[0].transposed_product(grad), weight_grads[::-1]

    def power_step(self, problem: Any, search: Any, last: Callable[[], Any]) -> tuple[Tensor, Tensor]:
        """Make search and loss in one loop: KL, factored space, receptive fields, a GCN of two layers."""
        described = problem.layered_pass(None)
        fits = (
            described is not None
            and problem.space.name == "factored"
            and problem.divergence.name == "kl"
            and problem.rows is None
            and problem.owner is not None
            and len(described.weights) == 1
            and _widths_fit(described.weights)
            and usable(problem.clean_logits, *described.weights, *(m.values for m in described.matrices))
        )
        if not fits:
            return super().power_step(problem, search, last)
        from bvat.engine.compiled import searches

        (masks, base), (last_masks, last_base) = problem.next_pass(), last()
        searching, final = problem.layered_pass(masks), problem.layered_pass(last_masks)
        inner, outer = final.matrices
        first, second = list(problem.model.parameters())
        fixed = first.detach()
        ones, nobody = fixed.new_ones(1, fixed.shape[1]), torch.empty(0, dtype=torch.int64)
        mask, last_mask = (each.masks[0] if each.masks else ones for each in (searching, final))
        results = searches.fields_step(
            inner.arrays,
            (outer.shape[0], *inner.shape, padded_width(second.shape[1])),
            *arrays_of(problem.clean_logits.t()),
            tuple(arrays_of(base, mask, last_base, last_mask)),
            tuple(arrays_of(second, fixed.t() @ fixed)),
            (np.float32(final.factor), np.float32(search.epsilon)),
            *arrays_of(problem.owner if search.norm == "field" else nobody),
        )
        value, squares, direction, for_base, hidden, summed = map(torch.from_numpy, results)
        for_second = self.node_product(hidden, summed)[:, : second.shape[1]]
        gradients = for_base, direction.t() @ for_base, for_second
        loss: Tensor = _StepLoss.apply(last_base, first, second, value, gradients)  # type: ignore[no-untyped-call]
        return loss if problem.share == 1 else problem.share * loss, squares

    def attention(
        self, pattern: Matrix, source: Tensor, target: Tensor, h: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        if not h.numel() or not usable(source, target, h):
            return super().attention(pattern, source, target, h, mask)
        out: Tensor = Attention.apply(pattern, source, target, h, mask)  # type: ignore[no-untyped-call]
        return out


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


def _widths_fit(weights: Sequence[Tensor]) -> bool:
    """Return whether hidden layers fill whole vectors, none narrower than the next."""
    return bool(weights) and all(
        weight.shape[1] <= weight.shape[0] and weight.shape[0] % 16 == 0 for weight in weights
    )


def _layers_fit(step: LayeredPass, projected: Tensor) -> bool:
    """Return whether shapes, precisions and the layout of the masks suit the compiled layers."""
    widths = [projected.shape[1], *(weight.shape[1] for weight in step.weights)]
    return (
        _widths_fit(step.weights)
        and projected.shape[0] == step.matrices[0].shape[1]
        and all(weight.shape[0] == width for weight, width in zip(step.weights, widths, strict=False))
        and all(
            mask.is_contiguous()
            and mask.shape[1] == width
            and (mask.shape[0] == 1 or mask.shape[0] >= matrix.shape[0])
            for mask, width, matrix in zip(step.masks, widths, step.matrices, strict=False)
        )
        and usable(projected, *step.weights, *step.masks, *(matrix.values for matrix in step.matrices))
    )


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
