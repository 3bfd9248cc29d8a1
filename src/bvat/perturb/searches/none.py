"""No perturbation at all."""

from __future__ import annotations

from bvat.engine.draws import Source
from bvat.perturb.problem import Problem
from bvat.perturb.searches.base import Stateless


class NoSearch(Stateless):
    """No perturbation: what is left is the disagreement of two dropout passes ("consistency")."""

    def find(self, problem: Problem, generator: Source | None) -> None:
        """Return no perturbation."""
        return
