"""From settings to a model and a regulariser."""

from __future__ import annotations

from typing import Any

import torch

from bvat.models import MODELS
from bvat.perturb.divergence import DIVERGENCES
from bvat.perturb.regulariser import OBVAT, SBVAT, VAT, Consistency, Random, Regulariser
from bvat.perturb.searches import FastAscent
from bvat.training.settings import Settings


def build_model(
    settings: Settings, num_features: int, num_classes: int, generator: torch.Generator | None = None
) -> torch.nn.Module:
    """Return a model with weights drawn from ``generator``."""
    model: torch.nn.Module = MODELS[settings.model](
        num_features,
        num_classes,
        hidden=settings.hidden,
        layers=settings.layers,
        dropout=settings.dropout,
        generator=generator,
    )
    return model


def build_regulariser(settings: Settings, generator: torch.Generator | None = None) -> Regulariser | None:
    """Return the regulariser of a method; None for a plain GCN."""
    s = settings
    options: dict[str, Any] = {
        "space": s.space,
        "dropout": s.masks,
        "divergence": DIVERGENCES[s.divergence](),
        "generator": generator,
    }
    match s.method:
        case "consistency":
            return Consistency(**options)
        case "random":
            return Random(s.epsilon, **options)
        case "vat":
            return VAT(s.epsilon, s.steps, s.xi, **options)
        case "sbvat":
            return SBVAT(s.epsilon, s.count, s.steps, s.xi, s.norm, **options)  # type: ignore[arg-type]
        case "obvat" if s.search == "fast":
            return Regulariser(search=FastAscent(s.epsilon, s.steps), **options)
        case "obvat":
            return OBVAT(
                s.steps,
                s.step_size,
                s.gamma,
                s.start,
                s.reduction,  # type: ignore[arg-type]
                s.keep_moments,
                s.second_moment,  # type: ignore[arg-type]
                **options,
            )
    return None
