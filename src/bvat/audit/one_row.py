"""Changes of one row of each receptive field: which rows to try, and the space of their changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from bvat.audit.first_layer import ReadSpace
from bvat.audit.worst_case import RecordingProblem
from bvat.perturb.problem import FixedPass
from bvat.perturb.spaces import Space

ROWS_TRIED = 2
"""Rows of each field that are tried for each class."""


class OneRowSpace(Space):
    """Changes z of one row w of each field, stored as the coordinates ``c zᵀ`` of another space.

    Shapes: column c (n, 1), which is 1 at w where that space has a row for each node, and the column w of Â_1
    where it has rows that the first layer reads; group int64 (n), the field of each row.
    """

    def __init__(self, space: Space, column: Tensor, group: Tensor) -> None:
        self.space, self.column, self.group, self.count = space, column, group, int(group.max()) + 1
        self.shape, self.engine = space.shape, space.engine
        self.squares = self._over_fields(column.square())[:, 0].clamp_min(torch.finfo(column.dtype).tiny)

    def _over_fields(self, rows: Tensor) -> Tensor:
        """Give every row the sum over its field, both (n, H)."""
        sums = rows.new_zeros(self.count, rows.shape[1]).index_add_(0, self.group, rows)
        return sums.index_select(0, self.group)

    def effect(self, r: Tensor) -> Tensor:
        return self.space.effect(r)

    def pull(self, gradient: Tensor) -> Tensor:
        return self.space.pull(self._over_fields(gradient * self.column) * self.column)

    def row_squares(self, r: Tensor) -> Tensor:
        """Return numbers (n) whose sum over a field is |z|²."""
        return self.space.row_squares(r) / self.squares


def longest_rows(squares: Tensor, owner: Tensor, fields: int) -> Tensor:
    """Return one row with the largest square for each field, int64 (fields); squares and owner (n)."""
    longest = squares.new_full((fields,), -1).scatter_reduce_(0, owner, squares, "amax")
    at = torch.nonzero(squares == longest[owner])[:, 0]
    return owner.new_zeros(fields).scatter_reduce_(0, owner[at], at, "amax")


def on_one_row(
    problem: RecordingProblem, select: Tensor, count: int = ROWS_TRIED
) -> Iterator[RecordingProblem]:
    """Yield the problem with changes of one row per field only: that of the longest gradient, then the next.

    Shapes: select (b, C), the gradient of a margin.
    """
    point, space, owner = FixedPass(problem), problem.space, problem.group
    gradient = point.linearised(point.base)[1](select)
    block = space.block if isinstance(space, ReadSpace) else None
    if block is None:
        squares = space.row_squares(space.pull(gradient))
    else:
        pulled = block.transposed_product(gradient)
        squares = problem.engine.row_dots(pulled, pulled)
        owner = torch.zeros_like(squares, dtype=torch.int64)
        owner[block.col.long()] = problem.group[block.rows]  # all entries of a column are of one field
    for _ in range(count):
        row = longest_rows(squares, owner, problem.num_chosen + 1)
        chosen = torch.arange(owner.numel(), device=row.device) == row[owner]
        squares = torch.where(chosen, -1, squares)
        column = chosen[:, None].to(gradient.dtype)
        column = column if block is None else block.product(column)
        one = OneRowSpace(space, column, problem.group)
        yield replace(problem, space=one, row_counts=torch.ones_like(problem.row_counts))
