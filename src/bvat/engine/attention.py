"""Attention along the entries of a sparse pattern: softmax over each row, and the sums it weighs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from bvat.engine.matrix import Matrix

SLOPE = 0.2
"""Of the leaky relu of a GAT."""


def edge_softmax(pattern: Matrix, scores: Tensor) -> Tensor:
    """Return softmax over the entries of each row of ``pattern``; scores and result (nnz, heads)."""
    rows, shape = pattern.rows, (pattern.shape[0], scores.shape[1])
    top = scores.new_full(shape, -torch.inf)
    top.scatter_reduce_(0, rows[:, None].expand_as(scores), scores.detach(), "amax")
    shifted = scores - top.index_select(0, rows)
    log_total = scores.new_zeros(shape).index_add(0, rows, shifted.exp()).log()
    return (shifted - log_total.index_select(0, rows)).exp()


class _Attend(torch.autograd.Function):
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


class AttentionMath:
    """Layers of GAT and MoNet on tensors; nothing flows back to the features."""

    def attend(self, pattern: Matrix, alpha: Tensor, h: Tensor) -> Tensor:
        """Return ``sum_j alpha_ij h_j`` over the entries (i, j) of ``pattern``, each head by itself.

        Shapes: alpha (nnz, heads), h (N, heads, F); result (N, heads, F), differentiable in both.
        """
        out: Tensor = _Attend.apply(pattern, alpha, h)  # type: ignore[no-untyped-call]
        return out

    def attention(
        self, pattern: Matrix, source: Tensor, target: Tensor, h: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Return ``sum_j m_ij alpha_ij h_j`` with ``alpha_ij = softmax_j(leaky_relu(source_j + target_i))``.

        Shapes: source, target (N, heads), mask m (nnz, heads), h (N, heads, F); result (N, heads, F).
        """
        scores = source.index_select(0, pattern.col) + target.index_select(0, pattern.rows)
        alpha = edge_softmax(pattern, F.leaky_relu(scores, SLOPE))
        return self.attend(pattern, alpha if mask is None else alpha * mask, h)
