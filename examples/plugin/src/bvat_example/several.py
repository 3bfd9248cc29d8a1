"""The method: a search that bvat's regulariser runs."""

from dataclasses import dataclass
from typing import Any

from bvat.perturb import Regulariser
from bvat.perturb.problem import FixedPass, Found, Problem
from bvat.perturb.searches.ascent import Stateless


@dataclass(frozen=True)
class WorstOfSeveral(Stateless):
    """The one of several Gaussian directions of length epsilon with the largest divergence; no gradients."""

    epsilon: float
    directions: int

    def find(self, problem: Problem, generator: Any) -> Found:
        point, found = FixedPass(problem), []
        for _ in range(self.directions):
            drawn = problem.scaled(Found(*problem.space.gaussian(generator)), self.epsilon, "row")
            logits = point.logits(problem.space.add_effect(point.base, drawn.r))
            value = problem.divergence.value_and_gradient(problem.clean, logits)[0]
            found.append((float(problem.engine.mean(value)), drawn))
        return max(found, key=lambda pair: pair[0])[1]


def Several(epsilon: float = 0.3, directions: int = 4, **shared: Any) -> Regulariser:
    """Return the regulariser; ``shared`` are the fields of :class:`bvat.Regulariser`."""
    return Regulariser(search=WorstOfSeveral(epsilon, directions), **shared)
