"""NELL (Carlson et al. 2010), prepared by Yang et al.: a knowledge graph, one labelled entity per class.

Of its 65,755 nodes, 9,891 are entities with 5,414 features. The others are relations without features in the
files; each gets its own feature column, so that X is 65,755 x 61,278 and must stay sparse.

Of the 210 label columns, 105 are used: those with a training node, in ascending order. A class is named after
the number of its column, and labels outside these columns count as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bvat.data.npz import read_npz
from bvat.data.planetoid import OFFICIAL, VALIDATION_NODES, IntArray, labels_of, read_parts
from bvat.errors import DataError
from bvat.graph import UNKNOWN, Graph

RECOVERED = "recovered labels ({count} nodes from the sister splits)"
NONE = "no validation labels (neither {prefix}ally nor recovered labels were found)"
RECOVERED_FILE = "nell.0.001.recovered_labels.npz"


def read_nell(files: Mapping[str, bytes], prefix: str, *, name: str = "nell") -> Graph:
    """Build NELL from the content of its raw files.

    As in Kipf's loader, the validation nodes are the 500 rows after the training nodes if ``ally`` contains
    their labels; otherwise they are ``val500`` of the recovered labels; otherwise there are none. Test nodes
    are never used for validation. ``Graph.validation`` records which case applies.
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
    """Give each node without features its own feature column, in ascending order of the nodes.

    Shapes: features CSR (N, D), bare bool (N) with M true; result CSR (N, D + M).
    """
    nodes = np.flatnonzero(bare)
    own = sp.csr_array(
        (np.ones(len(nodes), features.dtype), (nodes, np.arange(len(nodes)))), shape=(len(bare), len(nodes))
    )
    return sp.hstack([features, own], format="csr")


def compress(columns: IntArray, used: IntArray, width: int) -> IntArray:
    """Renumber the used label columns from 0; all others become -1. Shapes: columns, result int64 (N)."""
    number = np.full(width + 1, UNKNOWN, dtype=np.int64)  # the last entry is for column -1
    number[used] = np.arange(len(used))
    return number[columns]


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
