"""Make features from columns, text, a matrix, or the edges alone.

Each function adds notes for the user and a recipe (plain values, ready for JSON) with which the features of
another graph are made in the same way, so that a trained model can be used on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bvat.data.readers.matrices import is_sparse, read_features
from bvat.engine.sparse import SparseMatrix
from bvat.errors import GraphError

MAX_ONE_HOT = 20_000
"""Largest graph without features that gets one feature per node."""
DENSE_FROM = 0.4
"""Share of entries that are not zero from which a dense matrix is faster: below, a sparse product skips more
than it costs (measured with 745 to 8,189 features and a width of 64: at a share of 0.35 sparse takes 0.85 of
the time of dense, at 0.02 less than a tenth)."""

MAX_WORDS = 20_000
"""Maximum number of words of a text column: those that occur in the most texts are kept."""
_WORD = re.compile(r"\w\w+")
_CELLS = 2**22
"""Cells of a dense matrix that are changed at once."""

Recipe = Mapping[str, Any]
Keep = Callable[[Iterable[NDArray[Any]]], Any]
"""What puts blocks of rows below each other: in memory, or in a file."""


@dataclass(frozen=True)
class Features:
    """Features, notes about them for the user, and the recipe to make them again.

    Shapes: matrix (N, D), CSR or float32 array.
    """

    matrix: Any
    notes: tuple[str, ...] = ()
    recipe: dict[str, Any] = field(default_factory=dict)


def fastest_layout(matrix: Any) -> Any:
    """Return features (N, D) as CSR or as an array, whichever is faster, whatever they came as."""
    if is_sparse(matrix):
        size = matrix.shape[0] * matrix.shape[1]
        return matrix.toarray() if size and matrix.nnz >= DENSE_FROM * size else matrix
    sparse = np.count_nonzero(matrix) < DENSE_FROM * matrix.size
    return sp.vstack(list(map(sp.csr_array, row_blocks(matrix))), "csr") if sparse else matrix


def row_blocks(*matrices: Any) -> Iterator[Any]:
    """Yield dense matrices (N, D) beside each other, which may be memory-mapped, in blocks of rows."""
    rows = max(1, _CELLS // max(1, sum(matrix.shape[1] for matrix in matrices)))
    for start in range(0, matrices[0].shape[0], rows):
        blocks = [matrix[start : start + rows] for matrix in matrices]
        yield blocks[0] if len(blocks) == 1 else np.hstack(blocks)


def in_memory(blocks: Iterable[NDArray[Any]]) -> Any:
    return np.concatenate(list(blocks))


def _changed(change: Callable[[Any], Any], matrix: Any, keep: Keep) -> Any:
    """Return a matrix (N, D) whose rows are changed independently of each other."""
    return change(matrix) if is_sparse(matrix) else keep(map(change, row_blocks(matrix)))


def stacked(blocks: Sequence[Any]) -> Any:
    """Stack blocks (n, D): CSR (N, D) if most entries are zero, else an array."""
    if any(map(is_sparse, blocks)):
        return fastest_layout(sp.vstack(list(map(sp.csr_array, blocks)), "csr"))
    return np.concatenate(blocks)


def row_normalised(matrix: Any) -> Any:
    """Divide each row by the sum of its absolute values; CSR or array (N, D). Rows of zeros stay zero."""
    if is_sparse(matrix):
        csr = sp.csr_array(matrix, dtype=np.float32)
        total = np.asarray(abs(csr).sum(axis=1), dtype=np.float64).ravel()
        return sp.csr_array(sp.diags_array((1 / np.where(total > 0, total, 1)).astype(np.float32)) @ csr)
    total = np.abs(matrix).sum(axis=1, dtype=np.float64)
    result: NDArray[np.float32] = np.empty(matrix.shape, np.float32)  # divided in float64, without a copy
    return np.divide(matrix, np.where(total > 0, total, 1)[:, None], out=result, casting="same_kind")


def column_features(
    names: Sequence[str], matrix: Any, where: str, like: Recipe | None = None, keep: Keep = in_memory
) -> Features:
    """Scale the numeric columns of a table.

    If the columns are mostly zero, or contain only 0 and 1, they are words or flags, and each row is divided
    by its sum, as in the paper. Other columns are quantities with units: each is scaled to mean 0 and
    standard deviation 1, and divided by the number of columns so that rows have the norm that the presets
    expect.

    Shapes: matrix (N, D), CSR or array; result (N, D).
    """
    recipe: dict[str, Any] = {"names": list(names)}
    known = (like or {}).get("columns")
    marks = is_sparse(matrix) or all(((rows == 0) | (rows == 1)).all() for rows in row_blocks(matrix))
    if "mean" not in known if known is not None else marks:
        return Features(_changed(row_normalised, matrix, keep), (), {"columns": recipe})
    dense = matrix.toarray() if is_sparse(matrix) else matrix
    if known is None:
        mean, deviation, largest = _moments(dense)
        scale = unit_scale(deviation, largest) / len(names)
        if not scale.any():
            raise GraphError(
                f"{where}: every feature column is constant: give columns that differ between nodes, or none "
                "if there are edges to make features from"
            )
    else:
        mean, scale = np.array(known["mean"]), np.array(known["scale"])
    recipe |= {"mean": mean.tolist(), "scale": scale.tolist()}
    note = f"{len(names)} feature columns were scaled to mean 0 and standard deviation 1"
    scaled = _changed(lambda rows: ((rows - mean) * scale).astype(np.float32), dense, keep)
    return Features(scaled, (note,), {"columns": recipe})


def unit_scale(deviation: NDArray[Any], largest: NDArray[Any]) -> NDArray[np.float64]:
    """Return what makes the deviation of each column 1, (D); 0 for columns that are constant."""
    varies = deviation > 1e-9 * largest
    return np.where(varies, 1 / np.where(varies, deviation, 1), 0)


def _moments(matrix: Any) -> tuple[NDArray[np.float64], ...]:
    """Return mean, standard deviation and largest absolute value of each column, in double precision (D)."""

    def mean(change: Callable[[Any], Any]) -> NDArray[np.float64]:
        total = np.zeros((0, matrix.shape[1]))
        for rows in row_blocks(matrix):  # row after row: the result does not depend on the blocks
            total = np.concatenate([total, change(rows.astype(np.float64))]).sum(axis=0, keepdims=True)
        return np.asarray(total[0] / matrix.shape[0])

    average = mean(lambda rows: rows)
    variance = mean(lambda rows: np.square(rows - average))
    largest = np.max([np.abs(rows).max(axis=0) for rows in row_blocks(matrix)], axis=0)
    return average, np.sqrt(variance), largest.astype(np.float64)


def text_features(texts: Sequence[str], column: str, where: str, like: Recipe | None = None) -> Features:
    """Turn texts (N) into TF-IDF features (N, W), each row divided by its sum."""
    matrix, idf = tfidf(texts, None if like is None else like["text"]["idf"])
    if not idf:
        raise GraphError(
            f"{where}, column {column!r}: there is no word of two or more letters: use another column "
            "with --text"
        )
    most = f", the {MAX_WORDS:,} most frequent ones" if len(idf) == MAX_WORDS else ""
    note = f"the text in column {column!r} was turned into {len(idf):,} words (TF-IDF{most})"
    return Features(row_normalised(matrix), (note,), {"text": {"column": column, "idf": dict(idf)}})


def tfidf(texts: Sequence[str], idf: Mapping[str, float] | None = None) -> tuple[Any, Mapping[str, float]]:
    """Return ``x(i, w) = f(i, w) idf(w)``, where word w occurs f(i, w) times in text i, and idf.

    Words have two or more letters, digits or underscores, in lower case. With N texts of which n(w) contain
    word w, ``idf(w) = ln((1 + N) / (1 + n(w))) + 1``, in alphabetical order. Words that occur in only one
    text are ignored (unless there are no others), and at most ``MAX_WORDS`` words are kept. ``idf`` is given
    for texts that a trained model is to read.

    Shapes: result CSR (N, W), float32, not normalised.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    known = None if idf is None else list(idf)
    counter = CountVectorizer(
        analyzer=lambda text: _WORD.findall(text.lower()), vocabulary=known, dtype=np.float32
    )
    if idf is None:
        try:
            counts = counter.fit_transform(texts)
        except ValueError:  # there is no word
            return sp.csr_array((len(texts), 0), dtype=np.float32), {}
        documents = np.bincount(counts.indices, minlength=counts.shape[1])
        used = np.flatnonzero(documents >= min(2, documents.max()))
        used = np.sort(used[np.argsort(-documents[used], kind="stable")[:MAX_WORDS]])
        counts, documents = counts[:, used], documents[used]
        weights = np.log((1 + len(texts)) / (1 + documents)) + 1
        idf = dict(zip(counter.get_feature_names_out()[used].tolist(), weights.tolist(), strict=True))
    else:
        counts = counter.transform(texts)
    counts.data *= np.array(list(idf.values()), dtype=np.float32)[counts.indices]
    return sp.csr_array(counts), idf


def matrix_features(matrix: Any, keep: Keep = in_memory) -> Features:
    """Divide each row of a given matrix (N, D) by its sum, as in the paper."""

    def change(rows: Any) -> Any:
        return row_normalised(rows.astype(np.float32, copy=False))

    return Features(_changed(change, matrix, keep), (), {"matrix": int(matrix.shape[1])})


def find_matrix(folder: Path) -> Path | None:
    """Return the path of features.npz or features.npy, if one exists."""
    endings = ("npz", "npy", "mtx", "csv", "parquet")
    found = [path for ending in endings if (path := folder / f"features.{ending}").is_file()]
    if len(found) > 1 or (found and found[0].suffix not in (".npz", ".npy")):
        raise GraphError(
            f"{found[-1]} is not read: keep one features.npy, written by numpy.save, or features.npz, by "
            "scipy.sparse.save_npz, or put the columns into the nodes file"
        )
    return found[0] if found else None


def stored_features(
    path: Path | None, size: int | None, where: str, like: Recipe | None = None, keep: Keep = in_memory
) -> list[Features]:
    """Return the features in the file of a matrix, if there is one."""
    if like is not None and ("matrix" in like) != (path is not None):
        problem = "without a feature matrix: remove it"
        if path is None:
            problem = "with a feature matrix: add features.npz or features.npy"
        raise GraphError(f"{path or where}: the model was trained {problem}")
    if path is None:
        return []
    matrix = read_features(path, size, mapped=keep is not in_memory)
    if like is not None and like["matrix"] != matrix.shape[1]:
        raise GraphError(
            f"{path} has {matrix.shape[1]} columns, but the model was trained with {like['matrix']}: "
            "give the same columns"
        )
    return [matrix_features(matrix, keep)]


def edge_features(adjacency: SparseMatrix, like: Recipe | None = None) -> Features:
    """Make features from the edges alone: one feature per node, or in large graphs the degree.

    Degree features are one-hot in ``floor(log2(degree)) + 1``, and in 0 for nodes without edges.

    Shapes: adjacency (N, N); result CSR (N, N) or (N, number of bins).
    """
    size = adjacency.shape[0]
    if like is None and size <= MAX_ONE_HOT:
        note = f"there are no features, so each of the {size:,} nodes gets its own (one-hot)"
        return Features(sp.eye_array(size, format="csr", dtype=np.float32), (note,), {"one_hot": size})
    if like is not None and "degree" not in like:
        raise GraphError("the model was trained with features that this graph lacks: add them")
    degree = np.diff(adjacency.crow.cpu().numpy())
    place = np.frexp(degree)[1]  # degree = m * 2**place with m in [0.5, 1): 0 -> 0, 1 -> 1, 2 and 3 -> 2, ...
    width = int(like["degree"]) if like is not None else int(place.max()) + 1
    place = np.minimum(place, width - 1)
    ones = np.ones(size, dtype=np.float32)
    matrix = sp.csr_array((ones, place, np.arange(size + 1)), shape=(size, width))
    note = (
        f"there are no features, and {size:,} nodes are too many for one feature per node, so the logarithm "
        f"of the degree is used ({width} features): provide features if you can"
    )
    return Features(matrix, (note,), {"degree": width})


def joined(parts: Sequence[Features], keep: Keep = in_memory) -> Features:
    if len(parts) == 1:
        return parts[0]
    matrices = [part.matrix for part in parts]
    sparse = any(map(is_sparse, matrices))
    matrix = sp.hstack(list(map(sp.csr_array, matrices)), "csr") if sparse else keep(row_blocks(*matrices))
    notes = tuple(note for part in parts for note in part.notes)
    return Features(matrix, notes, {key: value for part in parts for key, value in part.recipe.items()})
