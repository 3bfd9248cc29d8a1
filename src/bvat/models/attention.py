"""Attention along the entries of a sparse pattern: softmax over each row, and the sums it weighs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bvat.graph.sparse import SparseMatrix
from bvat.kernels import backend


class _EdgeSoftmax(torch.autograd.Function):
    """Softmax over the entries of each row, each column by itself; scores and result (nnz, heads)."""

    @staticmethod
    def forward(ctx: Any, pattern: SparseMatrix, scores: Tensor) -> Tensor:
        top = scores.new_full((pattern.shape[0], scores.shape[1]), -torch.inf)
        top.scatter_reduce_(0, pattern.rows[:, None].expand_as(scores), scores, "amax")
        alpha = (scores - top.index_select(0, pattern.rows)).exp_()
        alpha /= _row_sums(pattern, alpha)
        ctx.pattern = pattern
        ctx.save_for_backward(alpha)
        return alpha

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        (alpha,) = ctx.saved_tensors
        for_scores = alpha * (grads[0] - _row_sums(ctx.pattern, alpha * grads[0]))
        return None, for_scores


def _row_sums(pattern: SparseMatrix, values: Tensor) -> Tensor:
    """Return at every entry the sum over its row; shapes (nnz, heads)."""
    sums = values.new_zeros(pattern.shape[0], values.shape[1]).index_add_(0, pattern.rows, values)
    return sums.index_select(0, pattern.rows)


def edge_softmax(pattern: SparseMatrix, scores: Tensor) -> Tensor:
    """Return softmax over the entries of each row of ``pattern``; scores and result (nnz, heads)."""
    alpha: Tensor = _EdgeSoftmax.apply(pattern, scores)  # type: ignore[no-untyped-call]
    return alpha


class _Attend(torch.autograd.Function):
    """``out_i = sum_j alpha_ij h_j``, one sparse product a head; alpha (nnz, heads), h (N, heads, F)."""

    @staticmethod
    def forward(ctx: Any, pattern: SparseMatrix, alpha: Tensor, h: Tensor) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(alpha, h)
        heads = zip(alpha.t().contiguous(), h.transpose(0, 1).contiguous(), strict=True)
        return torch.stack([pattern.with_values(a).product(part) for a, part in heads], 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor]:
        pattern, (alpha, h), grad = ctx.pattern, ctx.saved_tensors, grads[0]
        heads = zip(alpha.t().contiguous(), grad.transpose(0, 1).contiguous(), strict=True)
        for_h = torch.stack([pattern.with_values(a).transposed_product(part) for a, part in heads], 1)
        for_alpha = backend.edge_dots(pattern.crow, pattern.col, grad, h)
        if for_alpha is None:
            for_alpha = grad.index_select(0, pattern.rows).mul_(h.index_select(0, pattern.col)).sum(2)
        return None, for_alpha, for_h


def attend(pattern: SparseMatrix, alpha: Tensor, h: Tensor) -> Tensor:
    """Return ``sum_j alpha_ij h_j`` over the entries (i, j) of ``pattern``, each head by itself.

    Shapes: alpha (nnz, heads), h (N, heads, F); result (N, heads, F), differentiable in both.
    """
    out: Tensor = _Attend.apply(pattern, alpha, h)  # type: ignore[no-untyped-call]
    return out
