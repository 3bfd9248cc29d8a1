"""The Planetoid files (Yang, Cohen, Salakhutdinov 2016) and their public split; NELL and the original Cora.

``allx`` and ``ally`` are the first nodes, ``x`` and ``y`` the training nodes (the first rows of ``allx``),
``tx`` and ``ty`` the test nodes, whose numbers are in ``test.index``; ``graph`` maps nodes to neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as package_files
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bvat.data.npz import read_npz
from bvat.data.unpickle import unpickle
from bvat.errors import DataError
from bvat.graph import UNKNOWN, Graph

VALIDATION_NODES = 500
"""Number of validation nodes in the public split: those after the training nodes."""
OFFICIAL = "official validation labels"
RECOVERED = "recovered labels ({count} nodes from the sister splits)"
NONE = "no validation labels (neither {prefix}ally nor recovered labels were found)"
RECOVERED_FILE = "nell.0.001.recovered_labels.npz"

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
    if not (
        all(sp.issparse(matrix) for matrix in (allx, tx))
        and all(isinstance(onehot, np.ndarray) and onehot.ndim == 2 for onehot in (y, ty, ally))
        and allx.shape[1] == tx.shape[1]
        and y.shape[1] == ty.shape[1] == ally.shape[1]
        and len(y) <= len(ally) <= allx.shape[0]
        and isinstance(neighbours, dict)
        and all(isinstance(targets, list) for targets in neighbours.values())
    ):
        raise DataError(f"the files {prefix}* do not match each other: get the original files")
    test = read_index(files[f"{prefix}test.index"], f"{prefix}test.index")
    size = max(len(neighbours), allx.shape[0], int(test.max()) + 1)
    rows = len(neighbours) + allx.shape[0] + len(test)
    claims_more = size > 10 * rows  # a number in a few bytes must not claim the memory of as many nodes
    if not len(test) == tx.shape[0] == ty.shape[0] or test.min() < allx.shape[0] or claims_more:
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
    class_names: tuple[str, ...] = (),
    node_names: tuple[str, ...] | None = None,
) -> Graph:
    """Build a data set such as Cora from the content of its eight Planetoid files.

    Citeseer has 15 test nodes that are missing from ``test.index``: their features are zero, their label is
    unknown, and they are in no split.
    """
    parts = read_parts(files, prefix)
    about: dict[str, Any] = {"name": name, "node_names": node_names, "validation": OFFICIAL}
    classes = class_names or tuple(map(str, range(parts.onehot.shape[1])))
    labels, val = labels_of(parts.onehot), _public_validation(parts)
    return _split_graph(parts, parts.features, labels, val, class_names=classes, **about)


def _public_validation(parts: Parts) -> IntArray:
    first = len(parts.train)
    return np.arange(first, min(first + VALIDATION_NODES, int(parts.test.min())))


def _split_graph(parts: Parts, features: Any, labels: IntArray, val: IntArray, **about: Any) -> Graph:
    """Return the graph; nodes without a label are in no split."""
    test = parts.test[labels[parts.test] != UNKNOWN]
    val = val[labels[val] != UNKNOWN]
    return Graph.build(features, parts.adjacency, labels, train=parts.train, val=val, test=test, **about)


def read_nell(files: Mapping[str, bytes], prefix: str, *, name: str = "nell") -> Graph:
    """Build NELL (Carlson et al. 2010), prepared by Yang et al.: one labelled entity per class.

    Of its 65,755 nodes, 9,891 are entities with 5,414 features. The others are relations without features in
    the files; each gets its own feature column, so that X is 65,755 x 61,278 and must stay sparse. Of the 210
    label columns, 105 are used: those with a training node, in ascending order. A class is named after the
    number of its column, and labels outside these columns count as unknown.

    As in Kipf's loader, the validation nodes are the 500 rows after the training nodes if ``ally`` contains
    their labels; otherwise they are ``val500`` of the recovered labels; otherwise there are none. Test nodes
    are never used for validation. ``Graph.validation`` records which case applies.
    """
    parts = read_parts(files, prefix)
    columns = labels_of(parts.onehot)
    if f"{prefix}ally" in files:
        val, validation = _public_validation(parts), OFFICIAL
    elif RECOVERED_FILE in files:
        recovered, val = read_recovered(files[RECOVERED_FILE], columns)
        columns = np.where(columns == UNKNOWN, recovered, columns)
        validation = RECOVERED.format(count=len(val))
    else:
        val, validation = np.arange(0), NONE.format(prefix=prefix)
    used = np.unique(columns[parts.train])
    labels = np.where(np.isin(columns, used), np.searchsorted(used, columns), UNKNOWN)
    own = sp.eye_array(len(columns), dtype=np.float32, format="csc")[:, ~parts.described]
    features, names = sp.hstack([parts.features, own], format="csr"), tuple(map(str, used))
    return _split_graph(parts, features, labels, val, class_names=names, name=name, validation=validation)


def read_recovered(content: bytes, columns: IntArray) -> tuple[IntArray, IntArray]:
    """Return the recovered label columns (N), -1 for unknown, and the validation nodes."""
    try:
        stored = read_npz(content)
        labels, val = stored["label"].astype(np.int64), stored["val500"].astype(np.int64)
    except (ValueError, KeyError) as fault:
        raise DataError(f"{RECOVERED_FILE} cannot be read ({type(fault).__name__}): get it again") from None
    known = columns != UNKNOWN
    if val.ndim != 1 or (val.size and not 0 <= val.min() <= val.max() < known.size):
        raise DataError(f"{RECOVERED_FILE} names nodes that do not exist: get it again")
    if labels.shape != columns.shape or (labels[known] != columns[known]).any() or known[val].any():
        raise DataError(f"{RECOVERED_FILE} contradicts the training and test labels: get it again")
    return labels, np.sort(val)


@cache
def paper_ids() -> tuple[str, ...]:
    """Return the ids of the papers of Cora in the order of the Planetoid files."""
    text = package_files("bvat.data").joinpath("cora_order.txt").read_text(encoding="ascii")
    return tuple(line for line in text.splitlines() if not line.startswith("#"))


def read_cora(
    content: bytes,
    cites: bytes,
    *,
    class_names: tuple[str, ...],
    order: tuple[str, ...] | None = None,
    name: str = "cora",
    train: int = 140,
    test: int = 1000,
) -> Graph:
    """Build Cora from its original text files, in the node order of the Planetoid files.

    Both have the same papers, words and citations but number the papers differently, and the public split
    refers to Planetoid's numbers: in its order, which ``cora_order.txt`` lists, the graphs are the same.

    ``content`` has lines of paper id, word indicators and class, separated by tabs, and ``cites`` of cited
    and citing paper id. The first ``train`` nodes of ``order`` (default: Planetoid's) are training nodes, the
    500 after them are for validation, the last ``test`` are test nodes.
    """
    order = paper_ids() if order is None else order
    rows = [line.split(b"\t") for line in content.splitlines()]
    node = {paper.encode(): k for k, paper in enumerate(order)}
    classes = {label.encode(): k for k, label in enumerate(class_names)}
    try:
        place = np.array([node[row[0]] for row in rows], dtype=np.int64)
        labels = np.empty(len(order), dtype=np.int64)
        labels[place] = [classes[row[-1]] for row in rows]
        words = np.array([b"".join(row[1:-1]) for row in rows])
        ends = np.array([[node[paper] for paper in line.split()] for line in cites.splitlines()])
    except KeyError as unknown:
        raise DataError(
            f"cora.content or cora.cites has the unknown entry {unknown}: get the original files"
        ) from None
    except ValueError:
        raise DataError("a line of cora.cites does not name two papers: get the original files") from None
    width = words.dtype.itemsize
    indicators = words.view(np.uint8).reshape(len(rows), width) == ord("1")
    features = np.zeros((len(order), width), dtype=np.float32)
    features[place] = indicators
    if len(np.unique(place)) != len(order) or ends.ndim != 2 or ends.shape[1] != 2:
        raise DataError(
            "cora.content does not list each paper once, or cora.cites is truncated: get the original files"
        )
    # Planetoid lists each citation at both of its ends.
    both = np.concatenate([ends, ends[:, ::-1]])
    entries = (np.ones(len(both), np.float32), (both[:, 0], both[:, 1]))
    return Graph.build(
        sp.csr_array(features),
        sp.coo_array(entries, shape=(len(order), len(order))),
        labels,
        train=np.arange(train),
        val=np.arange(train, min(train + VALIDATION_NODES, len(order) - test)),
        test=np.arange(len(order) - test, len(order)),
        class_names=class_names,
        name=name,
        node_names=order,
        validation=OFFICIAL,
    )
