"""What engines need of a sparse matrix."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


def padded_width(columns: int) -> int:
    """Return the number of columns that compiled loops work with: the least multiple of 8 not below."""
    return (columns + 7) // 8 * 8


class Matrix(Protocol):
    """A sparse matrix S; see :class:`bvat.engine.sparse.SparseMatrix`."""

    crow: Tensor
    col: Tensor
    values: Tensor
    shape: tuple[int, int]
    engine: Any

    @property
    def rows(self) -> Tensor: ...

    @property
    def csr(self) -> Tensor: ...

    @property
    def transposed_csr(self) -> Tensor: ...

    @property
    def transposed_tensors(self) -> tuple[Tensor, Tensor, Tensor]: ...

    @property
    def stores_transpose(self) -> bool: ...

    @property
    def arrays(self) -> tuple[Any, Any, Any]: ...

    @property
    def transposed_arrays(self) -> tuple[Any, Any, Any]: ...

    def with_values(self, values: Tensor) -> Matrix: ...

    def product(self, dense: Tensor) -> Tensor: ...

    def transposed_product(self, dense: Tensor) -> Tensor: ...
