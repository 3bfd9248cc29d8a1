"""Searches by full steps ``r = epsilon g / |g|``: that of VAT and S-BVAT, and the fast one of O-BVAT."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

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
        at_zero = self.starts_at_zero(same_masks=problem.same_masks)
        if not at_zero:
            start = Found(*problem.space.gaussian(generator))
            found = problem.scaled(start, self._probe(problem) if self.steps else self.epsilon, self.norm)
        for left in reversed(range(self.steps)):
            gradient = problem.gradient(None if at_zero else found.r)
            found = problem.full_step(gradient, self._probe(problem) if left else self.epsilon, self.norm)
        return found

    def starts_at_zero(self, *, same_masks: bool) -> bool:
        """Return whether every gradient is taken at r = 0: then one of them is as good as T.

        Under separate masks the passes differ a hundred thousand times more than a probe of length 1e-6 can
        make them: the gradient at r = 0 is the same number, and needs no start.
        """
        return not same_masks and self.xi <= 1e-5 and self.steps > 0

    def _probe(self, problem: Problem) -> float:
        if not problem.same_masks:
            return self.xi
        return max(self.xi, math.sqrt(torch.finfo(problem.clean_logits.dtype).eps))


@dataclass
class FastAscent:
    """A few full steps ``r = epsilon g / |g|`` on the sphere, the gradient taken at the last r itself.

    LDS grows convexly in r around its minimum r = 0, so the full step of the conditional-gradient method, to
    the point of the sphere that the gradient points at, goes up without a step size to choose; one or two
    such steps do what ten of Adam do. With ``warm`` the first gradient is taken at the perturbation of the
    previous call, which the weights have hardly moved away from.

    Args:
        epsilon: length of every row.
        steps: number of gradients.
        warm: whether to start from the perturbation of the previous call.
    """

    epsilon: float = 0.02
    steps: int = 1
    norm: Norm = "row"
    warm: bool = True
    _last: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_length(self.epsilon, self.norm)
        check(self.steps >= 1, f"steps must be at least 1, not {self.steps}")

    def find(self, problem: Problem, generator: Source | None) -> Found:
        space = problem.space
        warm = self.warm and problem.owner is None
        last = self._last.get("r")
        if warm and last is not None and last.shape == space.shape:
            r = last.to(problem.clean_logits)
        else:
            r = problem.scaled(Found(*space.gaussian(generator)), self.epsilon, self.norm).r
        found = self.ascend(problem, r)
        if warm:
            self._last = {"r": found.r}
        return found

    def ascend(self, problem: Problem, r: Tensor) -> Found:
        """Return the perturbation after ``steps`` full steps from r; the search keeps nothing of it."""
        for _ in range(self.steps):
            found = problem.full_step(problem.gradient(r), self.epsilon, self.norm)
            r = found.r
        return found

    def state_dict(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self._last.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._last = {name: tensor.clone() for name, tensor in state.items()}
