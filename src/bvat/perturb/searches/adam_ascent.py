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
    """

    steps: int = 10
    step_size: float = 0.001
    gamma: float = 1.0
    start: float = 0.01
    reduction: Reduction = "sum"
    keep_moments: bool = False
    _moments: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check(self.steps >= 0, f"steps must not be negative, not {self.steps}")
        check(0 < self.step_size < math.inf, f"step_size must be positive, not {self.step_size}")
        check(0 <= self.gamma < math.inf, f"gamma must be finite and not negative, not {self.gamma}")
        check(0 <= self.start < math.inf, f"start must be finite and not negative, not {self.start}")
        check(self.reduction in ("sum", "mean"), f"reduction must be sum or mean, not {self.reduction!r}")

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
            self._moments = moments
        return Found(r, problem.space.row_squares(r))

    def _start_moments(self, r: Tensor, problem: Problem) -> dict[str, Tensor]:
        kept = self._moments
        same = bool(kept) and kept["first"].shape == kept["second"].shape == r.shape
        if self.keep_moments and problem.owner is None and same:
            return {name: tensor.to(r) for name, tensor in kept.items()}
        return {"first": torch.zeros_like(r), "second": torch.zeros_like(r), "count": r.new_zeros(())}

    def state_dict(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self._moments.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore Adam's moments; ValueError if these are something else."""
        if state and (state.keys() != {"first", "second", "count"} or not float(state["count"]) >= 0):
            raise ValueError("these are not the moments of a search")
        self._moments = {name: tensor.clone() for name, tensor in state.items()}
