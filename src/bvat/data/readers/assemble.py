"""From labels by name, edges, features and a split to a :class:`Graph`: what all readers end with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bvat.data.readers.features import Features, edge_features
from bvat.data.readers.options import ReadOptions
from bvat.data.readers.splits import Split, stratified_split
from bvat.errors import GraphError
from bvat.graph import UNKNOWN, DenseMatrix, Graph, SparseMatrix
from bvat.graph.repair import symmetric_adjacency

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Classes:
    """Labels as numbers and the names of the classes; labels int64 (N), -1 for unknown."""

    labels: IntArray
    names: tuple[str, ...]


def number_classes(labels: Sequence[str]) -> Classes:
    """Number class names in sorted order, whole numbers by size; an empty name is an unknown label."""
    names = sorted({label for label in labels if label})
    if all(name.isascii() and name.isdigit() and len(name) < 19 for name in names):
        names.sort(key=lambda name: (int(name), name))
    number = {name: k for k, name in enumerate(names)} | {"": UNKNOWN}
    return Classes(np.array([number[label] for label in labels], dtype=np.int64), tuple(names))


def require_classes(classes: Classes, where: str) -> None:
    """Raise GraphError unless there are two classes to tell apart."""
    if not classes.names:
        raise GraphError(f"{where}: no node has a label: label a few nodes of each class")
    if len(classes.names) == 1:
        raise GraphError(
            f"{where}: all labels are {classes.names[0]!r}, so there is nothing to learn: label nodes of "
            "another class too"
        )


def assemble(
    *,
    name: str,
    classes: Classes,
    edges: Any,
    features: Features | None,
    split: Split | None,
    options: ReadOptions,
    node_names: Sequence[str] | None = None,
    notes: Sequence[str] = (),
    like: Mapping[str, Any] | None = None,
) -> Graph:
    """Build the graph, with features of the edges and a drawn split where these are not given.

    Args:
        name: what results call the graph.
        classes: labels and class names.
        edges: (N, N) scipy matrix, of any direction, with duplicates and self-loops.
        features: None to make them from the edges.
        split: None to draw it.
        options: about the split.
        node_names: N names.
        notes: what the reader has to say.
        like: the recipe of the graph whose features these must match.
    """
    adjacency, repairs = symmetric_adjacency(edges)
    made = features or edge_features(adjacency, like)
    parts = split or stratified_split(classes.labels, classes.names, options)
    matrix = made.matrix
    dense = isinstance(matrix, np.ndarray)
    return Graph(
        features=DenseMatrix(torch.from_numpy(matrix)) if dense else SparseMatrix.from_scipy(matrix),
        adjacency=adjacency,
        labels=torch.from_numpy(classes.labels),
        train=torch.from_numpy(parts.train),
        val=torch.from_numpy(parts.val),
        test=torch.from_numpy(parts.test),
        class_names=classes.names,
        name=name,
        node_names=None if node_names is None else tuple(node_names),
        validation=parts.origin,
        repairs=repairs,
        notes=(*notes, *_edge_notes(adjacency, repairs), *made.notes, *parts.notes, *_absent(classes, parts)),
        recipe={**made.recipe, "classes": list(classes.names)},
    )


def _edge_notes(adjacency: SparseMatrix, repairs: Mapping[str, int]) -> list[str]:
    notes = []
    if repairs["self_loops"]:
        notes.append(f"edges from a node to itself, left out: {repairs['self_loops']:,}")
    if repairs["duplicate_edges"]:
        notes.append(f"edges given again, of which the largest weight counts: {repairs['duplicate_edges']:,}")
    isolated = int((torch.diff(adjacency.crow) == 0).sum())
    if isolated:
        notes.append(f"nodes without an edge, for which their features alone decide: {isolated:,}")
    return notes


def _absent(classes: Classes, split: Split) -> list[str]:
    """Name the classes that cannot be learned because no training node has them."""
    train = split.train[(split.train >= 0) & (split.train < classes.labels.size)]  # Graph refuses the others
    trained = set(classes.labels[train].tolist())
    missing = [name for k, name in enumerate(classes.names) if k not in trained]
    if not missing:
        return []
    shown = ", ".join(repr(name) for name in missing[:5]) + (" ..." if len(missing) > 5 else "")
    return [f"no training node has class {shown}: it will never be predicted"]
