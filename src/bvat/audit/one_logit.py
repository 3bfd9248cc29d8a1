"""One logit as two classes, so that an audit can ask what changes its sign."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bvat.graph.inputs import GraphInputs
from bvat.models.base import ProjectedModel, Pullback, linearize


class OneLogit:
    """A model with one logit l as one with the logits (0, l), for which softmax is sigmoid(l)."""

    def __init__(self, model: ProjectedModel) -> None:
        self.model, self.depth, self.training = model, model.depth, model.training

    def projection(self) -> Tensor | None:
        """Return W0 (D, H)."""
        return self.model.projection()

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Any = None) -> Tensor:
        """Return the logits (N, 2)."""
        logits = self.model.propagate(inputs, projected, masks)
        return torch.cat([torch.zeros_like(logits), logits], 1)

    def linearize(self, inputs: GraphInputs, projected: Tensor, masks: Any) -> tuple[Tensor, Pullback]:
        """Return the logits (N, 2) and the map from their gradient back to ``projected`` (N, H)."""
        logits, pullback = linearize(self.model, inputs, projected, masks)
        return torch.cat([torch.zeros_like(logits), logits], 1), lambda grad: pullback(grad[:, 1:])
