"""The shortest perturbation that changes a prediction, as in DeepFool."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from bvat.engine.draws import Source
from bvat.perturb.problem import FixedPass, Found, Norm, Problem
from bvat.perturb.searches.ascent import Stateless, check

LEAD = 3e-5
"""How far another class must lead, relative to the largest logit, with a margin for rounding."""


class Flip(NamedTuple):
    """The shortest perturbation found that changes the class of each chosen node.

    Shapes: length (b), in the norm of the search, infinite where none was found; becomes int64 (b), the class
    it changes to, -1 where none was found; r, its coordinates in the space, zero where none was found.
    """

    length: Tensor
    becomes: Tensor
    r: Tensor


def margins(logits: Tensor, targets: int) -> Iterator[Tensor]:
    """Yield, for each of the next likely classes k, the gradient (b, C) of the margins ``l_y - l_k``.

    Shapes: logits (b, C); y is the predicted class of each node.
    """
    order = logits.argsort(1, descending=True)
    predicted = logits.argmax(1, keepdim=True)
    for rank in range(1, min(targets + 1, order.shape[1])):
        select = torch.zeros_like(logits).scatter_(1, predicted, 1)
        yield select.scatter_(1, order[:, rank : rank + 1], -1)


@dataclass(frozen=True)
class SmallestFlip(Stateless):
    """The shortest R found under which the class of u changes; nothing is random.

    For each of the next likely classes k the margin ``m = l_y - l_k`` is linearised at R, and R moves to the
    point nearest to 0 at which the linearised margin vanishes,

        ``R <- d (<g, R> - m(R)) / <g, d>``,  g the gradient of m at R,

    where d is the steepest direction: g itself for the norm "field", the Frobenius norm over F(u); every row
    of g at unit length for the norm "row", the largest norm of a row.

    For a linear model one such step is exact; relu makes a model piecewise linear, and a few steps suffice.
    The length along the last direction is then refined by bisection. The shortest R met at which any other
    class leads is kept, so the result is an upper bound of the true distance. The nodes need receptive fields
    that do not meet. All evaluations share the masks of one pass.

    Reference: Moosavi-Dezfooli, Fawzi and Frossard, "DeepFool: a simple and accurate method to fool deep
    neural networks", CVPR 2016.

    Args:
        reach: the longest R to try has rows of this length, in the units of the features: a norm of
            ``reach sqrt(m)`` over a field of m rows.
        targets: how many classes k to try, the most likely first.
        steps: linearisations per class.
        halvings: bisections of the length per class.
        norm: in which R is short.
    """

    reach: float = math.inf
    targets: int = 8
    steps: int = 6
    halvings: int = 11
    norm: Norm = "field"

    def __post_init__(self) -> None:
        check(self.reach >= 0, f"reach must not be negative, not {self.reach}")
        check(self.targets >= 1, f"targets must be at least 1, not {self.targets}")
        check(self.steps >= 1, f"steps must be at least 1, not {self.steps}")
        check(self.halvings >= 0, f"halvings must not be negative, not {self.halvings}")
        check(self.norm in get_args(Norm), f"the norm must be field or row, not {self.norm!r}")

    def longest(self, rows: Tensor) -> Tensor:
        """Return the norm of the longest R to try over fields of so many rows, both (b)."""
        return self.reach * (rows.sqrt() if self.norm == "field" else torch.ones_like(rows))

    def find(self, problem: Problem, generator: Source | None) -> Found:
        """Return the shortest perturbations, zero over the fields for which none was found."""
        r = self.flips(problem).r
        return Found(r, problem.space.row_squares(r))

    def flips(self, problem: Problem, selects: Iterable[Tensor] | None = None) -> Flip:
        """Return the shortest perturbations with their lengths and the classes they lead to.

        ``selects``: the gradients (b, C) of the margins to try, by default those of :func:`margins`.
        """
        fields = _Fields(problem, self)
        best = Flip(
            torch.full_like(fields.lead, math.inf),
            torch.full_like(fields.predicted[:, 0], -1),
            fields.base.new_zeros(problem.space.shape),
        )
        for select in margins(problem.clean_logits, self.targets) if selects is None else selects:
            direction, best = self._towards(fields, select, best)
            best = self._along(fields, direction, best)
        return best

    def _towards(self, fields: _Fields, select: Tensor, best: Flip) -> tuple[Tensor, Flip]:
        """Walk to where the margin of ``select`` (b, C) vanishes; return the last R and the best."""
        space = fields.problem.space
        r = torch.zeros_like(best.r)
        for _ in range(self.steps):
            effect = space.effect(r)
            logits, pullback = fields.linearised(fields.base + effect)
            best = fields.shorter(best, r, fields.lengths(r), *fields.leader(logits))
            gradient = pullback(select)  # with respect to the effect, (N, H)
            d, slope, length = fields.steepest(gradient)
            margin = (select * logits).sum(1) + fields.lead
            factor = (fields.inner(gradient, effect) - margin) / slope.clamp_min(fields.tiny)
            factor = torch.where(slope > 0, fields.within(factor, length), 0)
            r = space.scale_rows(d, fields.spread(factor))
        return r, best

    def _along(self, fields: _Fields, direction: Tensor, best: Flip) -> Flip:
        """Find how far along a direction the class changes: first longer until it does, then by bisection."""
        effect, length = fields.problem.space.effect(direction), fields.lengths(direction)
        low, high = torch.zeros_like(length), fields.within(torch.ones_like(length), length)
        found, becomes = torch.zeros_like(length, dtype=torch.bool), best.becomes

        def changes_at(factor: Tensor) -> Tensor:
            nonlocal found, becomes
            logits = fields.logits(torch.addcmul(fields.base, effect, fields.spread(factor)[:, None]))
            changed, leader = fields.leader(logits)
            found, becomes = found | changed, torch.where(changed, leader, becomes)
            return changed

        for stretch in (1.3, 2.0, 1.0):
            changed = changes_at(high)
            if bool(changed.all()):
                break
            low = torch.where(changed, low, high)
            high = torch.where(changed, high, fields.within(high * stretch, length))
        for _ in range(self.halvings):
            middle = (low + high) / 2
            changed = changes_at(middle)
            low, high = torch.where(changed, low, middle), torch.where(changed, middle, high)
        r = fields.problem.space.scale_rows(direction, fields.spread(high))
        return fields.shorter(best, r, high * length, found, becomes)


class _Fields(FixedPass):
    """The receptive fields of the chosen nodes, which a search moves all at once and independently.

    Shapes: predicted int64 (b, 1); lead (b), by which the logit of another class must exceed it; bound (b),
    the longest perturbation to try.
    """

    def __init__(self, problem: Problem, search: SmallestFlip) -> None:
        super().__init__(problem)
        self._group, self._norm, clean = problem.group, search.norm, problem.clean_logits
        self.predicted = clean.argmax(1, keepdim=True)
        self.tiny = torch.finfo(clean.dtype).tiny
        self.lead = LEAD * clean.abs().amax(1).clamp_min(self.tiny)
        self.bound = search.longest(problem.field_sizes.to(clean.dtype))

    def sums(self, of_rows: Tensor) -> Tensor:
        """Add up one number per row (N) over each field, (b)."""
        size = self.problem.num_chosen
        return of_rows.new_zeros(size + 1).index_add_(0, self._group, of_rows)[:size]

    def spread(self, of_fields: Tensor) -> Tensor:
        """Give every row the number of its field: (b) to (N), 0 outside all fields."""
        return torch.cat([of_fields, of_fields.new_zeros(1)]).index_select(0, self._group)

    def lengths(self, r: Tensor) -> Tensor:
        """Return the norm of R over each field, (b)."""
        squares = self.problem.space.row_squares(r)
        if self._norm == "field":
            return self.sums(squares).sqrt()
        size = self.problem.num_chosen
        return squares.new_zeros(size + 1).scatter_reduce_(0, self._group, squares, "amax")[:size].sqrt()

    def inner(self, gradient: Tensor, effect: Tensor) -> Tensor:
        """Return <g, R> over each field, (b), from a gradient with respect to the effect and the effect of R.

        This holds in any coordinates, because ``pull`` is the adjoint of ``effect``.
        """
        return self.sums(torch.einsum("nh,nh->n", gradient, effect))

    def steepest(self, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the direction d in which the margin grows most, <g, d> and the norm of d, (b) each."""
        space = self.problem.space
        if self._norm == "field":
            g = space.pull(gradient)
            squares = self.sums(space.row_squares(g))
            return g, squares, squares.sqrt()
        d = self.problem.full_step(space.pull(gradient.clone()), 1.0, "row").r
        slope = self.inner(gradient, space.effect(d))
        return d, slope, torch.ones_like(slope)

    def within(self, factor: Tensor, length: Tensor) -> Tensor:
        """Return the factor (b), reduced where ``factor * length`` exceeds the bound."""
        most = self.bound / length.clamp_min(self.tiny)
        return torch.maximum(torch.minimum(factor, most), -most)

    def leader(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return whether another class leads, bool (b), and the most likely other class, int64 (b)."""
        own = logits.gather(1, self.predicted)[:, 0]
        highest, which = logits.scatter(1, self.predicted, -math.inf).max(1)
        return highest - own >= self.lead / 2, which

    def shorter(self, best: Flip, r: Tensor, length: Tensor, changed: Tensor, becomes: Tensor) -> Flip:
        """Return the best so far, replaced by r over the fields where r changes the class and is shorter."""
        better = changed & (length < best.length)
        if not bool(better.any()):
            return best
        chosen = self.problem.space.scale_rows(torch.ones_like(r), self.spread(better.to(r.dtype)))
        return Flip(
            torch.where(better, length, best.length),
            torch.where(better, becomes, best.becomes),
            torch.where(chosen > 0, r, best.r),
        )
