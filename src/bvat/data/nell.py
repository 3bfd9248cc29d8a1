"""NELL (Carlson et al. 2010) as Yang et al. prepared it: a knowledge graph with one labelled entity a class.

65,755 nodes, of which 9,891 are entities with 5,414 features. The others are relations: no file describes
them, and each gets a feature column of its own, so that X is 65,755 x 61,278 and must stay sparse.

Of the 210 label columns 105 are used. The classes kept are the columns that have a training node, in
ascending order; a class is named by the number of its column. A label outside them counts as unknown.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bvat.data.planetoid import OFFICIAL, VALIDATION_NODES, IntArray, labels_of, read_parts
from bvat.errors import DataError
from bvat.graph import UNKNOWN, Graph

RECOVERED = "recovered labels ({count} nodes from the sister splits)"
NONE = "no validation labels (neither {prefix}ally nor recovered labels were found)"
RECOVERED_FILE = "nell.0.001.recovered_labels.npz"


def read_nell(files: Mapping[str, bytes], prefix: str, *, name: str = "nell") -> Graph:
    """Build NELL from the contents of its raw files.

    Validation nodes are, as in Kipf's loader, the 500 rows after the training nodes when ``ally`` holds their
    labels; otherwise the ``val500`` of the recovered labels; otherwise there are none. The test nodes never
    validate. ``Graph.validation`` says which it was.
    """
    parts = read_parts(files, prefix)
    columns = labels_of(parts.onehot)
    first = len(parts.train)
    if f"{prefix}ally" in files:
        val = np.arange(first, min(first + VALIDATION_NODES, int(parts.test.min())))
        validation = OFFICIAL
    elif RECOVERED_FILE in files:
        recovered, val = read_recovered(files[RECOVERED_FILE], columns)
        columns = np.where(columns == UNKNOWN, recovered, columns)
        validation = RECOVERED.format(count=len(val))
    else:
        val = np.arange(0)
        validation = NONE.format(prefix=prefix)
    used = np.unique(columns[parts.train])
    labels = compress(columns, used, parts.onehot.shape[1])
    return Graph.build(
        with_own_columns(parts.features, ~parts.described),
        parts.adjacency,
        labels,
        train=parts.train,
        val=val[labels[val] != UNKNOWN],
        test=parts.test[labels[parts.test] != UNKNOWN],
        class_names=tuple(str(column) for column in used),
        name=name,
        validation=validation,
    )


def with_own_columns(features: Any, bare: NDArray[np.bool_]) -> Any:
    """Give each bare node a feature column of its own, in ascending order of the nodes.

    Shapes: features CSR (N, D), bare bool (N) with M true; result CSR (N, D + M).
    """
    nodes = np.flatnonzero(bare)
    own = sp.csr_array(
        (np.ones(len(nodes), features.dtype), (nodes, np.arange(len(nodes)))), shape=(len(bare), len(nodes))
    )
    return sp.hstack([features, own], format="csr")


def compress(columns: IntArray, used: IntArray, width: int) -> IntArray:
    """Renumber the used label columns from 0; all others become -1. Shapes: columns, result int64 (N)."""
    number = np.full(width + 1, UNKNOWN, dtype=np.int64)  # the last entry answers to column -1
    number[used] = np.arange(len(used))
    return number[columns]


def read_recovered(content: bytes, columns: IntArray) -> tuple[IntArray, IntArray]:
    """Return the recovered label columns (N), -1 for unknown, and the nodes to validate on."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            labels, val = stored["label"].astype(np.int64), stored["val500"].astype(np.int64)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as fault:
        raise DataError(f"{RECOVERED_FILE} cannot be read ({type(fault).__name__}): get it again") from None
    known = columns != UNKNOWN
    if labels.shape != columns.shape or (labels[known] != columns[known]).any() or known[val].any():
        raise DataError(f"{RECOVERED_FILE} contradicts the labels of train and test: get it again")
    return labels, np.sort(val)
