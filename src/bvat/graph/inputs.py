"""What a model reads of a graph: the whole of it, or the part around some nodes.

Receptive fields are such parts layer by layer: all that a deep enough model reads to classify the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from bvat.engine.compile import Compiled
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
    def edge_inputs(self) -> Tensor | None:
        """Attributes of the edges, (nnz, F): a row for each entry of Â; None if there are none."""

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

    @cached_property
    def edge_inputs(self) -> Tensor | None:
        """Attributes of the entries of the matrix, (nnz, F)."""
        given, matrix = self.whole.edge_inputs, self.whole.propagation
        return None if given is None else given[matrix.induced_places(self.nodes)]

    @property
    def engine(self) -> TensorEngine:
        return self.whole.engine

    def pieces(self) -> Iterator[Self]:
        """Yield the part itself, as a graph that is in memory yields itself."""
        yield self


class Block(SparseMatrix):
    """Some rows of Â, with columns numbered by where a node stands in the fields, or some rows of X.

    A block is used for a few products only, so its transpose is not stored: rows are scattered instead.
    """

    def with_values(self, values: Tensor) -> Block:
        return Block(self.crow, self.col, values, self.shape, self.engine)

    def transposed_product(self, dense: Tensor) -> Tensor:
        return self.engine.scattered_product(self, dense)


@dataclass(frozen=True, eq=False)
class ReceptiveFields(Subgraph):
    """What a model of K layers reads to classify the chosen nodes.

    The nodes are in order of their distance: first the chosen ones, then their neighbours, and so on up to K
    hops. So layer K needs the first rows of Â only, those of the chosen nodes, layer K - 1 also those of
    their neighbours, and the last ring of nodes is read but never computed.

    Shapes: nodes int64 (m); ``layers``: one matrix per layer, the first layer first, from (n_{K-1}, m) to
    (b, n_1).
    """

    layers: tuple[Block, ...]

    @classmethod
    def around(cls, whole: GraphInputs, chosen: Tensor, depth: int) -> ReceptiveFields:
        """Collect the fields of ``chosen`` (int64, without repeats) for a model of ``depth`` >= 1 layers."""
        matrix = whole.propagation
        nodes, counts, *parts = _collect(*matrix.arrays, chosen.detach().cpu().numpy(), depth)
        crow, col, values = (torch.from_numpy(part).to(matrix.device) for part in parts)
        sizes, layers = counts.tolist(), []
        for rows, columns in zip(sizes[-2::-1], sizes[:0:-1], strict=True):
            size = int(parts[0][rows])
            own = crow.narrow(0, 0, rows + 1), col.narrow(0, 0, size), values.narrow(0, 0, size)
            layers.append(Block(*own, (rows, columns), matrix.engine))
        return cls(torch.from_numpy(nodes).to(matrix.device), whole, tuple(layers))

    @cached_property
    def features(self) -> FeatureMatrix:
        part = self.whole.features.select(self.nodes)
        return Block.of(part) if isinstance(part, SparseMatrix) else part

    @cached_property
    def propagation(self) -> SparseMatrix:
        """The rows of Â that the first layer needs, shape (n_{K-1}, m)."""
        return self.layers[0]

    @property
    def edge_inputs(self) -> Tensor | None:
        """None: only models that read no attributes run on fields layer by layer."""
        return None


@Compiled
def _collect(crow: Any, col: Any, values: Any, chosen: Any, depth: int) -> Any:
    """Walk ``depth`` hops from the chosen nodes.

    Returns the nodes in order of distance, how many lie within 0, 1, ... hops, and row pointers, columns and
    values of the rows of all but the last ring.
    """
    place = np.full(crow.shape[0] - 1, -1, dtype=np.int32)
    nodes = np.empty(crow.shape[0] - 1, dtype=np.int64)
    own_crow = np.zeros(crow.shape[0], dtype=np.int32)
    own_col = np.empty(col.shape[0], dtype=np.int32)
    own_values = np.empty(col.shape[0], dtype=values.dtype)
    counts = np.empty(depth + 1, dtype=np.int64)
    size = chosen.shape[0]
    for i in range(size):
        place[chosen[i]] = i
        nodes[i] = chosen[i]
    counts[0] = size
    rows = entries = 0
    for hop in range(depth):
        stop = size
        while rows < stop:
            v = nodes[rows]
            for k in range(crow[v], crow[v + 1]):
                w = col[k]
                if place[w] < 0:
                    place[w] = size
                    nodes[size] = w
                    size += 1
                own_col[entries] = place[w]
                own_values[entries] = values[k]
                entries += 1
            rows += 1
            own_crow[rows] = entries
        counts[hop + 1] = size
    return nodes[:size].copy(), counts, own_crow[: rows + 1], own_col[:entries], own_values[:entries]
