"""The Planetoid files (Yang, Cohen, Salakhutdinov 2016) and their public split.

``allx`` and ``ally`` are the first nodes, ``x`` and ``y`` the training nodes (the first rows of ``allx``),
``tx`` and ``ty`` the test nodes, whose numbers are in ``test.index``; ``graph`` maps nodes to neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bvat.data.unpickle import unpickle
from bvat.errors import DataError
from bvat.graph import UNKNOWN, Graph

VALIDATION_NODES = 500
"""Number of validation nodes in the public split: those after the training nodes."""
OFFICIAL = "official validation labels"

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Parts:
    """The content of the files, in node order.

    Shapes: features (N, D) CSR, zero for nodes that have none in the files; onehot (N, C), zero where the
    label is unknown; described bool (N), whether a node has a row in the files; adjacency (N, N) with the
    entries of the file, including duplicates.
    """

    features: Any
    onehot: NDArray[Any]
    described: NDArray[np.bool_]
    adjacency: Any
    train: IntArray
    test: IntArray


def read_parts(files: Mapping[str, bytes], prefix: str) -> Parts:
    """Decode the files ``{prefix}x``, ``{prefix}y``, ... and put their rows in node order.

    If ``ally`` is missing, only the training nodes among the rows of ``allx`` are labelled.
    """

    def part(name: str) -> Any:
        return unpickle(files[prefix + name], prefix + name)

    allx, tx, y, ty = part("allx"), part("tx"), part("y"), part("ty")
    ally = part("ally") if f"{prefix}ally" in files else y
    neighbours = part("graph")
    _check_kinds(prefix, (allx, tx), (y, ty, ally), neighbours)
    test = read_index(files[f"{prefix}test.index"], f"{prefix}test.index")
    size = max(len(neighbours), allx.shape[0], int(test.max()) + 1)
    rows = len(neighbours) + allx.shape[0] + len(test)
    if (
        len(test) != tx.shape[0]
        or len(test) != ty.shape[0]
        or test.min() < allx.shape[0]
        or size > 10 * rows  # a number in a few bytes must not claim the memory of as many nodes
    ):
        raise DataError(f"{prefix}test.index does not match {prefix}tx, {prefix}ty: get the original files")
    # Row k of tx belongs to node test[k]; nodes in neither allx nor tx keep rows of zeros.
    node = np.concatenate([np.arange(allx.shape[0]), test])
    place = sp.csr_array((np.ones(len(node), np.float32), (node, np.arange(len(node)))), (size, len(node)))
    onehot = np.zeros((size, y.shape[1]), dtype=y.dtype)
    onehot[: len(ally)] = ally
    onehot[test] = ty
    described = np.zeros(size, dtype=bool)
    described[node] = True
    return Parts(
        features=sp.csr_array(place @ sp.vstack([allx, tx], format="csr")),
        onehot=onehot,
        described=described,
        adjacency=raw_adjacency(neighbours, size),
        train=np.arange(len(y)),
        test=np.sort(test),
    )


def labels_of(onehot: NDArray[Any]) -> IntArray:
    """Return the class of each row, -1 for rows of zeros; onehot (N, C), result int64 (N)."""
    return np.where(onehot.any(axis=1), onehot.argmax(axis=1), UNKNOWN).astype(np.int64)


def read_index(content: bytes, name: str) -> IntArray:
    """Return the node numbers of a text file, one per line; they must be distinct."""
    try:
        nodes = np.array(content.split(), dtype=np.int64)
    except (ValueError, OverflowError):
        raise DataError(f"{name} contains something that is not a number: get the original file") from None
    if nodes.size == 0 or nodes.min() < 0 or len(np.unique(nodes)) != len(nodes):
        raise DataError(f"{name} is empty or lists a node twice: get the original file")
    return nodes


def raw_adjacency(neighbours: Mapping[int, list[int]], size: int) -> Any:
    """Return COO (size, size) with one entry per list entry, including duplicates and self-loops."""
    counts = [len(targets) for targets in neighbours.values()]
    flat = (target for targets in neighbours.values() for target in targets)
    try:
        source = np.repeat(np.fromiter(neighbours, np.int64, len(neighbours)), counts)
        target = np.fromiter(flat, np.int64, sum(counts))
    except (TypeError, ValueError, OverflowError):
        raise DataError("the graph contains a node that is not a number: get the original file") from None
    for end in (source, target):
        if end.size and not 0 <= end.min() <= end.max() < size:
            raise DataError(f"the graph contains a node outside 0 to {size - 1}: get the original file")
    return sp.coo_array((np.ones(source.size, np.float32), (source, target)), shape=(size, size))


def read_planetoid(
    files: Mapping[str, bytes],
    prefix: str,
    *,
    name: str,
    class_names: tuple[str, ...] | None = None,
    node_names: tuple[str, ...] | None = None,
) -> Graph:
    """Build a data set such as Cora from the content of its eight Planetoid files.

    Citeseer has 15 test nodes that are missing from ``test.index``: their features are zero, their label is
    unknown, and they are in no split.
    """
    parts = read_parts(files, prefix)
    labels = labels_of(parts.onehot)
    first = len(parts.train)
    val = np.arange(first, min(first + VALIDATION_NODES, int(parts.test.min())))
    return Graph.build(
        parts.features,
        parts.adjacency,
        labels,
        train=parts.train,
        val=val[labels[val] != UNKNOWN],
        test=parts.test[labels[parts.test] != UNKNOWN],
        class_names=class_names or tuple(str(k) for k in range(parts.onehot.shape[1])),
        name=name,
        node_names=node_names,
        validation=OFFICIAL,
    )


def _check_kinds(
    prefix: str, features: tuple[Any, Any], labels: tuple[Any, Any, Any], neighbours: Any
) -> None:
    allx, tx = features
    y, ty, ally = labels
    good = (
        all(bool(sp.issparse(matrix)) for matrix in features)
        and all(isinstance(onehot, np.ndarray) and onehot.ndim == 2 for onehot in labels)
        and allx.shape[1] == tx.shape[1]
        and y.shape[1] == ty.shape[1] == ally.shape[1]
        and len(y) <= len(ally) <= allx.shape[0]
        and isinstance(neighbours, dict)
        and all(isinstance(targets, list) for targets in neighbours.values())
    )
    if not good:
        raise DataError(f"the files {prefix}* do not match each other: get the original files")
