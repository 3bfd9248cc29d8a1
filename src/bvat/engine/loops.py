"""Products of matrices that lie by rows; of all but :func:`scatter` a row depends on itself only.

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
_0, _1, _2, _3, _4, _5, _6, _7, _8, _16, _24, _32 = (np.uint64(i) for i in (*range(9), 16, 24, 32))


@part(fastmath={"contract"})
def _add(total: Any, factor: Any, entry: Any) -> Any:
    return total + factor * entry


@part()
def _eight(x: Any, row: Any, first: Any) -> Any:
    """Return ``x[row, first + i]`` for each i < 8."""
    return (
        x[row, first],
        x[row, first + _1],
        x[row, first + _2],
        x[row, first + _3],
        x[row, first + _4],
        x[row, first + _5],
        x[row, first + _6],
        x[row, first + _7],
    )


@part()
def _add_eight(totals: Any, factor: Any, row: Any) -> Any:
    """Return ``totals[i] + factor * row[i]`` for each i < 8."""
    return (
        _add(totals[0], factor, row[0]),
        _add(totals[1], factor, row[1]),
        _add(totals[2], factor, row[2]),
        _add(totals[3], factor, row[3]),
        _add(totals[4], factor, row[4]),
        _add(totals[5], factor, row[5]),
        _add(totals[6], factor, row[6]),
        _add(totals[7], factor, row[7]),
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
def _any(row: Any) -> Any:
    """Return whether one of 8 numbers is not 0."""
    a, b, c, d, e, f, g, h = row
    return a != 0 or b != 0 or c != 0 or d != 0 or e != 0 or f != 0 or g != 0 or h != 0


@part()
def _row_times(rows: Any, v: Any, terms: Any, matrix: Any, first: Any) -> Any:
    """Return columns ``first`` to ``first + 8`` of ``rows[v, :terms] @ matrix``.

    An addition waits for the one before, so four sums are made side by side.
    """
    a, b, c, d = _zeros(matrix), _zeros(matrix), _zeros(matrix), _zeros(matrix)
    bulk = terms - terms % _4
    for k in range(_0, bulk, _4):
        a = _add_eight(a, rows[v, k], _eight(matrix, k, first))
        b = _add_eight(b, rows[v, k + _1], _eight(matrix, k + _1, first))
        c = _add_eight(c, rows[v, k + _2], _eight(matrix, k + _2, first))
        d = _add_eight(d, rows[v, k + _3], _eight(matrix, k + _3, first))
    for k in range(bulk, terms):
        a = _add_eight(a, rows[v, k], _eight(matrix, k, first))
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


@part()
def _from(base: Any, dense: Any, v: Any, first: Any) -> Any:
    """Return 8 numbers of a row of ``base``, zeros of the type of dense where base is None."""
    return _zeros(dense) if base is None else _eight(base, v, first)


@compiled
def product(matrix: Any, dense: Any, base: Any, out: Any) -> None:
    """Write ``out = base + S @ dense``; S (n, m), dense (m, H), base (n, H) or None for zeros, out (n, H).

    ``out`` may be narrower than dense if there is room for 7 numbers behind it: what is written beyond a row
    is written over by the next one. A walk along a row of S makes 32 columns, of those left over 16 or 8.
    """
    crow, col, values = matrix
    width = _at(dense.shape[1])
    wide = width - width % _32
    for v in range(_at(out.shape[0])):
        start, stop = _at(crow[v]), _at(crow[v + _1])
        for first in range(_0, wide, _32):
            a, b = _from(base, dense, v, first), _from(base, dense, v, first + _8)
            c, d = _from(base, dense, v, first + _16), _from(base, dense, v, first + _24)
            for k in range(start, stop):
                factor, row = values[k], _at(col[k])
                a = _add_eight(a, factor, _eight(dense, row, first))
                b = _add_eight(b, factor, _eight(dense, row, first + _8))
                c = _add_eight(c, factor, _eight(dense, row, first + _16))
                d = _add_eight(d, factor, _eight(dense, row, first + _24))
            _put_eight(a, out, v, first)
            _put_eight(b, out, v, first + _8)
            _put_eight(c, out, v, first + _16)
            _put_eight(d, out, v, first + _24)
        if wide + _16 <= width:
            a, b = _from(base, dense, v, wide), _from(base, dense, v, wide + _8)
            for k in range(start, stop):
                factor, row = values[k], _at(col[k])
                a = _add_eight(a, factor, _eight(dense, row, wide))
                b = _add_eight(b, factor, _eight(dense, row, wide + _8))
            _put_eight(a, out, v, wide)
            _put_eight(b, out, v, wide + _8)
        if width % _16 != _0:
            a = _from(base, dense, v, width - _8)
            for k in range(start, stop):
                a = _add_eight(a, values[k], _eight(dense, _at(col[k]), width - _8))
            _put_eight(a, out, v, width - _8)


@compiled
def scatter(matrix: Any, dense: Any, out: Any) -> None:
    """Add ``Sᵀ dense`` to out, row by row of S, without rows of zeros; dense (n, H), out (m, H)."""
    crow, col, values = matrix
    width = _at(dense.shape[1])
    pairs = width - width % _16
    for v in range(_at(dense.shape[0])):
        start, stop = _at(crow[v]), _at(crow[v + _1])
        for first in range(_0, pairs, _16):
            left, right = _eight(dense, v, first), _eight(dense, v, first + _8)
            if _any(left) or _any(right):
                for k in range(start, stop):
                    factor, row = values[k], _at(col[k])
                    one = _add_eight(_eight(out, row, first), factor, left)
                    other = _add_eight(_eight(out, row, first + _8), factor, right)
                    _put_eight(one, out, row, first)
                    _put_eight(other, out, row, first + _8)
        if pairs < width:
            left = _eight(dense, v, pairs)
            if _any(left):
                for k in range(start, stop):
                    row = _at(col[k])
                    _put_eight(_add_eight(_eight(out, row, pairs), values[k], left), out, row, pairs)
