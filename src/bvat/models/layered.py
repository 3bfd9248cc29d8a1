"""What the models share: weights in layers, biases, and dropout masks of nodes and edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from bvat.engine.draws import Draws, Source, as_draws, dropout_factor
from bvat.graph.inputs import GraphInputs
from bvat.models.base import Masks
from bvat.models.table import NetworkOptions


class LayeredModel(nn.Module):
    """A model ``X W0`` -> ``propagate`` -> logits with dropout before every layer.

    Args:
        weights: W0 (D, H), then the weights of the further layers.
        biases: the width of each layer's bias; none by default. They start at 0.
        dropout: rate for the input of every layer, and for the entries of Â where ``edge_widths`` asks.
        hidden_widths: widths of the masks of the hidden layers.
        edge_widths: columns of the masks of Â's entries.

    A subclass offers ``propagate``, and ``depth`` if that is not the number of weights.
    """

    perturbed_on: ClassVar[Literal["fields", "subgraph"]] = "subgraph"
    """The part of the graph that a pass may run on when only some nodes are of interest, those chosen to be
    perturbed or the labelled ones: their receptive fields layer by layer
    (:class:`bvat.graph.inputs.ReceptiveFields`), or the subgraph these induce."""

    def __init__(
        self,
        weights: Iterable[nn.Parameter],
        *,
        biases: Sequence[int] = (),
        dropout: float,
        hidden_widths: Sequence[int] = (),
        edge_widths: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.weights = nn.ParameterList(weights)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(width)) for width in biases)
        self.dropout = dropout
        self.hidden_widths, self.edge_widths = tuple(hidden_widths), tuple(edge_widths)

    @property
    def depth(self) -> int:
        return len(self.weights)

    @property
    def first_weight(self) -> nn.Parameter:
        """The parameter W0, shape (D, H)."""
        first: nn.Parameter = self.weights[0]
        return first

    def projection(self) -> Tensor:
        """W0 as it multiplies X, shape (D, H)."""
        return self.first_weight

    def draw_masks(
        self, inputs: GraphInputs, generator: Source | None = None, *, features: bool = True
    ) -> Any:
        if not self.training or self.dropout == 0:
            return None
        draws, rate = as_draws(generator), self.dropout
        like, matrix = self.projection().detach(), inputs.propagation
        return Masks(
            features=self.draw_feature_mask(inputs, draws) if features else None,
            hidden=tuple(
                self.draw_hidden_mask((matrix.shape[0], width), like, draws) for width in self.hidden_widths
            ),
            factor=dropout_factor(rate),
            edges=tuple(draws.edge_mask(matrix, width, rate, like) for width in self.edge_widths),
        )

    def draw_hidden_mask(self, shape: tuple[int, int], like: Tensor, draws: Draws) -> Tensor:
        """Draw the mask of a hidden layer, (N, width)."""
        return draws.dropout_mask(shape, self.dropout, like)

    def draw_feature_mask(self, inputs: GraphInputs, draws: Draws) -> Tensor:
        """Draw the mask of the features: one factor per stored entry."""
        return draws.entry_mask(inputs.features, self.dropout)

    def restrict_masks(self, masks: Any, inputs: GraphInputs, nodes: Tensor) -> Any:
        if masks is None:
            return None
        features, edges, whole = masks.features, masks.edges, inputs.propagation
        if features is not None:
            features = inputs.features.select_values(features, nodes)
        if edges:
            kept = whole.induced_places(nodes)
            edges = tuple(mask[kept] for mask in edges)
        return Masks(features, tuple(mask[nodes] for mask in masks.hidden), masks.factor, edges)

    def project(self, inputs: GraphInputs, masks: Masks | None = None) -> Tensor:
        x, mask = inputs.features, None if masks is None else masks.features
        return (x if mask is None else x.masked(mask)) @ self.projection()

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Any = None) -> Tensor:
        raise NotImplementedError

    def forward(self, inputs: GraphInputs, masks: Any = None, generator: Source | None = None) -> Tensor:
        """Return the logits, shape (N, C).

        In training mode dropout needs ``masks`` (from :meth:`draw_masks`) or a ``generator`` to draw them.
        """
        if masks is None:
            masks = self.draw_masks(inputs, generator)
        return self.propagate(inputs, self.project(inputs, masks), masks)


class LinearLayers(LayeredModel):
    """A model whose layers are linear maps.

    Args:
        in_features, classes: D and C.
        hidden: width of the hidden layers.
        layers: K, at least 1.
        dropout: rate for the input of every layer.
        generator: source of the Glorot-uniform weights; biases start at 0.
    """

    maps_per_layer: int = 1
    """They lie side by side in one matrix."""
    has_biases: ClassVar[bool] = True

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        NetworkOptions(hidden=hidden, layers=layers, dropout=dropout)  # checks them
        widths = [in_features, *[hidden] * (layers - 1), classes]
        shapes, count = pairwise(widths), self.maps_per_layer
        super().__init__(
            (side_by_side(rows, columns, count, generator) for rows, columns in shapes),
            biases=widths[1:] if self.has_biases else (),
            dropout=dropout,
            hidden_widths=widths[1:-1],
        )


def glorot(rows: int, columns: int, generator: torch.Generator | None = None) -> nn.Parameter:
    """Return a parameter drawn uniformly from ±sqrt(6 / (rows + columns)); shape (rows, columns)."""
    bound = (6.0 / (rows + columns)) ** 0.5
    return nn.Parameter(torch.empty(rows, columns).uniform_(-bound, bound, generator=generator))


def side_by_side(
    rows: int, columns: int, count: int, generator: torch.Generator | None = None
) -> nn.Parameter:
    """Return ``count`` Glorot-uniform matrices, each drawn by itself; shape (rows, count * columns)."""
    parts: list[Tensor] = [glorot(rows, columns, generator) for _ in range(count)]
    return nn.Parameter(torch.cat(parts, 1).detach())


def dropped(state: Tensor, masks: Masks | None, layer: int) -> Tensor:
    """Return the state of a hidden layer with its dropout mask applied; state (N, H_l)."""
    return state if masks is None else state * masks.hidden[layer]
