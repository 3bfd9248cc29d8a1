"""Sparse matrices with a stored transpose.

The backward pass of ``A @ H`` is ``Aᵀ @ G``. torch's own backward of a CSR product builds that transpose
again on every call, which costs ten times the product; here it is built once, beside the matrix.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bvat.engine.cpu import DEFAULT_ENGINE
from bvat.engine.matrix import StoredMatrix, row_pointers, take_rows
from bvat.engine.tensor import TensorEngine

Made = TypeVar("Made")

# torch announces once, on first use, that CSR tensors are in beta; our indices are validated by Graph. That
# first use is made here, so that programs that turn warnings into errors work and no filter is changed.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    _none = torch.zeros(1, dtype=torch.int32)
    torch.sparse_csr_tensor(_none, _none[:0], torch.zeros(0), size=(0, 0), check_invariants=False)


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


class SparseMatrix(StoredMatrix):
    """An immutable CSR matrix (rows x columns) that knows its transpose.

    Args:
        crow: row pointers, int32, shape (rows + 1).
        col: column indices, int32, ascending within a row, shape (nnz).
        values: entries, shape (nnz).
        shape: (rows, columns).
        engine: what multiplies by it; parts and copies of the matrix have the same.

    ``S @ dense`` is differentiable with respect to ``dense``.
    """

    symmetric = False

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
        return self.of(self, engine)

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
    def transposed_places(self) -> Tensor:
        """Where each entry of Sᵀ stands in ``values``, int64 (nnz)."""
        return self._transpose[2]

    @property
    def T(self) -> SparseMatrix:
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
        return torch.sparse_csr_tensor(
            self.crow, self.col, self.values, size=self.shape, check_invariants=False
        )

    @cached_property
    def transposed_csr(self) -> Tensor:
        shape = (self.shape[1], self.shape[0])
        return torch.sparse_csr_tensor(*self.transposed_tensors, size=shape, check_invariants=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what torch makes of the same tensors, and warns of when it is sent to another process."""
        return {name: made for name, made in self.__dict__.items() if not name.endswith("csr")}

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """Row pointers, columns and values as numpy arrays, for compiled loops; a GPU's are copied once."""
        if self.device.type != "cpu":
            made: tuple[Any, Any, Any] = self.kept("arrays", lambda: self.to("cpu").arrays)
            return made
        # not kept: a tensor sent to another process moves to shared memory and leaves such an array behind
        return self.crow.numpy(), self.col.numpy(), self.values.detach().numpy()

    def product(self, dense: Tensor) -> Tensor:
        """Return ``S @ dense`` without autograd; dense (columns, H), result (rows, H)."""
        return self.engine.sparse_product(self, dense)

    def transposed_product(self, dense: Tensor) -> Tensor:
        """Return ``Sᵀ @ dense`` without autograd; dense (rows, H), result (columns, H)."""
        return self.engine.sparse_product(self, dense, transposed=True)

    def __matmul__(self, dense: Tensor) -> Tensor:
        if dense.requires_grad and torch.is_grad_enabled():
            product: Tensor = _Product.apply(self, dense)  # type: ignore[no-untyped-call]
            return product
        return self.product(dense)

    def neighbour_mean(self) -> SparseMatrix:
        """Return M with ``(M H)_v`` the mean over v's neighbours without v itself, 0 where there are none.

        The mean is weighted by the edges; this matrix is a square normalised adjacency.
        """
        crow, rows, col, weights = self.edge_weights(both_sides=self.symmetric)
        values = weights * self.shares(rows, weights)[rows]
        return SparseMatrix(crow, col, values, self.shape, self.engine)

    def edge_weights(self, *, both_sides: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return row pointers, rows, columns and weights w of the edges of a normalised adjacency S.

        As self-loops have weight 1, ``w_vu = S_vu / sqrt(S_vv S_uu)`` for ``S = D^-1/2 (A + I) D^-1/2``
        (``both_sides``), and ``w_vu = S_vu / S_vv`` for ``S = D^-1 (A + I)``. A weight that differs from 1 by
        rounding is 1.
        """
        other = self.rows != self.col
        rows, col, own = self.rows[other], self.col[other], self.values[~other]
        divisor = (own[rows] * self.of_columns(own)[col.long()]).sqrt() if both_sides else own[rows]
        weights = self.values[other] / divisor
        weights = torch.where((weights - 1).abs() < 1e-5, 1, weights)
        return row_pointers(torch.bincount(rows, minlength=self.shape[0])), rows, col, weights

    def shares(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Return one over the sum of the weights in each row."""
        sums = torch.bincount(rows, weights.double(), minlength=self.shape[0])
        return sums.to(self.dtype).reciprocal()

    def of_columns(self, of_rows: Tensor) -> Tensor:
        """Return numbers of nodes, given for the rows of a square matrix, for its columns."""
        return of_rows

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
        every = torch.arange(self.shape[1], dtype=torch.int32, device=self.device)
        return self._part(rows, every, self.shape[1])

    def induced(self, nodes: Tensor) -> SparseMatrix:
        """Return the square submatrix of the chosen rows and the same columns.

        Shapes: nodes int64 (m), ascending and without repeats; result (m, m).
        """
        place = torch.full((self.shape[1],), -1, dtype=torch.int32, device=self.device)
        place[nodes] = torch.arange(nodes.numel(), dtype=torch.int32, device=self.device)
        return self._part(nodes, place, nodes.numel())

    def induced_places(self, nodes: Tensor) -> Tensor:
        """Return where each entry of ``induced(nodes)`` stands in ``values``, int64."""
        places = torch.arange(self.nnz, device=self.device)
        return self.with_values(places).induced(nodes).values

    def _part(self, rows: Tensor, place: Tensor, columns: int) -> SparseMatrix:
        """Return the chosen rows with their columns numbered by ``place`` (columns), without those at -1."""
        if self.device.type == "cpu":
            parts = take_rows(*self.arrays, rows.numpy(), place.numpy())
            crow, col, values = (torch.from_numpy(part) for part in parts)
        else:
            before, entry = self.entries(rows)
            col = place[self.col[entry].long()]
            keep = col >= 0
            crow = torch.zeros(keep.numel() + 1, dtype=torch.int32, device=self.device)
            torch.cumsum(keep, 0, dtype=torch.int32, out=crow[1:])
            crow, col, values = crow[before], col[keep], self.values[entry[keep]]
        return SparseMatrix(crow, col, values, (rows.numel(), columns), self.engine)


class SymmetricMatrix(SparseMatrix):
    """A sparse matrix that equals its transpose, so that no second copy is stored."""

    symmetric = True

    @property
    def transposed_tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.crow, self.col, self.values

    def induced(self, nodes: Tensor) -> SymmetricMatrix:
        return SymmetricMatrix.of(super().induced(nodes))
