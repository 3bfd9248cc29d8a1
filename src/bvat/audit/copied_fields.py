"""Receptive fields of many nodes at once that do not interact: copies of them, or disjoint ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from bvat.engine.sparse import SparseMatrix, SymmetricMatrix
from bvat.engine.tensor import TensorEngine
from bvat.graph.inputs import Block, FeatureMatrix, GraphInputs
from bvat.perturb.nodes import DisjointFields

ROWS_AT_ONCE = 20_000
"""Rows of receptive fields that are processed together; a single larger field is processed as a whole."""
LAYERED_ROWS_AT_ONCE = 160_000
"""The same with layers, where few arrays have a line for every row."""


@dataclass(frozen=True, eq=False)
class CopiedFields:
    """The receptive fields of b nodes as one graph of b parts without edges between them.

    A model of depth K gives each node the same logits here as in the whole graph, because all rows within
    K - 1 hops are complete; and a perturbation of a part changes the prediction of its own node only. Nodes
    that lie in several fields are copied, so any set of nodes can be processed together.

    Shapes:
        centres int64 (b), the nodes; rows int64 (b), their rows in the result of a pass, None if they are all
        of them; nodes int64 (m), the node of the whole graph that each row copies; owner int64 (m), the field
        that each row belongs to; propagation (m, m); layers, if there are any, from (n, m) to (b, n').
    """

    whole: GraphInputs
    centres: Tensor
    rows: Tensor | None
    nodes: Tensor
    owner: Tensor
    propagation: SparseMatrix
    layers: tuple[Block, ...] | None = None
    """One matrix per layer of a GCN, the first layer first, with only those rows that the next one reads."""
    entries: Tensor | None = None
    """Which entries of Â those of ``propagation`` copy, int64 (nnz)."""
    on_whole: bool = False
    """For models that cannot run on a part of the graph: the fields are disjoint instead of copied, ``nodes``
    are all N nodes, and ``owner`` is -1 outside of the fields."""

    @cached_property
    def features(self) -> FeatureMatrix:
        """Node features X, shape (m, D); selected only for models that are not linear in X."""
        return self.whole.features.select(self.nodes)

    @cached_property
    def edge_inputs(self) -> Tensor | None:
        """Attributes of the entries of the matrix, (nnz, F)."""
        given = self.whole.edge_inputs
        return None if given is None or self.entries is None else given[self.entries]

    @property
    def engine(self) -> TensorEngine:
        return self.whole.engine

    @property
    def inputs(self) -> GraphInputs:
        """What a model reads."""
        return self.whole if self.on_whole else self

    def sums(self, of_rows: Tensor) -> Tensor:
        """Add up one number per row (m) over each receptive field, (b)."""
        inside = self.owner >= 0
        return of_rows.new_zeros(self.centres.numel()).index_add_(0, self.owner[inside], of_rows[inside])

    @property
    def sizes(self) -> Tensor:
        return self.sums(torch.ones_like(self.owner))


def disjoint_parts(inputs: GraphInputs, depth: int, nodes: Tensor) -> Iterator[CopiedFields]:
    """Yield the receptive fields of ``nodes`` (int64) in some order, as many at a time as are disjoint."""
    matrix, generator = inputs.propagation, torch.Generator().manual_seed(0)
    left = nodes.to(matrix.device)
    while left.numel():
        found = DisjointFields(left.numel(), tell=lambda _: None).choose(inputs, depth, generator, among=left)
        chosen, owner = cast("tuple[Tensor, Tensor]", (found.chosen, found.owner))
        everything = torch.arange(matrix.shape[0], device=matrix.device)
        yield CopiedFields(inputs, chosen, chosen, everything, owner, matrix, on_whole=True)
        left = left[~torch.isin(left, chosen)]


def copied_fields(
    inputs: GraphInputs, depth: int, nodes: Tensor, rows_at_once: int = ROWS_AT_ONCE, *, layered: bool = False
) -> Iterator[CopiedFields]:
    """Yield the receptive fields of ``nodes`` (int64) in order, as many at a time as fit, at least one.

    The number of walks of ``depth`` steps bounds the size of a field. ``layered``: for a GCN, see ``layers``.
    """
    matrix = inputs.propagation.to_scipy()
    pattern = matrix.copy()
    pattern.data = np.ones_like(matrix.data, dtype=np.float64)
    bound = np.ones(matrix.shape[0])
    for _ in range(depth):
        bound = np.minimum(pattern @ bound, matrix.shape[0])
    left = nodes.cpu()
    while left.numel():
        sizes = bound[left[:rows_at_once].numpy()].cumsum()
        count = max(1, int(np.searchsorted(sizes, rows_at_once, side="right")))
        yield _copied(inputs, matrix, left[:count], depth, layered)
        left = left[count:]


def _entries(matrix: Any, rows: Any) -> tuple[Any, Any]:
    """Return the places of the entries of some rows of a CSR matrix, and which of the rows each is in."""
    counts = matrix.indptr[rows + 1] - matrix.indptr[rows]
    shift = matrix.indptr[rows] - counts.cumsum() + counts
    row = np.repeat(np.arange(rows.size), counts)
    return np.arange(row.size) + shift[row], row


def _copied(inputs: GraphInputs, matrix: Any, centres: Tensor, depth: int, layered: bool) -> CopiedFields:
    """Walk ``depth`` hops from each centre; node v of field i is known by the key ``i N + v``."""
    size, device = matrix.shape[0], inputs.propagation.device

    def block(kind: Any, row: Any, col: Any, entries: Any, shape: tuple[int, int]) -> Any:
        crow = np.concatenate([[0], np.bincount(row, minlength=shape[0]).cumsum()]).astype(np.int32)
        arrays = (crow, col.astype(np.int32), matrix.data[entries])
        return kind(*(torch.from_numpy(array).to(device) for array in arrays), shape, inputs.engine)

    start = keys = np.arange(centres.numel()) * size + centres.numpy()
    layers: list[Block] = []
    for _ in range(depth):
        entries, row = _entries(matrix, keys % size)
        wider, col = np.unique(keys[row] // size * size + matrix.indices[entries], return_inverse=True)
        if not layered and wider.size == keys.size:
            break
        if layered:
            layers.append(block(Block, row, col, entries, (keys.size, wider.size)))
        keys = wider
    owner, nodes = (torch.from_numpy(part).to(device) for part in np.divmod(keys, size))
    if layered:
        return CopiedFields(
            inputs, centres.to(device), None, nodes, owner, layers[-1], layers=tuple(layers[::-1])
        )
    entries, row = _entries(matrix, keys % size)
    wanted = keys[row] // size * size + matrix.indices[entries]
    places = np.searchsorted(keys, wanted).clip(max=keys.size - 1)
    inside = keys[places] == wanted
    kind = SymmetricMatrix if inputs.propagation.symmetric else SparseMatrix
    square = block(kind, row[inside], places[inside], entries[inside], (keys.size, keys.size))
    rows = torch.from_numpy(np.searchsorted(keys, start)).to(device)
    copied = torch.from_numpy(entries[inside]).to(device)
    return CopiedFields(inputs, centres.to(device), rows, nodes, owner, square, entries=copied)
