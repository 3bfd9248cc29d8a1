"""Sparse matrices as row pointers, columns and entries (CSR), and what engines need of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from bvat.engine.compile import Compiled

Made = TypeVar("Made")
Matrix = Any
"""What engines are given: a :class:`bvat.engine.sparse.SparseMatrix`, whose module imports theirs."""


def check_csr(crow: Any, col: Any, values: Any, shape: tuple[int, int], *, ordered: bool = False) -> None:
    """Raise ValueError unless numpy arrays are the row pointers, columns and entries of a CSR matrix.

    Neither torch nor scipy looks at all of it (scipy's own check accepts pointers that return to 0), and both
    read and write outside the arrays of a matrix that is wrong.

    Args:
        crow: row pointers (rows + 1), whole numbers.
        col: column indices (nnz), whole numbers.
        values: entries (nnz).
        shape: (rows, columns).
        ordered: whether the columns of a row must be ascending.
    """
    rows, columns = shape
    if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in (crow, col)):
        raise ValueError("indices must be one-dimensional integers")
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise ValueError("entries must be one-dimensional numbers")
    if crow.size != rows + 1 or crow[0] != 0 or (crow[1:] < crow[:-1]).any():
        raise ValueError("the row pointers are not ascending from 0")
    if not crow[-1] == col.size == values.size:
        raise ValueError("the number of entries does not match the row pointers")
    if col.size:
        low, high = int(col.min()), int(col.max())
        if low < 0 or high >= columns:
            bad = low if low < 0 else high
            raise ValueError(f"an entry points at column {bad}, outside 0 to {columns - 1}")
    if ordered and not np.isin(np.flatnonzero(col[1:] <= col[:-1]) + 1, crow).all():
        raise ValueError("the columns of a row are not ascending")


def row_pointers(counts: Tensor) -> Tensor:
    """Return the row pointers, int32 (rows + 1), of rows with so many entries each."""
    crow = torch.zeros(counts.numel() + 1, dtype=torch.int32, device=counts.device)
    crow[1:] = torch.cumsum(counts, 0)
    return crow


@Compiled
def take_rows(crow: Any, col: Any, values: Any, rows: Any, place: Any) -> Any:
    """Return row pointers, columns and entries of the chosen rows.

    Columns are numbered by ``place`` (columns); those that have no place there (-1) are left out.
    """
    most = 0
    for v in rows:
        if not 0 <= v < crow.shape[0] - 1:
            raise IndexError("there is no such row")
        most += crow[v + 1] - crow[v]
    own_crow = np.zeros(rows.shape[0] + 1, dtype=np.int32)
    own_col = np.empty(most, dtype=np.int32)
    own_values = np.empty(most, dtype=values.dtype)
    size = 0
    for i in range(rows.shape[0]):
        for k in range(crow[rows[i]], crow[rows[i] + 1]):
            column = place[col[k]]
            if column >= 0:
                own_col[size] = column
                own_values[size] = values[k]
                size += 1
        own_crow[i + 1] = size
    return own_crow, own_col[:size], own_values[:size]


class StoredMatrix:
    """What sparse and dense matrices share."""

    values: Tensor
    shape: tuple[int, int]

    @property
    def nnz(self) -> int:
        return self.values.numel()

    @property
    def device(self) -> torch.device:
        return self.values.device

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    def kept(self, name: str, make: Callable[[], Made], key: Any = None) -> Made:
        """Return what ``make`` makes of this matrix, made once per ``name`` and again for another ``key``."""
        found = self._kept.get(name)
        if found is None or found[0] != key:
            found = self._kept[name] = key, make()
        made: Made = found[1]
        return made

    @cached_property
    def _kept(self) -> dict[str, tuple[Any, Any]]:
        return {}

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"{type(self).__name__}({rows} x {columns}, nnz={self.nnz}, {self.dtype}, {self.device})"


def padded_width(columns: int) -> int:
    """Return the number of columns that compiled loops work with: the least multiple of 8 not below."""
    return (columns + 7) // 8 * 8
