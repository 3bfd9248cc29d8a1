"""LDS, the worst case at a given length, and the problem that an audit hands to the searches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bvat.audit.copied_fields import CopiedFields
from bvat.audit.first_layer import FullRowsSpace, InCoordinates, MeasuredSpace, ReadSpace
from bvat.graph.inputs import GraphInputs
from bvat.models.base import ProjectedModel, Pullback, linearize
from bvat.perturb.divergence import KL
from bvat.perturb.problem import FixedPass, Found, Norm, Problem
from bvat.perturb.searches import FastAscent
from bvat.perturb.searches.smallest_flip import margins
from bvat.perturb.spaces import FactoredSpace, make_space


@dataclass(frozen=True, kw_only=True)
class RecordingProblem(Problem):
    """A problem that records the largest LDS of each chosen node at which a search took a gradient.

    Shapes: largest (b), updated in place; row_counts (b), how many feature rows each field has.
    """

    largest: Tensor
    row_counts: Tensor

    @classmethod
    def on(cls, model: Any, fields: CopiedFields, projected: Tensor) -> RecordingProblem:
        """Return the problem of a model in eval mode; projected (N, H) is that of the whole graph."""
        base = projected.index_select(0, fields.nodes)
        space = make_space("auto", model, fields.inputs)
        owner = fields.owner
        if fields.layers is not None and isinstance(space, FactoredSpace):
            model, base = InCoordinates(model, fields.layers, base, space.upper), base.new_zeros(1, 1)
            space, first = ReadSpace(space.weight, fields.layers[0]), fields.layers[0]
            owner = owner[first.col[first.crow[:-1]]]  # no row is empty: each node reads itself
        logits = model.propagate(fields.inputs, base)
        if fields.rows is not None:
            logits = logits.index_select(0, fields.rows)
        return cls(
            model=model,
            inputs=fields.inputs,
            space=space,
            divergence=KL(),
            clean_logits=logits,
            rows=fields.rows,
            owner=owner,
            row_counts=fields.sizes,
            next_pass=lambda: (None, base),
            same_masks=True,
            largest=torch.zeros_like(logits[:, 0]),
        )

    def record(self, r: Tensor) -> Tensor:
        """Record and return LDS at r, (b), where no gradient is needed."""
        point = FixedPass(self)
        logits = point.logits(self.space.add_effect(point.base, r))
        return self._kept(self.divergence.value_and_gradient(self.clean, logits)[0])

    def for_flips(self, norm: Norm = "field") -> RecordingProblem:
        """Return the same problem in coordinates that a search for the shortest perturbation can measure."""
        measured = MeasuredSpace if norm == "field" else FullRowsSpace
        return replace(self, space=measured(self.space)) if isinstance(self.space, ReadSpace) else self

    @property
    def field_sizes(self) -> Tensor:
        return self.row_counts

    def full_step(self, gradient: Tensor, length: float, norm: Norm) -> Found:
        if not isinstance(self.space, ReadSpace):
            return super().full_step(gradient, length, norm)
        largest = self.engine.largest(gradient.abs()).clamp_min_(torch.finfo(gradient.dtype).tiny)
        return Found(self.space.full_rows(gradient.div_(largest), length), gradient[:, :0])

    def of_rows(self, of_fields: Tensor) -> Tensor:
        """Give every row the entry of its field, False outside of all: bool (b) to (m, 1)."""
        return torch.cat([of_fields, of_fields.new_zeros(1)]).index_select(0, self.group)[:, None]

    def logit_gradient(self, logits: Tensor) -> Tensor:
        value, gradient = self.divergence.value_and_gradient(self.clean, logits)
        self._kept(value)
        return gradient

    def _kept(self, value: Tensor) -> Tensor:
        torch.maximum(self.largest, value, out=self.largest)
        return value


def local_smoothness(
    problem: RecordingProblem, epsilon: float, *, targets: int = 6, starts: int = 4, steps: int = 2
) -> Tensor:
    """Return ``LDS_u = max KL(p(y|X_u) || p(y|X_u + R))`` over R with ``|R_v| <= epsilon`` for v in F(u).

    R = 0 is a minimum of KL, with several maxima around it. So KL is measured along and against the gradient
    of the margin ``l_y - l_k`` to each of the next likely classes k, :class:`FastAscent` takes a few steps
    from the best few of these points, and more from the best that it reached. Nothing is random. The
    largest KL met is returned, a lower bound of the maximum.

    Shapes: result (b), not negative.
    """
    few, more = (FastAscent(epsilon, count, warm=False) for count in (steps, 3 * steps))

    def along(select: Tensor) -> Tensor:
        point = FixedPass(problem)
        slope = problem.space.pull(point.linearised(point.base)[1](select))
        return problem.full_step(slope, epsilon, "row").r

    selects = list(margins(problem.clean_logits, targets))
    values = [problem.record(sign * r) for select in selects for r in [along(select)] for sign in (1, -1)]
    if not values:  # one class
        return problem.largest
    signed = torch.stack([sign * select for select in selects for sign in (1, -1)])
    order = torch.stack(values).argsort(0, descending=True)[:starts]
    best, at = torch.full_like(problem.largest, -1), torch.zeros((), dtype=signed.dtype)
    for which in order:
        r = few.ascend(problem, along(signed[which, torch.arange(which.numel())])).r
        value = problem.record(r)
        at = torch.where(problem.of_rows(value > best), r, at)
        best = torch.maximum(value, best)
    problem.record(more.ascend(problem, at).r)
    return problem.largest


class OneLogit:
    """A model with one logit l as one with the logits (0, l), for which softmax is sigmoid(l)."""

    def __init__(self, model: ProjectedModel) -> None:
        self.model, self.depth, self.training = model, model.depth, model.training

    def projection(self) -> Tensor | None:
        return self.model.projection()

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Any = None) -> Tensor:
        logits = self.model.propagate(inputs, projected, masks)
        return torch.cat([torch.zeros_like(logits), logits], 1)

    def linearize(self, inputs: GraphInputs, projected: Tensor, masks: Any) -> tuple[Tensor, Pullback]:
        """Return the logits (N, 2) and the map from their gradient back to ``projected`` (N, H)."""
        logits, pullback = linearize(self.model, inputs, projected, masks)
        return torch.cat([torch.zeros_like(logits), logits], 1), lambda grad: pullback(grad[:, 1:])
