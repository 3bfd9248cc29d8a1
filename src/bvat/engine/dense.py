"""A dense matrix with the interface of :class:`bvat.engine.sparse.SparseMatrix`."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from bvat.engine.cpu import DEFAULT_ENGINE
from bvat.engine.matrix import StoredMatrix
from bvat.engine.tensor import TensorEngine


class DenseMatrix(StoredMatrix):
    """An immutable dense matrix (rows x columns): features of which many entries are not zero.

    Args:
        values: the entries, shape (rows, columns).
        engine: what multiplies by it; parts and copies of the matrix have the same.

    ``M @ dense`` is differentiable with respect to ``dense``.
    """

    def __init__(self, values: Tensor, engine: TensorEngine = DEFAULT_ENGINE) -> None:
        self.values, self.engine = values, engine
        self.shape = tuple(values.shape)  # type: ignore[assignment]  # a graph refuses others than two

    def with_engine(self, engine: TensorEngine) -> Self:
        return type(self)(self.values, engine)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.values,)

    def with_values(self, values: Tensor) -> Self:
        return type(self)(values, self.engine)

    def masked(self, mask: Tensor) -> Self:
        return self.with_values(self.values * mask)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        values = self.values.to(device=device, dtype=dtype)
        return self if values is self.values else self.with_values(values)

    def to_dense(self) -> Tensor:
        return self.values

    def to_scipy(self) -> Any:
        """Return a numpy array: scipy has no dense matrices of its own."""
        return self.values.cpu().numpy()

    def product(self, dense: Tensor) -> Tensor:
        return self.values @ dense.detach()

    def transposed_product(self, dense: Tensor) -> Tensor:
        return self.engine.node_product(self.values, dense.detach())

    def __matmul__(self, dense: Tensor) -> Tensor:
        return self.values @ dense

    def select(self, rows: Tensor) -> DenseMatrix:
        return DenseMatrix(self.values[rows], self.engine)

    def select_values(self, values: Tensor, rows: Tensor) -> Tensor:
        return values[rows]

    def row_squares(self) -> Tensor:
        return self.values.square().sum(1)

    def column_variances(self) -> Tensor:
        return self.values.double().var(0, correction=0)

    def times_columns(self, factors: Tensor) -> Self:
        return self.with_values(self.values * factors)

    def row_sums(self) -> Tensor:
        return self.values.abs().sum(1)

    def divide_rows(self, divisor: Tensor) -> Self:
        return self.with_values(self.values / divisor[:, None])

    def position(self, entry: Tensor) -> tuple[int, int]:
        return int(entry[0]), int(entry[1])
