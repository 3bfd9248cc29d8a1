"""The engine of a CPU: compiled loops where they pay, tensor operations elsewhere.

Every method decides by itself whether its loop applies (device, precision, shapes, numba installed) and calls
the tensor operations of :class:`bvat.engine.tensor.TensorEngine` otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bvat.engine.compiled import attention_backend, backend, propagation_backend
from bvat.engine.compiled.backend import LayeredPass
from bvat.engine.matrix import Matrix
from bvat.engine.propagation import LayerSource
from bvat.engine.tensor import AdamSteps, TensorEngine, Trace, by_nodes, class_major, with_gradient
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

    def entropy(self, logits: Tensor) -> Tensor:
        values, classes = class_major(logits)
        found = backend.entropy(values, classes)
        if found is None:
            return super().entropy(logits)
        total, gradient = found
        value = values.new_tensor(total / logits.shape[0])
        return with_gradient(logits, value, by_nodes(gradient, classes), -1 / logits.shape[0])

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

    def adam_ascent(self, problem: Any, r: Tensor, moments: dict[str, Tensor], ascent: AdamSteps) -> None:
        """Make all steps at once: KL at all nodes, factored space, one set of masks, layers of a GCN."""
        made = False
        whole = problem.owner is None and problem.rows is None and problem.weights is None
        if (
            whole
            and problem.space.upper is not None
            and problem.divergence.name == "kl"
            and problem.same_passes
        ):
            masks, base = problem.next_pass()
            step = problem.layered_pass(masks)
            made = step is not None and backend.adam_ascent(
                step,
                base,
                problem.space.upper,
                problem.clean.p,
                r,
                moments,
                steps=ascent.steps,
                step_size=ascent.step_size,
                betas=ascent.betas,
                penalty=ascent.penalty,
                scale=1 / ascent.divisor,
            )
        if not made:
            super().adam_ascent(problem, r, moments, ascent)

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

    def edge_dots(self, pattern: Matrix, left: Tensor, right: Tensor) -> Tensor:
        found = attention_backend.edge_dots(pattern.crow, pattern.col, left, right)
        return super().edge_dots(pattern, left, right) if found is None else found

    def attention(
        self,
        pattern: Matrix,
        source: Tensor,
        target: Tensor,
        h: Tensor,
        mask: Tensor | None = None,
        slope: float = 0.2,
    ) -> Tensor:
        found = attention_backend.attention(pattern.crow, pattern.col, source, target, slope, mask, h)
        if found is None:
            return super().attention(pattern, source, target, h, mask, slope)
        out: Tensor = _Attention.apply(pattern, source, target, slope, mask, h, found)
        return out

    def head_projection(self, state: Tensor, mask: Tensor, weight: Tensor) -> Tensor:
        found = attention_backend.head_projection(state, mask, weight)
        if found is None:
            return super().head_projection(state, mask, weight)
        out: Tensor = _HeadProjection.apply(state, mask, weight, found)
        return out

    def masked_projection(self, features: Any, mask: Tensor, weight: Tensor) -> Tensor:
        found = None
        if features.values.dim() == 1:
            found = attention_backend.masked_projection(
                features.crow, features.col, features.values, mask, weight
            )
        if found is None:
            return super().masked_projection(features, mask, weight)
        out: Tensor = _MaskedProjection.apply(features, mask, weight, found)
        return out

    def power_sum(
        self, adjacency: Matrix, ratio: float, steps: int, start: Tensor, *, transposed: bool = False
    ) -> Tensor:
        found = None
        if start.device.type == "cpu":
            crow, col, values = adjacency.transposed_arrays if transposed else adjacency.arrays
            scaled = values if ratio == 1 else values * values.dtype.type(ratio)
            found = propagation_backend.power_sum((crow, col, scaled), start.contiguous(), steps)
        if found is None:
            return super().power_sum(adjacency, ratio, steps, start, transposed=transposed)
        return found

    def shared_product(self, features: Any, weight: Tensor, share: Any) -> Tensor:
        """Rows that are dropped are not computed."""
        found = propagation_backend.kept_product(features, weight, share)
        return super().shared_product(features, weight, share) if found is None else found

    def shared_transposed_product(self, features: Any, grad: Tensor, share: Any) -> Tensor:
        found = propagation_backend.kept_scattered_product(features, grad, share)
        return super().shared_transposed_product(features, grad, share) if found is None else found

    def normalised_layers(
        self, source: LayerSource, norm: nn.BatchNorm1d, given: Tensor, mask: Tensor | None, weights: Any
    ) -> Tensor:
        if given.shape[1] % 16 or not backend.usable(given):
            return super().normalised_layers(source, norm, given, mask, weights)
        parameters = (*weights, norm.weight, norm.bias)
        logits: Tensor = _NormalisedLayers.apply(source, norm, given, mask, *parameters)
        return logits


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
        for_source, for_target, for_h = attention_backend.attention_gradients(
            ctx.pattern.crow, ctx.pattern.col, source, target, ctx.slope, mask, h, alpha, grads[0]
        )
        return None, for_source, for_target, None, None, for_h, None


class _HeadProjection(torch.autograd.Function):
    """The projection of a state by all heads, from its result."""

    @staticmethod
    def forward(ctx: Any, state: Tensor, mask: Tensor, weight: Tensor, found: Tensor) -> Tensor:
        ctx.save_for_backward(state, mask, weight)
        return found.view_as(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        state, mask, weight = ctx.saved_tensors
        for_state, for_weight = attention_backend.head_projection_gradients(state, mask, weight, grads[0])
        return for_state, None, for_weight, None


class _MaskedProjection(torch.autograd.Function):
    """The projection of sparse features by all heads, from its result."""

    @staticmethod
    def forward(ctx: Any, features: Matrix, mask: Tensor, weight: Tensor, found: Tensor) -> Tensor:
        ctx.features = features
        ctx.save_for_backward(mask)
        return found.view_as(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, (mask,) = ctx.features, ctx.saved_tensors
        for_weight = attention_backend.masked_projection_gradient(
            x.crow, x.col, x.values, mask, grads[0], x.shape[1]
        )
        return None, None, for_weight, None


class _NormalisedLayers(torch.autograd.Function):
    """relu, normalisation, mask and second layer of random propagation in two passes over memory."""

    @staticmethod
    def forward(
        ctx: Any, source: LayerSource, norm: nn.BatchNorm1d, given: Tensor, mask: Tensor | None, *rest: Tensor
    ) -> Tensor:
        b0, w1, b1, g, b = rest
        r = source.forward(given)
        sums = propagation_backend.relu_with_moments(r, b0)
        assert sums is not None, "asked before"
        mean, variance = _moments(norm, sums, len(r))
        unit = (variance + norm.eps).rsqrt()
        scale = g * unit
        shift = b - scale * mean
        if mask is None:
            mask = torch.ones_like(scale)[None]
        ctx.save_for_backward(r, scale, shift, mask, w1, mean, unit)
        ctx.source, ctx.batch = source, norm.training
        return propagation_backend.head_forward(r, scale, shift, mask, w1, b1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        for_state, for_b0, for_w1, (for_b, for_g) = propagation_backend.head_backward(
            grads[0], *ctx.saved_tensors, batch=ctx.batch
        )
        rest = for_b0, for_w1, grads[0].sum(0), for_g, for_b
        return None, None, ctx.source.backward(for_state), None, *rest


def _moments(norm: nn.BatchNorm1d, sums: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Return mean and variance to normalise by: those of this pass, which join the running ones, or these."""
    running, spread = norm.running_mean, norm.running_var
    assert running is not None
    assert spread is not None
    if not norm.training:
        return running, spread
    mean = sums[0] / nodes
    variance = (sums[1] / nodes - mean.square()).clamp_min_(0)
    share = 0.1 if norm.momentum is None else norm.momentum
    running.lerp_(mean.to(running.dtype), share)
    spread.lerp_((variance * (nodes / max(1, nodes - 1))).to(spread.dtype), share)
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked += 1
    return mean.to(running.dtype), variance.to(running.dtype)


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
