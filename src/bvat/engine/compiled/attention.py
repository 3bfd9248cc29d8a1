"""Attention along the entries of a sparse pattern, and projections of what each head keeps of its input.

F, the width of a head, is a multiple of 8 where arrays are flat: (n, heads, F) as n heads F numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bvat.engine.compiled.vectors import add_scaled_narrow, compiled_reordering, dot_narrow


@compiled_reordering
def edge_dots(crow: Any, col: Any, left: Any, right: Any, out: Any) -> None:
    """Write ``out[k, h] = left[i, h] . right[j, h]`` for every entry k = (i, j) of the pattern.

    Shapes: left (n, heads, F), right (m, heads, F), out (nnz, heads).
    """
    heads, width = left.shape[1], left.shape[2]
    for i in range(crow.shape[0] - 1):
        for k in range(crow[i], crow[i + 1]):
            j = col[k]
            for h in range(heads):
                total = left[i, h, 0] * right[j, h, 0]
                for f in range(1, width):
                    total += left[i, h, f] * right[j, h, f]
                out[k, h] = total


@compiled_reordering
def attention(
    crow: Any, col: Any, source: Any, target: Any, slope: Any, mask: Any, h: Any, alpha: Any, out: Any
) -> None:
    """Write ``alpha_ij = softmax_j(leaky_relu(source_j + target_i))``, ``out_i = sum_j m_ij alpha_ij h_j``.

    Shapes: source, target (n, heads); mask m (nnz, heads), empty for ones; h flat (n, heads, F); alpha
    (nnz, heads); out flat (n, heads, F), of zeros. ``slope`` (1) is that of the leaky ReLU.
    """
    size, heads = source.shape
    width = h.shape[0] // (size * heads)
    top, total, weights = (np.empty_like(source[0]), np.empty_like(source[0]), np.empty_like(source[0]))
    for i in range(crow.shape[0] - 1):
        first, last = crow[i], crow[i + 1]
        top[:] = -np.inf
        total[:] = 0
        for k in range(first, last):
            j = col[k]
            for head in range(heads):
                score = source[j, head] + target[i, head]
                score = score if score > 0 else score * slope[0]
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
                weights[head] = alpha[k, head] * mask[k, head] if mask.shape[0] else alpha[k, head]
            for head in range(heads):
                here, there = (i * heads + head) * width, (j * heads + head) * width
                add_scaled_narrow(weights, head, h, there, width, out, here)


@compiled_reordering
def attention_gradients(
    crow: Any, col: Any, source: Any, target: Any, slope: Any, mask: Any, h: Any, alpha: Any, grad: Any,
    for_source: Any, for_target: Any, for_h: Any, for_alpha: Any,
) -> None:  # fmt: skip
    """Add the gradients of :func:`attention` to ``for_source``, ``for_target`` and ``for_h``.

    Shapes as there; grad flat (n, heads, F). ``for_alpha`` (longest row, heads) is overwritten.
    """
    size, heads = source.shape
    width = h.shape[0] // (size * heads)
    total, weights = np.empty_like(source[0]), np.empty_like(source[0])
    for i in range(crow.shape[0] - 1):
        first, last = crow[i], crow[i + 1]
        total[:] = 0
        for k in range(first, last):
            j = col[k]
            for head in range(heads):
                here, there = (i * heads + head) * width, (j * heads + head) * width
                towards = dot_narrow(grad, here, h, there, width)
                weights[head] = alpha[k, head]
                if mask.shape[0]:
                    towards *= mask[k, head]
                    weights[head] *= mask[k, head]
                for_alpha[k - first, head] = towards
                total[head] += alpha[k, head] * towards
            for head in range(heads):
                here, there = (i * heads + head) * width, (j * heads + head) * width
                add_scaled_narrow(weights, head, grad, here, width, for_h, there)
        for k in range(first, last):
            j = col[k]
            for head in range(heads):
                for_score = alpha[k, head] * (for_alpha[k - first, head] - total[head])
                if source[j, head] + target[i, head] <= 0:
                    for_score *= slope[0]
                for_source[j, head] += for_score
                for_target[i, head] += for_score


@compiled_reordering
def head_projection(state: Any, mask: Any, weight: Any, out: Any) -> None:
    """Write ``out[n, h, f] = sum_i state[n, i] mask[n, h, i] weight[h, f, i]``.

    Shapes: state (N, I), mask (N, heads, I), weight (heads, F, I), out (N, heads, F).
    """
    heads, width, inputs = weight.shape
    kept = np.empty_like(state[0])
    for n in range(state.shape[0]):
        for head in range(heads):
            for i in range(inputs):
                kept[i] = state[n, i] * mask[n, head, i]
            for f in range(width):
                total = kept[0] * weight[head, f, 0]
                for i in range(1, inputs):
                    total += kept[i] * weight[head, f, i]
                out[n, head, f] = total


@compiled_reordering
def head_projection_gradients(
    state: Any, mask: Any, weight: Any, grad: Any, for_state: Any, for_weight: Any
) -> None:
    """Add the gradients of :func:`head_projection`; shapes as there, grad (N, heads, F)."""
    heads, width, inputs = weight.shape
    kept, back = np.empty_like(state[0]), np.empty_like(state[0])
    for n in range(state.shape[0]):
        for head in range(heads):
            for i in range(inputs):
                kept[i] = state[n, i] * mask[n, head, i]
                back[i] = 0
            for f in range(width):
                here = grad[n, head, f]
                for i in range(inputs):
                    back[i] += here * weight[head, f, i]
                    for_weight[head, f, i] += here * kept[i]
            for i in range(inputs):
                for_state[n, i] += back[i] * mask[n, head, i]


@compiled_reordering
def masked_projection(
    crow: Any, col: Any, values: Any, mask: Any, width: int, rows: Any, out: Any, back: bool
) -> None:
    """Add ``sum over entries k = (n, j) of values[k] mask[k, h] rows[j, h]`` to ``out[n, h]``.

    ``back`` is the gradient for the rows, given that of the result: n and j change places.

    Shapes: values (nnz), mask (nnz, heads), rows flat (D, heads, F), out flat (N, heads, F); F = width.
    """
    heads = mask.shape[1]
    kept = np.empty_like(mask[0])
    for n in range(crow.shape[0] - 1):
        for k in range(crow[n], crow[n + 1]):
            start, place = (n, col[k]) if back else (col[k], n)
            for head in range(heads):
                kept[head] = values[k] * mask[k, head]
            for head in range(heads):
                first, to = (start * heads + head) * width, (place * heads + head) * width
                add_scaled_narrow(kept, head, rows, first, width, out, to)
