"""Attention of a GAT: all of a layer in one pass over the entries of a sparse pattern, compiled."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from bvat.engine.compiled.backend import arrays_of, usable
from bvat.engine.compiled.compile import Compiled

_compiled = partial(Compiled, error_model="numpy", nogil=True, fastmath={"contract", "reassoc", "nsz"})


def attention(
    crow: Tensor, col: Tensor, source: Tensor, target: Tensor, slope: float, mask: Tensor | None, h: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Return ``out_i = sum_j m_ij alpha_ij h_j`` (n, heads, F) and alpha (nnz, heads).

    ``alpha_ij = softmax_j(leaky_relu(source_j + target_i))`` over the entries (i, j). None where it does not
    run compiled. Shapes: source, target (n, heads), mask m (nnz, heads), h (n, heads, F).
    """
    if not h.numel() or not usable(source, target, h):
        return None
    alpha = h.new_empty(col.shape[0], h.shape[1])
    out = h.new_zeros(h.shape)
    given = arrays_of(source, target, source[:0] if mask is None else mask, h)
    _attention(crow.numpy(), col.numpy(), np.float32(slope), *given, alpha.numpy(), out.numpy())
    return out, alpha


def attention_gradients(
    crow: Tensor, col: Tensor, source: Tensor, target: Tensor, slope: float, mask: Tensor | None, h: Tensor,
    alpha: Tensor, grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients for source, target (n, heads) and h (n, heads, F)."""
    found = [part.new_zeros(part.shape) for part in (source, target, h)]
    given = arrays_of(source, target, source[:0] if mask is None else mask, h, alpha, grad)
    room = alpha.new_empty(int(crow.diff().max()), alpha.shape[1])
    _gradients(crow.numpy(), col.numpy(), np.float32(slope), *given, *arrays_of(*found, room))
    return found[0], found[1], found[2]


@_compiled
def _attention(
    crow: Any, col: Any, slope: Any, source: Any, target: Any, mask: Any, h: Any, alpha: Any, out: Any
) -> None:
    """Write alpha (nnz, heads) and add to out (n, heads, F); mask (nnz, heads) is empty for ones."""
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
def _gradients(
    crow: Any, col: Any, slope: Any, source: Any, target: Any, mask: Any, h: Any, alpha: Any, grad: Any,
    for_source: Any, for_target: Any, for_h: Any, for_alpha: Any,
) -> None:  # fmt: skip
    """Add the gradients of :func:`_attention` to ``for_source``, ``for_target`` and ``for_h``.

    Shapes as there; grad (n, heads, F). ``for_alpha`` (longest row, heads) is overwritten.
    """
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
