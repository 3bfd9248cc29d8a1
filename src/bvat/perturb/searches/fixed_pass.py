"""One pass of a problem with its masks held: logits and gradients at any perturbation."""

from __future__ import annotations

import torch
from torch import Tensor

from bvat.models.base import Pullback, linearize
from bvat.perturb.problem import Problem


class FixedPass:
    """The next pass of a problem, kept for as many evaluations as a search needs.

    Shapes: base (N, H), the projected features of the pass; N rows of R, b chosen nodes.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.masks, self.base = problem.next_pass()

    def logits(self, projected: Tensor) -> Tensor:
        """Return the logits (b, C) of the chosen nodes at the projected features (N, H)."""
        return self._chosen(self.problem.model.propagate(self.problem.inputs, projected, self.masks))

    def linearised(self, projected: Tensor) -> tuple[Tensor, Pullback]:
        """Return the logits (b, C) and the map from their gradient (b, C) to that of the effect (N, H).

        The map can be called once only: autograd frees what it needs.
        """
        logits, pullback = linearize(self.problem.model, self.problem.inputs, projected, self.masks)
        rows = self.problem.rows
        if rows is None:
            return logits, pullback

        def of_chosen(gradient: Tensor) -> Tensor:
            return pullback(torch.zeros_like(logits).index_copy_(0, rows, gradient))

        return self._chosen(logits), of_chosen

    def _chosen(self, logits: Tensor) -> Tensor:
        return logits if self.problem.rows is None else logits.index_select(0, self.problem.rows)
