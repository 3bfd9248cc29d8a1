"""What a regulariser needs of a model: a linear map of the features, then the rest.

A model reads its features only through ``project``, a linear map ``X W0``; ``propagate`` turns that into
logits. Whoever offers these few methods can be trained with every regulariser of bvat; no base class is
needed. A model that is not linear in X offers the identity as its projection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from bvat.engine.draws import Source
from bvat.errors import SettingsError
from bvat.graph.inputs import GraphInputs

Pullback = Callable[[Tensor], Tensor]
"""Maps a gradient with respect to logits (N, C) to the one with respect to the projected features (N, H)."""


@runtime_checkable
class ProjectedModel(Protocol):
    """A node classifier split into ``project`` and ``propagate``."""

    @property
    def depth(self) -> int:
        """K: how many hops away a feature can change a node's prediction."""

    @property
    def training(self) -> bool:
        """Whether dropout is on, as in every ``torch.nn.Module``."""

    def projection(self) -> Tensor | None:
        """W0, shape (D, H), or None when ``project`` is the identity."""

    def draw_masks(
        self, inputs: GraphInputs, generator: Source | None = None, *, features: bool = True
    ) -> Any:
        """Draw the masks of one pass, without that of the features if not ``features``; None: no dropout."""

    def restrict_masks(self, masks: Any, inputs: GraphInputs, nodes: Tensor) -> Any:
        """Return the part of the masks (drawn for ``inputs``) that concerns the subgraph on ``nodes``."""

    def project(self, inputs: GraphInputs, masks: Any = None) -> Tensor:
        """Return dropout(X) W0, shape (N, H)."""

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Any = None) -> Tensor:
        """Turn projected features (N, H) into logits (N, C)."""


@dataclass(frozen=True)
class Masks:
    """Dropout masks of one pass: factors 0 or 1 / (1 - p).

    Shapes: features (nnz) for sparse features, (N, D) for dense ones; hidden: one (N, H_l) per hidden layer;
    edges: one (nnz, w) each, for the entries of Â.
    """

    features: Tensor | None
    hidden: tuple[Tensor, ...]
    factor: float = 1.0
    """1 / (1 - p), the factor of what is kept."""
    edges: tuple[Tensor, ...] = ()


def first_weights(model: Any) -> list[nn.Parameter]:
    """Return the parameters that multiply the features; none if they are read in another way."""
    if hasattr(model, "first_weights"):
        found: list[nn.Parameter] = model.first_weights
        return found
    first = model.first_weight if hasattr(model, "first_weight") else model.projection()
    return [parameter for parameter in model.parameters() if parameter is first]


def linearize(
    model: ProjectedModel, inputs: GraphInputs, projected: Tensor, masks: Any
) -> tuple[Tensor, Pullback]:
    """Return the logits at ``projected`` and the map from their gradient back to ``projected``.

    A model may offer a method ``linearize`` of its own with a closed form; otherwise autograd does it.
    Nothing here touches ``.grad`` of a parameter.

    Shapes: projected (N, H); logits (N, C).
    """
    own = getattr(model, "linearize", None)
    if own is not None:
        closed_form: tuple[Tensor, Pullback] = own(inputs, projected, masks)
        return closed_form
    with torch.enable_grad():
        point = projected.detach().requires_grad_()
        logits = model.propagate(inputs, point, masks)

    def pullback(grad: Tensor) -> Tensor:
        found = None
        if logits.requires_grad:
            (found,) = torch.autograd.grad(logits, point, grad, allow_unused=True)
        if found is None:
            raise SettingsError(
                "the model's output does not depend on x: let it read x in every pass (cached=False)"
            )
        return found

    return logits.detach(), pullback
