"""Products whose rows depend on nothing but themselves, as ranks need them. All matrices lie by rows.

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
def _add_eight(totals: Any, factor: Any, x: Any, row: Any, first: Any) -> Any:
    """Return ``totals[i] + factor * x[row, first + i]`` for each i < 8."""
    return (
        _add(totals[0], factor, x[row, first]),
        _add(totals[1], factor, x[row, first + _1]),
        _add(totals[2], factor, x[row, first + _2]),
        _add(totals[3], factor, x[row, first + _3]),
        _add(totals[4], factor, x[row, first + _4]),
        _add(totals[5], factor, x[row, first + _5]),
        _add(totals[6], factor, x[row, first + _6]),
        _add(totals[7], factor, x[row, first + _7]),
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
        totals = _add_eight(totals, values[k], dense, _at(col[k]), first)
    return totals


@part()
def _sum_16(matrix: Any, v: Any, dense: Any, first: Any) -> Any:
    """Return two times 8 columns, in one walk along the row of S."""
    crow, col, values = matrix
    left, right = _zeros(dense), _zeros(dense)
    for k in range(_at(crow[v]), _at(crow[v + _1])):
        factor, row = values[k], _at(col[k])
        left = _add_eight(left, factor, dense, row, first)
        right = _add_eight(right, factor, dense, row, first + _8)
    return left, right


@part()
def _row_times(rows: Any, v: Any, terms: Any, matrix: Any, first: Any) -> Any:
    """Return columns ``first`` to ``first + 8`` of ``rows[v, :terms] @ matrix``.

    An addition waits for the one before, so four sums are made side by side.
    """
    a, b, c, d = _zeros(matrix), _zeros(matrix), _zeros(matrix), _zeros(matrix)
    bulk = terms - terms % _4
    for k in range(_0, bulk, _4):
        a = _add_eight(a, rows[v, k], matrix, k, first)
        b = _add_eight(b, rows[v, k + _1], matrix, k + _1, first)
        c = _add_eight(c, rows[v, k + _2], matrix, k + _2, first)
        d = _add_eight(d, rows[v, k + _3], matrix, k + _3, first)
    for k in range(bulk, terms):
        a = _add_eight(a, rows[v, k], matrix, k, first)
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
            _put_eight(_row_times(rows, v, _at(matrix.shape[0]), matrix, first), out, v, first)


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
