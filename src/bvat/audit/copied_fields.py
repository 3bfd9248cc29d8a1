"""Receptive fields of many nodes at once that do not interact: copies of them, or disjoint ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

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
    matrix = inputs.propagation.to_scipy()
    balls: list[Any] = []
    start, total = 0, 0
    for place, node in enumerate(nodes.tolist()):
        ball = _ball(matrix, node, depth)
        if balls and total + ball.size > rows_at_once:
            yield _copied(inputs, matrix, nodes[start:place], balls)
            start, total, balls = place, 0, []
        balls.append(ball)
        total += ball.size
    if balls:
        yield _copied(inputs, matrix, nodes[start:], balls)


def _entries(matrix: Any, rows: Any) -> tuple[Any, Any]:
    """Return the places of the entries of some rows of a CSR matrix, and which of the rows each is in."""
    counts = matrix.indptr[rows + 1] - matrix.indptr[rows]
    shift = matrix.indptr[rows] - counts.cumsum() + counts
    row = np.repeat(np.arange(rows.size), counts)
    return np.arange(row.size) + shift[row], row


def _ball(matrix: Any, node: int, depth: int) -> Any:
    """Return the nodes within ``depth`` hops, ascending; every node is a neighbour of itself."""
    ball = np.array([node])
    for _ in range(depth):
        size, ball = ball.size, np.unique(matrix.indices[_entries(matrix, ball)[0]])
        if ball.size == size:
            break
    return ball


def _copied(inputs: GraphInputs, matrix: Any, centres: Tensor, balls: list[Any]) -> CopiedFields:
    """Copy the rows and columns of each ball; node v of field i is found by the key ``i N + v``."""
    size, nodes = matrix.shape[0], np.concatenate(balls).astype(np.int64)
    owner = np.repeat(np.arange(len(balls)), [ball.size for ball in balls])
    keys = owner * size + nodes
    entries, row = _entries(matrix, nodes)
    wanted = owner[row] * size + matrix.indices[entries]
    places = np.searchsorted(keys, wanted).clip(max=nodes.size - 1)
    inside = keys[places] == wanted
    starts = np.concatenate([[0], np.bincount(row[inside], minlength=nodes.size).cumsum()])
    rows = np.searchsorted(keys, np.arange(len(balls)) * size + centres.cpu().numpy())
    csr = (starts.astype(np.int32), places[inside].astype(np.int32), matrix.data[entries[inside]])
    device = inputs.propagation.device
    found = (torch.from_numpy(array).to(device) for array in (rows, nodes, owner, *csr))
    at, copied, owners, crow, col, values = found
    matrix = SymmetricMatrix(crow, col, values, (nodes.size, nodes.size), inputs.engine)
    return CopiedFields(inputs, centres.to(device), at, copied, owners, matrix)
