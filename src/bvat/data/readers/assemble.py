"""Build a :class:`Graph` from labels, edges, features and a split: the last step of all readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from bvat.data.readers.classes import Classes
from bvat.data.readers.edges import GivenEdges
from bvat.data.readers.features import Features, edge_features, fastest_layout
from bvat.data.readers.matrices import is_sparse
from bvat.data.splits import PARTS, ReadOptions, Split, marks, stratified_split
from bvat.errors import GraphError, shown
from bvat.graph import DenseMatrix, Graph, SparseMatrix, targets_of
from bvat.graph.repair import merged_attributes, repaired_adjacency

UNEQUAL_WEIGHTS = "edges whose two directions have different weights"
AVERAGED = "edges given more than once, whose attributes are averaged"
"""How the notes about them begin."""


def assemble(
    *,
    name: str,
    classes: Classes,
    features: Features | None,
    options: ReadOptions,
    edges: Any = None,
    splits: Sequence[Split] = (),
    node_names: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> Graph:
    """Build the graph; make features from the edges and draw a split if these are not given.

    ``edges`` may be directed, with duplicates and self-loops; or they are what ``repaired_adjacency`` returns
    for them: then the graph is not checked, which takes a copy of the edges. Of several ``splits`` the first
    is that of the graph, which keeps all.
    """
    size, targets, directed = len(classes.labels), targets_of(classes.labels), options.keeps_directions
    attributes, recipe = None, dict[str, Any]()
    if repaired := isinstance(edges, tuple):
        adjacency, repairs = edges
    else:
        edges = edges or GivenEdges(sp.coo_array((size, size)))
        given, recipe = sp.coo_array(edges.matrix), dict(edges.recipe)
        given = given.T if directed else given
        adjacency, repairs = repaired_adjacency(given, directed=directed)
        attributes, differing = merged_attributes(given, edges.attributes, adjacency)
        notes = [*notes, *[f"{AVERAGED}: {differing:,}"] * (differing > 0)]
    empty = np.zeros(0, np.int64)
    none = Split(empty, empty, empty, "no labels")  # for a graph that is only to be predicted
    unlabelled = not targets.known(classes.labels).any()
    if options.like is None and not unlabelled and not adjacency.nnz:
        _require_features(features, name)
    made = features or edge_features(adjacency, options.like)
    (parts, *_) = splits or [none if unlabelled else stratified_split(classes.labels, classes.names, options)]
    sparse = is_sparse(matrix := fastest_layout(made.matrix))
    fields: dict[str, Any] = {
        "features": SparseMatrix.from_scipy(matrix) if sparse else DenseMatrix(torch.from_numpy(matrix)),
        "adjacency": adjacency,
        "labels": torch.from_numpy(classes.labels),
        **{name: torch.from_numpy(getattr(parts, name)) for name in PARTS},
        "class_names": classes.names,
        "name": name,
        "node_names": node_names if repaired or node_names is None else tuple(node_names),
        "validation": parts.origin,
        "repairs": repairs,
        "notes": (
            *[targets.note] * bool(targets.note),
            *notes,
            *_edge_notes(adjacency, repairs, directed=directed),
            *made.notes,
            *parts.notes,
            *_absent(classes, parts),
        ),
        "recipe": {**made.recipe, **recipe, "classes": list(classes.names), **classes.recipe},
        "splits": marks(splits, size),
        "directed": directed,
        "edge_attr": attributes,
    }
    return Graph._copy(fields) if repaired else Graph(**fields)


def _require_features(features: Features | None, name: str) -> None:
    """Raise GraphError unless features tell nodes without edges apart."""
    if features is None:
        raise GraphError(
            f"{name} has neither edges nor features: add edges, numeric columns, or a text column with --text"
        )
    high, low = features.matrix.max(axis=0), features.matrix.min(axis=0)
    if abs(high - low).sum() == 0:
        raise GraphError(f"{name} has no edges, and all nodes have the same features: add others, or edges")


def _edge_notes(adjacency: SparseMatrix, repairs: Mapping[str, int], *, directed: bool) -> list[str]:
    alone = "that no edge leads to" if directed else "without edges"
    none = ["no edges: auto finds neighbours from the features, other methods see none"]
    counts = {
        "self-loops removed": repairs["self_loops"],
        "duplicate edges merged, keeping the largest weight": repairs["duplicate_edges"],
        f"{UNEQUAL_WEIGHTS}, of which the larger is kept": repairs["unequal_weights"],
        f"nodes {alone}, classified by their features alone":
            int((torch.diff(adjacency.crow) == 0).sum()) if adjacency.nnz else 0,
    }  # fmt: skip
    return none * (not adjacency.nnz) + [f"{text}: {count:,}" for text, count in counts.items() if count]


def _absent(classes: Classes, split: Split) -> list[str]:
    """Name the classes that cannot be learned because they have no training node."""
    size = len(classes.labels)
    train = split.train[(split.train >= 0) & (split.train < size)]  # Graph rejects the others
    train = train[targets_of(classes.labels).known(classes.labels[train])]
    if not train.size:
        return []
    having = targets_of(classes.labels).sizes(torch.from_numpy(classes.labels[train]), len(classes.names))
    missing = [name for name, count in zip(classes.names, having.tolist(), strict=True) if not count]
    if not missing:
        return []
    some = ", ".join(shown(name) for name in missing[:5]) + (" ..." if len(missing) > 5 else "")
    return [f"no training node has class {some}, so it is never predicted"]
