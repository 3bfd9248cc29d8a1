"""Perturbations as the first layer of a GCN reads them: a few rows per field instead of hundreds.

R = Z Qᵀ, with W0 = Q U, has an effect through ``E = Â_1 Z`` only, where Â_1 has a row for each node within
K - 1 hops and a column for each node of the field. A gradient with respect to Z is ``Â_1ᵀ Y`` for one with
respect to E, so both steps that searches take are functions of Y:

- along the gradient ``Z = Â_1ᵀ Y``, ``E = Â_1 Â_1ᵀ Y`` and ``|R|² = <Y, E>``;
- with rows of length ε, ``E = ε Â_1 unit(Â_1ᵀ Y)``, where unit divides each row by its length.

Most columns of Â_1 have one entry, say in row u. Their rows of Z are multiples of Y_u, and together they add
a multiple of Y_u, or of unit(Y_u), to E_u. Only the other columns are multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bvat.graph.inputs import Block, GraphInputs
from bvat.models.base import Pullback
from bvat.perturb.spaces import FactoredSpace


class ReadSpace(FactoredSpace):
    """Coordinates are E itself. Shapes: block from (n, m), Â_1; E and gradients Y (n, H)."""

    effect_map = None  # type: ignore[assignment]

    def __init__(self, weight: Tensor, block: Block) -> None:
        super().__init__(weight, block.shape[0], block.engine)
        self.block, (n, m) = block, block.shape
        shared = torch.bincount(block.col, minlength=m) > 1
        inside = shared[block.col]
        rows, alone = block.rows, torch.where(inside, 0, block.values)
        self.alone = alone.new_zeros(n).index_add_(0, rows, alone.abs())[:, None]
        self.alone_squares = alone.new_zeros(n).index_add_(0, rows, alone * alone)[:, None]
        crow = torch.cat([rows.new_zeros(1), torch.bincount(rows[inside], minlength=n).cumsum(0)])
        col = (shared.cumsum(0) - 1)[block.col[inside]]
        shape = (n, int(shared.sum()))
        self.shared = Block(crow.to(block.crow), col.to(block.col), block.values[inside], shape, block.engine)

    def add_effect(self, base: Tensor, r: Tensor) -> Tensor:
        return r  # the base is 0

    def pull(self, gradient: Tensor) -> Tensor:
        return gradient

    def full_rows(self, y: Tensor, length: float) -> Tensor:
        """Return ``length Â_1 unit(Â_1ᵀ Y)``, (n, H)."""
        read = self.shared.product(self._unit(self.shared.transposed_product(y)))
        return torch.addcmul(read, self._unit(y), self.alone).mul_(length)

    def _unit(self, rows: Tensor) -> Tensor:
        squares = self.engine.row_dots(rows, rows)
        return rows * squares.clamp_min(torch.finfo(rows.dtype).tiny).rsqrt()[:, None]


class MeasuredSpace(ReadSpace):
    """Coordinates are [Y, E], (n, 2 H), for R along gradients; squares of the rows of a field sum to |R|²."""

    def __init__(self, read: ReadSpace) -> None:
        vars(self).update(vars(read))
        self.half = read.shape[1]
        self.shape = (read.shape[0], 2 * self.half)

    def effect(self, r: Tensor) -> Tensor:
        return r[:, self.half :]

    def add_effect(self, base: Tensor, r: Tensor) -> Tensor:
        return self.effect(r)

    def pull(self, gradient: Tensor) -> Tensor:
        read = self.shared.product(self.shared.transposed_product(gradient))
        return torch.cat([gradient, read.addcmul_(gradient, self.alone_squares)], 1)

    def row_squares(self, r: Tensor) -> Tensor:
        return self.engine.row_dots(r[:, : self.half], r[:, self.half :])

    def to_dense(self, r: Tensor) -> Tensor:
        """Return R, (m, D)."""
        return super().to_dense(self.block.transposed_product(r[:, : self.half].contiguous()))


class FullRowsSpace(MeasuredSpace):
    """Coordinates are [ε, E], (n, 1 + H), for R whose rows all have the length ε."""

    pull = ReadSpace.pull

    def __init__(self, read: ReadSpace) -> None:
        vars(self).update(vars(read))
        self.half, self.shape = 1, (read.shape[0], 1 + read.shape[1])

    def full_rows(self, y: Tensor, length: float) -> Tensor:
        return torch.cat([y.new_full((len(y), 1), length), super().full_rows(y, length)], 1)

    def row_squares(self, r: Tensor) -> Tensor:
        return r[:, 0].square()


class InCoordinates:
    """The logits of a GCN on copied fields as a function of E: ``Â_K relu(... relu(z + E U) ...) W_{K-1}``.

    z is the clean input of the first relu.

    Shapes: layers from (n, m) to (b, n'); projected (m, H), without Z; upper (H, H), U.
    """

    def __init__(self, model: Any, layers: Sequence[Block], projected: Tensor, upper: Tensor) -> None:
        self.model, self.depth, self.training = model, model.depth, False
        self.layers, self.upper, self.clean = layers[1:], upper, layers[0].product(projected)
        self.weights = [weight.detach() for weight in list(model.weights)[1:]]

    def projection(self) -> Tensor | None:
        found: Tensor | None = self.model.projection()
        return found

    def propagate(self, inputs: GraphInputs, read: Tensor, masks: Any = None) -> Tensor:
        return self.linearize(inputs, read, masks)[0]

    def linearize(self, inputs: GraphInputs, read: Tensor, masks: Any) -> tuple[Tensor, Pullback]:
        """Return the logits (b, C) and the map from their gradient back to ``read``, E (n, H)."""
        state, states = torch.addmm(self.clean, read.expand(self.clean.shape), self.upper), []
        for matrix, weight in zip(self.layers, self.weights, strict=True):
            states.append(state.relu_())
            state = matrix.product(state @ weight)

        def pullback(grad: Tensor) -> Tensor:
            for matrix, weight, hidden in zip(
                self.layers[::-1], self.weights[::-1], states[::-1], strict=True
            ):
                grad = (matrix.transposed_product(grad) @ weight.t()).mul_(hidden > 0)
            return grad @ self.upper.t()

        return state, pullback
