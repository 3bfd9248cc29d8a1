"""What every search offers, the checks of their settings, and the two that need no gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from bvat.engine.draws import Source
from bvat.errors import SettingsError
from bvat.perturb.problem import Found, Norm, Problem


class Search(Protocol):
    """Finds a perturbation for a problem; None means no perturbation at all."""

    def find(self, problem: Problem, generator: Source | None) -> Found | None:
        """Return the perturbation found."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return what the search keeps from call to call."""

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore the state."""


class Stateless:
    """A search that keeps nothing between calls."""

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore nothing."""


def check(condition: bool, message: str) -> None:
    """Raise SettingsError unless a condition holds."""
    if not condition:
        raise SettingsError(message)


def check_length(epsilon: float, norm: str) -> None:
    """Raise SettingsError unless epsilon is a length and norm is known."""
    check(0 <= epsilon < math.inf, f"epsilon must be finite and not negative, not {epsilon}")
    check(norm in ("row", "field"), f"norm must be row or field, not {norm!r}")


class NoSearch(Stateless):
    """No perturbation: what is left is the disagreement of two dropout passes ("consistency")."""

    def find(self, problem: Problem, generator: Source | None) -> None:
        return


@dataclass(frozen=True)
class RandomDirection(Stateless):
    """A Gaussian direction of length epsilon."""

    epsilon: float = 0.03
    norm: Norm = "row"

    def __post_init__(self) -> None:
        check_length(self.epsilon, self.norm)

    def find(self, problem: Problem, generator: Source | None) -> Found:
        return problem.scaled(Found(*problem.space.gaussian(generator)), self.epsilon, self.norm)
