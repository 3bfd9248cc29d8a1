"""Receptive fields of many nodes at once that do not interact: copies of them, or disjoint ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from bvat.engine.compiled.compile import Compiled
from bvat.engine.sparse import SymmetricMatrix
from bvat.engine.tensor import TensorEngine
from bvat.graph.inputs import FeatureMatrix, GraphInputs
from bvat.perturb.nodes import DisjointFields

ROWS_AT_ONCE = 20_000
"""Rows of receptive fields that are processed together; a single larger field is processed as a whole."""


@dataclass(frozen=True, eq=False)
class CopiedFields:
    """The receptive fields of b nodes as one graph of b parts without edges between them.

    A model of depth K gives each node the same logits here as in the whole graph, because all rows within
    K - 1 hops are complete; and a perturbation of a part changes the prediction of its own node only. Nodes
    that lie in several fields are copied, so any set of nodes can be processed together.

    Shapes:
        centres int64 (b), the nodes; rows int64 (b), their rows here; nodes int64 (m), the node of the whole
        graph that each row copies; owner int64 (m), the field that each row belongs to; propagation (m, m).
    """

    whole: GraphInputs
    centres: Tensor
    rows: Tensor
    nodes: Tensor
    owner: Tensor
    propagation: SymmetricMatrix

    @cached_property
    def features(self) -> FeatureMatrix:
        """Node features X, shape (m, D); selected only for models that are not linear in X."""
        return self.whole.features.select(self.nodes)

    @property
    def engine(self) -> TensorEngine:
        return self.whole.engine

    @property
    def inputs(self) -> GraphInputs:
        """What a model reads."""
        return self

    def sums(self, of_rows: Tensor) -> Tensor:
        """Add up one number per row (m) over each receptive field, (b)."""
        inside = self.owner >= 0
        return of_rows.new_zeros(self.centres.numel()).index_add_(0, self.owner[inside], of_rows[inside])

    @property
    def sizes(self) -> Tensor:
        """The number of nodes of each field, int64 (b)."""
        return self.sums(torch.ones_like(self.owner))


class DisjointParts(CopiedFields):
    """Disjoint receptive fields in the whole graph, for models that cannot run on a part of it.

    ``nodes`` are all N nodes, and ``owner`` is -1 outside of the fields.
    """

    @property
    def inputs(self) -> GraphInputs:
        """What a model reads: the whole graph."""
        return self.whole


def disjoint_parts(inputs: GraphInputs, depth: int, nodes: Tensor) -> Iterator[CopiedFields]:
    """Yield the receptive fields of ``nodes`` (int64) in some order, as many at a time as are disjoint."""
    matrix, generator = inputs.propagation, torch.Generator().manual_seed(0)
    left = nodes.to(matrix.device)
    while left.numel():
        found = DisjointFields(left.numel(), tell=lambda _: None).choose(inputs, depth, generator, among=left)
        chosen, owner = cast("tuple[Tensor, Tensor]", (found.chosen, found.owner))
        everything = torch.arange(matrix.shape[0], device=matrix.device)
        yield DisjointParts(inputs, chosen, chosen, everything, owner, cast("SymmetricMatrix", matrix))
        left = left[~torch.isin(left, chosen)]


def copied_fields(
    inputs: GraphInputs, depth: int, nodes: Tensor, rows_at_once: int = ROWS_AT_ONCE
) -> Iterator[CopiedFields]:
    """Yield the receptive fields of ``nodes`` (int64) in order, as many at a time as fit, at least one."""
    matrix = inputs.propagation
    arrays = tuple(part.cpu().numpy() for part in (matrix.crow, matrix.col, matrix.values))
    numbers = nodes.cpu().numpy()
    start = 0
    while start < numbers.size:
        copied = _copy_fields(*arrays, depth, numbers[start:], rows_at_once)
        rows, ball, owner, crow, col, values = (torch.from_numpy(part).to(matrix.device) for part in copied)
        stop = start + rows.numel()
        parts = SymmetricMatrix(crow, col, values, (ball.numel(), ball.numel()), inputs.engine)
        yield CopiedFields(inputs, nodes[start:stop].to(matrix.device), rows, ball, owner, parts)
        start = stop


@Compiled
def _copy_fields(crow: Any, col: Any, values: Any, depth: int, centres: Any, limit: int) -> Any:
    """Return rows (b), nodes (m), owner (m), and the CSR arrays (m, m) of the first fields that fit."""
    size = crow.shape[0] - 1
    seen = np.full(size, -1, dtype=np.int64)  # the last field in which each node was seen
    nodes = np.empty(limit + size, dtype=np.int64)
    ends = np.empty(centres.shape[0], dtype=np.int64)
    fields, total, most = 0, 0, 0
    for i in range(centres.shape[0]):
        start = total
        nodes[start] = centres[i]
        seen[centres[i]] = i
        stop, reached = start + 1, start
        for _ in range(depth):
            before = stop
            while reached < before:
                v = nodes[reached]
                reached += 1
                for k in range(crow[v], crow[v + 1]):
                    if seen[col[k]] != i:
                        seen[col[k]] = i
                        nodes[stop] = col[k]
                        stop += 1
        if i > 0 and stop > limit:
            break
        nodes[start:stop] = np.sort(nodes[start:stop])  # columns must ascend within a row
        for r in range(start, stop):
            most += crow[nodes[r] + 1] - crow[nodes[r]]
        total, ends[i], fields = stop, stop, i + 1
        if total >= limit:
            break
    rows = np.empty(fields, dtype=np.int64)
    owner = np.empty(total, dtype=np.int64)
    own_crow = np.zeros(total + 1, dtype=np.int32)
    own_col = np.empty(most, dtype=np.int32)
    own_values = np.empty(most, dtype=values.dtype)
    local = np.full(size, -1, dtype=np.int32)
    start, written = 0, 0
    for i in range(fields):
        for r in range(start, ends[i]):
            local[nodes[r]] = r
            owner[r] = i
        rows[i] = local[centres[i]]
        for r in range(start, ends[i]):
            for k in range(crow[nodes[r]], crow[nodes[r] + 1]):
                column = local[col[k]]
                if column >= start:  # smaller numbers belong to earlier fields
                    own_col[written] = column
                    own_values[written] = values[k]
                    written += 1
            own_crow[r + 1] = written
        start = ends[i]
    return rows, nodes[:total].copy(), owner, own_crow, own_col[:written].copy(), own_values[:written].copy()
