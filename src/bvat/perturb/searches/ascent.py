"""How the perturbation is found: not at all, at random, by full steps ``r = epsilon g / |g|``, or by Adam."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from bvat.engine.draws import Source
from bvat.engine.tensor import AdamRates
from bvat.errors import SettingsError
from bvat.perturb.methods import OBVATOptions, SBVATOptions
from bvat.perturb.problem import Found, Norm, Problem


class Stateless:
    """What keeps nothing between calls."""

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore nothing."""


class Search(Stateless):
    """Finds a perturbation for a problem; None means no perturbation at all."""

    def find(self, problem: Problem, generator: Source | None) -> Found | None:
        raise NotImplementedError


@dataclass
class Keeping:
    """What keeps tensors from call to call, by name."""

    kept: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)

    def state_dict(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.kept.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.kept = {name: tensor.clone() for name, tensor in state.items()}


def check(condition: bool, message: str) -> None:
    """Raise SettingsError unless a condition holds."""
    if not condition:
        raise SettingsError(message)


class NoSearch(Search):
    """No perturbation: what is left is the disagreement of two dropout passes ("consistency")."""

    def find(self, problem: Problem, generator: Source | None) -> None:
        return


@dataclass(frozen=True)
class PowerIteration(Search):
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
        SBVATOptions(epsilon=self.epsilon, steps=self.steps, xi=self.xi, norm=self.norm)  # checks them

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


@dataclass(frozen=True)
class RandomDirection(PowerIteration):
    """A Gaussian direction of length epsilon, where a power iteration starts."""

    steps: int = 0


@dataclass
class FastAscent(Keeping, Search):
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

    def __post_init__(self) -> None:
        SBVATOptions(epsilon=self.epsilon, norm=self.norm)  # checks them
        check(self.steps >= 1, f"steps must be at least 1, not {self.steps}")

    def find(self, problem: Problem, generator: Source | None) -> Found:
        space = problem.space
        warm = self.warm and problem.owner is None
        last = self.kept.get("r")
        if warm and last is not None and last.shape == space.shape:
            r = last.to(problem.clean_logits)
        else:
            r = problem.scaled(Found(*space.gaussian(generator)), self.epsilon, self.norm).r
        found = self.ascend(problem, r)
        if warm:
            self.kept = {"r": found.r}
        return found

    def ascend(self, problem: Problem, r: Tensor) -> Found:
        """Return the perturbation after ``steps`` full steps from r; the search keeps nothing of it."""
        for _ in range(self.steps):
            found = problem.full_step(problem.gradient(r), self.epsilon, self.norm)
            r = found.r
        return found


@dataclass
class AdamAscent(Keeping, Search):
    """T Adam steps up Eq. 10, ``reduction_u LDS_u - gamma |R|²``, from a small Gaussian start (Algorithm 2).

    ``reduction="mean"`` is Eq. 10 as printed: the mean over N nodes against a penalty summed over all
    entries, which the penalty wins, so R stays what it was. ``"sum"`` lets R grow adversarial.

    Args:
        steps: T.
        step_size: Adam's learning rate.
        gamma: weight of the penalty.
        start: standard deviation of the Gaussian start.
        reduction: how the LDS of the nodes are combined.
        keep_moments: whether Adam's moments are kept from one call to the next, as in the authors' code.
    """

    steps: int = 10
    step_size: float = 0.001
    gamma: float = 1.0
    start: float = 0.01
    reduction: Literal["sum", "mean"] = "sum"
    keep_moments: bool = False

    def __post_init__(self) -> None:
        OBVATOptions(steps=self.steps, step_size=self.step_size, reduction=self.reduction)  # checks them
        OBVATOptions(gamma=self.gamma, start=self.start)

    def find(self, problem: Problem, generator: Source | None) -> Found:
        r = problem.space.draw(generator).mul_(self.start)
        moments = self._start_moments(r, problem)
        divisor = problem.num_chosen if self.reduction == "mean" else 1
        rates = AdamRates(self.step_size, weight_decay=2 * self.gamma)
        for _ in range(self.steps):
            gradient = problem.gradient(r)
            if divisor > 1:
                gradient.div_(divisor)
            problem.engine.adam_step(r, gradient, moments, rates)
        if self.keep_moments and problem.owner is None:
            self.kept = moments
        return Found(r, problem.space.row_squares(r))

    def _start_moments(self, r: Tensor, problem: Problem) -> dict[str, Tensor]:
        kept = self.kept
        same = bool(kept) and kept["first"].shape == kept["second"].shape == r.shape
        if self.keep_moments and problem.owner is None and same:
            return {name: tensor.to(r) for name, tensor in kept.items()}
        return {"first": torch.zeros_like(r), "second": torch.zeros_like(r), "count": r.new_zeros(())}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore Adam's moments; ValueError if these are something else."""
        if state and (state.keys() != {"first", "second", "count"} or not float(state["count"]) >= 0):
            raise ValueError("these are not the moments of a search")
        super().load_state_dict(state)
