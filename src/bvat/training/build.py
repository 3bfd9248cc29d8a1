"""From settings to a model and a regulariser."""

from __future__ import annotations

from typing import Any

import torch

from bvat.engine.draws import Source
from bvat.models.table import MODELS
from bvat.perturb.divergence import DIVERGENCES
from bvat.perturb.methods import METHODS
from bvat.training.settings import Settings


def build_model(
    settings: Settings, num_features: int, num_classes: int, generator: torch.Generator | None = None
) -> torch.nn.Module:
    """Return a model for D features and C classes, with weights drawn from ``generator``."""
    model: torch.nn.Module = MODELS[settings.model].build(settings, num_features, num_classes, generator)
    return model


def build_regulariser(settings: Settings, generator: Source | None = None) -> Any:
    """Return the regulariser of a method; None for a plain model."""
    build = METHODS[settings.method].builder()
    if build is None:
        return None
    options = {
        "space": settings.space,
        "dropout": settings.masks,
        "divergence": DIVERGENCES[settings.divergence](),
        "generator": generator,
        "confidence": settings.confidence,
    }
    return build(settings, options)
