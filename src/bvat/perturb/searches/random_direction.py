"""A random perturbation."""

from __future__ import annotations

from dataclasses import dataclass

from bvat.engine.draws import Source
from bvat.perturb.problem import Found, Norm, Problem
from bvat.perturb.searches.base import Stateless, check_length


@dataclass(frozen=True)
class RandomDirection(Stateless):
    """A Gaussian direction of length epsilon."""

    epsilon: float = 0.03
    norm: Norm = "row"

    def __post_init__(self) -> None:
        check_length(self.epsilon, self.norm)

    def find(self, problem: Problem, generator: Source | None) -> Found:
        """Return a random perturbation."""
        return problem.scaled(Found(*problem.space.gaussian(generator)), self.epsilon, self.norm)
