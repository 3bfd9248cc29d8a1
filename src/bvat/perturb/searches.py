"""How the perturbation is found: at random, by power iteration, or by Adam."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

from bvat.errors import SettingsError
from bvat.kernels.adam import adam_step_
from bvat.perturb.compiled import adam_ascent
from bvat.perturb.problem import Found, Norm, Problem

Reduction = Literal["sum", "mean"]
SecondMoment = Literal["entry", "row"]


class Search(Protocol):
    """Finds a perturbation for a problem; None means no perturbation at all."""

    def find(self, problem: Problem, generator: torch.Generator | None) -> Found | None:
        """Return the perturbation found."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return what the search keeps from call to call."""

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take up what :meth:`state_dict` returned."""


class _Stateless:
    def state_dict(self) -> dict[str, Tensor]:
        """Return nothing: this search keeps nothing between calls."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take up nothing."""


class NoSearch(_Stateless):
    """No perturbation: what is left is the disagreement of two dropout passes ("consistency")."""

    def find(self, problem: Problem, generator: torch.Generator | None) -> None:
        """Return no perturbation."""
        return


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise SettingsError(message)


def _check_length(epsilon: float, norm: str) -> None:
    _check(0 <= epsilon < math.inf, f"epsilon must be finite and not negative, not {epsilon}")
    _check(norm in ("row", "field"), f"norm must be row or field, not {norm!r}")


@dataclass(frozen=True)
class RandomDirection(_Stateless):
    """A Gaussian direction of length epsilon."""

    epsilon: float = 0.03
    norm: Norm = "row"

    def __post_init__(self) -> None:
        _check_length(self.epsilon, self.norm)

    def find(self, problem: Problem, generator: torch.Generator | None) -> Found:
        """Return a random perturbation."""
        return problem.scaled(Found(*problem.space.gaussian(generator)), self.epsilon, self.norm)


@dataclass(frozen=True)
class PowerIteration(_Stateless):
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
        _check_length(self.epsilon, self.norm)
        _check(self.steps >= 0, f"steps must not be negative, not {self.steps}")
        _check(0 < self.xi < math.inf, f"xi must be positive, not {self.xi}")

    def find(self, problem: Problem, generator: torch.Generator | None) -> Found:
        """Return the perturbation after T iterations (a random one for T = 0)."""
        space = problem.space
        if not self.steps:
            return problem.scaled(Found(*space.gaussian(generator)), self.epsilon, self.norm)
        found = self._start(problem, generator)
        for _ in range(self.steps):
            gradient = problem.gradient(None if found is None else found.r)
            # unit length first: squares of the tiny gradients at xi would underflow
            gradient.div_(gradient.abs().amax().clamp_min_(torch.finfo(gradient.dtype).tiny))
            unscaled = Found(gradient, space.row_squares(gradient))
            found = None if found is None else problem.scaled(unscaled, self._probe(problem), self.norm)
        return problem.scaled(unscaled, self.epsilon, self.norm)

    def _start(self, problem: Problem, generator: torch.Generator | None) -> Found | None:
        """Return the first probe; None where it is as good as zero.

        Under separate masks the passes differ a hundred thousand times more than a probe of length 1e-6 can
        make them: the gradient at r = 0 is the same number, and needs no start.
        """
        if self.starts_at_zero(same_masks=problem.same_masks):
            return None
        start = Found(*problem.space.gaussian(generator))
        return problem.scaled(start, self._probe(problem), self.norm)

    def starts_at_zero(self, *, same_masks: bool) -> bool:
        """Tell whether every gradient is taken at r = 0: then one of them is as good as T."""
        return not same_masks and self.xi <= 1e-5 and self.steps > 0

    def _probe(self, problem: Problem) -> float:
        if not problem.same_masks:
            return self.xi
        return max(self.xi, math.sqrt(torch.finfo(problem.target.p.dtype).eps))


def _row_width(problem: Problem, r: Tensor) -> Tensor:
    """Return how many entries each row of R has, (N): D, or in the sparse space those of its pattern."""
    rows, features = problem.inputs.features.shape
    if problem.space.name == "sparse":
        return problem.space.row_squares(torch.ones_like(r)).clamp_min_(1)
    return r.new_full((rows,), features)


@dataclass
class AdamAscent:
    """T Adam steps up Eq. 10, ``reduction_u LDS_u - gamma |R|²``, from a small Gaussian start (Algorithm 2).

    ``reduction="mean"`` is Eq. 10 as printed: the mean over N nodes against a penalty summed over all
    entries, which the penalty wins, so R stays what it was. ``"sum"`` lets R grow adversarial.

    Args:
        steps: T.
        step_size: Adam's learning rate.
        gamma: weight of the penalty.
        start: standard deviation of the Gaussian start.
        reduction: how the LDS of the nodes are put together.
        keep_moments: whether Adam's moments live on from one call to the next, as in the authors' code.
        second_moment: "entry" is Adam itself, which depends on the coordinates: where few directions of W0
            matter, its steps in the H coordinates of the factored space go less far than in the D of the
            dense one. "row" takes the mean square over a row of R instead, which is the same number in any
            coordinates, so that a step has the length and at least the effect of a dense one.
    """

    steps: int = 10
    step_size: float = 0.001
    gamma: float = 1.0
    start: float = 0.01
    reduction: Reduction = "sum"
    keep_moments: bool = False
    betas: tuple[float, float] = (0.9, 0.999)
    second_moment: SecondMoment = "entry"
    _moments: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        _check(self.steps >= 0, f"steps must not be negative, not {self.steps}")
        _check(0 < self.step_size < math.inf, f"step_size must be positive, not {self.step_size}")
        _check(0 <= self.gamma < math.inf, f"gamma must be finite and not negative, not {self.gamma}")
        _check(0 <= self.start < math.inf, f"start must be finite and not negative, not {self.start}")
        _check(self.reduction in ("sum", "mean"), f"reduction must be sum or mean, not {self.reduction!r}")
        known = self.second_moment in ("entry", "row")
        _check(known, f"second_moment must be entry or row, not {self.second_moment!r}")

    def find(self, problem: Problem, generator: torch.Generator | None) -> Found:
        """Return R after T steps."""
        r = problem.space.draw(generator).mul_(self.start)
        moments = self._start_moments(r, problem)
        if self.second_moment == "row" or not self._compiled_steps(problem, r, moments):
            step = self._step_of_rows if self.second_moment == "row" else self._step
            for _ in range(self.steps):
                gradient = problem.gradient(r)
                if self.reduction == "mean":
                    gradient.div_(problem.target.size)
                step(problem, r, gradient, moments)
        if self.keep_moments and problem.owner is None:
            self._moments = moments
        return Found(r, problem.space.row_squares(r))

    def _compiled_steps(self, problem: Problem, r: Tensor, moments: dict[str, Tensor]) -> bool:
        return adam_ascent(
            problem,
            r,
            moments,
            steps=self.steps,
            step_size=self.step_size,
            betas=self.betas,
            penalty=2 * self.gamma,
            scale=1 / problem.target.size if self.reduction == "mean" else 1.0,
        )

    def _start_moments(self, r: Tensor, problem: Problem) -> dict[str, Tensor]:
        by_row = self.second_moment == "row"
        second = r.new_zeros(problem.num_nodes) if by_row else torch.zeros_like(r)
        kept = self._moments
        same = bool(kept) and kept["first"].shape == r.shape and kept["second"].shape == second.shape
        if self.keep_moments and problem.owner is None and same:
            return {name: tensor.to(r) for name, tensor in kept.items()}
        return {"first": torch.zeros_like(r), "second": second, "count": r.new_zeros(())}

    def _step(self, problem: Problem, r: Tensor, gradient: Tensor, moments: dict[str, Tensor]) -> None:
        """Make one step of Adam, in one pass over memory: the penalty's gradient is Adam's weight decay."""
        adam_step_(
            [r],
            [gradient],
            [moments["first"]],
            [moments["second"]],
            [moments["count"]],
            lr=self.step_size,
            betas=self.betas,
            weight_decay=2 * self.gamma,
            maximize=True,
        )

    def _step_of_rows(
        self, problem: Problem, r: Tensor, gradient: Tensor, moments: dict[str, Tensor]
    ) -> None:
        """Make one step with one second moment a row."""
        space, (b1, b2) = problem.space, self.betas
        gradient = gradient.add_(r, alpha=-2 * self.gamma)
        moments["count"] += 1
        count = int(moments["count"])
        first = moments["first"].lerp_(gradient, 1 - b1)
        squares = space.row_squares(gradient) / _row_width(problem, r)
        second = moments["second"].mul_(b2).add_(squares, alpha=1 - b2)
        root = (1 - b2**count) ** 0.5
        length = self.step_size * root / (1 - b1**count)
        r.add_(space.scale_rows(first, length / second.sqrt().add_(1e-8 * root)))

    def state_dict(self) -> dict[str, Tensor]:
        """Return Adam's moments."""
        return {name: tensor.clone() for name, tensor in self._moments.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take up Adam's moments."""
        self._moments = {name: tensor.clone() for name, tensor in state.items()}


@dataclass
class FastAscent:
    """A few full steps ``r = epsilon g / |g|`` on the sphere, the gradient taken at the last r itself.

    LDS grows convexly in r around its minimum r = 0, so the full step of the conditional-gradient method, to
    the point of the sphere that the gradient points at, goes up without a step size to choose; one or two
    such steps do what ten of Adam do. With ``warm`` the first gradient is taken at the perturbation of the
    call before, which the weights have moved from but little.

    Args:
        epsilon: length of every row.
        steps: number of gradients.
        warm: whether to start from the perturbation of the call before.
    """

    epsilon: float = 0.02
    steps: int = 1
    norm: Norm = "row"
    warm: bool = True
    _last: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        _check_length(self.epsilon, self.norm)
        _check(self.steps >= 1, f"steps must be at least 1, not {self.steps}")

    def find(self, problem: Problem, generator: torch.Generator | None) -> Found:
        """Return the perturbation after the last step."""
        space = problem.space
        warm = self.warm and problem.owner is None
        last = self._last.get("r")
        if warm and last is not None and last.shape == space.shape:
            r = last.to(problem.target.p)
        else:
            r = problem.scaled(Found(*space.gaussian(generator)), self.epsilon, self.norm).r
        for _ in range(self.steps):
            gradient = problem.gradient(r)
            gradient.div_(gradient.abs().amax().clamp_min_(torch.finfo(gradient.dtype).tiny))
            found = problem.scaled(Found(gradient, space.row_squares(gradient)), self.epsilon, self.norm)
            r = found.r
        if warm:
            self._last = {"r": r}
        return found

    def state_dict(self) -> dict[str, Tensor]:
        """Return the last perturbation."""
        return {name: tensor.clone() for name, tensor in self._last.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take up the last perturbation."""
        self._last = {name: tensor.clone() for name, tensor in state.items()}
