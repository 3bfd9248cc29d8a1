"""Â and X over several ranks: own rows here, the rows of others by a halo exchange.

The product with own rows of Â needs the rows of neighbours that other ranks own, the halo. They travel while
the rows whose neighbours are all here are computed. Â is symmetric in where its entries stand, so the own
rows of ``Âᵀ G`` are the same product with the same exchange, with other values where Â itself is not
symmetric.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bvat.engine import rowwise
from bvat.engine.dense import DenseMatrix
from bvat.engine.ranks import RankEngine, connected
from bvat.engine.sparse import SparseMatrix
from bvat.errors import SettingsError


@dataclass(frozen=True, eq=False)
class Halo:
    """Which rows a rank sends to each rank and receives from each, and which of its own rows need them.

    Shapes: nodes int64 (n) and halo int64 (h), numbers in the whole graph of own and received nodes, these
    in the order of the ranks that own them; send int64 (s), own rows to send, those for rank 0 first;
    send_counts and receive_counts: one number per rank; interior: how many of the first own rows have
    neighbours here only.
    """

    ranks: RankEngine
    nodes: Tensor
    halo: Tensor
    send: Tensor
    send_counts: list[int]
    receive_counts: list[int]
    interior: int

    def receive(self, rows: Tensor, into: Tensor) -> Any:
        """Start to send own rows (n, H) and to receive the halo into ``into`` (h, H); return the wait."""
        sent = rows.index_select(0, self.send)
        return self.ranks.exchange(into, sent, self.receive_counts, self.send_counts)


class ExchangedMatrix(SparseMatrix):
    """Own rows of Â, (n, n) to whoever multiplies by it: rows of other ranks come by exchange.

    Args:
        crow, col, values: own rows; columns count own nodes first, then the halo. The entries of a row are in
            the order that they have in the whole graph, which fixes the rounding of its sum.
        transposed: values of the transposed matrix at the same places; those of the matrix if symmetric.
        halo: what is exchanged.
    """

    def __init__(
        self, crow: Tensor, col: Tensor, values: Tensor, transposed: Tensor | None, halo: Halo
    ) -> None:
        size = halo.nodes.numel()
        super().__init__(crow, col, values, (size, size), halo.ranks)
        self.transposed = values if transposed is None else transposed
        self.halo = halo

    @cached_property
    def _boundary(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row pointers and columns of the rows that need the halo, and the own rows that they need.

        Their columns count the needed own rows first, then the halo.
        """
        size, first = self.halo.nodes.numel(), self.halo.interior
        start = int(self.crow[first])
        col = self.col[start:].long()
        used = torch.zeros(size, dtype=torch.bool)
        used[col[col < size]] = True
        needed = torch.nonzero(used).flatten()
        place = torch.cumsum(used, 0) - 1
        local = torch.where(col < size, place[col.clamp_max(size - 1)], col - size + needed.numel())
        return self.crow[first:] - start, local.to(torch.int32), needed

    def _with(self, values: Tensor, transposed: Tensor) -> ExchangedMatrix:
        other = ExchangedMatrix(self.crow, self.col, values, transposed, self.halo)
        other.__dict__["_boundary"] = self._boundary
        return other

    def masked(self, mask: Tensor) -> ExchangedMatrix:
        """Return the matrix with its entries, and those of the transpose, multiplied; mask (nnz, 2)."""
        return self._with(self.values * mask[:, 0], self.transposed * mask[:, 1])

    def with_values(self, values: Tensor) -> SparseMatrix:
        """Refuse: the values of the transpose would be unknown."""
        raise SettingsError(
            "this model changes entries of the matrix, which does not work over several ranks"
        )

    @cached_property
    def global_entries(self) -> tuple[Tensor, Tensor]:
        """The numbers in the whole graph of the two nodes of each entry, int64 (nnz) each."""
        nodes = torch.cat([self.halo.nodes, self.halo.halo])
        return nodes[self.rows], nodes[self.col.long()]

    def neighbour_mean(self) -> ExchangedMatrix:
        crow, rows, col, weights = self.edge_weights(both_sides=True)
        shares = self.shares(rows, weights)
        transposed = weights * self.of_columns(shares)[col.long()]
        return ExchangedMatrix(crow, col, weights * shares[rows], transposed, self.halo)

    def of_columns(self, of_rows: Tensor) -> Tensor:
        received = of_rows.new_empty(self.halo.halo.numel(), 1)
        if self.halo.ranks.size > 1:
            with connected():
                self.halo.receive(of_rows[:, None].contiguous(), received).wait()
        return torch.cat([of_rows, received.flatten()])

    def product(self, dense: Tensor) -> Tensor:
        return self._product(self.values, dense)

    def transposed_product(self, dense: Tensor) -> Tensor:
        return self._product(self.transposed, dense)

    def _product(self, values: Tensor, dense: Tensor) -> Tensor:
        halo, wide = self.halo, rowwise.padded(dense)
        first, width = halo.interior, wide.shape[1]
        out = wide.new_empty(wide.shape)
        whole = self.crow, self.col, values
        if halo.ranks.size == 1:
            rowwise.product(whole, wide, out)
        else:
            own_crow, own_col, needed = self._boundary
            rows = wide.new_empty(needed.numel() + halo.halo.numel(), width)
            waiting = halo.receive(wide, rows[needed.numel() :])
            rowwise.product(whole, wide, out[:first])
            torch.index_select(wide, 0, needed, out=rows[: needed.numel()])
            with connected():
                waiting.wait()
            own = own_crow, own_col, values[int(self.crow[first]) :]
            rowwise.product(own, rows, out[first:])
        return rowwise.cut(out, dense.shape[1])


class PartFeatures(SparseMatrix):
    """Own rows of sparse features X; ``Xᵀ G`` is the sum over the nodes of all ranks."""

    engine: RankEngine

    def with_values(self, values: Tensor) -> PartFeatures:
        other = PartFeatures(self.crow, self.col, values, self.shape, self.engine)
        if "rows" in self.__dict__:
            other.__dict__["rows"] = self.rows
        return other

    def product(self, dense: Tensor) -> Tensor:
        wide = rowwise.padded(dense)
        out = wide.new_empty(self.shape[0], wide.shape[1])
        rowwise.product(self.tensors(), wide, out)
        return rowwise.cut(out, dense.shape[1])

    def transposed_product(self, dense: Tensor) -> Tensor:
        rounder = self.engine.rounder(self.values, dense)
        summed = rowwise.scattered_product(*self.arrays, dense, self.shape[1], rounder)
        return self.engine.reduce(summed).to(dense.dtype)


class PartDense(DenseMatrix):
    """Own rows of dense features X; ``Xᵀ G`` is the sum over the nodes of all ranks."""

    def product(self, dense: Tensor) -> Tensor:
        return rowwise.times(self.values, dense)

    def __matmul__(self, dense: Tensor) -> Tensor:
        return self.engine.times(self.values, dense)
