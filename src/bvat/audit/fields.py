"""Receptive fields side by side: each node with a copy of its K-hop ball, so that none disturbs another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bvat.graph.inputs import FeatureMatrix, GraphInputs
from bvat.graph.sparse import SymmetricMatrix
from bvat.kernels.compile import Compiled

ROWS_AT_ONCE = 20_000
"""Rows of receptive fields that are worked on at the same time; a larger single field is taken whole."""


@dataclass(frozen=True, eq=False)
class Fields:
    """The receptive fields of b nodes as one graph of b parts without edges between them.

    A model of depth K gives each node here the logits that it has in the whole graph, because all rows within
    K - 1 hops are complete; and a perturbation of a part changes the prediction of its own node only. Nodes
    that lie in several fields are copied, so any nodes can be worked on together.

    Shapes:
        centres int64 (b), the nodes; rows int64 (b), where they stand here; nodes int64 (m), which node of
        the whole graph a row is; owner int64 (m), to whose field it belongs; propagation (m, m).
    """

    whole: GraphInputs
    centres: Tensor
    rows: Tensor
    nodes: Tensor
    owner: Tensor
    propagation: SymmetricMatrix

    @cached_property
    def features(self) -> FeatureMatrix:
        """Node features X, shape (m, D); cut out only for models that are not linear in them."""
        return self.whole.features.select(self.nodes)

    def sums(self, of_rows: Tensor) -> Tensor:
        """Add up one number a row (m) over each receptive field, (b)."""
        return of_rows.new_zeros(self.centres.numel()).index_add_(0, self.owner, of_rows)

    @property
    def sizes(self) -> Tensor:
        """How many nodes each field has, int64 (b)."""
        return torch.bincount(self.owner, minlength=self.centres.numel())


def receptive_fields(
    inputs: GraphInputs, depth: int, nodes: Tensor, rows_at_once: int = ROWS_AT_ONCE
) -> Iterator[Fields]:
    """Yield the receptive fields of ``nodes`` (int64) in their order, as many at a time as fit, or one."""
    matrix = inputs.propagation
    arrays = tuple(part.cpu().numpy() for part in (matrix.crow, matrix.col, matrix.values))
    numbers = nodes.cpu().numpy()
    start = 0
    while start < numbers.size:
        copied = _copy_fields(*arrays, depth, numbers[start:], rows_at_once)
        rows, ball, owner, crow, col, values = (torch.from_numpy(part).to(matrix.device) for part in copied)
        stop = start + rows.numel()
        parts = SymmetricMatrix(crow, col, values, (ball.numel(), ball.numel()))
        yield Fields(inputs, nodes[start:stop].to(matrix.device), rows, ball, owner, parts)
        start = stop


@Compiled
def _copy_fields(crow: Any, col: Any, values: Any, depth: int, centres: Any, limit: int) -> Any:
    """Return rows (b), nodes (m), owners (m), and the CSR arrays (m, m) of the first fields that fit."""
    size = crow.shape[0] - 1
    seen = np.full(size, -1, dtype=np.int64)  # the last field that each node was found in
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
        nodes[start:stop] = np.sort(nodes[start:stop])  # columns have to ascend within a row
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
                if column >= start:  # an older number is of a field before
                    own_col[written] = column
                    own_values[written] = values[k]
                    written += 1
            own_crow[r + 1] = written
        start = ends[i]
    return rows, nodes[:total].copy(), owner, own_crow, own_col[:written].copy(), own_values[:written].copy()
