"""The fast search of O-BVAT: a few full steps instead of many small ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from bvat.engine.draws import Source
from bvat.perturb.problem import Found, Norm, Problem
from bvat.perturb.searches.base import check, check_length


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
            found = self.full_step(problem, problem.gradient(r))
            r = found.r
        return found

    def full_step(self, problem: Problem, gradient: Tensor) -> Found:
        """Return ``epsilon g / |g|``, the point of the sphere that a gradient points at; g is overwritten."""
        # unit length first: squares of tiny gradients would underflow
        gradient.div_(problem.engine.largest(gradient.abs()).clamp_min_(torch.finfo(gradient.dtype).tiny))
        unscaled = Found(gradient, problem.space.row_squares(gradient))
        return problem.scaled(unscaled, self.epsilon, self.norm)

    def state_dict(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self._last.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._last = {name: tensor.clone() for name, tensor in state.items()}
