"""Attention along the entries of a sparse pattern: softmax over each row, and the sums it weighs.

A layer of a GAT also has a compiled form, all of it in one pass over the entries.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bvat.engine.compile import Compiled, has_numba
from bvat.engine.matrix import Matrix

SLOPE = 0.2
"""Of the leaky relu of a GAT."""
_SLOPE = np.float32(SLOPE)
_compiled = partial(Compiled, error_model="numpy", nogil=True, fastmath={"contract", "reassoc", "nsz"})


def edge_softmax(pattern: Matrix, scores: Tensor) -> Tensor:
    """Return softmax over the entries of each row of ``pattern``; scores and result (nnz, heads)."""
    rows, shape = pattern.rows, (pattern.shape[0], scores.shape[1])
    top = scores.new_full(shape, -torch.inf)
    top.scatter_reduce_(0, rows[:, None].expand_as(scores), scores.detach(), "amax")
    shifted = scores - top.index_select(0, rows)
    log_total = scores.new_zeros(shape).index_add(0, rows, shifted.exp()).log()
    return (shifted - log_total.index_select(0, rows)).exp()


class Attend(torch.autograd.Function):
    """``out_i = sum_j alpha_ij h_j``, one sparse product per head; alpha (nnz, heads), h (N, heads, F)."""

    @staticmethod
    def forward(ctx: Any, pattern: Matrix, alpha: Tensor, h: Tensor) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(alpha, h)
        heads = zip(alpha.t().contiguous(), h.transpose(0, 1).contiguous(), strict=True)
        return _side_by_side([pattern.with_values(a).product(part) for a, part in heads])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor]:
        pattern, (alpha, h), grad = ctx.pattern, ctx.saved_tensors, grads[0]
        heads = zip(alpha.t().contiguous(), grad.transpose(0, 1).contiguous(), strict=True)
        for_h = _side_by_side([pattern.with_values(a).transposed_product(part) for a, part in heads])
        for_alpha = grad.index_select(0, pattern.rows).mul_(h.index_select(0, pattern.col)).sum(2)
        return None, for_alpha, for_h


def _side_by_side(heads: list[Tensor]) -> Tensor:
    """Return (N, heads, F) of heads (N, F), without a copy if there is only one."""
    return heads[0][:, None] if len(heads) == 1 else torch.stack(heads, 1)


def usable(*tensors: Tensor) -> bool:
    """Return whether loops take these tensors: single precision, on a CPU, and numba installed."""
    for tensor in tensors:
        if not tensor.is_cpu or tensor.dtype != torch.float32:
            return False
    return has_numba()


def arrays_of(*tensors: Tensor) -> list[Any]:
    """Return the tensors as numpy arrays whose rows lie one after the other."""
    return [(each.detach() if each.requires_grad else each).contiguous().numpy() for each in tensors]


class Attention(torch.autograd.Function):
    """``out_i = sum_j m_ij alpha_ij h_j``, ``alpha_ij = softmax_j(leaky_relu(source_j + target_i))``.

    Shapes: source, target (n, heads), mask m (nnz, heads), h and result (n, heads, F), h not empty.
    """

    @staticmethod
    def forward(
        ctx: Any, pattern: Matrix, source: Tensor, target: Tensor, h: Tensor, mask: Tensor | None
    ) -> Tensor:
        mask = source[:0] if mask is None else mask
        alpha, out = h.new_empty(pattern.col.shape[0], h.shape[1]), h.new_zeros(h.shape)
        given = tuple(arrays_of(source, target, mask, h))
        _attention(pattern.arrays[:2], _SLOPE, given, *arrays_of(alpha, out))
        ctx.pattern = pattern
        ctx.save_for_backward(source, target, mask, h, alpha)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        source, target, mask, h, alpha = ctx.saved_tensors
        found = [part.new_zeros(part.shape) for part in (source, target, h)]
        room = alpha.new_empty(int(ctx.pattern.crow.diff().max()), alpha.shape[1])
        given = tuple(arrays_of(source, target, mask, h))
        rest = arrays_of(alpha, grads[0], *found, room)
        _gradients(ctx.pattern.arrays[:2], _SLOPE, given, *rest[:2], tuple(rest[2:]))
        return None, *found, None


@_compiled
def _attention(pattern: Any, slope: Any, given: Any, alpha: Any, out: Any) -> None:
    """Write alpha (nnz, heads) and add to out (n, heads, F); mask (nnz, heads) is empty for ones."""
    (crow, col), (source, target, mask, h) = pattern, given
    heads, width = h.shape[1], h.shape[2]
    top, total = np.empty_like(source[0]), np.empty_like(source[0])
    for i in range(crow.shape[0] - 1):
        first, last = crow[i], crow[i + 1]
        top[:] = -np.inf
        total[:] = 0
        for k in range(first, last):
            j = col[k]
            for head in range(heads):
                score = source[j, head] + target[i, head]
                score = score if score > 0 else score * slope
                alpha[k, head] = score
                top[head] = max(top[head], score)
        for k in range(first, last):
            for head in range(heads):
                alpha[k, head] = math.exp(alpha[k, head] - top[head])
                total[head] += alpha[k, head]
        for k in range(first, last):
            j = col[k]
            for head in range(heads):
                alpha[k, head] /= total[head]
                weight = alpha[k, head] * mask[k, head] if mask.shape[0] else alpha[k, head]
                row, other = out[i, head], h[j, head]
                for f in range(width):
                    row[f] += weight * other[f]


@_compiled
def _gradients(pattern: Any, slope: Any, given: Any, alpha: Any, grad: Any, found: Any) -> None:
    """Add the gradients of :func:`_attention` to ``for_source``, ``for_target`` and ``for_h``.

    Shapes as there; grad (n, heads, F). ``for_alpha`` (longest row, heads) is overwritten.
    """
    (crow, col), (source, target, mask, h) = pattern, given
    for_source, for_target, for_h, for_alpha = found
    heads, width = h.shape[1], h.shape[2]
    total = np.empty_like(source[0])
    for i in range(crow.shape[0] - 1):
        first, last = crow[i], crow[i + 1]
        total[:] = 0
        for k in range(first, last):
            j = col[k]
            for head in range(heads):
                here, there, back = grad[i, head], h[j, head], for_h[j, head]
                towards = here[0] * there[0]
                for f in range(1, width):
                    towards += here[f] * there[f]
                weight = alpha[k, head]
                if mask.shape[0]:
                    towards *= mask[k, head]
                    weight *= mask[k, head]
                for f in range(width):
                    back[f] += weight * here[f]
                for_alpha[k - first, head] = towards
                total[head] += alpha[k, head] * towards
        for k in range(first, last):
            j = col[k]
            for head in range(heads):
                for_score = alpha[k, head] * (for_alpha[k - first, head] - total[head])
                if source[j, head] + target[i, head] <= 0:
                    for_score *= slope
                for_source[j, head] += for_score
                for_target[i, head] += for_score
