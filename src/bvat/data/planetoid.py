"""The Planetoid files (Yang, Cohen, Salakhutdinov 2016) and their public split; NELL and the original Cora.

``allx`` and ``ally`` are the first nodes, ``x`` and ``y`` the training nodes (the first rows of ``allx``),
``tx`` and ``ty`` the test nodes, whose numbers are in ``test.index``; ``graph`` maps nodes to neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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


@contextmanager
def _original(what: str) -> Iterator[None]:
    """Say what is not an original file; named data sets are read only from files with the right checksum."""
    try:
        yield
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as fault:
        raise DataError(f"{what} cannot be read ({fault}): get the original files") from None


def read_parts(files: Mapping[str, bytes], prefix: str) -> Parts:
    """Decode the files ``{prefix}x``, ``{prefix}y``, ... and put their rows in node order.

    If ``ally`` is missing, only the training nodes among the rows of ``allx`` are labelled.
    """

    def part(name: str) -> Any:
        return unpickle(files[prefix + name], prefix + name)

    allx, tx, y, ty = part("allx"), part("tx"), part("y"), part("ty")
    ally = part("ally") if f"{prefix}ally" in files else y
    neighbours = part("graph")
    with _original(f"one of {prefix}*"):
        test = np.array(files[f"{prefix}test.index"].split(), dtype=np.int64)
        size = max(len(neighbours), allx.shape[0], int(test.max()) + 1)
        rows = len(neighbours) + allx.shape[0] + len(test)
        if not len(y) <= len(ally) <= allx.shape[0] <= test.min() or len(set(test.tolist())) != len(ty):
            raise ValueError("the numbers of rows do not match")
        if size > 10 * rows:  # a number in a few bytes must not claim the memory of as many nodes
            raise ValueError(f"there is no node {size - 1}")
        # Row k of tx belongs to node test[k]; nodes in neither allx nor tx keep rows of zeros.
        node = np.concatenate([np.arange(allx.shape[0]), test])
        ones = np.ones(len(node), np.float32)
        place = sp.csr_array((ones, (node, np.arange(len(node)))), (size, len(node)))
        onehot = np.zeros((size, y.shape[1]), dtype=y.dtype)
        onehot[: len(ally)] = ally
        onehot[test] = ty
        described = np.zeros(size, dtype=bool)
        described[node] = True
        return Parts(
            features=sp.csr_array(place @ sp.vstack([allx, tx], format="csr")),
            onehot=onehot,
            described=described,
            adjacency=_raw_adjacency(neighbours, size),
            train=np.arange(len(y)),
            test=np.sort(test),
        )


def labels_of(onehot: NDArray[Any]) -> IntArray:
    """Return the class of each row, -1 for rows of zeros; onehot (N, C), result int64 (N)."""
    return np.where(onehot.any(axis=1), onehot.argmax(axis=1), UNKNOWN).astype(np.int64)


def _raw_adjacency(neighbours: Mapping[int, list[int]], size: int) -> Any:
    """Return COO (size, size) with one entry per list entry, including duplicates and self-loops."""
    counts = [len(targets) for targets in neighbours.values()]
    flat = (target for targets in neighbours.values() for target in targets)
    source = np.repeat(np.fromiter(neighbours, np.int64, len(neighbours)), counts)
    target = np.fromiter(flat, np.int64, sum(counts))
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
    with _original(RECOVERED_FILE):
        stored = read_npz(content)
        labels, val = stored["label"].astype(np.int64), stored["val500"].astype(np.int64)
        known = columns != UNKNOWN
        if (labels[known] != columns[known]).any() or known[val].any() or labels.shape != columns.shape:
            raise ValueError("it contradicts the training and test labels")
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
    with _original("cora.content or cora.cites"):
        place = np.array([node[row[0]] for row in rows], dtype=np.int64)
        if sorted(place) != list(range(len(order))):
            raise ValueError("not each paper is listed once")
        labels = np.empty(len(order), dtype=np.int64)
        labels[place] = [classes[row[-1]] for row in rows]
        words = np.array([b"".join(row[1:-1]) for row in rows])
        features = np.zeros((len(order), words.dtype.itemsize), dtype=np.float32)
        features[place] = words.view(np.uint8).reshape(features.shape) == ord("1")
        cited, citing = np.array([[node[paper] for paper in line.split()] for line in cites.splitlines()]).T
    # Planetoid lists each citation at both of its ends.
    ends = np.concatenate([cited, citing]), np.concatenate([citing, cited])
    ones = np.ones(2 * len(cited), np.float32)
    return Graph.build(
        sp.csr_array(features),
        sp.coo_array((ones, ends), shape=(len(order), len(order))),
        labels,
        train=np.arange(train),
        val=np.arange(train, min(train + VALIDATION_NODES, len(order) - test)),
        test=np.arange(len(order) - test, len(order)),
        class_names=class_names,
        name=name,
        node_names=order,
        validation=OFFICIAL,
    )
