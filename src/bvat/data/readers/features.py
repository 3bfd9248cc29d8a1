"""Features from what there is: columns, words, a matrix, or nothing but the edges.

Each part says what it did, and leaves a recipe (plain values, fit for JSON) by which the features of another
graph are made in the same way: the graph a trained model is to be used on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bvat.data.readers.matrices import is_sparse
from bvat.data.readers.text import MAX_WORDS, tfidf, word_weights
from bvat.errors import GraphError
from bvat.graph.sparse import SparseMatrix

MAX_ONE_HOT = 20_000
"""Nodes up to which a graph without features gets one feature a node."""
_SPARSE = 0.25
"""Share of entries that are not zero below which a matrix is stored sparse."""

Recipe = Mapping[str, Any]


@dataclass(frozen=True)
class Features:
    """Features, what there is to say about them, and how to make the like.

    Shapes: matrix (N, D), CSR or float32 array.
    """

    matrix: Any
    notes: tuple[str, ...] = ()
    recipe: dict[str, Any] = field(default_factory=dict)


def packed(matrix: NDArray[np.float64]) -> Any:
    """Return a block (n, D) as float32, in CSR form where most of it is zero."""
    small = matrix.astype(np.float32)
    return sp.csr_array(small) if np.count_nonzero(small) < _SPARSE * small.size else small


def stacked(blocks: Sequence[Any]) -> Any:
    """Put blocks (n, D) below each other: CSR (N, D) where most is zero, else an array."""
    nonzero = sum(int(block.nnz if is_sparse(block) else np.count_nonzero(block)) for block in blocks)
    if nonzero < _SPARSE * sum(block.shape[0] * block.shape[1] for block in blocks):
        return sp.csr_array(sp.vstack([sp.csr_array(block) for block in blocks]))
    return np.concatenate([block.toarray() if is_sparse(block) else block for block in blocks])


def row_normalised(matrix: Any) -> Any:
    """Divide rows by the sum of their absolute values; CSR or array (N, D), rows of zeros stay."""
    if is_sparse(matrix):
        csr = sp.csr_array(matrix, dtype=np.float32)
        total = np.asarray(abs(csr).sum(axis=1), dtype=np.float64).ravel()
        return sp.csr_array(sp.diags_array((1 / np.where(total > 0, total, 1)).astype(np.float32)) @ csr)
    total = np.abs(matrix).sum(axis=1, dtype=np.float64)
    return (matrix / np.where(total > 0, total, 1)[:, None]).astype(np.float32)


def column_features(names: Sequence[str], matrix: Any, where: str, like: Recipe | None = None) -> Features:
    """Scale the numeric columns of a table.

    Mostly zeros, or nothing but 0 and 1: these are words or marks, and each row is divided by its sum, as in
    the paper. Other columns are quantities of their own units: each is brought to mean 0 and deviation 1,
    and all are divided by their number, so that rows have about the size that the presets expect.

    Shapes: matrix (N, D), CSR or array; result (N, D).
    """
    recipe: dict[str, Any] = {"names": list(names)}
    known = (like or {}).get("columns")
    marks = is_sparse(matrix) or bool(((matrix == 0) | (matrix == 1)).all())
    if "mean" not in known if known is not None else marks:
        return Features(row_normalised(matrix), (), {"columns": recipe})
    dense = np.asarray(matrix.toarray() if is_sparse(matrix) else matrix, dtype=np.float64)
    if known is None:
        mean, deviation = dense.mean(axis=0), dense.std(axis=0)
        varies = deviation > 1e-9 * np.abs(dense).max(axis=0)
        if not varies.any():
            raise GraphError(
                f"{where}: every feature column holds the same number in all rows: remove these columns, and "
                "features are made from the edges"
            )
        scale = np.where(varies, 1 / np.where(varies, deviation, 1), 0) / len(names)
    else:
        mean, scale = np.array(known["mean"]), np.array(known["scale"])
    recipe |= {"mean": mean.tolist(), "scale": scale.tolist()}
    note = f"{len(names)} feature columns were brought to mean 0 and deviation 1"
    return Features(((dense - mean) * scale).astype(np.float32), (note,), {"columns": recipe})


def text_features(texts: Sequence[str], column: str, where: str, like: Recipe | None = None) -> Features:
    """Turn texts (N) into words (N, W) by TF-IDF, each row divided by its sum."""
    idf = like["text"]["idf"] if like is not None else word_weights(texts)
    if not idf:
        raise GraphError(
            f"{where}, column {column!r}: there is no word of two or more letters: use another column "
            "with --text"
        )
    most = f", the {MAX_WORDS:,} of most texts" if len(idf) == MAX_WORDS else ""
    note = f"the text of column {column!r} became {len(idf):,} words (TF-IDF{most})"
    return Features(
        row_normalised(tfidf(texts, idf)), (note,), {"text": {"column": column, "idf": dict(idf)}}
    )


def matrix_features(matrix: Any) -> Features:
    """Divide the rows of a given matrix (N, D) by their sums, as in the paper."""
    return Features(row_normalised(matrix), (), {"matrix": int(matrix.shape[1])})


def edge_features(adjacency: SparseMatrix, like: Recipe | None = None) -> Features:
    """Make features of the edges alone: one feature a node, or in large graphs the size of the degree.

    Degree features are one-hot in ``floor(log2(degree)) + 1``, with 0 for nodes without edges.

    Shapes: adjacency (N, N); result CSR (N, N) or (N, number of bins).
    """
    size = adjacency.shape[0]
    if like is None and size <= MAX_ONE_HOT:
        note = f"there are no features, so each of the {size:,} nodes got one of its own (one-hot)"
        return Features(sp.eye_array(size, format="csr", dtype=np.float32), (note,), {"one_hot": size})
    degree = np.diff(adjacency.crow.cpu().numpy())
    place = np.frexp(degree)[1]  # degree = m * 2**place with m in [0.5, 1): 0 -> 0, 1 -> 1, 2 and 3 -> 2, ...
    width = int(like["degree"]) if like is not None else int(place.max()) + 1
    place = np.minimum(place, width - 1)
    ones = np.ones(size, dtype=np.float32)
    matrix = sp.csr_array((ones, place, np.arange(size + 1)), shape=(size, width))
    note = (
        f"there are no features and {size:,} nodes are too many for one each, so the logarithm of the degree "
        f"is used ({width} features): give features if you can"
    )
    return Features(matrix, (note,), {"degree": width})


def joined(parts: Sequence[Features]) -> Features:
    """Put features (N, D1), (N, D2), ... side by side."""
    if len(parts) == 1:
        return parts[0]
    matrices = [part.matrix for part in parts]
    matrix: Any
    if any(is_sparse(part) for part in matrices):
        matrix = sp.csr_array(sp.hstack([sp.csr_array(part) for part in matrices]))
    else:
        matrix = np.concatenate(matrices, axis=1)
    notes = tuple(note for part in parts for note in part.notes)
    return Features(matrix, notes, {key: value for part in parts for key, value in part.recipe.items()})
