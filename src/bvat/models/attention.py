"""Attention along the entries of a sparse pattern: softmax over each row, and the sums it weighs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bvat.graph.sparse import SparseMatrix


def edge_softmax(pattern: SparseMatrix, scores: Tensor) -> Tensor:
    """Return softmax over the entries of each row of ``pattern``; scores and result (nnz, heads)."""
    rows, shape = pattern.rows, (pattern.shape[0], scores.shape[1])
    lowest = scores.detach().new_full(shape, -torch.inf)
    top = lowest.scatter_reduce(0, rows[:, None].expand_as(scores), scores.detach(), "amax")
    weights = (scores - top.index_select(0, rows)).exp()
    total = weights.new_zeros(shape).index_add(0, rows, weights)
    return weights / total.index_select(0, rows)


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
        for_alpha = grad.index_select(0, pattern.rows).mul_(h.index_select(0, pattern.col)).sum(2)
        return None, for_alpha, for_h


def attend(pattern: SparseMatrix, alpha: Tensor, h: Tensor) -> Tensor:
    """Return ``sum_j alpha_ij h_j`` over the entries (i, j) of ``pattern``, each head by itself.

    Shapes: alpha (nnz, heads), h (N, heads, F); result (N, heads, F), differentiable in both.
    """
    out: Tensor = _Attend.apply(pattern, alpha, h)  # type: ignore[no-untyped-call]
    return out
