"""From settings to the regularisers of the paper; ``methods`` names these functions."""

from __future__ import annotations

from typing import Any

from bvat.perturb.regulariser import OBVAT, SBVAT, VAT, Consistency, Random, Regulariser
from bvat.perturb.searches import FastAscent

Options = dict[str, Any]
"""What all regularisers share: space, dropout, divergence, generator."""


def consistency(settings: Any, options: Options) -> Regulariser:
    """No perturbation."""
    return Consistency(**options)


def random(settings: Any, options: Options) -> Regulariser:
    """A Gaussian direction."""
    return Random(settings.epsilon, **options)


def vat(settings: Any, options: Options) -> Regulariser:
    """Power iteration at all nodes."""
    return VAT(settings.epsilon, settings.steps, settings.xi, **options)


def sbvat(settings: Any, options: Options) -> Regulariser:
    """Power iteration in disjoint receptive fields."""
    s = settings
    return SBVAT(s.epsilon, s.count, s.steps, s.xi, s.norm, **options)


def obvat(settings: Any, options: Options) -> Regulariser:
    """Adam, or a few full steps, on one matrix for all nodes."""
    s = settings
    if s.search == "fast":
        return Regulariser(search=FastAscent(s.epsilon, s.steps), **options)
    return OBVAT(
        s.steps, s.step_size, s.gamma, s.start, s.reduction, s.keep_moments, s.second_moment, **options
    )
