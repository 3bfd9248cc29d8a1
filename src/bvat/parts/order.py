"""The order of nodes: neighbours that lie close in memory are read faster."""

from __future__ import annotations

from dataclasses import fields
from typing import Literal

import numpy as np
import torch
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from bvat.engine.sparse import SparseMatrix, SymmetricMatrix
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.parts.parts import assign

Order = Literal["metis", "rcm", "none"]
ORDERS = ("metis", "rcm", "none")
BLOCK = 1024
"""Nodes of a block of METIS: their rows of 16 numbers stay in the cache of a core."""


def check_order(how: str) -> None:
    """Raise SettingsError unless an order is known."""
    if how not in ORDERS:
        raise SettingsError(f"--order must be {', '.join(ORDERS[:-1])} or {ORDERS[-1]}, not {how!r}")


def locality(graph: Graph, how: Order) -> Tensor | None:
    """Return the place of each node in an order, int64 (N); None for the order that the graph has.

    "metis" puts blocks of nodes with few edges between them one after another, "rcm" is reverse
    Cuthill-McKee: neighbours of neighbours follow each other.
    """
    check_order(how)
    if how == "none" or graph.num_nodes <= 2:
        return None
    if how == "metis":
        blocks = max(1, graph.num_nodes // BLOCK)
        order = torch.argsort(assign(graph, blocks, "metis"), stable=True).numpy()
    else:
        order = reverse_cuthill_mckee(graph.adjacency.to_scipy(), symmetric_mode=True).astype(np.int64)
    place = np.empty(graph.num_nodes, dtype=np.int64)
    place[order] = np.arange(graph.num_nodes)
    return torch.from_numpy(place)


def reordered(graph: Graph, how: Order) -> Graph:
    """Return the graph with its nodes in another order, for training; itself for "none"."""
    place = locality(graph, how)
    if place is None:
        return graph
    order = torch.argsort(place)
    content = {f.name: getattr(graph, f.name) for f in fields(graph)}
    matrices = {"adjacency": graph.adjacency, "propagation": graph.propagation}
    moved = {name: _permuted(matrix, order, place) for name, matrix in matrices.items()}
    content |= {"features": graph.features.select(order), "labels": graph.labels[order]}
    content |= {name: place[getattr(graph, name)] for name in ("train", "val", "test")}
    content |= {"adjacency": moved["adjacency"], "node_names": None}
    changed = Graph._copy(content)
    changed.__dict__["propagation"] = moved["propagation"]
    return changed


def _permuted(matrix: SparseMatrix, order: Tensor, place: Tensor) -> SymmetricMatrix:
    """Return a symmetric matrix with its rows and columns in another order, columns ascending."""
    rows = matrix.select(order)
    moved = SparseMatrix(
        rows.crow, place[rows.col.long()].to(torch.int32), rows.values, matrix.shape, matrix.engine
    )
    return symmetric(moved)


def symmetric(matrix: SparseMatrix) -> SymmetricMatrix:
    """Return a matrix that is known to be symmetric as such, with ascending columns."""
    ordered = SparseMatrix.from_scipy(matrix.to_scipy(), matrix.dtype)
    return SymmetricMatrix.of(ordered, matrix.engine)
