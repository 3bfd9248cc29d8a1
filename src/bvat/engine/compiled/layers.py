"""Sparse products and the layers of a GCN. All matrices lie by rows unless said."""

from __future__ import annotations

from typing import Any

import numpy as np

from bvat.engine.compiled.vectors import (
    add_scaled,
    compiled,
    flipped,
    relu_of_sum,
    row_times_gated,
    row_times_narrow,
    sum_narrow,
    sum_plus,
    sum_wide,
)


@compiled
def product(crow: Any, col: Any, values: Any, dense: Any, out: Any) -> None:
    """Write ``out = S @ dense``; S (n, m) as CSR arrays, dense (m, width), out (n, width), wide or narrow."""
    width = dense.shape[1]
    flat, out_flat = dense.reshape(-1), out.reshape(-1)
    if width % 16 == 0:
        for v in range(out.shape[0]):
            sum_wide(values, col, crow[v], crow[v + 1], flat, width, out_flat, v * width)
    else:
        for v in range(out.shape[0]):
            sum_narrow(values, col, crow[v], crow[v + 1], flat, width, out_flat, v * width)


@compiled
def blocked_product(crow: Any, col: Any, values: Any, dense: Any, block: int, out: Any) -> None:
    """Write ``out = S @ dense`` for long rows of S, a block of rows of dense at a time.

    Shapes as in :func:`product`, wide; the columns of a row ascend.
    """
    width = dense.shape[1]
    flat, row = dense.reshape(-1), np.empty(width, dense.dtype)
    place = crow[:-1].copy()
    out[:] = 0
    for end in range(block, dense.shape[0] + block, block):
        for v in range(out.shape[0]):
            start, stop = place[v], crow[v + 1]
            stop = start + np.searchsorted(col[start:stop], end)
            sum_wide(values, col, start, stop, flat, width, row, 0)
            for j in range(width):
                out[v, j] += row[j]
            place[v] = stop


@compiled
def power_sum(crow: Any, col: Any, values: Any, dense: Any, steps: int, out: Any, other: Any) -> None:
    """Write ``out = sum_{k <= steps} S^k dense`` by Horner's rule; S (n, n), dense, out and other (n, width).

    ``other`` is memory to work in; width is wide, and steps at least 1.
    """
    width = dense.shape[1]
    base, here, there = dense.reshape(-1), out.reshape(-1), other.reshape(-1)
    for step in range(steps):
        last_is_here = (steps - step) % 2 == 1
        to = here if last_is_here else there
        source = base if step == 0 else (there if last_is_here else here)
        for v in range(dense.shape[0]):
            sum_plus(values, col, crow[v], crow[v + 1], source, width, base, to, v * width)


@compiled
def kept_product(crow: Any, col: Any, values: Any, dense: Any, share: Any, out: Any) -> None:
    """Write ``out = share ∘ (S @ dense)``, rows whose share is 0 without computing them; share (n), wide."""
    width = dense.shape[1]
    flat, out_flat = dense.reshape(-1), out.reshape(-1)
    for v in range(out.shape[0]):
        if share[v] == 0:
            out[v] = 0
        else:
            sum_wide(values, col, crow[v], crow[v + 1], flat, width, out_flat, v * width)
            for j in range(width):
                out[v, j] *= share[v]


@compiled
def kept_scattered_product(crow: Any, col: Any, values: Any, dense: Any, share: Any, out: Any) -> None:
    """Write ``out = Sᵀ (share ∘ dense)`` without the transpose and without rows whose share is 0; wide."""
    width = dense.shape[1]
    out_flat, row = out.reshape(-1), np.empty(width, dense.dtype)
    out[:] = 0
    for v in range(crow.shape[0] - 1):
        if share[v] != 0:
            for j in range(width):
                row[j] = share[v] * dense[v, j]
            for k in range(crow[v], crow[v + 1]):
                add_scaled(values, k, row, width, out_flat, col[k] * width)


@compiled
def dropout_factors(drawn: Any, level: int, factor: Any, out: Any) -> None:
    """Write ``out = factor where drawn >= level, else 0``; drawn uint8 and out (n)."""
    zero = out.dtype.type(0)
    for i in range(out.shape[0]):
        out[i] = factor if drawn[i] >= level else zero


@compiled
def scattered_product(crow: Any, col: Any, values: Any, dense: Any, out: Any) -> None:
    """Write ``out = Sᵀ @ dense`` without the transpose; S (n, m), dense (n, width), out (m, width)."""
    width = dense.shape[1]
    out[:] = 0
    for v in range(crow.shape[0] - 1):
        for k in range(crow[v], crow[v + 1]):
            to, factor = col[k], values[k]
            for j in range(width):
                out[to, j] += factor * dense[v, j]


@compiled
def layer_forward(
    crow: Any, col: Any, values: Any, dense: Any, mask: Any, weight: Any, hidden: Any, out: Any
) -> None:
    """Write ``hidden = mask * relu(S dense)`` and ``out = hidden @ weight``, padded with zeros.

    Shapes: S (n, m) as CSR arrays, dense (m, H), mask (n, H), or (1, H) for all rows alike, weight (H, c),
    hidden (n, H), out (n, C) with C >= c; H wide, C narrow.
    """
    width, classes = weight.shape[0], out.shape[1]
    wide = np.zeros((width, classes), weight.dtype)
    wide[:, : weight.shape[1]] = weight
    flat, hidden_flat, out_flat = dense.reshape(-1), hidden.reshape(-1), out.reshape(-1)
    mask_flat, weight_flat = mask.reshape(-1), wide.reshape(-1)
    mask_stride = width if mask.shape[0] > 1 else 0
    for v in range(hidden.shape[0]):
        here = v * width
        relu_of_sum(
            values, col, crow[v], crow[v + 1], flat, width, mask_flat, v * mask_stride, hidden_flat, here
        )
        row_times_narrow(hidden_flat, here, here + width, weight_flat, classes, out_flat, v * classes)


@compiled
def product_by_columns(crow: Any, col: Any, values: Any, dense: Any, out: Any) -> None:
    """Write ``out = (S dense)ᵀ`` without the padding of dense; dense (m, C), out (c, n), C narrow."""
    width = dense.shape[1]
    flat, row = dense.reshape(-1), np.empty(width, dense.dtype)
    for v in range(out.shape[1]):
        sum_narrow(values, col, crow[v], crow[v + 1], flat, width, row, 0)
        for c in range(out.shape[0]):
            out[c, v] = row[c]


@compiled
def layer_backward(summed: Any, weight: Any, factor: float, hidden: Any, out: Any) -> None:
    """Write ``out = factor (summed @ weightᵀ) where hidden > 0``.

    Shapes: summed (n, C), padded or not, weight (H, c), hidden and out (n, H); H wide.
    """
    width, classes = weight.shape
    summed_flat, out_flat, hidden_flat = summed.reshape(-1), out.reshape(-1), hidden.reshape(-1)
    flipped_flat, stride = flipped(weight, factor).reshape(-1), summed.shape[1]
    for v in range(hidden.shape[0]):
        start = v * stride
        row_times_gated(
            summed_flat, start, start + classes, flipped_flat, width, hidden_flat, out_flat, v * width
        )


@compiled
def layer_backward_of_product(
    crow: Any, col: Any, values: Any, slopes: Any, weight: Any, factor: float, hidden: Any, out: Any
) -> None:
    """Do :func:`layer_backward` with ``summed = S slopes``, which is not kept.

    Shapes: S (n, m) as CSR arrays, slopes (m, C) padded, weight (H, c), hidden and out (n, H); H wide.
    """
    across, (width, classes) = slopes.shape[1], weight.shape
    back = flipped(weight, factor).reshape(-1)
    flat, summed = slopes.reshape(-1), np.empty(across, slopes.dtype)
    hidden_flat, out_flat = hidden.reshape(-1), out.reshape(-1)
    for v in range(hidden.shape[0]):
        sum_narrow(values, col, crow[v], crow[v + 1], flat, across, summed, 0)
        row_times_gated(summed, 0, classes, back, width, hidden_flat, out_flat, v * width)


@compiled
def pack(by_columns: Any, out: Any) -> None:
    """Write ``out = by_columnsᵀ`` with zeros at its right; by_columns (c, n), out (n, C), C >= c."""
    classes = by_columns.shape[0]
    for v in range(out.shape[0]):
        for c in range(classes):
            out[v, c] = by_columns[c, v]
        for c in range(classes, out.shape[1]):
            out[v, c] = 0


def padded_width(columns: int) -> int:
    """Return the least width >= columns that full vectors can be read of."""
    return 4 if columns <= 4 else (columns + 7) // 8 * 8
