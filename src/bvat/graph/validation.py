"""What a graph must fulfil, and the sentence that each fault gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bvat.engine.matrix import check_csr
from bvat.engine.sparse import SparseMatrix
from bvat.errors import GraphError
from bvat.graph.inputs import FeatureMatrix
from bvat.graph.targets import UNKNOWN, label_sets, targets_of

MAX_EMPTY = 1_000_000
"""More feature columns than this need some entries."""
LARGEST = 1e30
"""Larger features would overflow when float32 rows are summed or weights are squared."""


def validate(
    x: FeatureMatrix,
    a: SparseMatrix,
    y: Tensor,
    splits: Mapping[str, Tensor],
    names: Mapping[str, Any],
    *,
    directed: bool = False,
) -> None:
    """Raise GraphError at the first fault found.

    Shapes: features x (N, D), adjacency a (N, N), labels y (N) or (N, C), splits of node indices.
    """
    n = len(y) if y.dim() else 0
    if y.dim() not in (1, 2):
        raise GraphError(f"labels must be a flat list, not of shape {tuple(y.shape)}: give one per node")
    if n == 0:
        raise GraphError("the graph has no nodes: give at least one row of features and one label")
    if tuple(a.shape) != (n, n):
        raise GraphError(
            f"there are {n} labels but the adjacency is {a.shape[0]} x {a.shape[1]}: they must agree"
        )
    shape = tuple(x.shape)
    if len(shape) != 2 or shape[0] != n:
        raise GraphError(f"there are {n} labels but features of shape {shape}: one row per node is needed")
    if x.shape[1] == 0:
        raise GraphError("there are no feature columns: give features, or one-hot features for the nodes")
    validate_columns(x.shape[1], x.nnz)
    if x.dtype not in (torch.float32, torch.float64) or a.dtype != x.dtype:
        raise GraphError(
            f"the features are {_short(x.dtype)} and the edge weights {_short(a.dtype)}: use float32 or "
            "float64 for both"
        )
    for what, matrix in (("edge", a), ("feature", x)):
        if not isinstance(matrix, SparseMatrix):
            continue
        try:
            check_matrix(matrix)
        except ValueError as error:
            raise GraphError(f"the {what} matrix is broken ({error}): build it with from_scipy") from None
    validate_features(x)
    _validate_adjacency(a, directed=directed)
    _validate_labels(y, len(names["class_names"]))
    _validate_names(names, n)
    validate_splits(y, splits)
    labelled = bool(targets_of(y).known(y).any())  # else the graph is only to be predicted
    if labelled and not splits["train"].numel():
        raise GraphError(
            "no node is labelled for training: put at least one labelled node into the train split"
        )


def validate_marks(splits: Tensor, nodes: int) -> None:
    """Raise GraphError unless these are the marks 0 to 3 of several splits, int8 (S, N)."""
    known = splits.dtype == torch.int8 and splits.dim() == 2 and splits.shape[1] == nodes and len(splits)
    if not known or bool(((splits < 0) | (splits > 3)).any()):
        raise GraphError(
            f"splits must be int8 of shape (S, {nodes}): 1 for training, 2 for validation, 3 for testing, "
            "0 for none"
        )


def check_matrix(matrix: SparseMatrix, *, ordered: bool = False) -> None:
    """Raise ValueError unless the tensors of a matrix fit each other and its shape; see :func:`check_csr`."""
    crow, col, values = (part.detach().cpu() for part in matrix.tensors())
    if crow.dtype != torch.int32 or col.dtype != torch.int32:
        raise ValueError("its indices are not int32")
    if values.dtype not in (torch.float32, torch.float64):
        raise ValueError("its entries are not float32 or float64")
    check_csr(crow.numpy(), col.numpy(), values.numpy(), matrix.shape, ordered=ordered)


def check_numbers(what: str, numbers: Tensor, below: int, *, least: int = 0, size: int | None = None) -> None:
    """Raise ValueError unless these are ``size`` whole numbers from ``least`` to ``below`` - 1, int64 (size).

    Without ``size`` there may be any number of them.
    """
    if numbers.dtype != torch.int64 or numbers.dim() != 1 or size not in (None, numbers.numel()):
        many = "" if size is None else f"{size} "
        raise ValueError(f"{what} must be {many}whole numbers, not {tuple(numbers.shape)} {numbers.dtype}")
    if numbers.numel():
        low, high = (int(bound) for bound in torch.aminmax(numbers))
        if low < least or high >= below:
            raise ValueError(f"{what} has {low if low < least else high}, outside {least} to {below - 1}")


def validate_columns(columns: int, entries: int, where: str = "") -> None:
    """Raise GraphError if almost all feature columns are empty: a model's weights would fill the memory."""
    if columns > max(MAX_EMPTY, 100 * entries):
        raise GraphError(
            f"{where}there are {columns:,} feature columns but only {entries:,} entries: remove the empty "
            "columns"
        )


def _validate_names(names: Mapping[str, Any], n: int) -> None:
    """Raise GraphError unless all names are text that can be written to a file."""
    nodes = names["node_names"]
    if nodes is not None and len(nodes) != n:
        raise GraphError(f"there are {n} nodes but {len(nodes)} node names: give one per node")
    if len(set(names["class_names"])) != len(names["class_names"]):
        raise GraphError("two classes have the same name: rename one")
    for what, given in names.items():
        absent = given is None and what == "node_names"
        texts = () if absent else given if isinstance(given, tuple) else (given,)
        try:
            "".join(texts).encode()
        except (TypeError, UnicodeEncodeError):
            raise GraphError(f"{what} contains something that is not text: use strings") from None
    first: dict[str, int] = {}
    for k, name in enumerate(nodes or ()):
        if first.setdefault(name, k) != k:
            raise GraphError(f"nodes {first[name]} and {k} are both called {name!r}: give each its own name")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _validate_adjacency(a: SparseMatrix, *, directed: bool) -> None:
    if not bool(torch.isfinite(a.values).all()) or bool((a.values <= 0).any()):
        raise GraphError("an edge weight is zero, negative, NaN or infinite: use positive weights")
    loops = a.rows[a.rows == a.col]
    if loops.numel():
        raise GraphError(f"node {int(loops[0])} has an edge to itself: remove it, or use Graph.build")
    matrix = a.to_scipy()
    if not directed and (matrix != matrix.T).nnz:
        raise GraphError(
            "the adjacency is not symmetric: add the missing directions, use Graph.build or directed=True"
        )


def validate_attributes(attributes: Tensor, a: SparseMatrix) -> None:
    """Raise GraphError unless these are numbers for every entry of A, the same in both directions of an edge.

    Shapes: attributes (nnz, F), a (N, N).
    """
    if attributes.dim() != 2 or attributes.shape[0] != a.nnz or not attributes.shape[1]:
        raise GraphError(
            f"the adjacency has {a.nnz} entries, but edge_attr has shape {tuple(attributes.shape)}: give one "
            "row per entry, or use Graph.build"
        )
    if not bool((attributes.abs() <= LARGEST).all()):
        raise GraphError(
            f"an edge attribute is NaN, infinite or beyond {LARGEST:g}: fill it in or leave it out"
        )
    if a.symmetric and not torch.equal(attributes, attributes[a.transposed_places]):
        raise GraphError("an edge has other attributes in its other direction: use Graph.build")


def validate_features(x: FeatureMatrix) -> None:
    """Raise GraphError at the first feature that is not finite or is huge; x (N, D)."""
    if x.values.dim() != 2 and not isinstance(x, SparseMatrix):
        raise GraphError(f"there are features of shape {tuple(x.values.shape)}: one row per node is needed")
    low, high = torch.aminmax(x.values) if x.values.numel() else (0.0, 0.0)
    if not -LARGEST <= low <= high <= LARGEST:  # without a copy of the features
        usable = x.values.abs() <= LARGEST
        row, column = x.position(torch.nonzero(~usable)[0])
        what = "NaN or infinite: fill it or drop it"
        if bool(torch.isfinite(x.values[~usable][0])):
            what = f"beyond {LARGEST:g}: use a different unit"
        raise GraphError(f"the feature of node {row} in column {column} is {what}")


def _validate_labels(y: Tensor, classes: int) -> None:
    if y.dim() == 2:
        if y.shape[1] != classes or y.dtype != torch.int64:
            raise GraphError(
                f"labels of shape {tuple(y.shape)} and type {_short(y.dtype)} do not fit {classes} class "
                "names: several labels per node are int64 with a column for each"
            )
        label_sets(y.cpu())
        return
    for node in torch.nonzero((y < UNKNOWN) | (y >= classes)).flatten()[:1].tolist():
        raise GraphError(
            f"node {node} has label {int(y[node])}, but there are {classes} classes: use 0 to {classes - 1}, "
            "or -1 for unknown"
        )


def validate_splits(y: Tensor, splits: Mapping[str, Tensor]) -> None:
    """Raise GraphError unless splits are disjoint lists of labelled nodes; labels y (N) or (N, C)."""
    n = len(y)
    known, seen = targets_of(y).known(y), torch.zeros(n, dtype=torch.bool, device=y.device)
    for split, nodes in splits.items():
        if nodes.dim() != 1 or nodes.dtype != torch.int64:
            raise GraphError(f"the {split} split is not a flat list of int64: list the numbers of its nodes")
        for bad in nodes[(nodes < 0) | (nodes >= n)][:1].tolist():
            raise GraphError(f"the {split} split names node {bad}, but nodes are 0 to {n - 1}: remove it")
        if torch.unique(nodes).numel() != nodes.numel():
            raise GraphError(f"the {split} split names a node twice: list each node once")
        for node in nodes[seen[nodes]][:1].tolist():
            raise GraphError(f"node {node} is in {split} and in another split too: splits must not overlap")
        seen[nodes] = True
        for node in nodes[~known[nodes]][:1].tolist():
            raise GraphError(f"node {node} of the {split} split has no label: label it or take it out")
