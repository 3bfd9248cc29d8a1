"""How the perturbation is found: at random, by power iteration, or by Adam."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from bvat.errors import SettingsError
from bvat.graph import GraphInputs
from bvat.models.base import ProjectedModel, linearize
from bvat.perturb.divergence import Divergence
from bvat.perturb.spaces import Space

Norm = Literal["row", "field"]
Reduction = Literal["sum", "mean"]
SecondMoment = Literal["entry", "row"]


class Found(NamedTuple):
    """A perturbation: its coordinates in the space and the squared length of each row, (N)."""

    r: Tensor
    row_squares: Tensor


@dataclass(frozen=True)
class Problem:
    """What a search maximises: the sum over the chosen nodes of ``LDS_u`` as a function of r.

    Shapes: target class-major (C, b); rows int64 (b), the chosen nodes, None for all; owner int64 (N), whose
    receptive field a row lies in, -1 for none, None when every node is chosen.
    """

    model: ProjectedModel
    inputs: GraphInputs
    space: Space
    divergence: Divergence
    target: Tensor
    rows: Tensor | None
    owner: Tensor | None
    next_pass: Callable[[], tuple[Any, Tensor]]
    """Gives the masks and the projected features (N, H) of the next pass."""
    same_masks: bool
    """Whether clean and perturbed passes share their masks, so that they agree at r = 0."""

    def value_and_gradient(self, r: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return LDS of each chosen node (b) and the gradient of their sum with respect to r."""
        masks, projected = self.next_pass()
        if r is not None:
            projected = projected + self.space.effect(r)
        logits, pullback = linearize(self.model, self.inputs, projected, masks)
        at = logits if self.rows is None else logits[self.rows]
        value, grad = self.divergence.value_and_gradient(self.target, at)
        if self.rows is not None:
            grad = torch.zeros_like(logits).index_copy_(0, self.rows, grad)
        return value, self.space.pull(pullback(grad))

    def scaled(self, found: Found, length: float, norm: Norm) -> Found:
        """Return the perturbation with every row, or every receptive field, scaled to ``length``.

        What is zero stays zero, so lengths never exceed ``length``.
        """
        squares = found.row_squares
        if norm == "field":
            if self.owner is None:
                raise SettingsError("norm 'field' needs disjoint receptive fields (S-BVAT): use norm 'row'")
            # rows outside all fields (owner -1) have no effect on a chosen node; they form their own group
            group = torch.where(self.owner < 0, self.target.shape[1], self.owner)
            squares = squares.new_zeros(self.target.shape[1] + 1).index_add_(0, group, squares)[group]
        factor = squares.clamp_min(torch.finfo(squares.dtype).tiny).rsqrt_().mul_(length)
        return Found(self.space.scale_rows(found.r, factor), found.row_squares * factor * factor)


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
        found = Found(*space.gaussian(generator))
        probe = self.xi
        if problem.same_masks:
            probe = max(probe, torch.finfo(found.r.dtype).eps ** 0.5)
        for _ in range(self.steps):
            found = problem.scaled(found, probe, self.norm)
            _, gradient = problem.value_and_gradient(found.r)
            # unit length first: squares of the tiny gradients at xi would underflow
            gradient = gradient / gradient.abs().amax().clamp_min(torch.finfo(gradient.dtype).tiny)
            found = Found(gradient, space.row_squares(gradient))
        return problem.scaled(found, self.epsilon, self.norm)


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
        space = problem.space
        r = space.gaussian(generator)[0] * self.start
        first, second, count = self._start_moments(r, problem)
        b1, b2 = self.betas
        width = _row_width(problem, r) if self.second_moment == "row" else None
        scale = 1.0 if self.reduction == "sum" else 1.0 / problem.target.shape[1]
        for _ in range(self.steps):
            _, gradient = problem.value_and_gradient(r)
            gradient = gradient.mul_(scale).add_(r, alpha=-2 * self.gamma)
            count += 1
            first.lerp_(gradient, 1 - b1)
            if width is None:
                second.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
            else:
                second.mul_(b2).add_(space.row_squares(gradient) / width, alpha=1 - b2)
            root = (1 - b2**count) ** 0.5
            # Adam with both bias corrections, epsilon 1e-8 outside the root
            denominator = second.sqrt().add_(1e-8 * root)
            length = self.step_size * root / (1 - b1**count)
            if width is None:
                r.addcdiv_(first, denominator, value=length)
            else:
                r.add_(space.scale_rows(first, length / denominator))
        if self.keep_moments and problem.rows is None:
            self._moments = {"first": first, "second": second, "count": torch.tensor(count)}
        return Found(r, space.row_squares(r))

    def _start_moments(self, r: Tensor, problem: Problem) -> tuple[Tensor, Tensor, int]:
        kept = self._moments
        by_row = self.second_moment == "row"
        second = r.new_zeros(problem.inputs.features.shape[0]) if by_row else torch.zeros_like(r)
        same = bool(kept) and kept["first"].shape == r.shape and kept["second"].shape == second.shape
        if self.keep_moments and problem.rows is None and same:
            return kept["first"].to(r), kept["second"].to(r), int(kept["count"])
        return torch.zeros_like(r), second, 0

    def state_dict(self) -> dict[str, Tensor]:
        """Return Adam's moments."""
        return {name: tensor.clone() for name, tensor in self._moments.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take up Adam's moments."""
        self._moments = {name: tensor.clone() for name, tensor in state.items()}
