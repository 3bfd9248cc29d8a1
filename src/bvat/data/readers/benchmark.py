"""Read the ``.npz`` formats of the common graph benchmarks, without pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bvat.data.readers.assemble import assemble
from bvat.data.readers.classes import Classes, array_classes, require_classes
from bvat.data.readers.edges import GivenEdges
from bvat.data.readers.features import matrix_features
from bvat.data.readers.matrices import csr_of, finite, read_arrays
from bvat.data.splits import PARTS, ReadOptions, Split
from bvat.errors import GraphError
from bvat.graph import Graph, targets_of
from bvat.graph.repair import as_attributes
from bvat.graph.validation import LARGEST

EDGE_LIST = {"edges", "node_features", "node_labels"}
"""Arrays of the second format."""
_OPTIONAL = ("node_names", "attr_names", "class_names", "metadata", "attr_text", "idx_to_node", "idx_to_attr",
             "idx_to_class")  # fmt: skip
"""Arrays that some files store as Python objects, and that the graph does not need."""


def read_benchmark(path: Path, options: ReadOptions) -> Graph:
    """Return the graph of a file with ``adj_data``, ``adj_indices``, ``adj_indptr`` and ``adj_shape``.

    These are A in CSR form. Features are ``attr_data``, ... (X in CSR form) or ``attr_matrix`` (N, D), or are
    made from the edges; ``labels`` (N) are integers, -1 for unknown, or text; or (N, C) of 0 and
    1 if nodes have several, -1 in a whole row for unknown. ``train_masks``,
    ``val_masks`` and ``test_masks`` (S, N) or (N, S) are S splits. The heterophilous data sets have
    ``edges`` (E, 2), ``node_features`` and ``node_labels`` instead. ``edge_attr`` (E, F) has attributes of
    the edges, in the order of ``adj_data`` or of ``edges``. With ``like``, the recipe of the graph
    that a model was trained on, no node needs a label.
    """
    if options.text is not None:
        raise GraphError(f"{path} has no columns: leave out --text, or use a folder with nodes.csv")
    arrays, notes = read_arrays(path, *_OPTIONAL), list[str]()
    edges = _edge_list(arrays, path) if arrays.keys() >= EDGE_LIST else _adjacency(arrays, path)
    size = edges.shape[0]
    attributes = _attributes(arrays, path, edges.nnz) if options.edge_attr else None
    classes = _classes(arrays, size, path, options.like)
    matrix = arrays.get("attr_matrix", arrays.get("node_features"))
    if matrix is None and "attr_data" in arrays:
        matrix = csr_of(arrays, path, "attr_")
    features = None if matrix is None else matrix_features(finite(matrix, path, "the feature matrix", size))
    node_names = _names(arrays, "node_names", size)
    if node_names is not None and len(set(node_names)) < size:
        node_names = None
        notes.append("node_names has a name twice and is left out: nodes are called by their number")
    masks = {part: arrays.get(f"{part}_masks", arrays.get(f"{part}_mask")) for part in PARTS}
    splits = given_splits(masks, classes.labels, str(path))
    if splits and options.chooses_split:
        notes.append(f"the masks of {path.name} are used; split options are ignored")
    return assemble(
        name=path.stem,
        classes=classes,
        edges=GivenEdges(edges, attributes),
        features=features,
        splits=splits,
        options=options,
        node_names=node_names,
        notes=notes,
    )


def _adjacency(arrays: Mapping[str, Any], path: Path) -> Any:
    """Return the edges (N, N) of the first format in COO form, in the order of ``adj_data``."""
    edges = csr_of(arrays, path, "adj_").tocoo()
    if edges.shape[1] != edges.shape[0] or not edges.shape[0]:
        raise GraphError(f"{path}: adj_shape is {edges.shape}: it must be square, with one row per node")
    if not (np.isfinite(edges.data) & (edges.data >= 0) & (edges.data < LARGEST)).all():
        raise GraphError(f"{path}: adj_data has a weight that is negative, NaN or huge: use positive weights")
    edges.data[edges.data < 1e-30] = 0
    return edges


def _edge_list(arrays: Mapping[str, Any], path: Path) -> Any:
    """Return the edges (N, N) of the second format in COO form, in the order of ``edges``."""
    ends, size = arrays["edges"], len(arrays["node_features"])
    if ends.ndim != 2 or ends.shape[1] != 2 or ends.dtype.kind not in "iu" or not ends.size:
        raise GraphError(f"{path}: edges has shape {ends.shape}: give pairs of node numbers, (E, 2)")
    if int(ends.min()) < 0 or int(ends.max()) >= size:
        raise GraphError(f"{path}: edges names a node that is not between 0 and {size - 1}: correct it")
    matrix = sp.coo_array((np.ones(len(ends)), tuple(ends.T)), shape=(size, size))
    if "edge_attr" not in arrays:  # of an edge that is given twice, both rows are averaged
        matrix.sum_duplicates()
        matrix.data[:] = 1
    return matrix


def _attributes(arrays: Mapping[str, Any], path: Path, edges: int) -> Any:
    """Return the attributes of the edges (E, F); None if there are none."""
    if "edge_attr" not in arrays:
        return None
    try:
        return as_attributes(arrays["edge_attr"], edges)
    except GraphError as fault:
        raise GraphError(f"{path}: {fault}") from None


def given_splits(masks: Mapping[str, Any], labels: Any, where: str) -> list[Split]:
    """Return the splits in boolean masks (N), (N, S) or (S, N) of train, val and test; labels (N) or (N, C).

    A node without a label is in no split; a part without a mask is empty.
    """
    known, found = targets_of(labels).known(labels), dict[str, Any]()
    for part, mask in masks.items():
        if mask is None:
            continue
        rows = np.atleast_2d(mask)
        rows = rows if rows.ndim != 2 or rows.shape[1] == known.size else rows.T
        if rows.ndim != 2 or rows.shape[1] != known.size or not np.isin(rows, (0, 1)).all():
            raise GraphError(
                f"{where}: the {part} mask has shape {np.shape(mask)}, but there are {known.size} nodes: "
                "give one value, true or false, per node and split"
            )
        found[part] = rows.astype(bool) & known
    if "train" not in found:
        return []
    count = len(found["train"])
    if any(len(rows) != count for rows in found.values()):
        raise GraphError(f"{where}: the masks have different numbers of splits: give one of each per split")
    none = np.zeros((count, known.size), bool)
    parts = [found.get(part, none) for part in PARTS]
    return [
        Split(np.flatnonzero(train), np.flatnonzero(val), np.flatnonzero(test), "given by masks")
        for train, val, test in zip(*parts, strict=True)
    ]


def _classes(arrays: Mapping[str, Any], size: int, path: Path, like: Mapping[str, Any] | None) -> Classes:
    """Return the classes of the nodes; those of a model, ``like``, where no node has a label."""
    labels = arrays.get("labels", arrays.get("node_labels"))
    if labels is None and like is None:
        raise GraphError(f"{path}: there is no array 'labels': add the class of each node, -1 for unknown")
    if labels is None:
        return Classes.unknown(size, like or {})
    classes = array_classes(labels, size, where=f"{path}: ", compact=True)
    several = labels.ndim > 1
    if labels.dtype.kind != "U":
        names = _names(arrays, "class_names", labels.shape[1] if several else int(labels.max()) + 1)
        if names is not None and (several or len(set(names)) == len(names)):
            classes = Classes(classes.labels if several else labels.astype(np.int64), names)
    if like is not None and not classes.names:
        return Classes(classes.labels, tuple(like["classes"]))
    if like is None or targets_of(classes.labels).known(classes.labels).any():
        require_classes(classes, str(path))
    return classes


def _names(arrays: Mapping[str, Any], key: str, size: int) -> tuple[str, ...] | None:
    """Return the stored names if they are text and their number is right."""
    names = arrays.get(key)
    if names is None or names.dtype.kind != "U" or names.shape != (size,):
        return None
    return tuple(str(name) for name in names)
