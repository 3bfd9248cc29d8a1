"""Read arrays and matrices from ``.npz`` and ``.npy`` files, without pickle and checking every index."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bvat.data.npz import ObjectArray, read_npy, read_npz
from bvat.engine.matrix import check_csr
from bvat.errors import GraphError
from bvat.graph.validation import LARGEST, validate_columns

_ROWS = 2**16
"""Rows that are checked at once."""


def is_sparse(matrix: Any) -> bool:
    return bool(sp.issparse(matrix))


def read_arrays(path: Path, *optional: str, mapped: bool = False) -> dict[str, Any]:
    """Return the arrays of an ``.npz`` or ``.npy`` file; reject arrays that need pickle.

    ``optional`` arrays that need pickle are skipped instead. With ``mapped`` that of an ``.npy`` file stays
    on disk.
    """
    kind = path.suffix.lower()
    try:
        if kind == ".npy":
            return {path.stem: read_npy(path, mapped=mapped)}
        return read_npz(path.read_bytes(), optional)
    except OSError as error:
        raise GraphError(f"{path} cannot be read ({error.strerror}): check the file") from None
    except ObjectArray as array:
        raise GraphError(
            f"{path}, array {str(array)!r}: it contains Python objects, which can run code when loaded: save "
            "it as plain numbers or text"
        ) from None
    except ValueError as error:
        raise GraphError(f"{path} is not a readable {kind} file ({error}): save it again") from None


def csr_of(arrays: Mapping[str, Any], path: Path, prefix: str = "") -> Any:
    """Build a CSR matrix from ``data``, ``indices``, ``indptr``, ``shape``, each with a prefix.

    Shapes: result of the stored ``shape``, float64.
    """
    names = [prefix + part for part in ("data", "indices", "indptr", "shape")]
    for name in names:
        if name not in arrays:
            raise GraphError(f"{path}: there is no array {name!r}: save the matrix in scipy's CSR format")
    try:
        data, indices, pointers, claimed = (arrays[name] for name in names)
        shape = _shape(claimed)
        check_csr(pointers, indices, data, shape)
        whole = indices.astype(np.int64), pointers.astype(np.int64)
        return sp.csr_array((data.astype(np.float64), *whole), shape=shape)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise GraphError(f"{path}: {prefix or 'the matrix'} is invalid ({error}): save it again") from None


def read_features(path: Path, rows: int | None, *, mapped: bool = False) -> Any:
    """Return the matrix (rows, D) that ``numpy.save`` or ``scipy.sparse.save_npz`` wrote: float32, finite.

    A file can claim any shape in a few bytes, so it is compared with the number of nodes, where that is
    known, before memory is allocated for it. With ``mapped``, an array stays on disk, in the type it has.

    Shapes: result an array (``.npy``) or CSR (``.npz``).
    """
    arrays = read_arrays(path, mapped=mapped)
    plain = arrays[path.stem] if path.suffix.lower() == ".npy" else None
    claimed = None if plain is None else plain.shape
    with suppress(ValueError):  # what is not a shape is reported below
        claimed = _shape(arrays["shape"]) if plain is None and "shape" in arrays else claimed
    if claimed is not None and (len(claimed) != 2 or 0 in claimed or claimed[0] != (rows or claimed[0])):
        nodes = "" if rows is None else f", but there are {rows} nodes"
        hint = ' (blank lines do not count: write "" for an unknown label)'
        blank = hint if rows and rows < claimed[0] else ""
        raise GraphError(
            f"{path} has shape {claimed}{nodes}: give one row per node, in the order of the labels{blank}"
        )
    if plain is not None:
        _check_finite(plain, path, "the matrix")
        return plain if mapped else plain.astype(np.float32, copy=False)
    if arrays.get("format", np.array("")).tolist() not in (b"csr", "csr"):
        raise GraphError(
            f"{path} does not contain a CSR matrix: write it with scipy.sparse.save_npz(path, matrix.tocsr())"
        )
    return finite(csr_of(arrays, path), path, "the matrix")


def finite(matrix: Any, path: Path | str, what: str, rows: int | None = None) -> Any:
    """Return a matrix (rows, D) as float32; raise GraphError if an entry is NaN, infinite or huge."""
    if rows is not None and (matrix.ndim != 2 or matrix.shape[0] != rows or 0 in matrix.shape):
        raise GraphError(
            f"{path}: {what} has shape {matrix.shape}, but there are {rows} nodes: give one row per node"
        )
    _check_finite(matrix, path, what)
    return matrix.astype(np.float32, copy=False)


def _check_finite(matrix: Any, path: Path | str, what: str) -> None:
    if matrix.dtype.kind not in "biuf":
        raise GraphError(f"{path}: {what} is not numeric: save it as numbers")
    values = matrix.data if is_sparse(matrix) else matrix
    validate_columns(matrix.shape[1], values.size, f"{path}: ")
    limit = np.float64(LARGEST)
    for start in range(0, len(values), _ROWS):  # without a copy of the matrix
        some = values[start : start + _ROWS]
        bad = np.argwhere(~((some >= -limit) & (some <= limit)))
        if not bad.size:
            continue
        if is_sparse(matrix):
            row = int(np.searchsorted(matrix.indptr, start + bad[0, 0], side="right")) - 1
            column = int(matrix.indices[start + bad[0, 0]])
        else:
            row, column = start + int(bad[0, 0]), int(bad[0, 1])
        raise GraphError(
            f"{path}: {what} is NaN, infinite or beyond {LARGEST:g} in row {row + 1}, column {column + 1}: "
            "fill it in or rescale it"
        )


def _shape(given: Any) -> tuple[int, int]:
    sizes = np.atleast_1d(given)
    if sizes.shape != (2,) or sizes.dtype.kind not in "iu" or not all(0 <= size < 2**31 for size in sizes):
        raise ValueError(f"the shape is {sizes.tolist()}")
    return int(sizes[0]), int(sizes[1])
