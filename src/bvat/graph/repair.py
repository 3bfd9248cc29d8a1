"""From arrays of all kinds to the clean tensors that a graph holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from bvat.engine.dense import DenseMatrix
from bvat.engine.sparse import SparseMatrix, SymmetricMatrix
from bvat.errors import GraphError
from bvat.graph.inputs import FeatureMatrix
from bvat.graph.targets import label_sets, refuse_one_hot
from bvat.graph.validation import LARGEST


def normalize_rows(features: FeatureMatrix) -> FeatureMatrix:
    """Divide each row by the sum of its absolute values; rows of zeros stay as they are.

    For non-negative features this is the row normalisation of the paper. Signed features could sum to
    nearly nothing, so the absolute values are what counts.
    """
    total = features.row_sums()
    return features.divide_rows(total.clamp_min(torch.finfo(total.dtype).tiny))


def repaired_adjacency(adjacency: Any, *, directed: bool = False) -> tuple[SparseMatrix, dict[str, int]]:
    """Return A without self-loops, directions and duplicate entries, and how many of each were met.

    ``unequal_weights`` counts edges whose two directions have different weights.

    An edge given in both directions counts once; where the two directions carry different weights the larger
    one is kept. Duplicate entries of one direction are merged, their largest weight is kept. With
    ``directed``, directions stay, and the result is not a :class:`SymmetricMatrix`.

    Shapes: adjacency (N, N) scipy matrix; result (N, N).
    """
    try:
        coo = sp.coo_array(adjacency)
    except ValueError as error:  # scipy finds row or column numbers outside the matrix
        raise GraphError(
            f"an edge points at a node that does not exist ({error}): remove it or add the node"
        ) from error
    if coo.shape[0] != coo.shape[1]:
        raise GraphError(f"the adjacency matrix is {coo.shape[0]} x {coo.shape[1]}: it must be square")
    size = coo.shape[0]
    row, col, weight = coo.row.astype(np.int64), coo.col.astype(np.int64), coo.data.astype(np.float64)
    stored = weight != 0
    row, col, weight = row[stored], col[stored], weight[stored]
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise GraphError("an edge weight is negative, NaN or infinite: use positive weights")
    loops = row == col
    row, col, weight = row[~loops], col[~loops], weight[~loops]
    opposite = (row[:0], weight[:0]) if directed else (col * size + row, weight)
    key, kept, counts = merge_directions(row * size + col, weight, *opposite)
    matrix = (
        sp.csr_array((kept, (key // size, key % size)), shape=coo.shape) if size else sp.csr_array(coo.shape)
    )
    plain = SparseMatrix.from_scipy(matrix)
    return plain if directed else SymmetricMatrix.of(plain), {"self_loops": int(loops.sum()), **counts}


def merge_directions(
    given: NDArray[np.int64],
    weight: NDArray[np.float64],
    opposite: NDArray[np.int64],
    opposite_weight: NDArray[np.float64],
) -> tuple[NDArray[Any], NDArray[Any], dict[str, int]]:
    """Return each entry of A once, in ascending order, its weight, and how many edges were merged.

    The entry (i, j) is the number ``i N + j``. The rows may be all or some rows of A.

    Args:
        given: the edges that begin in these rows, (n).
        weight: their weights, (n).
        opposite: the edges that end in these rows, turned round, (m); none if edges keep their direction.
        opposite_weight: their weights, (m).
    """
    distinct, heaviest = _largest(given, weight)
    both = np.concatenate([distinct, opposite]), np.concatenate([heaviest, opposite_weight])
    key, kept = _largest(*both)
    counts = {
        "duplicate_edges": int(given.size - distinct.size),
        "one_way_edges": int(key.size - distinct.size),
        "unequal_weights": int((heaviest < kept[np.searchsorted(key, distinct)]).sum()),
    }
    return key, kept, counts


def as_attributes(attributes: Any, edges: int) -> NDArray[np.float64]:
    """Return one row of finite numbers per edge, (E, F); attributes (E) or (E, F)."""
    given = attributes.detach().cpu().numpy() if isinstance(attributes, Tensor) else np.asarray(attributes)
    if given.dtype.kind not in "biuf" or given.ndim not in (1, 2):
        raise GraphError("edge attributes must be numbers of shape (E, F): give one row per edge")
    given = (given[:, None] if given.ndim == 1 else given).astype(np.float64)
    if len(given) != edges or not given.shape[1]:
        raise GraphError(
            f"there are {edges} edges, but edge attributes of shape {given.shape}: give one row per edge"
        )
    bad = np.argwhere(~(np.abs(given) <= LARGEST))
    if bad.size:
        raise GraphError(
            f"attribute {bad[0][1]} of edge {bad[0][0]} is NaN, infinite or beyond {LARGEST:g}: fill it in"
        )
    return given


def merged_attributes(edges: Any, given: Any, matrix: SparseMatrix) -> tuple[Tensor | None, int]:
    """Return the attributes of the entries of a repaired adjacency, and how many edges had different ones.

    Those of an edge that is given several times, or in both directions, are the mean.

    Shapes: edges scipy (N, N) as given to :func:`repaired_adjacency`, given (E, F) in the order of its COO
    form, matrix (N, N) what came out, result (nnz, F).
    """
    if given is None:
        return None, 0
    coo, size = sp.coo_array(edges), edges.shape[0]
    values = as_attributes(given, coo.nnz)

    def key_of(row: Any, col: Any) -> Any:
        row, col = row.astype(np.int64), col.astype(np.int64)
        return np.minimum(row, col) * size + np.maximum(row, col) if matrix.symmetric else row * size + col

    kept = (coo.data != 0) & (coo.row != coo.col)
    keys, group = np.unique(key_of(coo.row[kept], coo.col[kept]), return_inverse=True)
    values = values[kept]
    low, high = (np.full((keys.size, values.shape[1]), limit) for limit in (np.inf, -np.inf))
    np.minimum.at(low, group, values)
    np.maximum.at(high, group, values)
    mean = np.zeros_like(low)
    np.add.at(mean, group, values)
    mean = np.where(low == high, low, mean / np.bincount(group, minlength=keys.size)[:, None])
    entry = np.searchsorted(keys, key_of(matrix.rows.numpy(), matrix.col.numpy()))
    return torch.from_numpy(mean[entry]).to(matrix.dtype), int((low != high).any(1).sum())


def _largest(key: NDArray[np.int64], weight: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return each key (n) once, in ascending order, and its largest weight."""
    if not key.size or (weight == weight[0]).all():  # sorting numbers alone takes a tenth of the time
        key = np.sort(key)
        found = key[np.r_[True, key[1:] != key[:-1]]] if key.size else key
        return found, weight[: found.size].copy()
    order = np.lexsort((-weight, key))
    found, first = np.unique(key[order], return_index=True)
    return found, weight[order][first]


def edge_recipe(recipe: Mapping[str, Any], attributes: Tensor | None, *, directed: bool) -> dict[str, Any]:
    """Return a recipe that says whether edges have directions, and names their attributes (nnz, F)."""
    found = {key: value for key, value in recipe.items() if key not in ("directed", "edge_attr")}
    if directed:
        found["directed"] = True
    if attributes is not None:
        found["edge_attr"] = recipe.get("edge_attr", {"names": [str(k) for k in range(attributes.shape[1])]})
    return found


def as_features(features: Any) -> FeatureMatrix:
    """Return features in whatever form as a matrix of bvat's own, (N, D)."""
    if isinstance(features, FeatureMatrix):
        return features
    if sp.issparse(features):
        return SparseMatrix.from_scipy(features)
    if isinstance(features, Tensor):
        return DenseMatrix(features.detach().to(torch.float32, copy=True))
    return DenseMatrix(torch.from_numpy(np.array(features, dtype=np.float32)))


def as_labels(values: Any) -> Tensor:
    """Return a copy of class numbers (N), or of several labels per node (N, C), as int64."""
    given = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    if given.ndim == 2 and given.shape[1] > 1:
        found = label_sets(given)
        refuse_one_hot(found)
        return torch.from_numpy(found)
    return as_integers("labels", given)


def as_integers(what: str, values: Any) -> Tensor:
    """Return a copy as int64 (n): a graph must not change when the caller's arrays do."""
    given = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    if given.dtype == np.bool_:
        raise GraphError(f"{what} must be numbers, not true or false: use the positions of the true ones")
    if given.ndim != 1:
        raise GraphError(f"{what} must be a flat list, not of shape {given.shape}: give one number per node")
    if given.size and not (
        np.issubdtype(given.dtype, np.number)
        and np.isfinite(given).all()
        and (given == np.trunc(given)).all()
    ):
        raise GraphError(f"{what} must be whole numbers: number the classes and the nodes from 0")
    return torch.from_numpy(given.astype(np.int64))
