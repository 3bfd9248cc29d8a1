"""A dense matrix with the interface of :class:`bvat.engine.sparse.SparseMatrix`."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from bvat.engine.compiled.engine import DEFAULT_ENGINE
from bvat.engine.tensor import TensorEngine


class DenseMatrix:
    """An immutable dense matrix (rows x columns): features of which many entries are not zero.

    Args:
        values: the entries, shape (rows, columns).
        engine: what multiplies by it; parts and copies of the matrix have the same.

    ``M @ dense`` is differentiable with respect to ``dense``.
    """

    def __init__(self, values: Tensor, engine: TensorEngine = DEFAULT_ENGINE) -> None:
        self.values, self.engine = values, engine

    def with_engine(self, engine: TensorEngine) -> Self:
        """Return the same matrix with another engine."""
        return type(self)(self.values, engine)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return int(self.values.shape[0]), int(self.values.shape[1])

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.values.numel()

    @property
    def device(self) -> torch.device:
        """Device of the entries."""
        return self.values.device

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the entries."""
        return self.values.dtype

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors that hold the matrix."""
        return (self.values,)

    def with_values(self, values: Tensor) -> Self:
        """Return a matrix with other entries, shape (rows, columns)."""
        return type(self)(values, self.engine)

    def masked(self, mask: Tensor) -> Self:
        """Return the matrix with every entry multiplied by its factor; mask (rows, columns)."""
        return self.with_values(self.values * mask)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Return the matrix on another device or in another precision (itself when nothing changes)."""
        values = self.values.to(device=device, dtype=dtype)
        return self if values is self.values else self.with_values(values)

    def to_dense(self) -> Tensor:
        """Return the entries, shape (rows, columns)."""
        return self.values

    def to_scipy(self) -> Any:
        """Return a numpy array: scipy has no dense matrices of its own."""
        return self.values.cpu().numpy()

    def product(self, dense: Tensor) -> Tensor:
        """Return ``M @ dense`` without autograd; dense (columns, H), result (rows, H)."""
        return self.values @ dense.detach()

    def transposed_product(self, dense: Tensor) -> Tensor:
        """Return ``Mᵀ @ dense`` without autograd; dense (rows, H), result (columns, H)."""
        return self.values.t() @ dense.detach()

    def __matmul__(self, dense: Tensor) -> Tensor:
        return self.values @ dense

    def select(self, rows: Tensor) -> DenseMatrix:
        """Return the chosen rows, in that order; rows int64 (m), result (m, columns)."""
        return DenseMatrix(self.values[rows], self.engine)

    def select_values(self, values: Tensor, rows: Tensor) -> Tensor:
        """Return the part of ``values`` (laid out as the entries) that belongs to the chosen rows."""
        return values[rows]

    def row_squares(self) -> Tensor:
        """Return the squared length of each row, shape (rows)."""
        return self.values.square().sum(1)

    def column_variances(self) -> Tensor:
        """Return the variance of each column over all rows, in double precision, shape (columns)."""
        return self.values.double().var(0, correction=0)

    def times_columns(self, factors: Tensor) -> Self:
        """Return the matrix with every column multiplied by its factor; factors (columns)."""
        return self.with_values(self.values * factors)

    def row_sums(self) -> Tensor:
        """Return the sum of the absolute values of each row, shape (rows)."""
        return self.values.abs().sum(1)

    def divide_rows(self, divisor: Tensor) -> Self:
        """Return the matrix with each row divided by its divisor, (rows)."""
        return self.with_values(self.values / divisor[:, None])

    def position(self, entry: Tensor) -> tuple[int, int]:
        """Return the row and column of an entry, given by its index in ``values``."""
        return int(entry[0]), int(entry[1])

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"DenseMatrix({rows} x {columns}, {self.dtype}, {self.device})"
