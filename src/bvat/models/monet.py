"""MoNet: mixtures of Gaussian kernels over the degrees at both ends of an edge."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from bvat.engine.sparse import SparseMatrix
from bvat.graph.inputs import GraphInputs
from bvat.models.base import Masks
from bvat.models.layered import LinearLayers, dropped, glorot
from bvat.models.table import MoNetOptions


def pseudo_coordinates(propagation: SparseMatrix) -> tuple[Tensor, Tensor]:
    """Return the different ``u_ij = (d_i^-1/2, d_j^-1/2)`` of the entries of Â, and which one an entry has.

    Degrees count the node itself. The diagonal of Â is 1 / d, also in a subgraph, so that degrees are those
    in the whole graph. Far fewer pairs of degrees differ than there are entries.

    Shapes: propagation (N, N); result (pairs, 2) and (nnz).
    """
    rows, col = propagation.rows, propagation.col.long()
    roots, degree = torch.unique(propagation.values[rows == col].sqrt(), return_inverse=True)
    pairs, place = torch.unique(degree[rows] * roots.numel() + degree[col], return_inverse=True)
    return torch.stack([roots[pairs // roots.numel()], roots[pairs % roots.numel()]], 1), place


def repeated(pattern: SparseMatrix, kernels: int) -> SparseMatrix:
    """Return a pattern (N, N * kernels) where every entry (i, j) is followed by those of the other kernels.

    Its product with values (nnz, kernels) and h (N * kernels, F) is ``sum_j sum_k w_k(v_ij) h_jk``.
    """
    steps = torch.arange(kernels, dtype=torch.int32, device=pattern.device)
    col = (pattern.col[:, None] * kernels + steps).flatten()
    size, nodes = pattern.shape
    values = pattern.values.repeat_interleave(kernels)
    return SparseMatrix(pattern.crow * kernels, col, values, (size, nodes * kernels), pattern.engine)


class MoNet(LinearLayers):
    """Mixture model network (https://arxiv.org/abs/1611.08402) with the pseudo-coordinates of its citations.

    ``h'_i = relu(sum_{j in N(i) + i} sum_k w_k(v_ij) h_j W_k + b)`` with ``v_ij = tanh(P u_ij + p)``,
    ``u_ij = (d_i^-1/2, d_j^-1/2)`` and Gaussian kernels ``w_k(v) = exp(-1/2 sum_m s_km² (v_m - mu_km)²)``.
    The last layer has no relu. The maps W_k of a layer lie side by side in one matrix.

    Args:
        in_features, classes, layers, dropout: as for :class:`GCN`.
        hidden: width of the hidden layers; W0 is (D, kernels * hidden).
        generator: source of the Glorot-uniform weights and of the centres mu; biases start at 0.
        kernels: number of kernels of a layer.
        coordinates: r, the length of v.
        aggregation: whether the sum over j is divided by the number of its terms ("mean") or not.

    Example:
        >>> logits = MoNet(graph.num_features, graph.num_classes).eval()(graph)  # (N, C)
    """

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        kernels: int = 3,
        coordinates: int = 2,
        aggregation: Literal["sum", "mean"] = "sum",
        hidden: int = 16,
        layers: int = 2,
        dropout: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        MoNetOptions(kernels=kernels, coordinates=coordinates, aggregation=aggregation)  # checks them
        self.maps_per_layer = kernels
        super().__init__(
            in_features, classes, hidden=hidden, layers=layers, dropout=dropout, generator=generator
        )
        self.kernels, self.aggregation = kernels, aggregation
        self.maps = nn.ParameterList(glorot(2, coordinates, generator) for _ in range(layers))  # P transposed
        self.shifts = nn.ParameterList(nn.Parameter(torch.zeros(coordinates)) for _ in range(layers))  # p
        self.centres = nn.ParameterList(
            nn.Parameter(0.1 * torch.randn(kernels, coordinates, generator=generator)) for _ in range(layers)
        )  # mu
        self.sharpness = nn.ParameterList(
            nn.Parameter(torch.ones(kernels, coordinates)) for _ in range(layers)
        )  # s

    def edge_weights(self, pseudo: Tensor, layer: int) -> Tensor:
        """Return ``w_k(v_ij)`` of a layer; pseudo (pairs, 2), result (pairs, kernels)."""
        v = torch.tanh(pseudo @ self.maps[layer] + self.shifts[layer])
        apart = (v[:, None] - self.centres[layer]) * self.sharpness[layer]
        weights: Tensor = (-0.5 * apart.square().sum(2)).exp()
        return weights if self.aggregation == "sum" else weights * pseudo[:, :1].square()  # 1 / d_i

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None) -> Tensor:
        """Turn projected features (N, kernels * H) into logits (N, C)."""
        pattern, state = inputs.propagation, projected
        pairs, place = pattern.kept("pseudo-coordinates", lambda: pseudo_coordinates(pattern))
        every = pattern.kept("kernels", lambda: repeated(pattern, self.kernels), self.kernels)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if layer:
                state = dropped(torch.relu(state), masks, layer - 1) @ weight
            h = state.view(state.shape[0] * self.kernels, 1, -1)
            weights = self.edge_weights(pairs, layer).index_select(0, place)
            state = inputs.engine.attend(every, weights.view(-1, 1), h).flatten(1) + bias
        return state
