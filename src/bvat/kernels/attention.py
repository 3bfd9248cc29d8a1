"""Dot products of the rows that the entries of a sparse pattern join."""

from __future__ import annotations

from typing import Any

from bvat.kernels.vectors import compiled_reordering


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
