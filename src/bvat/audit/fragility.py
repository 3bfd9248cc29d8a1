"""How fragile predictions are: the worst case at a given length, and the shortest way to another class.

Both are searched for each node by itself, over perturbations R of the features of its receptive field F(u),
without dropout. R acts through ``R W0`` only, so that both searches run in the factored space.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bvat.audit.fields import Fields
from bvat.models.base import ProjectedModel, linearize
from bvat.perturb.divergence import KL, CleanPrediction
from bvat.perturb.spaces import make_space

LEAD = 3e-5
"""By how much, relative to the largest logit, another class must lead: rounding shall not undo a change."""


class Flip(NamedTuple):
    """The shortest perturbation found that changes the class of each node.

    Shapes: length (b), infinite where none was found; becomes int64 (b), the class it changes to, -1 for
    none; r, its coordinates in the space, one row a row of the fields.
    """

    length: Tensor
    becomes: Tensor
    r: Tensor


class Neighbourhoods:
    """The model on some receptive fields: clean predictions, and what perturbations make of them.

    Shapes: logits (b, C) and projected (m, H), both clean; predicted int64 (b).
    """

    def __init__(self, model: ProjectedModel, fields: Fields, projected: Tensor) -> None:
        self.model, self.fields = model, fields
        self.space = make_space("auto", model, fields)
        self.projected = projected.index_select(0, fields.nodes)
        self.logits = self._logits(self.projected)
        self.predicted = self.logits.argmax(1)

    def _logits(self, projected: Tensor) -> Tensor:
        logits: Tensor = self.model.propagate(self.fields, projected)
        return logits.index_select(0, self.fields.rows)

    def logits_at(self, r: Tensor) -> Tensor:
        """Return the logits (b, C) under the perturbation r."""
        return self._logits(self.space.add_effect(self.projected, r))

    def linearised_at(self, r: Tensor) -> tuple[Tensor, Any]:
        """Return the logits (b, C) at r, and the map from their gradient (b, C) to that of r."""
        projected = self.space.add_effect(self.projected, r)
        logits, pullback = linearize(self.model, self.fields, projected, None)

        def pull(gradient: Tensor) -> Tensor:
            whole = torch.zeros_like(logits).index_copy_(0, self.fields.rows, gradient)
            return self.space.pull(pullback(whole))

        return logits.index_select(0, self.fields.rows), pull

    def scaled(self, r: Tensor, factor: Tensor) -> Tensor:
        """Multiply the perturbation of each field by its factor (b)."""
        return self.space.scale_rows(r, factor.index_select(0, self.fields.owner))

    def rows_of_length(self, r: Tensor, length: float) -> Tensor:
        """Scale every row to a length; rows of zeros stay."""
        biggest = r.abs().amax().clamp_min(torch.finfo(r.dtype).tiny)  # squares of tiny numbers underflow
        squares = self.space.row_squares(r / biggest).clamp_min(torch.finfo(r.dtype).tiny)
        return self.space.scale_rows(r / biggest, squares.rsqrt() * length)

    def zeros(self) -> Tensor:
        """Return R = 0."""
        return torch.zeros_like(self.space.pull(torch.zeros_like(self.projected)))

    def margins(self, targets: int) -> Iterator[Tensor]:
        """Yield for each of the next likely classes k what to multiply logits with, (b, C), for l_y - l_k."""
        order = self.logits.argsort(1, descending=True)
        for rank in range(1, min(targets + 1, order.shape[1])):
            select = torch.zeros_like(self.logits).scatter_(1, self.predicted[:, None], 1)
            yield select.scatter_(1, order[:, rank : rank + 1], -1)

    def squares(self, r: Tensor) -> Tensor:
        """Return |R|² over each receptive field, (b)."""
        return self.fields.sums(self.space.row_squares(r))


def local_smoothness(around: Neighbourhoods, epsilon: float, *, targets: int = 6, steps: int = 6) -> Tensor:
    """Return ``LDS_u = max KL(p(y|X_u) || p(y|X_u + R))`` over R with ``|R_v| <= epsilon`` for v in F(u).

    R = 0 is a minimum of KL, with several maxima around it. So the search starts along and against the
    gradient of the margin ``l_y - l_k`` to each of the next likely classes k; from there, ``steps`` times,
    each row is set to ``epsilon g_v / |g_v|`` with g the gradient of KL at the R before. Nothing is random.
    The largest KL met is returned, so that it is a lower bound of the maximum.

    Shapes: result (b), not negative.
    """
    divergence = KL()
    target = CleanPrediction.of(around.logits)
    largest = torch.zeros_like(around.logits[:, 0])
    for select in around.margins(targets):
        slope = around.linearised_at(around.zeros())[1](select)  # autograd's pullback serves once
        for g in (slope, -slope):
            r = around.rows_of_length(g, epsilon)
            for _ in range(steps):
                logits, pull_at = around.linearised_at(r)
                value, gradient = divergence.value_and_gradient(target, logits)
                largest = torch.maximum(largest, value)
                r = around.rows_of_length(pull_at(gradient), epsilon)
            value, _ = divergence.value_and_gradient(target, around.logits_at(r))
            largest = torch.maximum(largest, value)
    return largest


def smallest_flip(
    around: Neighbourhoods, bound: Tensor, *, targets: int = 8, steps: int = 6, halvings: int = 11
) -> Flip:
    """Return the shortest R found (Frobenius norm over F(u)) under which the class of u is another.

    For each of the next likely classes k the margin ``m = l_y - l_k`` is linearised at R, and R moves to the
    point nearest to 0 where the linearised margin is gone, ``R <- g (<g, R> - m) / |g|²`` with g the gradient
    of m at R. Where the model is linear one such step is exact; relu makes it piecewise so, and a few steps
    do. Then the length along the last direction is halved in. What counts is the shortest R met on the way at
    which any other class leads, so the result is an upper bound of the true distance.

    Args:
        around: the nodes.
        bound: the longest perturbation to try, (b).
        targets: how many classes k to try, the most likely first.
        steps: linearisations for each.
        halvings: bisections of the length for each.
    """
    logits = around.logits
    lead = LEAD * logits.abs().amax(1).clamp_min(torch.finfo(logits.dtype).tiny)
    none = torch.full_like(around.predicted, -1)
    best = Flip(torch.full_like(lead, math.inf), none, around.zeros())
    for select in around.margins(targets):
        direction, best = _towards(around, select, lead, bound, steps, best)
        best = _along(around, direction, lead, bound, halvings, best)
    return best


def _towards(
    around: Neighbourhoods, select: Tensor, lead: Tensor, bound: Tensor, steps: int, best: Flip
) -> tuple[Tensor, Flip]:
    """Walk to where the margin ``select`` (b, C) is gone; return the last R, and the best that was met."""
    r = around.zeros()
    for _ in range(steps):
        logits, pull = around.linearised_at(r)
        best = _kept(around, r, torch.ones_like(lead), logits, lead, best)[1]
        g = pull(select)
        squares = around.squares(g)
        inner = around.fields.sums((g * r).sum(1))
        margin = (select * logits).sum(1) + lead
        factor = (inner - margin) / squares.clamp_min(torch.finfo(squares.dtype).tiny)
        r = around.scaled(g, _within(factor, squares.sqrt(), bound))
    return r, best


def _along(
    around: Neighbourhoods, direction: Tensor, lead: Tensor, bound: Tensor, halvings: int, best: Flip
) -> Flip:
    """Find how far along a direction the class changes: longer until it does, then by bisection."""
    length = around.squares(direction).sqrt()
    low, high = torch.zeros_like(lead), _within(torch.ones_like(lead), length, bound)
    for stretch in (1.3, 2.0, 1.0):
        changed, best = _kept(around, direction, high, None, lead, best)
        low = torch.where(changed, low, high)
        high = torch.where(changed, high, _within(high * stretch, length, bound))
    for _ in range(halvings):
        middle = (low + high) / 2
        changed, best = _kept(around, direction, middle, None, lead, best)
        low, high = torch.where(changed, low, middle), torch.where(changed, middle, high)
    return best


def _kept(
    around: Neighbourhoods, r: Tensor, factor: Tensor, logits: Tensor | None, lead: Tensor, best: Flip
) -> tuple[Tensor, Flip]:
    """Look at ``factor`` times r: whether the class is another (b), and the best perturbation so far."""
    scaled = around.scaled(r, factor)
    if logits is None:
        logits = around.logits_at(scaled)
    own = logits.gather(1, around.predicted[:, None])
    others = logits.scatter(1, around.predicted[:, None], -math.inf)
    highest, which = others.max(1)
    changed = highest - own[:, 0] >= lead / 2
    length = around.squares(scaled).sqrt()
    better = changed & (length < best.length)
    if not bool(better.any()):
        return changed, best
    rows = better.index_select(0, around.fields.owner)
    return changed, Flip(
        torch.where(better, length, best.length),
        torch.where(better, which, best.becomes),
        torch.where(rows[:, None], scaled, best.r),
    )


def _within(factor: Tensor, length: Tensor, bound: Tensor) -> Tensor:
    """Return the factor (b), smaller in size where ``factor * length`` exceeds the bound."""
    most = bound / length.clamp_min(torch.finfo(length.dtype).tiny)
    return torch.maximum(torch.minimum(factor, most), -most)
