"""LDS, the worst case at a given length, and the problem that an audit hands to the searches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bvat.audit.copied_fields import CopiedFields
from bvat.graph.inputs import GraphInputs
from bvat.models.base import ProjectedModel, Pullback, linearize
from bvat.perturb.divergence import KL
from bvat.perturb.problem import FixedPass, Problem
from bvat.perturb.searches import FastAscent
from bvat.perturb.searches.smallest_flip import margins
from bvat.perturb.spaces import make_space


@dataclass(frozen=True, kw_only=True)
class RecordingProblem(Problem):
    """A problem that records the largest LDS of each chosen node at which a search took a gradient.

    Shapes: largest (b), updated in place.
    """

    largest: Tensor

    @classmethod
    def on(cls, model: ProjectedModel, fields: CopiedFields, projected: Tensor) -> RecordingProblem:
        """Return the problem of a model in eval mode; projected (N, H) is that of the whole graph."""
        base = projected.index_select(0, fields.nodes)
        logits = model.propagate(fields.inputs, base).index_select(0, fields.rows)
        return cls(
            model=model,
            inputs=fields.inputs,
            space=make_space("auto", model, fields.inputs),
            divergence=KL(),
            clean_logits=logits,
            rows=fields.rows,
            owner=fields.owner,
            next_pass=lambda: (None, base),
            same_masks=True,
            largest=torch.zeros_like(logits[:, 0]),
        )

    def record(self, r: Tensor) -> None:
        """Record LDS at r, where no gradient is needed."""
        point = FixedPass(self)
        self.logit_gradient(point.logits(self.space.add_effect(point.base, r)))

    def logit_gradient(self, logits: Tensor) -> Tensor:
        value, gradient = self.divergence.value_and_gradient(self.clean, logits)
        torch.maximum(self.largest, value, out=self.largest)
        return gradient


def local_smoothness(
    problem: RecordingProblem, epsilon: float, *, targets: int = 6, steps: int = 6
) -> Tensor:
    """Return ``LDS_u = max KL(p(y|X_u) || p(y|X_u + R))`` over R with ``|R_v| <= epsilon`` for v in F(u).

    R = 0 is a minimum of KL, with several maxima around it. So :class:`FastAscent` starts along and against
    the gradient of the margin ``l_y - l_k`` to each of the next likely classes k. Nothing is random. The
    largest KL met is returned, a lower bound of the maximum.

    Shapes: result (b), not negative.
    """
    search = FastAscent(epsilon, steps, warm=False)
    for select in margins(problem.clean_logits, targets):
        point = FixedPass(problem)
        slope = problem.space.pull(point.linearised(point.base)[1](select))
        for g in (slope, -slope):
            problem.record(search.ascend(problem, problem.full_step(g, epsilon, "row").r).r)
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
