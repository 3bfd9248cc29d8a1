"""What a model reads of a graph: the whole of it, or the part around some nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from torch import Tensor

from bvat.engine.dense import DenseMatrix
from bvat.engine.sparse import SparseMatrix
from bvat.engine.tensor import TensorEngine

FeatureMatrix = SparseMatrix | DenseMatrix
"""Node features X, sparse or dense behind the same methods."""


class GraphInputs(Protocol):
    """What a model reads of a graph: the whole of it, or the part around some nodes."""

    @property
    def features(self) -> FeatureMatrix:
        """Node features X, shape (N, D)."""

    @property
    def propagation(self) -> SparseMatrix:
        """Normalised adjacency Â, shape (N, N)."""

    @property
    def engine(self) -> TensorEngine:
        """What computes on it."""


def layer_matrices(inputs: GraphInputs, depth: int) -> Sequence[SparseMatrix]:
    """Return Â once per layer, first layer first; receptive fields have other rows of it for each."""
    layers: Sequence[SparseMatrix] | None = getattr(inputs, "layers", None)
    return (inputs.propagation,) * depth if layers is None else layers


@dataclass(frozen=True, eq=False)
class Subgraph:
    """The part of a graph induced by some nodes, with Â's entries as they are in the whole graph.

    Its features and matrix are cut out when they are first asked for.

    Shapes: nodes int64 (m) ascending; features (m, D); propagation (m, m).
    """

    nodes: Tensor
    whole: GraphInputs

    @cached_property
    def features(self) -> FeatureMatrix:
        """Node features X, shape (m, D)."""
        return self.whole.features.select(self.nodes)

    @cached_property
    def propagation(self) -> SparseMatrix:
        """The rows and columns of Â, shape (m, m)."""
        return self.whole.propagation.induced(self.nodes)

    @property
    def engine(self) -> TensorEngine:
        return self.whole.engine
