"""What a regulariser needs of a model: a linear map of the features, then the rest.

A model reads its features only through ``project``, a linear map ``X W0``; ``propagate`` turns that into
logits. Whoever offers these few methods can be trained with every regulariser of bvat; no base class is
needed. A model that is not linear in X offers the identity as its projection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from bvat.engine.draws import RowDraws
from bvat.engine.sparse import SparseMatrix
from bvat.errors import SettingsError
from bvat.graph.inputs import FeatureMatrix, GraphInputs

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
        self, inputs: GraphInputs, generator: torch.Generator | None = None, *, features: bool = True
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

    Shapes: features (nnz) for sparse features, (N, D) for dense ones; hidden: one (N, H_l) per hidden layer.
    """

    features: Tensor | None
    hidden: tuple[Tensor, ...]
    factor: float = 1.0
    """1 / (1 - p), the factor of what is kept."""

    def restrict(self, features: FeatureMatrix, nodes: Tensor) -> Masks:
        """Return the masks of the rows ``nodes`` of the graph for whose ``features`` they were drawn."""
        part = None if self.features is None else features.select_values(self.features, nodes)
        return Masks(part, tuple(mask[nodes] for mask in self.hidden), self.factor)


def required(generator: torch.Generator | None) -> torch.Generator:
    """Return the generator; raise SettingsError without one: nothing here draws from a global state."""
    if generator is None:
        raise SettingsError(
            "random numbers are drawn here: pass generator=torch.Generator().manual_seed(0), "
            "or call model.eval() for a pass without dropout"
        )
    return generator


def _dropout_level(rate: float, bits: int = 16) -> int:
    """Return the rate in units of 2^-bits; a rate just below 1 must not round up to it."""
    return min(round(rate * (1 << bits)), (1 << bits) - 1)


def dropout_factor(rate: float, bits: int = 16) -> float:
    """Return the factor of what dropout keeps, so that the expectation is exactly 1."""
    return (1 << bits) / ((1 << bits) - _dropout_level(rate, bits))


def coarse_dropout_mask(
    shape: tuple[int, ...], rate: float, like: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Draw a mask as :func:`dropout_mask` does, in half of the time: ``rate`` is a multiple of 2^-8 here."""
    generator = required(generator)
    level, factor = _dropout_level(rate, 8), dropout_factor(rate, 8)
    if isinstance(generator, RowDraws):
        return generator.dropout_mask(shape, level << 8, factor, like)
    size = math.prod(shape)
    words = torch.empty((size + 7) // 8, dtype=torch.int64, device=like.device)
    words.random_(-(2**63), None, generator=generator)
    drawn = words.view(torch.uint8)[:size]
    return (drawn >= level).to(like.dtype).mul_(factor).view(shape)


def dropout_mask(
    shape: tuple[int, ...], rate: float, like: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Draw a mask of factors 0 (with probability ``rate``) and 1 / (1 - rate).

    One 64-bit draw serves four entries of 16 bits each, and 0 and 1 are made by clamping whole numbers rather
    than by comparing: both are several times faster than a uniform number per entry and a comparison.
    ``rate`` is rounded to a multiple of 2^-16 and the factor made to fit, so the expectation is exactly 1.
    """
    generator = required(generator)
    if isinstance(generator, RowDraws):
        return generator.dropout_mask(shape, _dropout_level(rate), dropout_factor(rate), like)
    size = math.prod(shape)
    words = torch.empty((size + 3) // 4, dtype=torch.int64, device=like.device)
    words.random_(-(2**63), None, generator=generator)
    kept_from = _dropout_level(rate) - 2**15  # of the 2^16 values of 16 bits, those from here on are kept
    if kept_from == -(2**15):
        return like.new_ones(shape)
    bits = words.view(torch.int16)[:size].clamp_(kept_from - 1, kept_from).sub_(kept_from - 1)
    return bits.to(like.dtype).mul_(dropout_factor(rate)).view(shape)


def dropped_features(features: FeatureMatrix, mask: Tensor | None) -> FeatureMatrix:
    """Return the features with their dropout mask applied; features (N, D)."""
    return features if mask is None else features.with_values(features.values * mask)


def feature_mask(inputs: GraphInputs, rate: float, generator: torch.Generator | None) -> Tensor:
    """Draw the dropout mask of the features: one factor per stored entry."""
    features, values = inputs.features, inputs.features.values
    if isinstance(generator, RowDraws) and isinstance(features, SparseMatrix):
        return generator.entry_mask(features.crow, _dropout_level(rate), dropout_factor(rate), values)
    return dropout_mask(tuple(values.shape), rate, values, generator)


def edge_mask(
    matrix: SparseMatrix, width: int, rate: float, like: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Draw the dropout mask of the entries of Â, (nnz, width)."""
    if isinstance(generator, RowDraws):
        return generator.edge_mask(matrix, _dropout_level(rate), dropout_factor(rate))
    return dropout_mask((matrix.nnz, width), rate, like, generator)


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
    return logits.detach(), lambda grad: torch.autograd.grad(logits, point, grad)[0]
