"""The search of O-BVAT (Algorithm 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from bvat.engine.draws import Source
from bvat.engine.tensor import AdamRates
from bvat.perturb.problem import Found, Problem
from bvat.perturb.searches.base import check

Reduction = Literal["sum", "mean"]
SecondMoment = Literal["entry", "row"]


def _row_width(problem: Problem, r: Tensor) -> Tensor:
    """Return the number of entries of each row of R, (N): D, or in the sparse space those of its pattern."""
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
        reduction: how the LDS of the nodes are combined.
        keep_moments: whether Adam's moments are kept from one call to the next, as in the authors' code.
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
        check(self.steps >= 0, f"steps must not be negative, not {self.steps}")
        check(0 < self.step_size < math.inf, f"step_size must be positive, not {self.step_size}")
        check(0 <= self.gamma < math.inf, f"gamma must be finite and not negative, not {self.gamma}")
        check(0 <= self.start < math.inf, f"start must be finite and not negative, not {self.start}")
        check(self.reduction in ("sum", "mean"), f"reduction must be sum or mean, not {self.reduction!r}")
        known = self.second_moment in ("entry", "row")
        check(known, f"second_moment must be entry or row, not {self.second_moment!r}")

    def find(self, problem: Problem, generator: Source | None) -> Found:
        r = problem.space.draw(generator).mul_(self.start)
        moments = self._start_moments(r, problem)
        divisor = problem.num_chosen if self.reduction == "mean" else 1
        if self.second_moment == "row":
            for _ in range(self.steps):
                self._step_of_rows(problem, r, problem.gradient(r).div_(divisor), moments)
        else:
            rates = AdamRates(self.step_size, weight_decay=2 * self.gamma, betas=self.betas)
            for _ in range(self.steps):
                gradient = problem.gradient(r)
                if divisor > 1:
                    gradient.div_(divisor)
                problem.engine.adam_step(r, gradient, moments, rates)
        if self.keep_moments and problem.owner is None:
            self._moments = moments
        return Found(r, problem.space.row_squares(r))

    def _start_moments(self, r: Tensor, problem: Problem) -> dict[str, Tensor]:
        by_row = self.second_moment == "row"
        second = r.new_zeros(problem.num_nodes) if by_row else torch.zeros_like(r)
        kept = self._moments
        same = bool(kept) and kept["first"].shape == r.shape and kept["second"].shape == second.shape
        if self.keep_moments and problem.owner is None and same:
            return {name: tensor.to(r) for name, tensor in kept.items()}
        return {"first": torch.zeros_like(r), "second": second, "count": r.new_zeros(())}

    def _step_of_rows(
        self, problem: Problem, r: Tensor, gradient: Tensor, moments: dict[str, Tensor]
    ) -> None:
        """Make one step with one second moment per row."""
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
        return {name: tensor.clone() for name, tensor in self._moments.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore Adam's moments; ValueError if these are something else."""
        if state and (state.keys() != {"first", "second", "count"} or not float(state["count"]) >= 0):
            raise ValueError("these are not the moments of a search")
        self._moments = {name: tensor.clone() for name, tensor in state.items()}
