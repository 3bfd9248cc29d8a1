"""The search of VAT and S-BVAT."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from bvat.engine.draws import Source
from bvat.perturb.problem import Found, Norm, Problem
from bvat.perturb.searches.base import Stateless, check, check_length


@dataclass(frozen=True)
class PowerIteration(Stateless):
    """T power iterations from a Gaussian direction: ``g = grad_r LDS at xi r``, ``r = epsilon g / |g|``.

    Where clean and perturbed passes share their masks, ``q - p`` at xi = 1e-6 is smaller than the rounding
    of single precision; xi is raised there to the square root of the precision, which leaves the direction
    in the limit xi -> 0 unchanged to that order.
    """

    epsilon: float = 0.03
    steps: int = 1
    xi: float = 1e-6
    norm: Norm = "row"

    def __post_init__(self) -> None:
        check_length(self.epsilon, self.norm)
        check(self.steps >= 0, f"steps must not be negative, not {self.steps}")
        check(0 < self.xi < math.inf, f"xi must be positive, not {self.xi}")

    def find(self, problem: Problem, generator: Source | None) -> Found:
        """Return the perturbation after T iterations (a random one for T = 0)."""
        space = problem.space
        if not self.steps:
            return problem.scaled(Found(*space.gaussian(generator)), self.epsilon, self.norm)
        found = self._start(problem, generator)
        for _ in range(self.steps):
            gradient = problem.gradient(None if found is None else found.r)
            # unit length first: squares of the tiny gradients at xi would underflow
            gradient.div_(problem.engine.largest(gradient.abs()).clamp_min_(torch.finfo(gradient.dtype).tiny))
            unscaled = Found(gradient, space.row_squares(gradient))
            found = None if found is None else problem.scaled(unscaled, self._probe(problem), self.norm)
        return problem.scaled(unscaled, self.epsilon, self.norm)

    def _start(self, problem: Problem, generator: Source | None) -> Found | None:
        """Return the first probe; None where it is as good as zero.

        Under separate masks the passes differ a hundred thousand times more than a probe of length 1e-6 can
        make them: the gradient at r = 0 is the same number, and needs no start.
        """
        if self.starts_at_zero(same_masks=problem.same_masks):
            return None
        start = Found(*problem.space.gaussian(generator))
        return problem.scaled(start, self._probe(problem), self.norm)

    def starts_at_zero(self, *, same_masks: bool) -> bool:
        """Return whether every gradient is taken at r = 0: then one of them is as good as T."""
        return not same_masks and self.xi <= 1e-5 and self.steps > 0

    def _probe(self, problem: Problem) -> float:
        if not problem.same_masks:
            return self.xi
        return max(self.xi, math.sqrt(torch.finfo(problem.clean_logits.dtype).eps))
