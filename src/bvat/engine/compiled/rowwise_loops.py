"""The loops of :mod:`bvat.engine.compiled.rowwise`. All matrices lie by rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from bvat.engine.compiled.vectors import compiled, row_times_narrow, row_times_wide


@compiled
def times(rows: Any, matrix: Any, out: Any) -> None:
    """Write ``out = rows @ matrix``; rows (n, K), matrix (K, M), out (n, M), M wide or narrow."""
    inner, width = matrix.shape
    flat, matrix_flat, out_flat = rows.reshape(-1), matrix.reshape(-1), out.reshape(-1)
    if width % 16 == 0:
        for v in range(rows.shape[0]):
            row_times_wide(flat, v * inner, (v + 1) * inner, matrix_flat, width, out_flat, v * width)
    else:
        for v in range(rows.shape[0]):
            row_times_narrow(flat, v * inner, (v + 1) * inner, matrix_flat, width, out_flat, v * width)


@compiled
def row_dots(a: Any, b: Any, out: Any) -> None:
    """Write ``out_v = sum_j a_vj b_vj``; a, b (n, K), out (n)."""
    for v in range(a.shape[0]):
        total = 0.0
        for j in range(a.shape[1]):
            total += np.float64(a[v, j]) * np.float64(b[v, j])
        out[v] = total


@compiled
def softmax(logits: Any, p: Any, log_p: Any) -> None:
    """Write softmax and its logarithm of every row; all (n, C)."""
    classes = logits.shape[1]
    for v in range(logits.shape[0]):
        top = logits[v, 0]
        for c in range(1, classes):
            top = max(top, logits[v, c])
        total = 0.0
        for c in range(classes):
            total += np.exp(np.float64(logits[v, c] - top))
        log_total = np.log(total)
        for c in range(classes):
            shifted = np.float64(logits[v, c] - top) - log_total
            log_p[v, c] = shifted
            p[v, c] = np.exp(shifted)


@compiled
def log(values: Any, out: Any) -> None:
    """Write the logarithm of every entry; both flat."""
    for i in range(values.shape[0]):
        out[i] = np.log(np.float64(values[i]))


@compiled
def node_product(a: Any, b: Any, rounder: float, out: Any) -> None:
    """Add ``aᵀ b`` to ``out`` with every term rounded; a (n, K), b (n, M), out (K, M) in double precision."""
    for v in range(a.shape[0]):
        for k in range(a.shape[1]):
            factor = np.float64(a[v, k])
            if factor == 0.0:  # a term that adds nothing: half of them under dropout
                continue
            row, source = out[k], b[v]
            for j in range(row.shape[0]):
                row[j] += (factor * np.float64(source[j]) + rounder) - rounder


@compiled
def scattered_product(crow: Any, col: Any, values: Any, b: Any, rounder: float, out: Any) -> None:
    """Add ``Sᵀ b`` to ``out`` with every term rounded; S (n, m), b (n, M), out (m, M) in double precision."""
    for v in range(b.shape[0]):
        source = b[v]
        for k in range(crow[v], crow[v + 1]):
            factor = np.float64(values[k])
            if factor == 0.0:
                continue
            row = out[col[k]]
            for j in range(row.shape[0]):
                row[j] += (factor * np.float64(source[j]) + rounder) - rounder
