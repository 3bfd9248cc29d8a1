"""Random propagation: a perceptron on features that spread over the graph from a random half of the nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bvat.engine.draws import Source, as_draws
from bvat.engine.sparse import SparseMatrix
from bvat.graph.inputs import GraphInputs
from bvat.models.layered import LinearLayers
from bvat.models.table import RandomPropagationOptions


@dataclass(frozen=True)
class PropagationMasks:
    """Masks of one pass: factors 0 or 1 / (1 - rate); None where the rate is 0.

    Shapes: features (D), one factor per column of X; nodes (N, 1); hidden: one (N, H_l) per hidden layer.
    """

    features: Tensor | None
    nodes: Tensor | None
    hidden: tuple[Tensor, ...]


def spreading_weights(kind: str, steps: int, teleport: float) -> tuple[float, float]:
    """Return theta_0 and r of the weights ``theta_k = theta_0 r^k``, k <= K, which sum to 1.

    All are equal ("mean", r = 1), or they fall by r = 1 - t ("pagerank").
    """
    ratio = 1.0 if kind == "mean" else 1 - teleport
    return 1 / sum(ratio**k for k in range(steps + 1)), ratio


class _Spread(torch.autograd.Function):
    """``sum_{k <= steps} (ratio Â)^k start``, whose gradient is the same sum with Âᵀ; start (N, H)."""

    @staticmethod
    def forward(ctx: Any, matrix: SparseMatrix, ratio: float, steps: int, start: Tensor) -> Tensor:
        ctx.rest = matrix, ratio, steps
        return matrix.engine.power_sum(matrix, ratio, steps, start)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None, Tensor]:
        matrix, ratio, steps = ctx.rest
        return None, None, None, matrix.engine.power_sum(matrix, ratio, steps, grads[0], transposed=True)


class RandomPropagation(LinearLayers):
    """Random propagation, the model of GRAND (Feng et al., 2020, https://arxiv.org/abs/2005.11079).

    ``Z = sum_k theta_k Â^k D X (m ∘ W0)``, ``logits = dropout(relu(Z + b0)) W1 + b1`` for two layers, where
    D drops whole nodes and m drops columns of X, the same for all nodes. Propagation is linear, so it
    commutes with W0 and runs on N x H instead of N x D. Nothing is dropped in evaluation mode.

    Args:
        in_features, classes, hidden, generator: as for :class:`GCN`.
        layers: number of linear maps, at least 1.
        dropout: rate for the hidden layers.
        power_steps: K, how far features spread.
        teleport: t of the weights "pagerank".
        spread: weights theta: "pagerank" (``∝ (1 - t)^k``) or "mean" (all equal).
        node_dropout: share of the nodes whose features are dropped.
        input_dropout: share of the columns of X that are dropped.
        batch_norm: whether the hidden layers are normalised over the nodes, before their dropout, and W0
            stands for ``g ∘ W0`` with a learnt factor g per column of X. That is all that GRAND's
            normalisation of its propagated input does for features whose columns have been scaled.

    Example:
        >>> logits = RandomPropagation(graph.num_features, graph.num_classes).eval()(graph)  # (N, C)
    """

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        power_steps: int = 10,
        teleport: float = 0.1,
        spread: Literal["pagerank", "mean"] = "pagerank",
        node_dropout: float = 0.5,
        input_dropout: float = 0.5,
        batch_norm: bool = False,
        hidden: int = 32,
        layers: int = 2,
        dropout: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        RandomPropagationOptions(power_steps=power_steps, teleport=teleport, spread=spread)  # checks them
        RandomPropagationOptions(node_dropout=node_dropout, input_dropout=input_dropout)
        super().__init__(
            in_features, classes, hidden=hidden, layers=layers, dropout=dropout, generator=generator
        )
        self.power_steps = power_steps
        self.first_share, self.ratio = spreading_weights(spread, power_steps, teleport)
        self.node_dropout, self.input_dropout = node_dropout, input_dropout
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in self.hidden_widths if batch_norm)
        self.columns = nn.Parameter(torch.ones(in_features)) if batch_norm else None

    def projection(self) -> Tensor:
        """W0 with the factors of the columns of X, shape (D, H)."""
        return self.first_weight if self.columns is None else self.first_weight * self.columns[:, None]

    @property
    def depth(self) -> int:
        """K, the number of power steps."""
        return self.power_steps

    def draw_masks(
        self, inputs: GraphInputs, generator: Source | None = None, *, features: bool = True
    ) -> PropagationMasks | None:
        """Draw the masks of one pass; None in eval mode or if nothing is dropped."""
        if not self.training or not (self.dropout or self.node_dropout or self.input_dropout):
            return None
        like, rows, draws = self.first_weight.detach(), inputs.propagation.shape[0], as_draws(generator)

        def draw(shape: tuple[int, ...], rate: float) -> Tensor | None:
            return draws.coarse_mask(shape, rate, like) if rate else None

        hidden = (draw((rows, width), self.dropout) for width in self.hidden_widths)
        return PropagationMasks(
            features=draw((inputs.features.shape[1],), self.input_dropout) if features else None,
            nodes=draw((rows, 1), self.node_dropout),
            hidden=tuple(mask for mask in hidden if mask is not None),
        )

    def restrict_masks(self, masks: PropagationMasks | None, inputs: GraphInputs, nodes: Tensor) -> Any:
        if masks is None:
            return None
        kept = None if masks.nodes is None else masks.nodes[nodes]
        return PropagationMasks(masks.features, kept, tuple(m[nodes] for m in masks.hidden))

    def project(self, inputs: GraphInputs, masks: PropagationMasks | None = None) -> Tensor:  # type: ignore[override]
        """Return ``X (m ∘ W0)``, shape (N, H)."""
        first = self.projection()
        if masks is not None and masks.features is not None:
            return inputs.features @ (first * masks.features[:, None])
        return inputs.features @ first

    def propagate(
        self, inputs: GraphInputs, projected: Tensor, masks: PropagationMasks | None = None
    ) -> Tensor:
        share: Any = self.first_share
        if masks is not None and masks.nodes is not None:
            share = masks.nodes * share
        engine = inputs.engine
        spread: Tensor = _Spread.apply(  # type: ignore[no-untyped-call]
            inputs.propagation, self.ratio, self.power_steps, projected * share
        )
        state = engine.plus(spread, self.biases[0])
        for layer, weight in enumerate(list(self.weights)[1:]):
            state = torch.relu(state)
            if len(self.norms):
                state = self.norms[layer](state)
            if masks is not None and masks.hidden:
                state = state * masks.hidden[layer]
            state = engine.plus(engine.times(state, weight), self.biases[layer + 1])
        return state if state.requires_grad else state.contiguous()  # argmax is faster along rows
