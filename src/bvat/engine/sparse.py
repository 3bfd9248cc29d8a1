"""Sparse matrices with a stored transpose.

The backward pass of ``A @ H`` is ``Aᵀ @ G``. torch's own backward of a CSR product builds that transpose
anew on every call, which costs ten times the product; here it is built once, beside the matrix.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bvat.engine.compile import Compiled
from bvat.engine.cpu import DEFAULT_ENGINE
from bvat.engine.tensor import TensorEngine

Made = TypeVar("Made")

# torch announces once, on first use, that CSR tensors are in beta; our indices are validated by Graph. That
# first use is made here, so that programs that turn warnings into errors work and no filter is changed.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    _none = torch.zeros(1, dtype=torch.int32)
    torch.sparse_csr_tensor(_none, _none[:0], torch.zeros(0), size=(0, 0), check_invariants=False)


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


class _Product(torch.autograd.Function):
    """``S @ H`` whose backward uses the stored transpose of S; no gradient reaches S."""

    @staticmethod
    def forward(ctx: Any, matrix: SparseMatrix, dense: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix.product(dense)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        if torch.is_grad_enabled():  # second derivatives were asked for
            return None, ctx.matrix.T @ grads[0]
        return None, ctx.matrix.transposed_product(grads[0])


class SparseMatrix:
    """An immutable CSR matrix (rows x columns) that knows its transpose.

    Args:
        crow: row pointers, int32, shape (rows + 1).
        col: column indices, int32, ascending within a row, shape (nnz).
        values: entries, shape (nnz).
        shape: (rows, columns).
        engine: what multiplies by it; parts and copies of the matrix have the same.

    ``S @ dense`` is differentiable with respect to ``dense``.
    """

    stores_transpose = True

    def __init__(
        self,
        crow: Tensor,
        col: Tensor,
        values: Tensor,
        shape: tuple[int, int],
        engine: TensorEngine = DEFAULT_ENGINE,
    ) -> None:
        self.crow, self.col, self.values, self.shape, self.engine = crow, col, values, shape, engine

    @classmethod
    def of(cls, matrix: SparseMatrix, engine: TensorEngine | None = None) -> Self:
        """Return the same entries as a matrix of this kind, for example one known to be symmetric."""
        return cls(matrix.crow, matrix.col, matrix.values, matrix.shape, engine or matrix.engine)

    def with_engine(self, engine: TensorEngine) -> Self:
        """Return the same matrix with another engine."""
        return self.of(self, engine)

    def kept(self, name: str, make: Callable[[], Made], key: Any = None) -> Made:
        """Return what ``make`` makes of this matrix, made once per ``name`` and anew for another ``key``."""
        found = self._kept.get(name)
        if found is None or found[0] != key:
            found = self._kept[name] = key, make()
        return found[1]

    @cached_property
    def _kept(self) -> dict[str, tuple[Any, Any]]:
        return {}

    @classmethod
    def from_scipy(cls, matrix: Any, dtype: torch.dtype = torch.float32) -> SparseMatrix:
        """Build from any scipy sparse matrix; duplicate entries are summed."""
        csr = sp.csr_array(matrix)
        if not csr.has_canonical_format:
            csr = csr.copy()  # the caller's arrays are not ours to reorder
            csr.sum_duplicates()
        return cls(
            torch.from_numpy(csr.indptr.astype(np.int32)),
            torch.from_numpy(csr.indices.astype(np.int32)),
            torch.from_numpy(np.array(csr.data, copy=True)).to(dtype),
            (int(csr.shape[0]), int(csr.shape[1])),
        )

    def to_scipy(self) -> Any:
        """Return the same matrix as ``scipy.sparse.csr_array``."""
        parts = (self.values.cpu().numpy(), self.col.cpu().numpy(), self.crow.cpu().numpy())
        return sp.csr_array(parts, shape=self.shape)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors that hold the matrix."""
        return self.crow, self.col, self.values

    def row_squares(self) -> Tensor:
        """Return the squared length of each row, shape (rows)."""
        return self.values.new_zeros(self.shape[0]).index_add_(0, self.rows, self.values.square())

    def column_variances(self) -> Tensor:
        """Return the variance of each column over all rows, in double precision, shape (columns)."""
        values, at = self.values.double(), self.col.long()
        sums = values.new_zeros(2, self.shape[1])
        sums[0].index_add_(0, at, values)
        sums[1].index_add_(0, at, values.square())
        mean, square = (sums / max(1, self.shape[0])).unbind()
        return (square - mean.square()).clamp_min_(0)

    def times_columns(self, factors: Tensor) -> SparseMatrix:
        """Return the matrix with every column multiplied by its factor; factors (columns)."""
        return self.with_values(self.values * factors[self.col.long()])

    def row_sums(self) -> Tensor:
        """Return the sum of the absolute values of each row, shape (rows)."""
        return self.values.new_zeros(self.shape[0]).index_add_(0, self.rows, self.values.abs())

    def divide_rows(self, divisor: Tensor) -> SparseMatrix:
        """Return the matrix with each row divided by its divisor, (rows)."""
        return self.with_values(self.values / divisor[self.rows])

    def position(self, entry: Tensor) -> tuple[int, int]:
        """Return the row and column of an entry, given by its index in ``values``."""
        return int(self.rows[entry[0]]), int(self.col[entry[0]])

    def to_dense(self) -> Tensor:
        """Return the dense matrix, shape (rows, columns)."""
        dense = self.values.new_zeros(self.shape)
        dense[self.rows, self.col.long()] = self.values
        return dense

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Return the matrix on another device or in another precision (itself when nothing changes)."""
        values = self.values.to(device=device, dtype=dtype)
        if values is self.values:
            return self
        return type(self)(self.crow.to(device), self.col.to(device), values, self.shape, self.engine)

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.values.numel()

    @property
    def device(self) -> torch.device:
        return self.values.device

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @cached_property
    def rows(self) -> Tensor:
        """Row index of each stored entry, int64, shape (nnz)."""
        counts = torch.diff(self.crow.long())
        return torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), counts)

    @cached_property
    def _transpose(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row pointers and columns of Sᵀ, and where each of its entries stands in ``values``."""
        order = torch.argsort(self.col, stable=True)
        crow = row_pointers(torch.bincount(self.col, minlength=self.shape[1]))
        return crow, self.rows[order].to(torch.int32), order

    @cached_property
    def transposed_tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row pointers, columns and values of Sᵀ."""
        crow, col, order = self._transpose
        return crow, col, self.values.index_select(0, order)  # four times faster than indexing

    @property
    def T(self) -> SparseMatrix:
        """The transpose, as a matrix of its own."""
        return SparseMatrix(*self.transposed_tensors, (self.shape[1], self.shape[0]), self.engine)

    def with_values(self, values: Tensor) -> SparseMatrix:
        """Return a matrix of the same pattern with other entries; the pattern's transpose is reused."""
        other = SparseMatrix(self.crow, self.col, values, self.shape, self.engine)
        other.__dict__["_transpose"] = self._transpose
        if "rows" in self.__dict__:
            other.__dict__["rows"] = self.rows
        return other

    def masked(self, mask: Tensor) -> SparseMatrix:
        """Return the matrix with every entry multiplied by its factor; mask (nnz, 1)."""
        return self.with_values(self.values * mask.flatten())

    @cached_property
    def csr(self) -> Tensor:
        """The matrix as torch sees it."""
        return torch.sparse_csr_tensor(
            self.crow, self.col, self.values, size=self.shape, check_invariants=False
        )

    @cached_property
    def transposed_csr(self) -> Tensor:
        """The transpose as torch sees it."""
        shape = (self.shape[1], self.shape[0])
        return torch.sparse_csr_tensor(*self.transposed_tensors, size=shape, check_invariants=False)

    # not kept: a tensor sent to another process moves to shared memory and leaves an array made before behind
    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """Row pointers, columns and values as numpy arrays, for compiled loops."""
        return self.crow.numpy(), self.col.numpy(), self.values.detach().numpy()

    @property
    def transposed_arrays(self) -> tuple[Any, Any, Any]:
        """The same of the transpose."""
        crow, col, values = self.transposed_tensors
        return crow.numpy(), col.numpy(), values.detach().numpy()

    def product(self, dense: Tensor) -> Tensor:
        """Return ``S @ dense`` without autograd; dense (columns, H), result (rows, H)."""
        return self.engine.product(self, dense)

    def transposed_product(self, dense: Tensor) -> Tensor:
        """Return ``Sᵀ @ dense`` without autograd; dense (rows, H), result (columns, H)."""
        return self.engine.transposed_product(self, dense)

    def __matmul__(self, dense: Tensor) -> Tensor:
        if dense.requires_grad and torch.is_grad_enabled():
            product: Tensor = _Product.apply(self, dense)  # type: ignore[no-untyped-call]
            return product
        return self.product(dense)

    def neighbour_mean(self) -> SparseMatrix:
        """Return M with ``(M H)_v`` the mean over v's neighbours without v itself, 0 where there are none.

        Only where entries stand matters, not how large they are; the matrix is square.
        """
        other = self.rows != self.col
        rows, col = self.rows[other], self.col[other]
        counts = torch.bincount(rows, minlength=self.shape[0])
        values = counts.to(self.dtype).reciprocal()[rows]
        return SparseMatrix(row_pointers(counts), col, values, self.shape, self.engine)

    def entries(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return row pointers (m + 1) over the chosen rows, and where their entries stand in ``values``."""
        start = self.crow[rows].long()
        counts = self.crow[rows + 1].long() - start
        crow = torch.zeros(rows.numel() + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(counts, 0, out=crow[1:])
        # position of every kept entry: its row's start plus its place within the row
        entry = torch.arange(int(crow[-1]), device=self.device)
        entry += torch.repeat_interleave(start - crow[:-1], counts)
        return crow, entry

    def select_values(self, values: Tensor, rows: Tensor) -> Tensor:
        """Return the part of ``values`` (laid out as the entries) that belongs to the chosen rows."""
        return values[self.entries(rows)[1]]

    def select(self, rows: Tensor) -> SparseMatrix:
        """Return the chosen rows, in that order; rows int64 (m), result (m, columns)."""
        if self.device.type == "cpu":
            parts = _take_rows(*self.arrays, rows.numpy())
            own_crow, col, values = (torch.from_numpy(part) for part in parts)
            return SparseMatrix(own_crow, col, values, (rows.numel(), self.shape[1]), self.engine)
        crow, entry = self.entries(rows)
        shape = (rows.numel(), self.shape[1])
        return SparseMatrix(crow.to(torch.int32), self.col[entry], self.values[entry], shape, self.engine)

    def induced(self, nodes: Tensor) -> SparseMatrix:
        """Return the square submatrix of the chosen rows and the same columns.

        Shapes: nodes int64 (m), ascending and without repeats; result (m, m).
        """
        if self.device.type == "cpu":
            arrays = (part.detach().numpy() for part in (self.crow, self.col, self.values, nodes))
            crow, col, values = (torch.from_numpy(array) for array in _cut_out(*arrays))
        else:
            crow, col, values = self._cut_out_on_device(nodes)
        return SparseMatrix(crow, col, values, (nodes.numel(), nodes.numel()), self.engine)

    def _cut_out_on_device(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Do what :func:`_cut_out` does with tensor operations."""
        local = torch.full((self.shape[1],), -1, dtype=torch.int32, device=self.device)
        local[nodes] = torch.arange(nodes.numel(), dtype=torch.int32, device=self.device)
        chosen = self.select(nodes)
        col = local[chosen.col]
        keep = col >= 0
        kept_before = torch.zeros(keep.numel() + 1, dtype=torch.int32, device=self.device)
        torch.cumsum(keep, 0, dtype=torch.int32, out=kept_before[1:])
        return kept_before[chosen.crow], col[keep], chosen.values[keep]

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"{type(self).__name__}({rows} x {columns}, nnz={self.nnz}, {self.dtype}, {self.device})"


class SymmetricMatrix(SparseMatrix):
    """A sparse matrix that equals its transpose, so that no second copy is stored."""

    @property
    def transposed_arrays(self) -> tuple[Any, Any, Any]:
        """Row pointers, columns and values as numpy arrays."""
        return self.arrays

    def transposed_product(self, dense: Tensor) -> Tensor:
        """Return ``Sᵀ @ dense``, which is ``S @ dense``."""
        return self.product(dense)

    def induced(self, nodes: Tensor) -> SymmetricMatrix:
        """Return the square submatrix of the chosen rows and columns, symmetric again."""
        return SymmetricMatrix.of(super().induced(nodes))


@Compiled
def _take_rows(crow: Any, col: Any, values: Any, rows: Any) -> Any:
    """Return row pointers, columns and values of the chosen rows."""
    own_crow = np.zeros(rows.shape[0] + 1, dtype=np.int32)
    for place in range(rows.shape[0]):
        if not 0 <= rows[place] < crow.shape[0] - 1:
            raise IndexError("there is no such row")
        own_crow[place + 1] = own_crow[place] + crow[rows[place] + 1] - crow[rows[place]]
    own_col = np.empty(own_crow[-1], dtype=np.int32)
    own_values = np.empty(own_crow[-1], dtype=values.dtype)
    for place in range(rows.shape[0]):
        size = own_crow[place]
        for k in range(crow[rows[place]], crow[rows[place] + 1]):
            own_col[size] = col[k]
            own_values[size] = values[k]
            size += 1
    return own_crow, own_col, own_values


@Compiled
def _cut_out(crow: Any, col: Any, values: Any, nodes: Any) -> Any:
    """Return row pointers, columns and values of the square submatrix on ``nodes``."""
    local = np.full(crow.shape[0], -1, dtype=np.int32)
    most = 0
    for place in range(nodes.shape[0]):
        local[nodes[place]] = place
        most += crow[nodes[place] + 1] - crow[nodes[place]]
    own_crow = np.zeros(nodes.shape[0] + 1, dtype=np.int32)
    own_col = np.empty(most, dtype=np.int32)
    own_values = np.empty(most, dtype=values.dtype)
    size = 0
    for place in range(nodes.shape[0]):
        for k in range(crow[nodes[place]], crow[nodes[place] + 1]):
            column = local[col[k]]
            if column >= 0:
                own_col[size] = column
                own_values[size] = values[k]
                size += 1
        own_crow[place + 1] = size
    return own_crow, own_col[:size], own_values[:size]
