"""Read the ``.npz`` format of the common graph benchmarks, without pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bvat.data.readers.assemble import Classes, assemble, number_classes, require_classes, whole_labels
from bvat.data.readers.features import matrix_features
from bvat.data.readers.matrices import csr_of, finite, read_arrays
from bvat.data.splits import ReadOptions
from bvat.errors import GraphError
from bvat.graph import UNKNOWN, Graph

_OPTIONAL = ("node_names", "attr_names", "class_names", "metadata", "attr_text", "idx_to_node", "idx_to_attr",
             "idx_to_class")  # fmt: skip
"""Arrays that some files store as Python objects, and that the graph does not need."""


def read_benchmark(path: Path, options: ReadOptions, like: Mapping[str, Any] | None = None) -> Graph:
    """Return the graph of a file with ``adj_data``, ``adj_indices``, ``adj_indptr`` and ``adj_shape``.

    These are A in CSR form. Features are ``attr_data``, ... (X in CSR form) or ``attr_matrix`` (N, D), or are
    made from the edges; ``labels`` (N) are integers, -1 for unknown, or text. There is no
    split. With ``like``, the recipe of the graph that a model was trained on, no node needs a label.
    """
    if options.text is not None:
        raise GraphError(f"{path} has no columns: leave out --text, or use a folder with nodes.csv")
    arrays = read_arrays(path, *_OPTIONAL)
    edges = csr_of(arrays, path, "adj_")
    size = edges.shape[0]
    if edges.shape[1] != size or not size:
        raise GraphError(f"{path}: adj_shape is {edges.shape}: it must be square, with one row per node")
    if not (np.isfinite(edges.data) & (edges.data >= 0) & (edges.data < 1e30)).all():
        raise GraphError(f"{path}: adj_data has a weight that is negative, NaN or huge: use positive weights")
    edges.data[edges.data < 1e-30] = 0
    if like is not None and "labels" not in arrays:
        arrays["labels"] = np.full(size, UNKNOWN)
    classes = _classes(arrays, size, path)
    if like is not None and not classes.names:
        classes = Classes(classes.labels, tuple(like["classes"]))
    require_classes(classes, str(path))
    matrix = arrays.get("attr_matrix")
    if matrix is None and "attr_data" in arrays:
        matrix = csr_of(arrays, path, "attr_")
    features = None if matrix is None else matrix_features(finite(matrix, path, "the feature matrix", size))
    node_names, notes = _names(arrays, "node_names", size), []
    if node_names is not None and len(set(node_names)) < size:
        node_names = None
        notes.append("node_names has a name twice and is left out: nodes are called by their number")
    return assemble(
        name=path.stem,
        classes=classes,
        edges=edges,
        features=features,
        options=options,
        node_names=node_names,
        notes=notes,
        like=like,
    )


def _classes(arrays: dict[str, Any], size: int, path: Path) -> Classes:
    labels = arrays.get("labels")
    if labels is None:
        raise GraphError(f"{path}: there is no array 'labels': add the class of each node, -1 for unknown")
    if labels.shape != (size,):
        raise GraphError(
            f"{path}: labels has shape {labels.shape}, but there are {size} nodes: give one per node"
        )
    if labels.dtype.kind == "U":
        return number_classes([str(label).strip() for label in labels])
    numbers = whole_labels(labels, 2**31, f"{path}: ")
    names = _names(arrays, "class_names", int(numbers.max()) + 1)
    if names is not None and len(set(names)) == len(names):
        return Classes(numbers, names)
    return number_classes(["" if label == UNKNOWN else str(label) for label in numbers])


def _names(arrays: dict[str, Any], key: str, size: int) -> tuple[str, ...] | None:
    """Return the stored names if they are text and their number is right."""
    names = arrays.get(key)
    if names is None or names.dtype.kind != "U" or names.shape != (size,):
        return None
    return tuple(str(name) for name in names)
