"""Sparse products and the layers of a GCN as compiled loops. All matrices lie by rows unless said.

Dense matrices are read 8 columns at a time; their width is a multiple of 8. The running sums of 8 columns are
a tuple: numba has no small arrays that stay in registers, but LLVM turns a tuple whose elements are
neighbours in memory into one vector. Positions are unsigned, which saves the code for negative ones. A sparse
matrix is the tuple of its CSR arrays ``(crow, col, values)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bvat.engine.compile import compiled, part

_at = np.uint64
_0, _1, _2, _3, _4, _5, _6, _7, _8, _16 = (np.uint64(i) for i in (*range(9), 16))


@part(fastmath={"contract"})
def _add(total: Any, factor: Any, entry: Any) -> Any:
    return total + factor * entry


@part()
def _relu_times(total: Any, zero: Any, mask: Any) -> Any:
    # what is not a number passes, as in torch: a loss that is not finite has to be seen
    return zero if total <= 0 else total * mask


@part()
def _where_positive(total: Any, zero: Any, hidden: Any) -> Any:
    return zero if hidden <= 0 else total


@part()
def _with_eight(function: Any, totals: Any, number: Any, x: Any, row: Any, first: Any) -> Any:
    """Return ``function(totals[i], number, x[row, first + i])`` for each i < 8."""
    return (
        function(totals[0], number, x[row, first]),
        function(totals[1], number, x[row, first + _1]),
        function(totals[2], number, x[row, first + _2]),
        function(totals[3], number, x[row, first + _3]),
        function(totals[4], number, x[row, first + _4]),
        function(totals[5], number, x[row, first + _5]),
        function(totals[6], number, x[row, first + _6]),
        function(totals[7], number, x[row, first + _7]),
    )


@part()
def _put_eight(totals: Any, out: Any, row: Any, first: Any) -> None:
    """Write ``out[row, first + i] = totals[i]``."""
    out[row, first], out[row, first + _1] = totals[0], totals[1]
    out[row, first + _2], out[row, first + _3] = totals[2], totals[3]
    out[row, first + _4], out[row, first + _5] = totals[4], totals[5]
    out[row, first + _6], out[row, first + _7] = totals[6], totals[7]


@part()
def _zeros(x: Any) -> Any:
    zero = x.dtype.type(0)
    return zero, zero, zero, zero, zero, zero, zero, zero


@part()
def _sum_8(matrix: Any, v: Any, dense: Any, first: Any) -> Any:
    """Return columns ``first`` to ``first + 8`` of row v of ``S @ dense``."""
    crow, col, values = matrix
    totals = _zeros(dense)
    for k in range(_at(crow[v]), _at(crow[v + _1])):
        totals = _with_eight(_add, totals, values[k], dense, _at(col[k]), first)
    return totals


@part()
def _sum_16(matrix: Any, v: Any, dense: Any, first: Any) -> Any:
    """Return two times 8 columns, in one walk along the row of S."""
    crow, col, values = matrix
    left, right = _zeros(dense), _zeros(dense)
    for k in range(_at(crow[v]), _at(crow[v + _1])):
        factor, row = values[k], _at(col[k])
        left = _with_eight(_add, left, factor, dense, row, first)
        right = _with_eight(_add, right, factor, dense, row, first + _8)
    return left, right


@part()
def row_times(rows: Any, v: Any, terms: Any, matrix: Any, first: Any) -> Any:
    """Return columns ``first`` to ``first + 8`` of ``rows[v, :terms] @ matrix``.

    An addition waits for the one before, so four sums are made side by side.
    """
    a, b, c, d = _zeros(matrix), _zeros(matrix), _zeros(matrix), _zeros(matrix)
    bulk = terms - terms % _4
    for k in range(_0, bulk, _4):
        a = _with_eight(_add, a, rows[v, k], matrix, k, first)
        b = _with_eight(_add, b, rows[v, k + _1], matrix, k + _1, first)
        c = _with_eight(_add, c, rows[v, k + _2], matrix, k + _2, first)
        d = _with_eight(_add, d, rows[v, k + _3], matrix, k + _3, first)
    for k in range(bulk, terms):
        a = _with_eight(_add, a, rows[v, k], matrix, k, first)
    return (
        (a[0] + b[0]) + (c[0] + d[0]),
        (a[1] + b[1]) + (c[1] + d[1]),
        (a[2] + b[2]) + (c[2] + d[2]),
        (a[3] + b[3]) + (c[3] + d[3]),
        (a[4] + b[4]) + (c[4] + d[4]),
        (a[5] + b[5]) + (c[5] + d[5]),
        (a[6] + b[6]) + (c[6] + d[6]),
        (a[7] + b[7]) + (c[7] + d[7]),
    )


@compiled
def times(rows: Any, matrix: Any, out: Any) -> None:
    """Write ``out = rows @ matrix``; rows (n, K), matrix (K, M), out (n, M)."""
    for v in range(_at(out.shape[0])):
        for first in range(_0, _at(out.shape[1]), _8):
            _put_eight(row_times(rows, v, _at(matrix.shape[0]), matrix, first), out, v, first)


@compiled
def product(matrix: Any, dense: Any, out: Any) -> None:
    """Write ``out = S @ dense``; S (n, m), dense (m, H), out (n, H)."""
    width = _at(dense.shape[1])
    pairs = width - width % _16
    for v in range(_at(out.shape[0])):
        for first in range(_0, pairs, _16):
            left, right = _sum_16(matrix, v, dense, first)
            _put_eight(left, out, v, first)
            _put_eight(right, out, v, first + _8)
        if pairs < width:
            _put_eight(_sum_8(matrix, v, dense, pairs), out, v, pairs)


@compiled
def power_sum(matrix: Any, dense: Any, steps: int, out: Any, other: Any) -> None:
    """Write ``out = sum_{k <= steps} S^k dense`` by Horner's rule; S (n, n), dense, out and other (n, H).

    ``other`` is memory to work in; 16 | H, and steps at least 1.
    """
    one = dense.dtype.type(1)
    for step in range(steps):
        last_is_here = (steps - step) % 2 == 1
        to = out if last_is_here else other
        source = dense if step == 0 else (other if last_is_here else out)
        for v in range(_at(dense.shape[0])):
            for first in range(_0, _at(dense.shape[1]), _16):
                left, right = _sum_16(matrix, v, source, first)
                _put_eight(_with_eight(_add, left, one, dense, v, first), to, v, first)
                _put_eight(_with_eight(_add, right, one, dense, v, first + _8), to, v, first + _8)


@compiled
def scattered_product(matrix: Any, dense: Any, out: Any) -> None:
    """Write ``out = Sᵀ @ dense`` without the transpose; S (n, m), dense (n, H), out (m, H), any H."""
    crow, col, values = matrix
    width = dense.shape[1]
    out[:] = 0
    for v in range(crow.shape[0] - 1):
        for k in range(crow[v], crow[v + 1]):
            to, factor = col[k], values[k]
            for j in range(width):
                out[to, j] += factor * dense[v, j]


@compiled
def layer_forward(matrix: Any, dense: Any, mask: Any, weight: Any, hidden: Any, out: Any) -> None:
    """Write ``hidden = mask * relu(S dense)`` and ``out = hidden @ weight``, padded with zeros.

    Shapes: S (n, m), dense (m, H), mask (n, H), or (1, H) for all rows alike, weight (H, c), hidden (n, H),
    out (n, C) with C >= c; 16 | H.
    """
    width = _at(weight.shape[0])
    padded = np.empty((weight.shape[0], out.shape[1]), weight.dtype)
    zero, every_row = weight.dtype.type(0), mask.shape[0] > 1
    for h in range(weight.shape[0]):  # an assignment of slices takes seconds to compile
        for c in range(out.shape[1]):
            padded[h, c] = weight[h, c] if c < weight.shape[1] else zero
    for v in range(_at(hidden.shape[0])):
        beside = v if every_row else _0
        for first in range(_0, width, _16):
            left, right = _sum_16(matrix, v, dense, first)
            _put_eight(_with_eight(_relu_times, left, zero, mask, beside, first), hidden, v, first)
            _put_eight(_with_eight(_relu_times, right, zero, mask, beside, first + _8), hidden, v, first + _8)
        for first in range(_0, _at(out.shape[1]), _8):
            _put_eight(row_times(hidden, v, width, padded, first), out, v, first)


@compiled
def layer_backward(summed: Any, weight: Any, factor: Any, hidden: Any, out: Any) -> None:
    """Write ``out = factor (summed @ weightᵀ) where hidden > 0``.

    Shapes: summed (n, C), padded or not, weight (H, c), hidden and out (n, H).
    """
    back = np.empty((weight.shape[1], weight.shape[0]), weight.dtype)
    for h in range(weight.shape[0]):
        for c in range(weight.shape[1]):
            back[c, h] = weight[h, c] * factor
    zero = weight.dtype.type(0)
    for v in range(_at(hidden.shape[0])):
        for first in range(_0, _at(hidden.shape[1]), _8):
            sums = row_times(summed, v, _at(back.shape[0]), back, first)
            _put_eight(_with_eight(_where_positive, sums, zero, hidden, v, first), out, v, first)
